"""Arguments of a call: objects that stand for numbers, and parameters that are streams."""

import copy
import importlib.util
import inspect
import pickle
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
cutlass = pytest.importorskip("cutlass")

from cutlass.cute.runtime import make_fake_stream  # noqa: E402

import cutepy  # noqa: E402
from cutepy.extras import MissingPackagesError  # noqa: E402
from cutepy.host.arguments import ArgumentError, Parameter, check_arguments, may_be_lazy, refused_for_tma  # noqa: E402
from cutepy.host.copies import HostCopies  # noqa: E402
from cutepy.host.examples import bind  # noqa: E402
from cutepy.host.function import Function, _cuda_index, _is_without_memory  # noqa: E402
from cutepy.host.specs import TensorSpec  # noqa: E402
from cutepy.runtime.cuda import CudaError  # noqa: E402
from cutepy.runtime.host_calls import Backend, HostCalls  # noqa: E402
from cutepy.runtime.program import ServedProgram  # noqa: E402
from tests.host import kernels, streamed  # noqa: E402

pytestmark = pytest.mark.dsl

VECTOR = TensorSpec("float32", ("n",), divisibility={"n": 4})
FIXED = TensorSpec("float32", (32,))
NUMBERS = [
    1,
    1.5,
    True,
    np.float32(1.5),
    np.float64(1.5),
    np.float16(1.5),
    np.int64(3),
    np.uint8(3),
    np.bool_(True),
    cutlass.Float32(1.5),
    cutlass.BFloat16(1.5),
    cutlass.Int32(3),
    cutlass.Boolean(True),
]


def named(value):
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"


@pytest.fixture(scope="module")
def add():
    return cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)


@pytest.mark.parametrize("number", NUMBERS, ids=named)
def test_numbers_of_numpy_and_the_dsl_are_taken_at_calls(add, number):
    a, b, c = (torch.ones(16) for _ in range(3))
    with cutepy.simulate():
        add(a, b, c, number)
    assert (c == 1 + float(getattr(number, "value", number))).all()


@pytest.mark.parametrize("number", NUMBERS[3:], ids=named)
def test_they_pass_the_checks_of_a_first_call(add, number):
    """On a GPU the compiled code takes them at later calls; here the first one ends where it asks for the GPU."""
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with refuses(ValueError):
        add(*(torch.ones(16) for _ in range(3)), number)


def test_what_a_launch_refuses_is_launched_as_pythons_own():
    """On a GPU, compiled code knows all numbers but numpy's bool."""
    tried = []

    def launch(number):
        tried.append(number)
        if isinstance(number, np.bool_):
            raise TypeError("expected bool")

    program = SimpleNamespace(ptx="", object=b"")
    function = Function("f", program, [Parameter("flag", "scalar", number="bool")], {})
    function._launch, function._cuda = launch, SimpleNamespace(make_ready=lambda device: False)
    function(np.bool_(False))
    assert [type(number) for number in tried] == [np.bool_, bool]


@pytest.mark.parametrize("value", [torch.tensor(1.5), np.array(1.5)], ids=named)
def test_a_tensor_is_no_number(add, value):
    """Reading one that is on a GPU would wait for it."""
    with cutepy.simulate(), refuses(TypeError):
        add(*(torch.ones(16) for _ in range(3)), value)


STREAMS = [
    streamed.plain,
    streamed.optional,
    streamed.union,
    streamed.union_by_name,
    streamed.text,
    streamed.text_of_an_alias,
    streamed.annotated,
    streamed.Method(),
]


@pytest.fixture
def streams(monkeypatch):
    """Collects the streams of launches, where torch's current one is 77."""
    found = []
    monkeypatch.setattr(HostCalls, "TVMFFIEnvGetStream", lambda *_: 77)

    class Recorder(Backend):
        def adopt(self, tensor):
            pass

        def launch(self, request):
            found.append(request.stream)

    def launched(function, *arguments):
        ServedProgram(function.program)(Recorder(), *arguments)
        return found

    return launched


@pytest.mark.parametrize("function", STREAMS, ids=lambda f: getattr(f, "__name__", "method"))
def test_streams_are_known_by_their_annotation(function, streams):
    fill = cutepy.compile(function, FIXED, cache=False)
    assert [parameter.name for parameter in fill.parameters] == ["a"]
    assert streams(fill, torch.zeros(32)) == [77]


def test_text_that_only_type_checkers_can_read_is_searched():
    with pytest.raises(NameError):
        inspect.signature(streamed.hidden, eval_str=True)
    assert bind(streamed.hidden, [FIXED], {})["stream"].parameter is None


@pytest.mark.parametrize("function", [streamed.bare, streamed.bare_with_default, streamed.with_a_stream_for_default])
@pytest.mark.parametrize("examples", [(), (streamed.CUstream(0),), (make_fake_stream(),)], ids=["none", "cuda", "fake"])
def test_a_stream_needs_no_annotation(function, examples, streams):
    fill = cutepy.compile(function, FIXED, *examples, cache=False)
    assert [parameter.name for parameter in fill.parameters] == ["a"]
    assert len(streams(fill, torch.zeros(32))) == 1


def test_what_is_called_a_stream_and_is_none():
    """An example says more than a name."""
    assert bind(streamed.upstream, [1.0, FIXED], {})["upstream"].parameter.kind == "scalar"
    assert bind(streamed.upstream, [], {"upstream": FIXED, "a": FIXED})["upstream"].parameter.kind == "tensor"


def test_none_in_place_of_a_stream_may_be_asked_for(streams):
    """The default stream, then."""
    fill = cutepy.compile(streamed.bare_with_default, FIXED, None, cache=False)
    assert streams(fill, torch.zeros(32), None) == [0]


def test_numpy_arrays_on_the_road_to_a_gpu(add, monkeypatch):
    """The copies are kept on the CPU, and the launch is the simulator's."""
    a, out = np.arange(16, dtype=np.float32), np.zeros(16, dtype=np.float32)
    a.flags.writeable = False
    monkeypatch.setattr(Function, "_require_cuda", lambda function: None)
    monkeypatch.setattr("cutepy.host.function.HostCopies", lambda arguments, device: HostCopies(arguments, "cpu"))
    with cutepy.simulate():
        add._launch_on_copies((a, a, out, 2.0))
        assert (out == 3 * a).all()
        add._launch_on_copies((out, a, out, 0.0))
        assert (out == 3 * a).all()


def test_numpy_arrays_without_a_gpu_say_so(add):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with refuses(CudaError):
        add(*(np.zeros(16, np.float32) for _ in range(3)), 1.0)


def test_a_numpy_array_beside_a_tensor_is_on_no_device(add):
    """It would be copied to the tensor's."""
    facts = {"shape": (16,), "dtype": torch.float32, "device": torch.device("cuda:1"), "is_cuda": True}
    on_gpu = SimpleNamespace(**facts, stride=lambda: (1,), data_ptr=lambda: 512)
    check_arguments("add", add.parameters, (np.zeros(16, np.float32), on_gpu, on_gpu, 1.0))


def test_the_stride_of_an_extent_of_1_is_any():
    """Nothing is reached by it, and torch gives it any value; the check and the compiled code agree."""
    matrix = TensorSpec("float32", ("m", 8), strides=("row", 1), divisibility={"row": 8})
    function = cutepy.compile(kernels.copy, matrix, matrix, rows=1, cache=False)
    row, out = torch.arange(8.0).as_strided((1, 8), (9, 1)), torch.zeros(8).as_strided((1, 8), (8, 1))
    check_arguments("copy", function.parameters, (row, out))
    with cutepy.simulate():
        function(row, out)
    assert out.tolist() == [list(range(8))]
    rows = torch.zeros(18).as_strided((2, 8), (9, 1))
    with refuses(ValueError):
        check_arguments("copy", function.parameters, (rows, rows))


class _Interface:
    """An array that shows its memory by one protocol alone."""

    def __init__(self, protocol, array, **attributes):
        self.__dict__ |= {protocol: array.__array_interface__, **attributes}


@pytest.mark.parametrize("attributes", [{}, {"shape": (16,), "dtype": np.dtype("float32")}])
@pytest.mark.parametrize(
    "protocol",
    ["__array_interface__", "__cuda_array_interface__"],
)
def test_arrays_without_dlpack_are_told_how_to_become_tensors(add, protocol, attributes):
    x, out = _Interface(protocol, np.zeros(16, np.float32), **attributes), np.zeros(16, np.float32)
    for context in (cutepy.simulate, nullcontext):
        with context(), refuses(TypeError):
            add(out, x, out, 1.0)
    if attributes:
        with refuses(TypeError):
            cutepy.TensorSpec.like(x)


def test_the_simulator_does_not_write_to_read_only_arrays(add):
    a, out = np.arange(16, dtype=np.float32), np.zeros(16, dtype=np.float32)
    a.flags.writeable = False
    with cutepy.simulate():
        add(a, a, out, 1.0)
        assert (out == 2 * a).all()
        with refuses(ValueError):
            add(out, out, a, 1.0)
    assert a[1] == 1


def test_tuples_are_simulated():
    matrix = TensorSpec("float32", (32, "n"))
    copy_pair = cutepy.compile(kernels.copy_pair, (matrix, matrix), cache=False)
    x, y = torch.randn(32, 8), np.zeros((32, 8), np.float32)
    with cutepy.simulate():
        copy_pair((x, y))
        assert (x.numpy() == y).all()
        with refuses(ValueError):
            copy_pair((x, y[:, :4]))
        with refuses(TypeError):
            copy_pair((x,))


@pytest.mark.parametrize("number", [2**64 + 5, 2**63, -(2**63) - 1])
def test_numbers_beyond_64_bits_are_refused(number):
    fill = cutepy.compile(kernels.fill, FIXED, 1, cache=False)
    with cutepy.simulate(), refuses(ValueError):
        fill(torch.zeros(32), number)


def test_wrong_numbers_are_named():
    fill = cutepy.compile(kernels.fill, FIXED, 1, cache=False)
    with cutepy.simulate():
        with refuses(TypeError):
            fill(torch.zeros(32), 1.5)
        with refuses(ValueError):
            fill(torch.zeros(32), 2**31)


@pytest.mark.parametrize("number", [-2, -(2**31), 2**31 - 1])
def test_numbers_at_the_ends_of_their_range_are_passed(number):
    fill = cutepy.compile(kernels.fill, FIXED, 1, cache=False)
    x = torch.zeros(32, dtype=torch.float32)
    with cutepy.simulate():
        fill(x, number)
        assert (x == number).all()
    check_arguments("fill", fill.parameters, (x, number))


@pytest.mark.parametrize(("extent", "refused"), [(2**31 - 4, False), (2**31, True)])
def test_extents_beyond_32_bits_are_refused(extent, refused):
    vector = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (extent,), (4,))
    parameters = [Parameter("x", "tensor", VECTOR)]
    if refused:
        with refuses(ValueError):
            check_arguments("add", parameters, [vector])
    else:
        check_arguments("add", parameters, [vector])


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(16, dtype=torch.complex64).conj().imag[:1].expand(16),
        lambda: torch._neg_view(torch.ones(16)),
        lambda: torch._efficientzerotensor((16,)),
        lambda: torch.ones(16).to_sparse(),
        lambda: np.ones(16, ">f4"),
    ],
)
def test_tensors_that_are_not_what_their_memory_says(add, make):
    with cutepy.simulate(), refuses((TypeError, ValueError)):
        add(torch.ones(16), make(), torch.ones(16), 1.0)


@pytest.mark.parametrize(
    ("make", "is_without"),
    [
        (lambda: torch.ones(4, 4), False),
        (lambda: torch.ones(4, 4).mT[1:], False),
        (lambda: np.ones(16, "f4"), False),
        (lambda: 1.5, False),
        (lambda: torch.ones(4, 4, device="meta"), True),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), True),
        (lambda: torch.ones(4, 4).to_sparse(), True),
        (lambda: torch.ones(4, 4).to_mkldnn(), True),
        (lambda: torch._neg_view(torch.ones(16)), True),
    ],
)
def test_which_tensors_have_no_memory_of_their_own(make, is_without):
    assert _is_without_memory(make()) == is_without


def guarded(specs, *, kernels=("k",)):
    """Make a function of stand-ins for what a GPU needs; gives it and its launches."""
    launched, ready = [], {0}

    def make_ready(device):
        fresh = device not in ready
        ready.add(device)
        return fresh

    program = SimpleNamespace(launches=[SimpleNamespace(kernel=name) for name in kernels])
    parameters = [Parameter(f"p{n}", "tensor", spec) for n, spec in enumerate(specs)]
    function = Function("f", program, parameters, {})
    function._cuda = SimpleNamespace(function=lambda *a: launched.append(a), devices=ready, make_ready=make_ready)
    function._launch = function._guarded(function._cuda)
    return function, launched


def test_only_what_needs_a_guard_has_one():
    strided = TensorSpec("float32", ("n",), strides=("s",))
    for specs, count in (([VECTOR], 0), ([FIXED], 0), ([TensorSpec("bfloat16", ("n",))], 0), ([strided], 1)):
        function, _ = guarded(specs)
        assert (function._launch is not function._cuda.function) == count, specs
    assert guarded([VECTOR], kernels=("k", "l"))[0]._launch.__name__ == "guarded_from_new_devices"


def test_an_odd_stride_of_an_extent_of_1_keeps_no_lazy_numbers_out():
    """Such a stride is never used, and so is not checked."""
    imaginary = TensorSpec("float32", (1, 4), strides=(1, 2))
    assert may_be_lazy(Parameter("a", "tensor", imaginary))
    assert not may_be_lazy(Parameter("a", "tensor", TensorSpec("float32", (2, 4), strides=(1, 2))))


def test_only_what_is_said_of_tma_is_told_as_such():
    for text in ("argument a: something else", "the compiler says that TMA needs it"):
        assert refused_for_tma(text, (), ()) is None


def test_a_lazy_negative_is_refused_before_a_launch():
    function, launched = guarded([TensorSpec("float32", ("n",), strides=("s",), align=4)])
    imaginary = torch.ones(4, dtype=torch.complex64).conj().imag
    with refuses(ValueError):
        function(imaginary)
    function(torch.ones(4))
    assert len(launched) == 1


def test_of_several_kernels_none_runs_before_the_device_is_ready():
    function, launched = guarded([VECTOR], kernels=("accumulate", "large"))

    def on(device):
        spec = {"shape": (16,), "dtype": torch.float32, "is_cuda": True, "device": torch.device("cuda", device)}
        return SimpleNamespace(**spec, stride=lambda: (1,), data_ptr=lambda: 512, get_device=lambda: device)

    for device in (0, 1, 1):
        function(on(device))
    assert function._cuda.devices == {0, 1}
    assert len(launched) == 3


def test_what_cuda_refused_is_not_launched_again():
    function, launched = guarded([VECTOR])

    def fail(tensor):
        launched.append(tensor)
        raise RuntimeError("CUDA error 1 (CUDA_ERROR_INVALID_VALUE)")

    class Foreign:
        def __dlpack__(self):
            tensor = SimpleNamespace(shape=(16,), dtype=torch.float32, is_cuda=True, device=torch.device("cuda:0"))
            tensor.stride, tensor.data_ptr = lambda: (1,), lambda: 512
            return tensor

        def __dlpack_device__(self):
            return 2, 0

    function._launch = fail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.utils.dlpack, "from_dlpack", lambda foreign: foreign.__dlpack__())
        with refuses(RuntimeError):
            function(Foreign())
    assert len(launched) == 1


def test_a_function_is_copied_and_pickled(add):
    assert copy.deepcopy({"f": add})["f"] is add
    assert copy.copy(add) is add
    again = pickle.loads(pickle.dumps(add))
    a, b, c = (torch.ones(16) for _ in range(3))
    with cutepy.simulate():
        again(a, b, c, 2.0)
    assert (c == 3).all()
    assert again.metadata == add.metadata


def filled(*shape):
    return torch.ones(shape)


def test_extents_that_are_declared_to_be_never_0_are_refused_before_a_launch(add):
    vector = TensorSpec("float32", ("n",), divisibility={"n": 4}, nonempty=("n",))
    f = cutepy.compile(kernels.add, vector, vector, vector, 1.0)
    c = torch.zeros(4)
    with cutepy.simulate() as run:
        f(filled(4), filled(4), c, 2.0)
        launches = len(run.launches)
        with refuses(ArgumentError):
            f(filled(0), filled(0), filled(0), 2.0)
        assert len(run.launches) == launches
    assert (c == 3).all()
    assert b"must be at least 1" in f.program.object
    assert b"must be at least 1" not in add.program.object


def test_so_are_those_within_tuples():
    matrix = TensorSpec("float32", (32, "n"), nonempty=("n",))
    f = cutepy.compile(kernels.copy_pair, (TensorSpec("float32", (32, "m")), matrix))
    copied = torch.zeros(32, 3)
    with cutepy.simulate() as run:
        f((filled(32, 3), copied))
        with refuses(ArgumentError):
            f((filled(32, 0), filled(32, 0)))
    assert (copied == 1).all()
    assert len(run.launches) == 1
    hinted = f.with_empty_hint("call nobody").with_check(print)
    with cutepy.simulate(), refuses(ArgumentError):
        hinted((filled(32, 0), filled(32, 0)))
    with cutepy.simulate(), refuses(ArgumentError):
        f((filled(32, 0), filled(32, 0)))


def test_a_gpu_is_named_in_each_form_of_torch_and_by_no_other():
    forms = None, 1, "cuda", "cuda:2", torch.device("cuda", 3)
    assert [_cuda_index(form) for form in forms] == [None, 1, None, 2, 3]
    for form in (True, 1.0):
        with pytest.raises(TypeError):
            _cuda_index(form)


def test_the_name_of_a_device_needs_torch(monkeypatch):
    """An index and the current device need nothing."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "torch" else find_spec(name))
    assert (_cuda_index(None), _cuda_index(3)) == (None, 3)
    with refuses(MissingPackagesError):
        _cuda_index("cuda:0")


@pytest.mark.parametrize(
    ("spec", "stride", "advice"),
    [
        (TensorSpec("float16", ("m", "k")), 60, "pad k to a multiple of 8, and declare divisibility={'k': 8}"),
        (TensorSpec("float16", ("m", "k"), strides=("lda", 1)), 68, "pad lda to a multiple of 8, and declare"),
        (TensorSpec("float16", ("m", "k")), 124, ""),  # apart by choice
        (TensorSpec("float16", ("m", "k"), strides=(60, 1)), 60, ""),
        (TensorSpec("float16", ("m", 60)), 60, ""),
    ],
    ids=str,
)
def test_a_stride_that_tma_refuses_is_padded_by_the_extent_that_decides_it(spec, stride, advice):
    text = f"argument a: stride 0 is {stride} elements, {2 * stride} bytes, and TMA needs a multiple of 16 bytes"
    tensor = torch.empty_strided((4, 60), (stride, 1), dtype=torch.float16)
    error = refused_for_tma(text, [Parameter("a", "tensor", spec)], [tensor])
    assert str(error).removeprefix(text).removeprefix("; ").startswith(advice)
    assert bool(advice) == (str(error) != text)


def test_a_stride_that_is_too_long_for_tma_is_not_padded():
    stride = 2**40
    text = f"argument a: stride 0 is {stride} elements, {2 * stride} bytes, and TMA needs a multiple of 16 bytes"
    tensor = torch.empty_strided((4, 64), (stride, 1), dtype=torch.float16, device="meta")
    error = refused_for_tma(text, [Parameter("a", "tensor", TensorSpec("float16", ("m", "k")))], [tensor])
    assert str(error) == text
