"""Arrays that may not be written to, by numpy's flag or DLPack's: inputs of every kind of argument, outputs of none."""

import contextlib
import ctypes

import numpy as np
import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutlass import cute  # noqa: E402
from cutlass.cute.runtime import from_dlpack  # noqa: E402

import cutepy  # noqa: E402
from cutepy import PointerSpec, TensorSpec  # noqa: E402
from cutepy.frontends import serve_cuda  # noqa: E402
from cutepy.frontends.stream_state import CaptureError  # noqa: E402
from cutepy.host.arguments import ArgumentError  # noqa: E402
from cutepy.host.copies import HostCopies  # noqa: E402
from cutepy.runtime.device_tensors import is_read_only  # noqa: E402
from cutepy.sim import MemoryAccessError  # noqa: E402
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
CALLS = pytest.mark.parametrize(
    ("call", "producer"), [*((call, "numpy") for call in ARGUMENTS), (as_vectors, "dlpack"), (uncompiled, "dlpack")]
)


@CALLS
def test_a_read_only_array_is_an_input(call, producer):
    given, out = frozen(np.arange(32, dtype=np.float32)), np.zeros(32, np.float32)
    with cutepy.simulate():
        call(PRODUCERS[producer](given), out)
    assert (out == given * (2 if call is by_pointers else 1)).all()


@CALLS
def test_a_function_that_writes_to_one_is_refused_and_changes_nothing(call, producer):
    given, out = np.arange(32, dtype=np.float32), frozen(np.full(32, 7, np.float32))
    with cutepy.simulate(), refuses(ArgumentError):
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
            with refuses(ArgumentError):
                call(out + 1, mapped)
    assert (mapped == np.arange(32)).all()


def test_memory_that_is_shared_with_a_tensor_may_be_written_to():
    """A tensor of the same memory makes its part writable, and leaves the rest of the array read-only."""
    base = np.arange(64, dtype=np.float32)
    view = frozen(base[:32])
    with cutepy.simulate():
        as_vectors(view, torch.from_numpy(base)[:32])
        as_vectors(view, torch.from_numpy(base)[16:48])
        with refuses(ArgumentError):
            as_vectors(torch.from_numpy(base)[32:], Foreign(view))


@CALLS
def test_a_store_of_the_bytes_that_are_there_is_a_store(call, producer):
    given, out = np.zeros(32, np.float32), frozen(np.zeros(32, np.float32))
    with cutepy.simulate() as run, refuses(ArgumentError) as caught:
        call(given, PRODUCERS[producer](out))
    assert isinstance(caught.value, MemoryAccessError)
    assert caught.value.instruction.parts[0] == "st"
    assert len(run.launches) == 1


def test_the_flag_is_that_of_the_call():
    """An array may become read-only, or writable again, between two calls of a run."""
    given, out = np.zeros(32, np.float32), np.zeros(32, np.float32)
    with cutepy.simulate():
        for writable in (True, False, True):
            out.flags.writeable = writable
            with contextlib.nullcontext() if writable else refuses(ArgumentError):
                as_vectors(given, out)


def test_tensors_of_the_dsl_ask_the_array_they_were_made_of():
    given, out = np.zeros(32, np.float32), np.zeros(32, np.float32)
    with cutepy.simulate():
        x, y = from_dlpack(given), from_dlpack(out)
        compiled = cute.compile(structures.of_tensors, x, y)
        packed = cute.compile(structures.of_tensors, x, y, options="--enable-tvm-ffi")
        for call, arguments in (
            (structures.of_tensors, (x, y)),
            (structures.of_tensors, (x, from_dlpack(Foreign(frozen(np.zeros(32, np.float32)))))),
            (compiled, (x, y)),
            (packed, (given, out)),
        ):
            out.flags.writeable = True
            if arguments[1] is y or arguments[1] is out:
                call(*arguments)
            out.flags.writeable = False
            with refuses(ArgumentError):
                call(*arguments)


def test_arrays_of_the_device_that_may_not_be_written_to():
    f = cutepy.compile(structures.of_tensors, SPEC, SPEC)
    with serve_cuda():
        x, y = torch.arange(32.0, device="cuda"), torch.zeros(32, device="cuda")
        f(Flagged(x), y)
        assert torch.equal(x, y)
        with refuses(ArgumentError):
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
        with refuses(ArgumentError):
            call(np.zeros(32, np.float32), Foreign(out))
        assert (out == 0).all()
    assert len(launched) == 2


def test_schedules_put_nothing_into_memory_that_is_mapped_for_reading(tmp_path):
    np.arange(32, dtype=np.float32).tofile(tmp_path / "data")
    mapped, out = np.memmap(tmp_path / "data", dtype=np.float32, mode="r"), np.zeros(32, np.float32)
    with cutepy.simulate(sanitize=True, schedules=3, replay=True):
        as_vectors(mapped, out)
    assert (out == np.arange(32)).all()


def test_registered_arrays_are_inputs_while_they_are_read_only():
    made = cutepy.compile(structures.of_pointers, PointerSpec("float32"), PointerSpec("float32"), 1)
    given, base = np.zeros(32, np.float32), np.zeros(64, np.float32)
    out = frozen(base[32:])
    with cutepy.simulate() as run:
        run.register(out)
        with refuses(MemoryAccessError):
            made(given, out.ctypes.data, 1)
        run.register(base)
        made(given, out.ctypes.data, 1)
