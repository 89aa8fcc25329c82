"""`cutepy.compile`: examples, calls in the simulator, errors, and the disk cache."""

import functools
import subprocess
import sys
import textwrap
import threading

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cuda.bindings.driver import CUstream

import cutepy
from cutepy.host.arguments import ArgumentError
from cutepy.host.function import Function, WrongDeviceError, WrongEntryError
from cutepy.host.specs import TensorSpec
from cutepy.host.store import Entry
from cutepy.runtime.objects import WrongMachineError
from tests.host import kernels
from tests.messages import refuses

pytestmark = pytest.mark.dsl

VECTOR = TensorSpec("float32", ("n",), divisibility={"n": 4})


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def add():
    return cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)


def vectors(n):
    return [torch.randn(n) for _ in range(3)]


def test_one_compiled_function_takes_all_extents(add):
    for n in (4, 128, 1000):
        a, b, c = vectors(n)
        with cutepy.simulate() as run:
            add(a, b, c, 0.5)
        torch.testing.assert_close(c, a + 0.5 * b)
        assert [launch.grid for launch in run.launches] == [(-(-n // 128), 1, 1)]


def test_numbers_and_arrays_and_names(add):
    a, b, c = (np.ones(16, np.float32) for _ in range(3))
    with cutepy.simulate():
        add(a, b, scale=2, c=c)
    np.testing.assert_array_equal(c, 3)


def test_constants_are_compiled_in():
    add = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, bias=5.0, cache=False)
    assert [parameter.name for parameter in add.parameters] == ["a", "b", "c", "scale"]
    a, b, c = vectors(8)
    with cutepy.simulate():
        add(a, b, c, 1.0)
    torch.testing.assert_close(c, a + b + 5)


def test_none_stays_none():
    matrix = TensorSpec("float16", ("m", "n"), stride_order=(0, 1))
    copy = cutepy.compile(kernels.copy, matrix, None, cache=False)
    x = torch.randn(8, 32).half().T
    with cutepy.simulate():
        copy(x, None)
        with refuses(TypeError):
            copy(x, x)


def test_stride_order_is_the_dsls():
    matrix = TensorSpec("float16", (32, "n"), stride_order=(0, 1))
    copy = cutepy.compile(kernels.copy, matrix, TensorSpec("float16", (32, "n")), cache=False)
    x, y = torch.randn(8, 32).half().T, torch.zeros(32, 8).half()
    with cutepy.simulate():
        copy(x, y)
        assert torch.equal(x, y)
        with refuses(ArgumentError):
            copy(x.contiguous(), y)


def test_tensors_stand_for_their_exact_layout():
    x, y = torch.randn(32, 24)[:, :8], torch.zeros(32, 8)
    copy = cutepy.compile(kernels.copy, x, y, cache=False)
    with cutepy.simulate():
        copy(x, y)
        assert torch.equal(x, y)
        with refuses(ArgumentError):
            copy(y, y)
        with refuses(ArgumentError):
            copy(x, torch.zeros(32, 4))


def test_fake_tensors_are_examples():
    with torch._subclasses.FakeTensorMode():
        fake = torch.empty(32, 8, device="cuda")
    copy = cutepy.compile(kernels.copy, fake, torch.empty(32, 8, device="meta"), cache=False)
    x, y = torch.randn(32, 8), torch.zeros(32, 8)
    with cutepy.simulate():
        copy(x, y)
    assert torch.equal(x, y)


def test_objects_compile():
    scaled = cutepy.compile(
        kernels.Scaled(3.0), TensorSpec("float32", (128,)), TensorSpec("float32", (128,)), cache=False
    )
    a, b = torch.randn(128), torch.zeros(128)
    with cutepy.simulate():
        scaled(a, b)
    torch.testing.assert_close(b, 3 * a)


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b, c: (a, b, c),
        lambda a, b, c: (a, b, c[:8], 1.0),
        lambda a, b, c: (a.half(), b, c, 1.0),
        lambda a, b, c: (a[:6], b[:6], c[:6], 1.0),
        lambda a, b, c: (a[:, None], b, c, 1.0),
        lambda a, b, c: (a[::2][:4], b[:4], c[:4], 1.0),
        lambda a, b, c: (a[1:5], b[:4], c[:4], 1.0),
        lambda a, b, c: (a, b, c, "x"),
        lambda a, b, c: (a, b, 3, 1.0),
    ],
)
def test_wrong_arguments_are_explained(add, change):
    with cutepy.simulate() as run, refuses((TypeError, ValueError)):
        add(*change(*vectors(16)))
    assert not run.launches


def test_wrong_names_are_explained(add):
    a, b, c = vectors(4)
    with refuses(TypeError):
        add(a, b, d=c, scale=1.0)


def test_without_a_gpu_the_error_says_what_to_do(add):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with refuses(ArgumentError):
        add(*vectors(4), 1.0)


@pytest.mark.parametrize(
    "examples",
    [
        (VECTOR, VECTOR),
        (VECTOR, VECTOR, VECTOR, 1.0, 2.0, 3.0),
        (VECTOR, VECTOR, VECTOR, 1.0, None, 3.0, 4.0),
    ],
)
def test_wrong_examples_are_explained(examples):
    with refuses(TypeError):
        cutepy.compile(kernels.add, *examples, cache=False)


def test_an_unknown_example_is_explained():
    with refuses(TypeError):
        cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, gamma=1, cache=False)


def test_a_name_is_one_number_in_all_tensors():
    """Divisibility that one tensor states holds for the name."""
    plain = TensorSpec("float32", ("n",))
    add = cutepy.compile(kernels.add, plain, VECTOR, plain, 1.0, cache=False)
    with cutepy.simulate(), refuses(ArgumentError):
        add(*vectors(6), 1.0)


def test_the_second_time_is_found_on_disk(folder):
    first = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0)
    second = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 7.0)
    other = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, bias=1.0)
    assert second.metadata["created"] == first.metadata["created"]
    assert other.metadata["created"] != first.metadata["created"]
    a, b, c = vectors(64)
    with cutepy.simulate():
        second(a, b, c, 2.0)
    torch.testing.assert_close(c, a + 2 * b)


def test_options_are_in_the_key():
    made = [cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0)]
    made.append(cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, options="--opt-level 2"))
    made.append(cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, options="--enable-tvm-ffi"))
    assert len({function.metadata["created"] for function in made}) == 2


def test_the_type_of_a_number_is_in_the_key():
    """An untyped parameter is compiled for the type of its example."""
    examples = [cutlass.Int64(1), 1, 1.0, True, cutlass.Float32(1.0)]
    vector = TensorSpec("float32", (32,))
    made = [cutepy.compile(kernels.fill, vector, example) for example in examples]
    assert len({function.metadata["created"] for function in made}) == len(examples)
    for function, number in zip(made, (2**32 + 5, 5, 5.5, True, 5.5), strict=True):
        a = torch.zeros(32)
        with cutepy.simulate():
            function(a, number)
        assert (a == float(number)).all()


class NotesOnItself(kernels.Scaled):
    """As kernels of the DSL's examples do."""

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor):
        self.dtype = a.element_type
        self.layout = a.layout
        self.kernel(a, b).launch(grid=(1, 1, 1), block=(128, 1, 1))


def test_what_tracing_sets_on_an_object_is_taken_back():
    vector = TensorSpec("float32", (128,))
    noting = NotesOnItself(2.0)
    first, again, other = (cutepy.compile(made, vector, vector) for made in (noting, noting, NotesOnItself(2.0)))
    assert [made.cost().cached for made in (first, again, other)] == [False, True, True]
    assert vars(noting) == vars(NotesOnItself(2.0))


def test_kernels_may_be_named_while_they_are_traced():
    """The DSL keeps the name, so the function is not what it was; that changes nothing that is compiled."""
    vector = TensorSpec("float32", (32,))
    made = [cutepy.compile(kernels.named, vector, count) for count in (3, 4, 3, 4)]
    assert [function.metadata["created"] for function in made[2:]] == [f.metadata["created"] for f in made[:2]]
    assert ["fill_3" in made[0].ptx, "fill_4" in made[1].ptx] == [True, True]


def test_attributes_of_an_object_are_in_the_key():
    vector = TensorSpec("float32", (128,))
    a, b = torch.ones(128), torch.zeros(128)
    for factor in (2.0, 4.0):
        with cutepy.simulate():
            cutepy.compile(kernels.Scaled(factor), vector, vector)(a, b)
        torch.testing.assert_close(b, factor * a)


def test_an_entry_for_another_architecture_is_refused():
    made = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)
    sections = {"object": made.program.object, "ptx": b"", "cubin": b""}
    with refuses(WrongEntryError):
        Function.of_entry(Entry({**made.metadata, "arch": "sm_80a"}, sections), made.parameters, {})


def test_a_kernel_is_no_host_function():
    with refuses(TypeError):
        cutepy.compile(kernels._copy, VECTOR, VECTOR)

    @functools.wraps(kernels._copy)
    def wrapped(x, y):
        kernels._copy(x, y)

    with refuses(TypeError):
        cutepy.compile(wrapped, VECTOR, VECTOR)


def test_a_plain_function_is_told_to_be_decorated():
    """Whatever it holds, and if what it holds is not there yet."""

    def made(executor_name):
        def plain(x):
            return executor_name

        if not executor_name:
            del executor_name
        return plain

    plain = made("_kernel_helper")
    with refuses(TypeError):
        cutepy.compile(plain, VECTOR)
    with refuses(TypeError):
        cutepy.compile(made(""), VECTOR)


SCRIPT = """
import sys
import torch, numpy
import cutlass, cutlass.cute
from tests.host import kernels
import cutepy
from cutepy.host.function import WrongDeviceError
from cutepy.host.specs import TensorSpec
vector = TensorSpec("float32", ("n",), divisibility={"n": 4})
add = cutepy.compile(kernels.add, vector, vector, vector, 1.0)
from cutepy.runtime.program import ServedProgram
ServedProgram(add.program)
print(add.metadata["created"])
a, b, c = (torch.ones(64) for _ in range(3))
with cutepy.simulate():
    add(a, b, c, 2.0)
assert (c == 3).all()
"""


@pytest.mark.integration
def test_another_process_starts_warm(folder):
    first = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0)
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    created = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(created) == first.metadata["created"]


def test_a_gpu_of_another_architecture_is_refused(add, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "an A100")
    with refuses(WrongDeviceError):
        add.prepare(0)


def test_other_machines_are_refused(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with refuses(WrongMachineError):
        cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)


def test_a_plain_function_is_not_simulated_on_other_machines(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    a, b, c = torch.zeros(3, 1000)
    with cutepy.simulate(), refuses(WrongMachineError):
        kernels.add(a, b, c, cutlass.Float32(1.0), CUstream(0))


class Foreign:
    """An array of another library: it exports its memory, and little more."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_objects_with_dlpack_are_taken(add):
    a, b, c = vectors(16)
    with cutepy.simulate():
        add(Foreign(a), b, Foreign(c), 1.0)
        torch.testing.assert_close(c, a + b)
        with refuses(ArgumentError):
            add(Foreign(a), Foreign(b[:8]), c, 1.0)


def test_tensors_without_memory_are_refused(add):
    a, b, c = vectors(16)
    with cutepy.simulate(), refuses(ArgumentError):
        add(a.to("meta"), b, c, 1.0)


def test_rows_of_a_compact_matrix_may_be_apart():
    """Their stride is read at each call, and must have the divisibility of the extent that it would be."""
    matrix = TensorSpec("float32", (32, "n"), divisibility={"n": 4})
    copy = cutepy.compile(kernels.copy, matrix, matrix, cache=False)
    x, y = torch.randn(32, 24), torch.zeros(32, 8)
    with cutepy.simulate():
        copy(x[:, :8], y)
        assert torch.equal(x[:, :8], y)
        with refuses(ArgumentError):
            copy(x[:, :8], y[:, :4])
        with refuses(ValueError):
            copy(torch.zeros(32, 10)[:, :8], y)


@pytest.mark.parametrize(
    "option", ["--gpu-arch=sm_100a", "--dump-dir=/tmp/x", "--keep-ptx", "--gpu sm_80", "--dump /tmp/x", "--host x"]
)
def test_options_that_are_ours_are_refused(option):
    with refuses(ValueError):
        cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, options=option, cache=False)


@pytest.mark.parametrize(
    ("examples", "named"),
    [
        ((VECTOR, VECTOR, VECTOR, 1.0), {"a": VECTOR}),
        ((VECTOR, VECTOR, VECTOR, "one"), {}),
    ],
)
def test_contradictory_examples_are_explained(examples, named):
    with refuses(TypeError):
        cutepy.compile(kernels.add, *examples, cache=False, **named)


def test_scalars_of_numpy_are_numbers():
    add = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, np.float32(1.0), cache=False)
    assert add.parameters[3].kind == "scalar"


def test_threads_compile_one_at_a_time():
    """The DSL is not made for more."""
    results, errors = {}, []

    def work(number):
        try:
            results[number] = cutepy.compile(
                kernels.fill, TensorSpec("float32", (32,)), number, options=f"--opt-level {number}"
            )
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    a = torch.zeros(32)
    for number, function in results.items():
        with cutepy.simulate():
            function(a, number)
        assert (a == number).all()
