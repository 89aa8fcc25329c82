"""What stands for a number at a call, and which parameters are streams."""

import ctypes
import inspect
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cutlass = pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.dsl import entries  # noqa: E402
from cutepy.dsl.program import ServedProgram  # noqa: E402
from cutepy.host.arguments import Parameter  # noqa: E402
from cutepy.host.examples import bind  # noqa: E402
from cutepy.host.function import Function  # noqa: E402
from cutepy.host.specs import TensorSpec  # noqa: E402
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
    with pytest.raises(ValueError, match="argument a: must be on a GPU, got cpu"):
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
    message = r"argument scale must be a number, got \w+; pass its value, scale.item\(\)"
    with cutepy.simulate(), pytest.raises(TypeError, match=message):
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
    library, found = entries.ServedHost._library, []

    def on_stream_77(host):
        get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(lambda kind, index: 77)
        return {**library(host), "TVMFFIEnvGetStream": get}

    monkeypatch.setattr(entries.ServedHost, "_library", on_stream_77)

    class Backend:
        def adopt(self, tensor):
            pass

        def launch(self, request):
            found.append(request.stream)

    def launched(function, *arguments):
        ServedProgram(function.program)(Backend(), *arguments)
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


@pytest.mark.parametrize(
    ("function", "examples", "message"),
    [
        (streamed.bare, (), "bare needs an example of stream: .* or None; if it is a stream, annotate it as"),
        (streamed.bare_with_default, (), "would launch on the default stream, with stream = None; .* annotate it"),
        (streamed.bare, (streamed.CUstream(0),), "the example of stream is a stream, .* annotate it as"),
        (streamed.bare_with_default, (streamed.CUstream(0),), "the example of stream is a stream, .* annotate it as"),
    ],
)
def test_a_stream_without_annotation_is_explained(function, examples, message):
    with pytest.raises(TypeError, match=message):
        cutepy.compile(function, FIXED, *examples, cache=False)


def test_none_in_place_of_a_stream_may_be_asked_for(streams):
    """The default stream, then."""
    fill = cutepy.compile(streamed.bare_with_default, FIXED, None, cache=False)
    assert streams(fill, torch.zeros(32), None) == [0]
