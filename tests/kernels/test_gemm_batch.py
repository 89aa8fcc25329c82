"""Batches by one launch: the kernel in the simulator, bit for bit, over majors, strides, broadcasts and tiles."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

import cutepy  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261121)


def integers(*shape, dtype=F16):
    """Small integers: every sum is exact."""
    return torch.randint(-3, 4, shape).to(dtype)


def check(a, b, c=None, **options):
    """Run in the simulator, into memory full of NaN, and compare; gives the result."""
    with cutepy.simulate() as run:
        result = gemm(a, b, c=c, **options)
    assert len(run.launches) == 1
    exact = gemm_reference(a, b, c, options.get("bias"), options.get("activation"))
    assert torch.equal(result, exact.to(result.dtype))
    return result


CASES = {
    "odd extents": lambda: (integers(3, 33, 72), integers(3, 40, 72)),
    "one product": lambda: (integers(1, 33, 72), integers(1, 40, 72)),
    "bfloat16": lambda: (integers(2, 65, 8, dtype=BF16), integers(2, 136, 8, dtype=BF16)),
    "two modes": lambda: (integers(2, 3, 9, 16), integers(2, 3, 24, 16)),
    "three modes": lambda: (integers(2, 1, 3, 9, 16), integers(2, 1, 3, 24, 16)),
    "a along m": lambda: (integers(3, 72, 40).mT, integers(3, 40, 72)),
    "both transposed": lambda: (integers(3, 71, 40).mT, integers(3, 71, 48).mT),
    "a shared": lambda: (integers(33, 72).expand(3, 33, 72), integers(3, 40, 72)),
    "b shared": lambda: (integers(3, 33, 72), integers(40, 72).expand(3, 40, 72)),
    "both shared along one mode each": lambda: (
        integers(2, 1, 9, 16).expand(2, 3, 9, 16),
        integers(1, 3, 24, 16).expand(2, 3, 24, 16),
    ),
    "products between each other's rows": lambda: (
        integers(33, 3, 72).transpose(0, 1),
        integers(40, 3, 72).transpose(0, 1),
    ),
    "heads of tokens": lambda: (integers(2, 9, 3, 16).transpose(1, 2), integers(2, 24, 3, 16).transpose(1, 2)),
    "overlapping windows": lambda: (integers(200, 16).as_strided((5, 33, 16), (128, 16, 1)), integers(5, 24, 16)),
    "8-bit": lambda: (integers(3, 33, 80, dtype=E4M3), integers(3, 40, 80, dtype=E5M2)),
    "one product and an odd stride": lambda: (integers(32, 72).as_strided((1, 32, 72), (5, 72, 1)),) * 2,
}


@pytest.mark.first(8)
@pytest.mark.parametrize("name", CASES)
def test_one_launch_computes_a_batch(name):
    a, b = CASES[name]()
    assert check(a, b, out_dtype=F32 if a.dtype.itemsize > 1 else None).is_contiguous()


@pytest.mark.parametrize("out_major", ["row", "col"])
@pytest.mark.parametrize("shared", [False, True])
def test_c_bias_and_activation_of_a_batch(out_major, shared):
    c = integers(1, 40, 48).expand(3, 40, 48) if shared else integers(3, 48, 40).mT
    options = {"bias": torch.arange(48.0) - 20, "activation": "relu", "out_major": out_major}
    result = check(integers(3, 40, 24), integers(3, 48, 24), c, **options)
    assert (result if out_major == "row" else result.mT).is_contiguous()


@pytest.mark.parametrize("mode", [0, 1])
def test_nothing_is_written_between_products(mode):
    """M = 33 and N = 40 end within tiles, which must not reach the next product."""
    buffer = torch.full((4, 3, 48, 64), float("nan"), dtype=F16)
    out = buffer[1:3, :, :33, 8:48] if mode else buffer[1:3, :, 8:48, :40].mT
    m = out.shape[-2]
    assert check(integers(2, 3, m, 72), integers(2, 3, 40, 72), out=out) is out
    assert int(buffer.isnan().sum()) == buffer.numel() - out.numel()


def test_c_may_be_overwritten_by_a_batch():
    a, b, c = integers(3, 33, 16), integers(3, 24, 16), integers(3, 33, 24)
    expected = gemm_reference(a, b, c).half()
    with cutepy.simulate():
        assert gemm(a, b, c=c, out=c) is c
    assert torch.equal(c, expected)


@pytest.mark.parametrize("shapes", [((0, 4, 16), (0, 8, 16)), ((2, 0, 16), (2, 8, 16)), ((2, 4, 0), (2, 8, 0))])
def test_empty_batches_launch_nothing(shapes):
    a, b = (integers(*shape) for shape in shapes)
    with cutepy.simulate() as run:
        result = gemm(a, b)
    assert run.launches == []
    assert torch.equal(result, a @ b.mT)


# Each number of modes in two clusters, and each cluster.
SCHEDULES = {(1, 1, 3): (1, 3), (2, 1, 4): (2,), (1, 2, 132): (1,), (2, 2, 9): (2, 3)}


@pytest.mark.parametrize(
    ("batch_modes", "cluster_m", "cluster_n", "sms"),
    [
        pytest.param(modes, *schedule, marks=() if modes in often else pytest.mark.deep)
        for schedule, often in SCHEDULES.items()
        for modes in (1, 2, 3)
    ],
)
def test_one_compiled_kernel_serves_every_batch(batch_modes, cluster_m, cluster_n, sms):
    """With more tiles than CTAs, and ragged edges: several tiles of several products come to each CTA."""
    signature = GemmSignature(
        a_dtype="float16", b_dtype="float16", out_dtype="float32", b_major="mn", batch_modes=batch_modes
    )
    config = GemmConfig(
        signature=signature, tile_m=64, tile_n=64, stages=2, cluster_m=cluster_m, cluster_n=cluster_n, band_rows=2
    )
    kernel = compile_gemm(config)
    for batch, m, n, k in (((1, 1, 1), 8, 8, 8), ((2, 1, 5), 72, 136, 72), ((1, 3, 1), 130, 24, 160)):
        extents = batch[3 - batch_modes :]
        a, b = integers(*extents, m, k), integers(*extents, k, n).mT
        out = torch.full((*extents, m, n), float("nan"))
        with cutepy.simulate() as run:
            kernel(a, b, None, out, sms, None)
        (launch,) = run.launches
        tiles = -(-m // (64 * cluster_m)) * -(-n // (64 * cluster_n)) * torch.Size(extents).numel()
        clusters = min(tiles, sms // (cluster_m * cluster_n))
        assert launch.grid == (clusters * cluster_m, cluster_n, 1)
        assert torch.equal(out, gemm_reference(a, b).float())
