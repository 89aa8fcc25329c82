"""Compiled functions in CUDA graphs on a GPU: replayed with other values, and with other tensors."""

import pytest
import torch

import cutepy
from cutepy.host.specs import TensorSpec
from tests.host import graphs, kernels

pytestmark = [pytest.mark.dsl, pytest.mark.gpu]

VECTOR = TensorSpec("float32", ("n",), divisibility={"n": 4})


@pytest.fixture(scope="module")
def add():
    return cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False)


@pytest.fixture(scope="module")
def gemm():
    """A kernel whose parameters are TMA descriptors, which hold the addresses, launched as a cluster."""
    from cutepy.kernels.gemm import GemmSignature, select_config
    from cutepy.kernels.gemm.standard import StandardGemm

    def matrix(rows, columns):
        lead = "ld" + rows + columns
        return TensorSpec("float16", (rows, columns), strides=(lead, 1), divisibility={lead: 8})

    config = select_config(GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16"), 512, 512, 512)
    return cutepy.compile(
        StandardGemm(config), matrix("m", "k"), matrix("n", "k"), None, matrix("m", "n"), 132, cache=False
    )


def vectors(n=1024):
    return [torch.randn(n, device="cuda") for _ in range(3)]


def matrices(m, n, k):
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.float16) for rows in (m, n))
    return a, b, torch.zeros(m, n, device="cuda", dtype=torch.float16)


def update_by_graph(executable, first, second):
    graphs.update(executable, second)


def update_by_node(executable, first, second):
    for node, other in zip(graphs.kernel_nodes(first), graphs.kernel_nodes(second), strict=True):
        graphs.set_parameters(executable, node, other)


UPDATES = pytest.mark.parametrize("update", [update_by_graph, update_by_node])


def test_contents_may_change_between_replays(add):
    a, b, c = vectors()
    add(a, b, c, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(a, b, c, 2.0)
    for value in (1.0, 5.0, -3.0):
        a.fill_(value)
        b.copy_(torch.randn_like(b))
        graph.replay()
        torch.testing.assert_close(c, value + 2 * b)


def test_a_prepared_function_may_be_captured_before_its_first_launch():
    add = cutepy.compile(kernels.add, VECTOR, VECTOR, VECTOR, 1.0, cache=False).prepare()
    a, b, c = vectors()
    executable = graphs.instantiate(graphs.capture(lambda: add(a, b, c, 1.0)))
    c.zero_()
    graphs.replay(executable)
    torch.testing.assert_close(c, a + b)


@UPDATES
def test_a_graph_takes_the_pointers_and_numbers_of_another_capture(add, update):
    (a, b, c), (x, y, z) = vectors(), vectors()
    add(a, b, c, 1.0)
    first, second = graphs.capture(lambda: add(a, b, c, 1.0)), graphs.capture(lambda: add(x, y, z, 3.0))
    executable = graphs.instantiate(first)
    c.zero_()
    z.zero_()
    graphs.replay(executable)
    torch.testing.assert_close(c, a + b)
    assert not z.any()
    c.zero_()
    update(executable, first, second)
    graphs.replay(executable)
    torch.testing.assert_close(z, x + 3 * y)
    assert not c.any(), "the pointers of the first capture are no longer used"


@UPDATES
def test_other_extents_may_come_with_other_pointers(add, update):
    (a, b, c), (x, y, z) = vectors(256), vectors(100_000)
    add(a, b, c, 1.0)
    first, second = graphs.capture(lambda: add(a, b, c, 1.0)), graphs.capture(lambda: add(x, y, z, 3.0))
    executable = graphs.instantiate(first)
    update(executable, first, second)
    z.zero_()
    graphs.replay(executable)
    torch.testing.assert_close(z, x + 3 * y)


@UPDATES
def test_tma_descriptors_are_parameters_that_an_update_replaces(gemm, update):
    (a, b, c), (x, y, z) = matrices(512, 512, 512), matrices(384, 640, 256)
    gemm(x, y, None, z, 132, None)
    expected = z.clone()
    first, second = (
        graphs.capture(lambda: gemm(a, b, None, c, 132, None)),
        graphs.capture(lambda: gemm(x, y, None, z, 132, None)),
    )
    executable = graphs.instantiate(first)
    z.zero_()
    graphs.replay(executable)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=1e-1)
    assert not z.any()
    c.zero_()
    update(executable, first, second)
    for _ in range(2):
        z.zero_()
        graphs.replay(executable)
        assert torch.equal(z, expected)
    assert not c.any()


@UPDATES
def test_several_launches_are_updated_together(add, update):
    """The second reads what the first wrote."""
    (a, b, c), (x, y, z) = vectors(), vectors()
    d, w = torch.zeros_like(c), torch.zeros_like(z)
    add(a, b, c, 1.0)

    def twice(p, q, r, s):
        add(p, q, r, 2.0)
        add(r, q, s, -1.0)

    first, second = graphs.capture(lambda: twice(a, b, c, d)), graphs.capture(lambda: twice(x, y, z, w))
    executable = graphs.instantiate(first)
    c.zero_()
    update(executable, first, second)
    graphs.replay(executable)
    torch.testing.assert_close(w, x + y)
    assert not c.any()
    assert not d.any()


def test_torchs_own_graphs_can_be_updated(add):
    graph = torch.cuda.CUDAGraph
    if not hasattr(graph, "raw_cuda_graph"):
        pytest.skip("this torch keeps no graph that it has captured")
    (a, b, c), (x, y, z) = vectors(), vectors()
    add(a, b, c, 1.0)
    first, second = graph(keep_graph=True), graph(keep_graph=True)
    with torch.cuda.graph(first):
        add(a, b, c, 1.0)
    with torch.cuda.graph(second):
        add(x, y, z, 3.0)
    executable = graphs.instantiate(graphs.driver.CUgraph(first.raw_cuda_graph()))
    graphs.update(executable, graphs.driver.CUgraph(second.raw_cuda_graph()))
    c.zero_()
    graphs.replay(executable)
    torch.testing.assert_close(z, x + 3 * y)
    assert not c.any()


def test_a_graph_of_another_kernel_is_no_update(add, gemm):
    """CUDA takes other functions of a node only within limits; a graph of another shape it refuses."""
    (a, b, c), (x, y, z) = vectors(), matrices(512, 512, 512)
    add(a, b, c, 1.0)
    gemm(x, y, None, z, 132, None)
    once = graphs.capture(lambda: add(a, b, c, 1.0))

    def both():
        add(a, b, c, 1.0)
        gemm(x, y, None, z, 132, None)

    with pytest.raises(AssertionError, match="CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"):
        graphs.update(graphs.instantiate(once), graphs.capture(both))
