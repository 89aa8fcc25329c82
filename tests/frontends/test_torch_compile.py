"""Launches that are no operations of torch, within functions that `torch.compile` traces: the graph breaks at them."""

import warnings

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.function import Function  # noqa: E402
from cutepy.runtime import untraced  # noqa: E402
from tests.host import kernels, structures  # noqa: E402

pytestmark = pytest.mark.dsl
PTX = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 p0, .param .u64 p1)
{
.reg .b32 %r<4>; .reg .f32 %f<2>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4]; st.global.f32 [%rd5], %f1;
ret;
}
"""


@pytest.fixture(scope="module")
def copies():
    """Functions that copy a vector of 32, by the way of their launch."""
    spec = cutepy.TensorSpec("float32", (32,), align=4)
    compiled, module = cutepy.compile(structures.of_tensors, spec, spec), cutepy.load_ptx(PTX)
    return {
        "compile": compiled,
        "jit": structures.of_tensors,
        "ptx": lambda x, y: module.launch("copy", 1, 32, [x, y]),
        "a method": compiled.__call__,
        "mapped": lambda x, y: list(map(compiled, [x], [y])),
        "by name": lambda x, y: compiled(x, y=y),
    }


WAYS = "compile", "jit", "ptx", "a method", "mapped", "by name"


@pytest.fixture(autouse=True)
def told(monkeypatch):
    monkeypatch.setattr(untraced, "_told", set())
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(copy):
    def call(x):
        y = torch.empty_like(x)
        copy(x + 1, y)
        copy(y, y)
        return y * 3

    return call


@pytest.mark.parametrize(
    "way", ["ptx", "by name", *(pytest.param(way, marks=pytest.mark.integration) for way in WAYS[:2])]
)
def test_the_graph_breaks_and_how_to_register_is_said_once(copies, way):
    x = torch.randn(32)
    graphs = []

    def backend(graph, inputs):
        graphs.append([node.name for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    with cutepy.simulate(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled = torch.compile(layer(copies[way]), backend=backend)
        for _ in range(2):
            assert torch.equal(compiled(x), (x + 1) * 3)
    assert [("cutepy.ops.register" in str(w.message)) for w in said] == [True]
    assert [name for names in graphs for name in names] == ["y", "add", "mul"], "torch's own is in graphs"


@pytest.mark.parametrize("way", WAYS)
def test_with_the_full_graph_the_error_names_what_registers(copies, way):
    with cutepy.simulate(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception, match=r"cutepy\.ops\.register"):
            torch.compile(layer(copies[way]), backend="eager", fullgraph=True)(torch.randn(32))


def test_nothing_is_said_where_nothing_is_traced(copies):
    x, y = torch.randn(32), torch.empty(32)
    with cutepy.simulate(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for way in WAYS:
            copies[way](x, y)
    assert torch.equal(x, y)


def test_a_function_that_dynamo_skips_launches_untraced(copies):
    """Dynamo never asks there, and looks at each frame that runs."""

    @torch.compiler.disable(recursive=False)
    def skipped(x, y):
        copies["compile"](x, y)

    with cutepy.simulate(), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.randn(32)
        assert torch.equal(torch.compile(layer(skipped), backend="eager")(x), (x + 1) * 3)


def test_what_dynamo_asks_of_runs_untraced_with_all_that_it_calls():
    """Also where it was made before torch was loaded, so that nothing has marked it yet."""

    def inner(x):
        return x * 2

    @untraced.untraced("a test's function")
    def launch(x):
        return inner(x)

    graphs = []

    def backend(graph, inputs):
        graphs.append([node.name for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    with pytest.warns(UserWarning, match="a test's function is no operation of torch"):
        y = torch.compile(lambda x: launch(x + 1) - 3, backend=backend)(torch.ones(4))
    assert y.tolist() == [1.0] * 4
    assert [name for names in graphs for name in names] == ["add", "sub"]


def test_whatever_launches_marks_what_was_not_marked_yet(monkeypatch):
    """On a GPU no simulation does it; a function may be made before torch is loaded, and another one after it."""
    marked = []
    monkeypatch.setattr(untraced, "_mark", marked.append)
    for make in (lambda: Function("f", None, [], {}), lambda: cutepy.load_ptx(PTX)):
        monkeypatch.setattr(untraced, "_known", {Function.__call__.__code__})
        make()
    assert marked.count(Function.__call__.__code__) == 2


def test_errors_of_launches_are_those_of_uncompiled_calls():
    fill = cutepy.compile(kernels.fill, cutepy.TensorSpec("float32", (32,)), 1)

    def call(x):
        y = x + 1
        fill(y, 1.5)
        return y

    with cutepy.simulate(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with refuses(TypeError):
            torch.compile(call, backend="eager")(torch.zeros(32))
