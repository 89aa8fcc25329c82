"""Arrays in host memory as arguments: what is copied, and what is brought back."""

import numpy as np
import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from cutepy.host.arguments import ArgumentError  # noqa: E402
from cutepy.host.copies import HostCopies  # noqa: E402


def test_one_array_in_two_places_has_one_copy():
    x = np.arange(4, dtype=np.float32)
    copies = HostCopies((x, 2.0, x), "cpu")
    out, factor, given = copies.arguments
    out.copy_(factor * given)
    assert x.tolist() == [0, 1, 2, 3], "the array itself waits"
    copies.bring_back()
    assert x.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("offset", [1, 2, 15])
def test_arrays_that_share_memory_do_so_in_their_copies(offset):
    base = np.arange(1, 65, dtype=np.float32)
    first, second = base[:32].reshape(4, 8)[:, :3], base[offset:][:32]
    copies = HostCopies((second, (first, None)), "cpu")
    there, (here, none) = copies.arguments
    assert none is None
    assert here.data_ptr() - there.data_ptr() == -4 * offset
    assert here.data_ptr() % 512 == first.__array_interface__["data"][0] % 512
    assert (here.tolist(), there.tolist()) == (first.tolist(), second.tolist())
    there.copy_(torch.arange(32))
    expected = np.arange(1, 65, dtype=np.float32)
    expected[offset:][:32] = np.arange(32)
    copies.bring_back()
    assert (base == expected).all()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_arrays_nested_in_one_share_its_copy(order):
    """The second lies within the first, and ends before the third begins, which the first reaches over too."""
    base = np.arange(64, dtype=np.float32)
    arrays = base, base[8:16], base[32:40]
    copies = HostCopies([arrays[n] for n in order], "cpu")
    whole, early, late = (copies.arguments[order.index(n)] for n in range(3))
    whole[33], late[0], early[1] = -1, -2, -3
    assert (late.tolist()[:2], whole[32], whole[9]) == ([-2, -1], -2, -3)
    copies.bring_back()
    assert (base[32], base[33], base[9]) == (-2, -1, -3)


def test_arrays_that_touch_share_nothing():
    base = np.zeros(16, np.float32)
    copies = HostCopies((base[:8], base[8:]), "cpu")
    first, second = copies.arguments
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    first.fill_(1)
    second.fill_(2)
    copies.bring_back()
    assert base.tolist() == [1] * 8 + [2] * 8


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1,), (0, 4)])
def test_extents_of_0_and_1_are_copied(shape):
    array = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape) + 5
    copies = HostCopies((array,), "cpu")
    assert copies.arguments[0].tolist() == array.tolist()
    copies.arguments[0].add_(1)
    expected = (array + 1).tolist()
    copies.bring_back()
    assert array.tolist() == expected


def test_gaps_between_elements_are_left_alone():
    """Another thread may write to them meanwhile."""
    base = np.zeros((4, 8), dtype=np.int16)
    copies = HostCopies((base[:, :3],), "cpu")
    copies.arguments[0].fill_(1)
    base[:, 3:] = 7
    copies.bring_back()
    assert (base[:, :3] == 1).all()
    assert (base[:, 3:] == 7).all()


def test_an_array_that_did_not_change_is_not_written():
    """So an input is never written to, whatever became of it meanwhile; and not a number is equal to itself."""
    x = np.full(4, np.nan, dtype=np.float16)
    copies = HostCopies((x,), "cpu")
    x[0] = 1
    copies.bring_back()
    assert x[0] == 1


def read_only(values):
    values.flags.writeable = False
    return values


def test_read_only_arrays_are_inputs(tmp_path):
    np.arange(8, dtype=np.float32).tofile(tmp_path / "data")
    mapped = np.memmap(tmp_path / "data", dtype=np.float32, mode="r")
    for x in (read_only(np.arange(8, dtype=np.float32)), mapped, np.broadcast_to(np.float32(1), (8,))):
        copies = HostCopies((x,), "cpu")
        assert copies.arguments[0].tolist() == x.tolist()
        copies.bring_back()
    for x in (read_only(np.arange(8, dtype=np.float32)), mapped):
        copies = HostCopies((x,), "cpu")
        copies.arguments[0][3] = -1
        with refuses(ArgumentError):
            copies.bring_back()
        assert x[3] == 3


def test_a_read_only_view_of_an_array_that_is_written_to():
    x = np.zeros(8, dtype=np.float32)
    view = read_only(x[:])
    copies = HostCopies((view, x), "cpu")
    copies.arguments[1][2] = 5
    assert copies.arguments[0][2] == 5
    copies.bring_back()
    assert view[2] == 5


def test_empty_arrays_and_other_libraries():
    tensor = torch.zeros(4, dtype=torch.bfloat16)

    class Foreign:
        def __dlpack__(self, **keywords):
            return tensor.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return tensor.__dlpack_device__()

    copies = HostCopies((np.zeros((0, 3)), Foreign()), "cpu")
    assert copies.arguments[0].shape == (0, 3)
    copies.arguments[1].fill_(2)
    copies.bring_back()
    assert (tensor == 2).all()


def test_negative_strides_are_told():
    with refuses(ArgumentError):
        HostCopies((np.arange(4.0)[::-1],), "cpu")
