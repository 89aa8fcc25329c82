"""Tiles that are taken while a launch runs, on a Hopper GPU: exact in each launch, in streams and graphs at a time."""

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
    "in turns": {"tile_m": 64, "tile_n": 192, "consumers": 2},
    "in turns in a cluster": {"tile_m": 128, "tile_n": 128, "consumers": 2, "cluster_n": 2},
    "K in parts": {"tile_m": 64, "tile_n": 64, "split_k": 4},
    "small": {"tile_m": 64, "tile_n": 32},
}
SHAPES = [(8192, 8192, 512), (3000, 5000, 1232), (2304, 2304, 2304), (64, 64, 64), (128, 4096, 8192)]


class Product:
    """A product and how it is launched."""

    def __init__(self, shape, tile):
        m, n, k = shape
        self.a, self.b = (torch.randint(-2, 3, (rows, k), device="cuda").half() for rows in (m, n))
        self.out = torch.full((m, n), torch.nan, device="cuda", dtype=torch.float16)
        self.expected = gemm_reference(self.a, self.b).half()
        described = describe(self.a, self.b, outs=(self.out,))
        config = GemmConfig(signature=HALF, dynamic=True, **TILES[tile])
        self.plan = plan_gemm(described, ChosenKernel(False, config))

    def launch(self, out=None):
        return self.plan(self.a, self.b, (), (self.out if out is None else out,))[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tile", TILES)
def test_sums_are_exact_in_each_launch(shape, tile):
    torch.manual_seed(1)
    product = Product(shape, tile)
    for _ in range(20):
        product.out.fill_(torch.nan)
        assert torch.equal(product.launch(), product.expected)
    outs = [torch.full_like(product.out, torch.nan) for _ in range(20)]
    for out in outs:  # each begins while the one before ends
        product.launch(out)
    assert all(torch.equal(out, product.expected) for out in outs)


@pytest.mark.parametrize("tile", TILES)
def test_streams_and_graphs_at_one_time(tile):
    torch.manual_seed(2)
    products = [Product(shape, tile) for shape in SHAPES[:3]]
    for product in products:
        assert torch.equal(product.launch(), product.expected)
    graph, replayed = torch.cuda.CUDAGraph(), [torch.empty_like(product.out) for product in products]
    with torch.cuda.graph(graph):
        for _ in range(3):
            for product, out in zip(products, replayed, strict=True):
                product.launch(out)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    outs = []
    for _ in range(10):
        with torch.cuda.stream(streams[0]):
            graph.replay()
        for stream in streams[1:]:
            with torch.cuda.stream(stream):
                outs += [(product.launch(torch.empty_like(product.out)), product) for product in products]
    torch.cuda.synchronize()
    assert all(torch.equal(out, product.expected) for out, product in outs)
    assert all(torch.equal(out, product.expected) for out, product in zip(replayed, products, strict=True))
