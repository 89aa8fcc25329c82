"""Blackwell's GEMM: right and without hazards for every type, major, epilogue, batch, and with one CTA and two."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.device import tma  # noqa: E402
from cutepy.device.sm100.pipeline import AccumulatorRing, UmmaRing  # noqa: E402
from cutepy.dsl import to_cute  # noqa: E402
from cutepy.epilogues import Column, Row, Scalar, Tile  # noqa: E402
from cutepy.epilogues.reference import compute  # noqa: E402
from cutepy.kernels.sm100 import UmmaGemmConfig, UmmaGemmSignature, block_scales, compile_gemm, gemm  # noqa: E402
from cutepy.layouts.sm90 import StagedTile  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

FLOAT4 = torch.float4_e2m1fn_x2
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
ARCH = "sm_100a"


def operand(rows, k, dtype, generator):
    """Return an operand, and its values in float64."""
    if dtype == FLOAT4:
        codes = torch.randint(0, 16, (rows, k), generator=generator)
        packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8).view(FLOAT4)
        return packed, E2M1[codes].double()
    values = torch.randint(-3, 4, (rows, k), generator=generator).to(dtype)
    return values, values.double()


def scale(rows, k, dtype, vector, generator):
    """Return scale factors in blocks, and by element."""
    factors = torch.exp2(torch.randint(-2, 3, (rows, k // vector), generator=generator).float()).to(dtype)
    return block_scales(factors), factors.double().repeat_interleave(vector, 1)


def with_major(tensor, major):
    return tensor if major == "k" else tensor.t().contiguous().t()


E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu


@pytest.mark.integration
@pytest.mark.parametrize(
    ("a_dtype", "b_dtype", "scaled", "majors", "ctas", "tile_n"),
    [
        (torch.float16, torch.float16, None, "kk", 2, 256),
        (FLOAT4, FLOAT4, (E4M3, 16), "kk", 2, 128),
        (torch.bfloat16, torch.bfloat16, None, ("mn", "k"), 1, 96),
        (E4M3, E5M2, None, ("k", "mn"), 2, 64),
        (E5M2, E4M3, (E8M0, 32), "kk", 1, 128),
        (FLOAT4, FLOAT4, (E8M0, 32), "kk", 1, 256),
        (FLOAT4, FLOAT4, (E4M3, 16), "kk", 1, 128),
        (E4M3, E4M3, (E8M0, 32), "kk", 2, 256),
        (torch.float16, torch.float16, None, ("mn", "mn"), 2, 128),
        (torch.bfloat16, torch.bfloat16, None, "kk", 1, 16),
    ],
)
@pytest.mark.first(4)
def test_types_majors_and_ctas(a_dtype, b_dtype, scaled, majors, ctas, tile_n):
    generator = torch.Generator().manual_seed(0)
    m, n, k = 304, 208, 288
    a, of_a = operand(m, k, a_dtype, generator)
    b, of_b = operand(n, k, b_dtype, generator)
    scales = {}
    if scaled:
        dtype, vector = scaled
        scales["scale_a"], factors = scale(m, k, dtype, vector, generator)
        of_a = of_a * factors
        scales["scale_b"], factors = scale(n, k, dtype, vector, generator)
        of_b = of_b * factors
    a, b = (with_major(each, major) for each, major in zip((a, b), majors, strict=True))
    config = UmmaGemmConfig(
        signature=UmmaGemmSignature(
            a_dtype=str(a_dtype).removeprefix("torch."),
            b_dtype=str(b_dtype).removeprefix("torch."),
            a_major=majors[0],
            b_major=majors[1],
            scale_dtype=str(scaled[0]).removeprefix("torch.") if scaled else None,
            out_dtype="float32",
        ),
        ctas=ctas,
        tile_n=tile_n,
    )
    with cutepy.simulate(arch=ARCH, sanitize=True) as run:
        d = gemm(a, b, **scales, out_dtype=torch.float32, config=config)
    assert not run.hazards, run.report()
    assert all(certificate.is_certified for certificate in run.certificates), run.certificates
    # Products of small numbers: every sum is exact in fp32.
    assert torch.equal(d.double(), of_a @ of_b.t())


@cutepy.epilogue
def rich(acc, bias: Row, factor: Column, scale: Scalar, c: Tile):
    y = acc * factor + bias
    gate, up = (y * scale).interleaved(2)
    return {"y": epilogues.relu(gate) * up + c, "pre": y, "sum": y.sum(1), "most": (gate * up).max(0), "all": y.sum()}


@pytest.mark.integration
@pytest.mark.parametrize("out_major", ["row", "col"])
@pytest.mark.first(1)
def test_epilogues_reduce_and_read_tiles(out_major):
    torch.manual_seed(0)
    m, n, k = 300, 176, 136
    a, b, factor = (torch.randint(-2, 3, shape).half() for shape in ((m, k), (n, k), (m,)))
    bias, c = torch.randint(-4, 5, (n,)).float(), torch.randint(-4, 5, (m, n // 2)).half()
    operands = {"bias": bias, "factor": factor, "scale": 0.5, "c": c}
    with cutepy.simulate(arch=ARCH, sanitize=True) as run:
        found = gemm(a, b, epilogue=rich, out_dtype=torch.float32, out_major=out_major, **operands)
    assert not run.hazards, run.report()
    assert all(certificate.is_certified for certificate in run.certificates), run.certificates
    expected = compute(rich.graph, a.double() @ b.double().t(), operands, torch.float64)
    for got, wanted in zip(found.values(), expected, strict=True):
        assert torch.equal(got.double(), wanted)


@cutepy.epilogue
def of_batches(acc, bias: Row, of_each: Row, factor: Column, c: Tile):
    return (acc + bias) * factor + of_each + c


@pytest.mark.integration
def test_batches_and_results_whose_rows_are_no_whole_units():
    """A row may be one of all products; an epilogue's other operands are of each product."""
    torch.manual_seed(0)
    a, b = torch.randint(-2, 3, (2, 3, 40, 64)).half(), torch.randint(-2, 3, (2, 1, 36, 64)).half().expand(2, 3, 36, 64)
    shapes = {"bias": (36,), "of_each": (2, 3, 36), "factor": (2, 3, 40), "c": (2, 3, 40, 36)}
    operands = {name: torch.randint(-2, 3, shape).float() for name, shape in shapes.items()}
    with cutepy.simulate(arch="sm_103a", sanitize=True) as run:
        d = gemm(a, b, epilogue=of_batches, out_dtype=torch.float32, **operands)
    assert not run.hazards, run.report()
    assert all(certificate.is_certified for certificate in run.certificates), run.certificates
    assert d.is_contiguous()
    bias, of_each, factor, c = (value.double() for value in operands.values())
    expected = (a.double() @ b.double().mT + bias) * factor[..., None] + of_each[..., None, :] + c
    assert torch.equal(d.double(), expected)


@pytest.mark.integration
@pytest.mark.parametrize("ctas", [2, 1])
@pytest.mark.first(1)
def test_a_cta_takes_several_tiles(ctas):
    torch.manual_seed(0)
    m, n, k = 1024, 160, 200
    a, b = (torch.randint(-2, 3, (rows, k)).half() for rows in (m, n))
    d = torch.full((m, n), torch.nan).half()
    config = UmmaGemmConfig(signature=half(), ctas=ctas, tile_n=32, stages=2)
    with cutepy.simulate(arch=ARCH, sanitize=True) as run:
        compile_gemm(config, ARCH)(a, b, None, (d,), 2 * ctas, None, None)
    assert not run.hazards, run.report()
    assert all(certificate.is_certified for certificate in run.certificates), run.certificates
    assert torch.equal(d.double(), a.double() @ b.double().t())


def half(**options):
    kinds = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"} | options
    return UmmaGemmSignature(**kinds)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("ring", "method", "instead"),
    [
        (AccumulatorRing, "acquire", lambda self, state: None),
        (AccumulatorRing, "wait", lambda self, state: None),
        (UmmaRing, "wait", lambda self, state, arrived=False: None),
    ],
    ids=["overwrites accumulators that are read", "reads accumulators too early", "multiplies what has not arrived"],
)
@pytest.mark.first(1)
def test_a_wait_that_is_left_out_is_reported(monkeypatch, ring, method, instead):
    monkeypatch.setattr(ring, method, instead)
    a, b, d = torch.ones(256, 128).half(), torch.ones(64, 128).half(), torch.empty(256, 64).half()
    config = UmmaGemmConfig(signature=half(), tile_n=32, stages=2)
    kernel = compile_gemm.__wrapped__(config, ARCH, cache=False)
    with pytest.raises(HazardError), cutepy.simulate(arch=ARCH, sanitize=True):
        kernel(a, b, None, (d,), 1, None, None)


@pytest.mark.integration
def test_a_tile_that_is_read_through_another_swizzle_is_reported(monkeypatch):
    def with_narrow_swizzle(tensor, staged, tile, *others, **options):
        return make_load(tensor, to_cute(StagedTile(tile, 2, 16, 1, "SW64").layout), tile, *others, **options)

    make_load = tma.make_load
    monkeypatch.setattr(tma, "make_load", with_narrow_swizzle)
    a, b, d = torch.ones(128, 64).half(), torch.ones(32, 64).half(), torch.empty(128, 32).half()
    config = UmmaGemmConfig(signature=half(), tile_n=32, stages=2)
    kernel = compile_gemm.__wrapped__(config, ARCH, cache=False)
    with pytest.raises(HazardError) as raised, cutepy.simulate(arch=ARCH, sanitize=True):
        kernel(a, b, None, (d,), 1, None, None)
    assert "layout-mismatch" in {hazard.kind for hazard in raised.value.hazards}


def test_blocks_of_scale_factors():
    factors = torch.arange(200 * 6).reshape(200, 6).to(torch.uint8).view(E8M0)
    blocks = block_scales(factors).view(torch.uint8)
    for row, place in ((0, 0), (37, 3), (130, 5), (199, 4)):
        r = row % 128
        at = 16 * (r % 32) + 4 * (r // 32) + place % 4
        assert blocks[row // 128, place // 4, at] == factors.view(torch.uint8)[row, place]
    assert blocks.numel() == math.prod((2, 2, 512))


@pytest.mark.parametrize(
    "options",
    [
        {"ctas": 3},
        {"tile_n": 100},
        {"tile_n": 512},
        {"tile_k": 40},
        {"epi_n": 128, "tile_n": 192},
        {"stages": 40},
        {"stages": 1},
        {"tile_n": 256, "tile_k": 1024},
        {"epi_stages": 1},
        {"c_stages": 1},
        {"band_rows": 0},
        {"accumulators": 5},
        {"accumulators": -1},
    ],
    ids=str,
)
def test_configurations_that_the_hardware_has_not(options):
    with refuses(ValueError):
        UmmaGemmConfig(signature=half(), **options)


def test_a_configuration_has_ints():
    with refuses(TypeError):
        UmmaGemmConfig(signature=half(), stages=2.5)


def test_a_tile_of_scaled_operands_has_whole_blocks():
    kinds = {"a_dtype": "float4_e2m1fn_x2", "b_dtype": "float4_e2m1fn_x2", "scale_dtype": "float8_e4m3fn"}
    with refuses(ValueError):
        UmmaGemmConfig(signature=half(**kinds), tile_n=64)


@pytest.mark.parametrize(
    "options",
    [
        {"a_dtype": "bfloat16"},
        {"a_dtype": "float32"},
        {"a_major": "m"},
        {"scale_dtype": "float8_e8m0fnu"},
        {"a_dtype": "float4_e2m1fn_x2", "b_dtype": "float4_e2m1fn_x2"},
        {
            "a_dtype": "float4_e2m1fn_x2",
            "b_dtype": "float4_e2m1fn_x2",
            "scale_dtype": "float8_e4m3fn",
            "a_major": "mn",
        },
        {"out_dtype": "int32"},
    ],
    ids=str,
)
def test_signatures_that_no_instruction_has(options):
    with refuses(ValueError):
        half(**options)


A, B = torch.ones(128, 64).half(), torch.ones(32, 64).half()


@pytest.mark.parametrize(
    ("a", "b", "options", "error"),
    [
        (A, B, {}, ValueError),
        (None, B, {"arch": ARCH}, TypeError),
        (A[:, :60], B[:, :60], {"arch": ARCH}, ValueError),
        (A, B[:, :32], {"arch": ARCH}, ValueError),
        (A[0], B, {"arch": ARCH}, ValueError),
        (A, B[:0], {"arch": ARCH}, ValueError),
        (A, B, {"arch": ARCH, "scale_a": block_scales(torch.ones(128, 2).to(E8M0))}, ValueError),
        (A, B, {"arch": ARCH, "config": UmmaGemmConfig(signature=half(out_dtype="float32"))}, ValueError),
        (
            A.to(E4M3),
            B.to(E4M3),
            {
                "arch": ARCH,
                "scale_a": block_scales(torch.ones(64, 2).to(E8M0)),
                "scale_b": block_scales(torch.ones(32, 2).to(E8M0)).flatten()[:256],
            },
            ValueError,
        ),
        (
            A.to(E4M3),
            B.to(E4M3),
            {
                "arch": ARCH,
                "scale_a": torch.ones(128, 4).to(E8M0),
                "scale_b": block_scales(torch.ones(32, 2).to(E8M0)),
            },
            ValueError,
        ),
        (A.clone().requires_grad_(), B, {"arch": ARCH}, ValueError),
    ],
    ids=["hopper", "none", "units", "k", "vector", "empty", "one scale", "config", "scales", "no blocks", "grad"],
)
def test_arguments_that_do_not_fit(a, b, options, error):
    with cutepy.simulate(arch=options.pop("arch", "sm_90a")), refuses(error):
        gemm(a, b, **options)
