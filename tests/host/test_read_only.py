"""Arrays that may not be written to, by numpy's flag or DLPack's: inputs of every kind of argument, outputs of none."""

import ctypes

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy import PointerSpec, TensorSpec  # noqa: E402
from cutepy.frontends import serve_cuda  # noqa: E402
from cutepy.frontends.stream_state import CaptureError  # noqa: E402
from cutepy.host.arguments import ArgumentError  # noqa: E402
from cutepy.host.copies import HostCopies  # noqa: E402
from cutepy.runtime.device_tensors import is_read_only  # noqa: E402
from tests.host import kernels, structures  # noqa: E402

pytestmark = pytest.mark.dsl
SPEC = TensorSpec("float32", (32,), align=4)


class Foreign:
    """An array of another library, which shows its memory by DLPack alone, with or without flags."""

    def __init__(self, array, version=(1, 0)):
        self.array, self._version = array, version

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.array.__dlpack__(max_version=self._version if max_version else None)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class BeforeFlags:
    """One by DLPack before 1.0, which knows no flags and takes no version."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Flagged:
    """A tensor of the served device, as a library of immutable arrays on a GPU shows it."""

    def __init__(self, tensor):
        self.array = tensor

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        capsule = self.array.__dlpack__(max_version=(1, 0))
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_uint64.from_address(pointer(capsule, b"dltensor_versioned") + 24).value |= 1
        return capsule

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def frozen(array):
    array.flags.writeable = False
    return array


PRODUCERS = {"numpy": lambda x: x, "dlpack": Foreign}


def as_vectors(x, y):
    cutepy.compile(structures.of_tensors, SPEC, SPEC)(x, y)


def as_a_pair(x, y):
    matrix = TensorSpec("float32", (32, 1), align=4)
    x, y = (_column(a) for a in (x, y))
    cutepy.compile(kernels.copy_pair, (matrix, matrix))((x, y))


def _column(x):
    if isinstance(x, np.ndarray):
        return x.reshape(32, 1)
    return Foreign(x.array.reshape(32, 1))


def in_structures(x, y):
    made = cutepy.compile(structures.of_outer, structures.Outer(structures.Inner(SPEC, 1), SPEC, 1.0))
    made(structures.Outer(structures.Inner(x, 1), y, 1.0))


def by_pointers(x, y):
    made = cutepy.compile(structures.of_pointers, PointerSpec("float32"), PointerSpec("float32"), 1)
    made(x, y, 1)


def uncompiled(x, y):
    structures.of_tensors(x, y)


ARGUMENTS = [as_vectors, as_a_pair, in_structures, by_pointers, uncompiled]


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("call", ARGUMENTS)
def test_a_read_only_array_is_an_input(call, producer):
    given, out = frozen(np.arange(32, dtype=np.float32)), np.zeros(32, np.float32)
    with cutepy.simulate():
        call(PRODUCERS[producer](given), out)
    assert (out == given * (2 if call is by_pointers else 1)).all()


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("call", ARGUMENTS)
def test_a_function_that_writes_to_one_is_refused_and_changes_nothing(call, producer):
    given, out = np.arange(32, dtype=np.float32), frozen(np.full(32, 7, np.float32))
    with cutepy.simulate(), pytest.raises(ArgumentError, match="wrote to an array that is read-only"):
        call(given, PRODUCERS[producer](out))
    assert (out == 7).all()


def test_arrays_without_the_flag_are_written_to():
    given = np.arange(32, dtype=np.float32)
    for make in (Foreign, BeforeFlags, lambda x: Foreign(x, version=None), torch.from_numpy):
        out = np.zeros(32, np.float32)
        assert not is_read_only(make(out))
        with cutepy.simulate():
            as_vectors(given, make(out))
        assert (out == given).all()


def test_the_flag_counts_and_no_other_bit():
    class Copied(Flagged):
        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(max_version=(1, 0), copy=True)  # has DLPACK_FLAG_BITMASK_IS_COPIED

    x = np.zeros(4, np.float32)
    assert [is_read_only(each) for each in (Flagged(torch.zeros(4)), Copied(x), torch.zeros(4), 3, None)] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_memory_that_is_mapped_for_reading_is_an_input(tmp_path):
    np.arange(32, dtype=np.float32).tofile(tmp_path / "data")
    mapped = np.memmap(tmp_path / "data", dtype=np.float32, mode="r")
    out = np.zeros(32, np.float32)
    for call in ARGUMENTS:
        with cutepy.simulate():
            call(mapped, out)
            with pytest.raises(ArgumentError, match="read-only"):
                call(out + 1, mapped)
    assert (mapped == np.arange(32)).all()


def test_memory_shared_with_a_tensor_is_shared_in_the_copies():
    """Who passes a tensor of the same memory lets the function write there, and both are to see it."""
    base = np.zeros(32, np.float32)
    view = frozen(base[:])
    copies = HostCopies((view, (torch.from_numpy(base)[8:],)), "cpu", read_only=True)
    array, (tensor,) = copies.arguments
    tensor[0] = 5
    assert array[8] == 5
    copies.bring_back()
    assert view[8] == 5
    copies.arguments[0][3] = 1
    with pytest.raises(ArgumentError, match="read-only"):
        copies.bring_back()


def test_arrays_of_the_device_that_may_not_be_written_to():
    f = cutepy.compile(structures.of_tensors, SPEC, SPEC)
    with serve_cuda():
        x, y = torch.arange(32.0, device="cuda"), torch.zeros(32, device="cuda")
        f(Flagged(x), y)
        assert torch.equal(x, y)
        with pytest.raises(ArgumentError, match="read-only"):
            f(y + 1, Flagged(x))
        assert torch.equal(x, y)


def test_a_capture_of_one_is_refused_as_copies_to_the_host_are():
    f = cutepy.compile(structures.of_tensors, SPEC, SPEC)
    with serve_cuda():
        y = torch.zeros(32, device="cuda")
        f(y, y)
        with pytest.raises(CaptureError), torch.cuda.graph(torch.cuda.CUDAGraph()):
            f(frozen(np.zeros(32, np.float32)), y)


def test_on_the_road_to_a_gpu(monkeypatch):
    """The first call and those that compiled code refused look at the flag too; the copies are kept on the CPU here."""
    f = cutepy.compile(structures.of_tensors, SPEC, SPEC)
    launched = []
    monkeypatch.setattr(type(f), "_require_cuda", lambda function: None)
    monkeypatch.setattr("cutepy.host.function.HostCopies", lambda given, device: HostCopies(given, "cpu"))
    monkeypatch.setattr(type(f), "__call__", lambda function, x, y: launched.append(y.fill_(3)))
    for call in (lambda *a: f._prepare_and_launch(*a), lambda *a: f._recover(TypeError("another"), a)):
        out = frozen(np.zeros(32, np.float32))
        with pytest.raises(ArgumentError, match="read-only"):
            call(np.zeros(32, np.float32), Foreign(out))
        assert (out == 0).all()
    assert len(launched) == 2
