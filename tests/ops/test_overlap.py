"""Results that overlap an operand are refused."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from hypothesis import given, strategies as st  # noqa: E402

from cutepy.ops import gemm  # noqa: E402
from cutepy.ops.checking import check_apart, may_overlap  # noqa: E402
from tests.ops import operations  # noqa: E402

POOL = torch.zeros(512, dtype=torch.uint8)


@st.composite
def views(draw):
    """A tensor of rank 1 to 3 somewhere in the pool, of 1 or 2-byte elements, its strides of any order."""
    dtype = draw(st.sampled_from([torch.uint8, torch.float16]))
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    strides = [draw(st.integers(0, 16)) for _ in shape]
    last = sum(max(extent - 1, 0) * stride for extent, stride in zip(shape, strides, strict=True))
    pool = POOL.view(dtype)
    return pool.as_strided(shape, strides, draw(st.integers(0, pool.numel() - 1 - last)))


def bytes_of(tensor):
    numbers = torch.arange(POOL.numel() // tensor.itemsize).as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset()
    )
    return {tensor.itemsize * n + k for n in numbers.flatten().tolist() for k in range(tensor.itemsize)}


def refused(out, tensor):
    try:
        check_apart("out", out, {"b": tensor})
    except ValueError as error:
        assert str(error).startswith("out must share no memory with b")
        return True
    return False


@given(views(), views())
def test_what_shares_a_byte_is_refused_and_what_lies_apart_is_not(out, tensor):
    written, read = bytes_of(out), bytes_of(tensor)
    if written & read:
        assert refused(out, tensor)
    elif not written or not read or max(written) < min(read) or max(read) < min(written):
        assert not refused(out, tensor)


def test_blocks_of_one_matrix_are_told_apart():
    matrix = torch.zeros(8, 64)
    assert not refused(matrix[:, :32], matrix[:, 32:])
    assert refused(matrix[:, :33], matrix[:, 32:])
    assert not refused(matrix[:, :32], matrix[:, 40:41])
    column = matrix[:, 40:41].as_strided((8, 1), (48, 1))  # with a pitch of its own
    assert refused(matrix[:, :32], column)
    assert refused(column, matrix[:, :32])


@pytest.mark.parametrize("dispatched", [False, True])
def test_a_refused_result_keeps_its_version(dispatched):
    """A tensor that autograd has saved keeps its version."""

    def multiply(a, b, out):
        if dispatched:
            operations.gemm_out(a, b, None, None, out)
        else:
            gemm(a, b, out=out)

    a, b, square = torch.ones(4, 8).half(), torch.ones(8, 8).half(), torch.zeros(8, 8).half()
    out = square[:4]
    before = out._version
    for wrong_a, wrong_out in (
        (torch.ones(4, 9).half(), out),
        (a, square),
        (square, square),
    ):
        with refuses(ValueError):
            multiply(wrong_a, b, wrong_out)
    assert out._version == before
    multiply(a, b, out)
    assert out._version > before
    assert torch.equal(out, torch.full((4, 8), 8.0).half())


def half(*shape):
    return torch.zeros(shape, dtype=torch.float16)


def test_c_itself_may_be_written_to_and_no_part_of_it():
    whole, wide = half(64, 64), half(64, 128)
    check_apart("out", whole, {"a": half(64, 64), "c": whole}, {"c"})
    for out, c in (
        (wide[:, 32:96], wide[:, :64]),
        (whole.T, whole),
        (whole, whole.view(torch.bfloat16)),
        (whole, whole[:1]),
    ):
        with refuses(ValueError):
            check_apart("out", out, {"c": c}, {"c"})
    with refuses(ValueError):
        check_apart("out", whole, {"a": whole, "c": whole}, {"c"})


@pytest.mark.parametrize("transposed", [False, True])
def test_overlap_is_exact_for_blocks_of_one_matrix(transposed):
    def overlap(x, y):
        return may_overlap(x.t(), y.t()) if transposed else may_overlap(x, y)

    whole = half(16, 64)
    for first in range(0, 48, 8):
        for second in range(0, 48, 8):
            x, y = whole[2:9, first : first + 16], whole[3:8, second : second + 16]
            assert overlap(x, y) == (abs(first - second) < 16)
    assert not overlap(whole[:4], whole[4:])
    assert overlap(whole[:5], whole[4:])
    assert overlap(whole, whole[3:4, 5:6])
    assert not overlap(whole[:0], whole)
    assert overlap(whole, whole.view(32, 32))


def test_overlap_of_batches_is_told_by_their_rows():
    buffer = half(3, 16, 64)
    for first in range(0, 48, 8):
        x, y = buffer[..., :16], buffer[..., first : first + 16]
        assert may_overlap(x, y) == (first < 16)
    assert not may_overlap(buffer[:1], buffer[1:])
    assert may_overlap(buffer[:2], buffer[1:])
    assert may_overlap(buffer[..., :16].transpose(0, 1), buffer[..., 16:32].transpose(0, 1))  # no view joins their rows
