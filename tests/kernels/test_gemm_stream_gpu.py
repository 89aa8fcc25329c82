"""Stream-K and tiles of 8 columns on a Hopper GPU: exact, and the same bits in streams and graphs at one time."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.gpu

from cutepy.kernels.gemm import GemmConfig, GemmSignature  # noqa: E402
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel  # noqa: E402
from cutepy.kernels.gemm.op import plan_gemm  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops.checking import describe  # noqa: E402

HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
TILES = {
    "large": {"tile_m": 128, "tile_n": 256, "warpgroups": 2},
    "in a cluster": {"tile_m": 128, "tile_n": 256, "warpgroups": 2, "cluster_m": 2},
    "of 8 columns": {"tile_m": 128, "tile_n": 168, "epi_n": 56, "warpgroups": 2},
    "small": {"tile_m": 64, "tile_n": 32},
}
SHAPES = [(2304, 2304, 2304), (128, 128, 65536), (1000, 1160, 4096), (64, 64, 64), (3000, 5000, 1232)]


class Product:
    """A product and how it is launched."""

    def __init__(self, shape, tile, draw, **options):
        m, n, k = shape
        self.a, self.b = draw(m, k), draw(n, k)
        self.out = torch.full((m, n), torch.nan, device="cuda", dtype=torch.float16)
        described = describe(self.a, self.b, outs=(self.out,))
        config = GemmConfig(signature=HALF, **TILES[tile], **options)
        self.plan = plan_gemm(described, ChosenKernel(False, config))

    def launch(self, out=None):
        return self.plan(self.a, self.b, (), (self.out if out is None else out,))[0]


def whole(rows, columns):
    return torch.randint(-2, 3, (rows, columns), device="cuda").half()


def normal(rows, columns):
    return torch.randn(rows, columns, device="cuda").half()


@pytest.mark.parametrize("stream_k", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tile", TILES)
def test_sums_are_exact(shape, tile, stream_k):
    torch.manual_seed(1)
    product = Product(shape, tile, whole, stream_k=stream_k)
    expected = gemm_reference(product.a, product.b).half()
    for _ in range(20):
        product.out.fill_(torch.nan)
        assert torch.equal(product.launch(), expected)


@pytest.mark.parametrize("tile", TILES)
def test_streams_and_graphs_at_one_time_give_the_same_bits(tile):
    torch.manual_seed(2)
    products = [Product(shape, tile, normal, stream_k=True) for shape in SHAPES[:3]]
    expected = [product.launch().clone() for product in products]
    graph, replayed = torch.cuda.CUDAGraph(), [torch.empty_like(product.out) for product in products]
    with torch.cuda.graph(graph):
        for _ in range(3):
            for product, out in zip(products, replayed, strict=True):
                product.launch(out)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    outs = []
    for _ in range(30):
        with torch.cuda.stream(streams[0]):
            graph.replay()
        for stream in streams[1:]:
            with torch.cuda.stream(stream):
                made = [torch.empty_like(product.out) for product in products]
                got = [product.launch(out) for product, out in zip(products, made, strict=True)]
                outs += zip(got, expected, strict=True)
    torch.cuda.synchronize()
    assert all(torch.equal(got, wanted) for got, wanted in (*outs, *zip(replayed, expected, strict=True)))


def test_what_a_graph_has_stays_its_own():
    torch.manual_seed(3)
    product = Product((2304, 2304, 2304), "large", whole, stream_k=True)
    expected = gemm_reference(product.a, product.b).half()
    assert torch.equal(product.launch(), expected)
    graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
    for graph in graphs:
        with torch.cuda.graph(graph):
            for _ in range(100):
                product.launch()
    torch.cuda.empty_cache()
    others = [torch.full((2**18,), -1, device="cuda", dtype=torch.int32) for _ in range(300)]
    for graph in graphs:
        product.out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(product.out, expected)
    assert all((other == -1).all() for other in others)
