"""Kernels with an epilogue's graph: on every schedule right, clean, and for plain sums the kernel that has no graph."""

from collections import Counter

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.epilogues import Column, Row, Scalar, Tile  # noqa: E402
from cutepy.epilogues.reference import compute  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm, select_config  # noqa: E402
from cutepy.kernels.gemm.compilation import compile_fused  # noqa: E402


@cutepy.epilogue
def rich(acc, bias: Row, factor: Column, scale: Scalar, c: Tile):
    y = acc * factor + bias
    gate, up = (y * scale).interleaved(2)
    return {"y": epilogues.relu(gate) * up + c, "pre": y, "sum": y.sum(1), "most": (gate * up).max(0)}


def signature(graph, types=(), **options):
    kinds = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float32"} | options
    return GemmSignature(**kinds, epilogue=graph.text, operand_types=types)


TYPES = (("float32", ""), ("float16", ""), ("", ""), ("float16", "row"))


@pytest.mark.parametrize(
    "options",
    [
        {"tile_m": 128, "tile_n": 48, "epi_n": 48, "warpgroups": 2, "cluster_m": 2},
        pytest.param({"tile_m": 64, "tile_n": 64, "split_k": 2}, marks=pytest.mark.integration),
        pytest.param({"tile_m": 128, "tile_n": 64, "tile_k": 64}, marks=pytest.mark.deep),
        pytest.param({"tile_m": 64, "tile_n": 128, "epi_n": 64, "split_k": 4}, marks=pytest.mark.deep),
        pytest.param({"tile_m": 128, "tile_n": 64, "warpgroups": 2, "out_major": "col"}, marks=pytest.mark.deep),
    ],
    ids=str,
)
def test_schedules(options):
    options = dict(options)
    out_major = options.pop("out_major", "row")
    config = GemmConfig(signature=signature(rich.graph, TYPES, out_major=out_major), **options)
    kernel = compile_fused(config)
    torch.manual_seed(0)
    m, n, k = 136, 112, 136
    # Small whole numbers: sums are exact, and so are the results.
    a, b, factor = (torch.randint(-2, 3, shape).half() for shape in ((m, k), (n, k), (m,)))
    bias, c = torch.randint(-4, 5, (n,)).float(), torch.randint(-4, 5, (m, n // 2)).half()

    def matrix(rows, columns):
        transposed = torch.full((columns, rows), torch.nan)
        return transposed.t() if out_major == "col" else transposed.t().contiguous()

    partials = [
        torch.full(rules.partial_shape(dim, m, columns, config.epi_n * columns // n), torch.nan)
        for dim, columns in ((1, n), (0, n // 2))
    ]
    results = (matrix(m, n // 2), matrix(m, n), *partials)
    with cutepy.simulate(sanitize=True) as run:
        kernel(a, b, (bias, factor, 0.5, c), results, 3 if config.split_k == 1 else 132)
    assert not run.hazards, run.report()
    operands = {"bias": bias, "factor": factor, "scale": 0.5, "c": c}
    expected = compute(rich.graph, a.double() @ b.double().t(), operands, torch.float64)
    joined = (*results[:2], partials[0].sum(0), partials[1].amax(0))
    for got, wanted in zip(joined, expected, strict=True):
        assert torch.equal(got.double(), wanted)


@pytest.mark.integration
def test_reductions_alone_are_clean_where_a_cluster_shares_k():
    largest = cutepy.epilogue(lambda acc: acc.max(1))
    config = GemmConfig(signature=signature(largest.graph), tile_m=64, tile_n=32, tile_k=16, epi_n=16, split_k=2)
    a, b = (torch.randint(-3, 4, shape).half() for shape in ((72, 64), (32, 64)))
    partials = torch.full(rules.partial_shape(1, 72, 32, 16), torch.nan)
    with cutepy.simulate(sanitize=True) as run:
        compile_fused(config)(a, b, None, (partials,), 2)
    assert torch.equal(partials.amax(0), (a.float() @ b.float().mT).amax(1))
    assert not run.hazards, run.report()


@pytest.mark.integration
def test_consumers_in_turn():
    @cutepy.epilogue
    def biased(acc, bias: Row):
        return acc + bias

    kind = signature(biased.graph, (("float32", ""),))
    kernel = compile_fused(GemmConfig(signature=kind, tile_m=64, tile_n=64, consumers=2))
    a, b = torch.randint(-2, 3, (200, 72)).half(), torch.randint(-2, 3, (72, 72)).half()
    bias, d = torch.randint(-4, 5, (72,)).float(), torch.empty(200, 72)
    with cutepy.simulate(sanitize=True) as run:
        kernel(a, b, (bias,), (d,), 3)
    assert not run.hazards, run.report()
    assert torch.equal(d, a.float() @ b.float().t() + bias)


HALVES = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}


def instructions(function):
    """Count the instructions, by opcode."""
    words = (line.strip().split() for line in function.ptx.splitlines() if line.strip().endswith(";"))
    return Counter(line[1 if line[0].startswith("@") else 0] for line in words if not line[0].startswith("."))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("options", "added"),
    [
        # Of 32 registers a thread: two conversions of pairs, an addition each; a comparison and a choice.
        ({"c_dtype": "float16", "c_major": "row"}, {"add.f32": 32, "cvt.f32.f16": 32}),
        ({"activation": "relu"}, {"setp.le.f32": 32, "selp.f32": 32}),
        ({"activation": "silu"}, {"ex2.approx.ftz.f32": 32, "rcp.approx.ftz.f32": 32}),
        ({"bias_dtype": "float32"}, {"add.f32": 32, "ld.global.b32": 16}),
    ],
    ids=["c", "relu", "silu", "bias"],
)
def test_an_epilogue_costs_what_it_computes(options, added):
    """Each element is converted, computed and read just once."""
    tile = {"tile_m": 128, "tile_n": 64, "warpgroups": 2}
    plain, kernel = (
        instructions(compile_gemm(GemmConfig(signature=GemmSignature.standard(**HALVES, **each), **tile)))
        for each in ({}, options)
    )
    assert {opcode: kernel[opcode] - plain[opcode] for opcode in added} == added


@pytest.mark.integration
def test_the_standard_epilogue_is_a_graph_like_any_other():
    """Its kernel is the same, whether it is called by names or with tuples."""
    kind = GemmSignature.standard(**HALVES, c_dtype="float32", c_major="col", bias_dtype="float16", activation="relu")
    config = GemmConfig(signature=kind, tile_m=64, tile_n=64)
    assert instructions(compile_gemm(config)) == instructions(compile_fused(config))
    assert config.name.startswith(
        "cutepy_gemm_float16_k_float16_k_float16_row_plus_float32_col_bias_float16_relu_64x64"
    )
    transposed = GemmConfig(signature=kind.transposed, tile_m=64, tile_n=64)
    assert "float16_col_plus_float32_row_columnbias_float16_relu" in transposed.name
    assert transposed.signature.transposed == kind


def test_a_signature_fits_its_graph():
    with refuses(ValueError):
        signature(rich.graph)
    with refuses(ValueError):
        signature(rich.graph, (*TYPES[:3], ("float16", "")))
    kind = signature(rich.graph, TYPES)
    with refuses(ValueError):
        GemmConfig(signature=kind, tile_m=64, tile_n=48, epi_n=24)


def test_shared_memory_has_room_for_all_tiles():
    config = GemmConfig(signature=signature(rich.graph, TYPES), tile_m=128, tile_n=64, warpgroups=2)
    # 128 rows of 16 halves for C; of 16 and of 32 floats for the results.
    assert config.c_stage_bytes == 128 * 16 * 2
    assert config.epilogue_bytes == 2 * 128 * 16 * 2 + 2 * 128 * (16 + 32) * 4
    for m, n, k in ((64, 96, 64), (4096, 4096, 4096), (1, 8192, 4096)):
        assert select_config(signature(rich.graph, TYPES), m, n, k).epi_n % 16 == 0
    wide = "\n".join(["()", "  v0 = acc()", f"  return {', '.join(f'{n}: v0' for n in range(64))}"])
    many = signature(epilogues.Graph.parse(wide))
    with refuses(ValueError):
        select_config(many, 4096, 4096, 4096)
