"""Configurations whose sums are promoted: what they take, what is refused, and any extents of one of them."""

import re
from functools import cache
from itertools import groupby

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.epilogues import Tile, epilogue, identity  # noqa: E402
from cutepy.epilogues.scaling import scaled  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm, select_config  # noqa: E402
from cutepy.kernels.gemm.compilation import compile_fused  # noqa: E402
from cutepy.kernels.gemm.heuristic.choice import choose  # noqa: E402
from cutepy.kernels.gemm.scales import Block, Scales  # noqa: E402
from cutepy.kernels.gemm.tuned import problem_of, signature_of  # noqa: E402
from tests.device.test_promotion import problem  # noqa: E402


def signature(rows=(1, 128), **changed):
    types = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "out_dtype": "float32"}
    return GemmSignature(**types | changed, scale_rows=rows)


CONFIGS = {
    "two warpgroups": {"tile_m": 128, "tile_n": 48, "epi_n": 24, "warpgroups": 2, "cluster_m": 2},
    "three warpgroups": {"tile_m": 192, "tile_n": 32, "epi_n": 16, "warpgroups": 3, "cluster_n": 2},
    "split, two buffers": {"tile_m": 64, "tile_n": 16, "epi_n": 16, "tile_k": 256, "split_k": 2},
    "threads load a": {"tile_m": 128, "tile_n": 16, "epi_n": 16, "warpgroups": 2},
    "TMA loads the scales of a": {"tile_m": 64, "tile_n": 48, "epi_n": 24, "tile_k": 256, "cluster_n": 2},
    "TMA loads all scales": {"tile_m": 128, "tile_n": 48, "epi_n": 24, "warpgroups": 2, "cluster_m": 2},
}
OFTEN = ("split, two buffers", "TMA loads all scales")
NAMES = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.integration) for name in CONFIGS]
BY_TMA = {"TMA loads the scales of a": (True, False), "TMA loads all scales": (True, True)}


@cache
def kernel(name):
    by_tma = BY_TMA.get(name, (False, False))
    kind = signature((1, 1) if all(by_tma) else (1, 128), a_align=4 if "threads" in name else 16, tma_scales=by_tma)
    return compile_fused(GemmConfig(signature=kind, **CONFIGS[name]))


def beside(scales):
    """Lay those of rows beside each other, and those of K whole 16 bytes apart."""
    rows, blocks = scales.shape
    laid = torch.full((blocks, -(-rows // 4) * 4), float("nan"))[:, :rows].mT
    return laid.copy_(scales)


@pytest.mark.parametrize(
    ("scales", "reached"),
    [
        (torch.ones(3, 64).mT, True),
        (torch.ones(2, 3, 64).mT, True),
        (torch.ones(64, 3), False),
        (torch.ones(3, 62).mT, False),
        (torch.ones(3, 64).mT[1:], False),
        (torch.ones(1, 64).expand(3, 64).mT, False),
        (torch.ones(1, 3, 64).expand(2, 3, 64).mT, False),
    ],
    ids=["beside", "in batches", "in turn", "248 bytes apart", "from 4 bytes on", "at one place", "one for all"],
)
def test_tma_reaches_scales_that_lie_beside_each_other(scales, reached):
    assert Scales(scales, scales, Block(1, 128), Block(1, 128), True).by_tma == (reached, reached)
    assert Scales(scales, scales, Block(1, 128), Block(128, 128), True).by_tma == (reached, False)


def multiply(name, m, n, k, sms, **options):
    by_tma = BY_TMA.get(name, (False, False))
    a, b, scales, expected = problem(m, n, k, (1, 1) if all(by_tma) else (1, 128))
    scales = [beside(each) if loads else each for each, loads in zip(scales, by_tma, strict=True)]
    d = torch.full((m, n), float("nan"))
    with cutepy.simulate(**options) as run:
        kernel(name)(a, b, None, (d,), sms, *scales)
    assert torch.equal(d, expected)
    return run


@pytest.mark.dsl
@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize(
    "name",
    [
        OFTEN[0],
        *(pytest.param(name, marks=pytest.mark.integration) for name in (OFTEN[1], "two warpgroups")),
        *(pytest.param(name, marks=pytest.mark.deep) for name in CONFIGS if name not in (*OFTEN, "two warpgroups")),
    ],
)
def test_any_extents(name, data):
    m, n, k = (unit * data.draw(st.integers(1, limit)) for unit, limit in ((1, 140), (4, 24), (16, 36)))
    multiply(name, m, n, k, data.draw(st.sampled_from([4, 132]), "sms"))


@pytest.mark.first(2)
@pytest.mark.dsl
@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_is_certified(name):
    tile = CONFIGS[name]  # two tiles along M and three along N, the last ones with few rows and columns
    run = multiply(name, tile["tile_m"] + 8, 2 * tile["tile_n"] + 8, 656, 4, sanitize=True)
    assert not run.hazards
    assert all(certificate.reasons == () for certificate in run.certificates)
    assert run.certificates


@pytest.mark.first(3)
@pytest.mark.dsl
@pytest.mark.parametrize("name", NAMES)
def test_scales_of_another_layout_and_infinite_ones(name):
    rows = (1, 1) if all(BY_TMA.get(name, (False,))) else (1, 128)
    a, b, scales, expected = problem(20, 20, 592, rows)  # the last stage of 256 has one block of K
    infinite = [torch.full((scale.shape[1] + 2, scale.shape[0] + 4), float("inf")) for scale in scales]
    for whole, scale in zip(infinite, scales, strict=True):
        whole[: scale.shape[1], : scale.shape[0]] = scale.mT
    of_a, of_b = (whole[: s.shape[1], : s.shape[0]].mT for whole, s in zip(infinite, scales, strict=True))
    of_a[7, -1] = float("inf")
    d = torch.full((20, 20), float("nan"))
    with cutepy.simulate(sanitize=True) as run:
        kernel(name)(a, b, None, (d,), 4, of_a, of_b)
    assert not run.hazards
    rest = torch.arange(20) != 7
    assert torch.equal(d[rest], expected[rest])
    assert not d[7].isfinite().all()


@pytest.mark.integration
@pytest.mark.dsl
def test_nothing_spills_and_no_mma_waits_for_another():
    from cutepy.binaries.ptxas import assemble

    config = GemmConfig(signature=signature(out_dtype="bfloat16"), tile_m=256, tile_n=128, warpgroups=2)
    compiled = compile_fused(config)
    (resources,) = compiled.resources
    assert resources.spill_store_bytes == 0
    assert assemble(compiled.ptx).advice == ()
    config = GemmConfig(signature=signature(), tile_m=64, tile_n=64, tile_k=256)
    assert config.buffers == 2
    assert assemble(compile_fused(config).ptx).advice == ()


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("out_dtype", [pytest.param("bfloat16", marks=pytest.mark.deep), "float32"])
@pytest.mark.parametrize(
    ("rows", "shapes"),
    [
        ((1, 128), ()),
        ((0, 0), ("column", "row")),
        pytest.param((128, 128), (), marks=pytest.mark.deep),
        pytest.param((1, 1), (), marks=pytest.mark.deep),
        pytest.param((128, 1), (), marks=pytest.mark.deep),
        pytest.param((0, 0), ("scalar", "scalar"), marks=pytest.mark.deep),
        pytest.param((1, 0), ("scalar",), marks=pytest.mark.deep),
    ],
    ids=str,
)
def test_what_is_chosen_for_large_products_spills_nothing(rows, shapes, out_dtype):
    graph = scaled(identity.graph, shapes)
    kind = signature(
        rows, out_dtype=out_dtype, epilogue=graph.text, operand_types=tuple(("float32", "") for _ in shapes)
    )
    for config in {choose(kind, *extents).config for extents in ((4096, 7168, 4096), (8192, 8192, 8192))}:
        (resources,) = compile_fused(config).resources
        assert resources.spill_store_bytes == 0


def test_a_stage_has_the_scales_of_its_tile():
    for rows, by_tma, tile, scales in (
        ((1, 128), (False, False), (128, 48, 256), (2 * 128, 2 * 2)),
        ((1, 128), (True, False), (128, 96, 128), (128, 2)),
        ((128, 1), (False, False), (256, 64, 128), (2, 64)),
        ((0, 1), (False, True), (64, 80, 128), (0, 96)),
    ):
        tile_m, tile_n, tile_k = tile
        tiling = {"tile_k": tile_k, "epi_n": 16, "warpgroups": min(2, tile_m // 64)}
        config = GemmConfig(signature=signature(rows, tma_scales=by_tma), tile_m=tile_m, tile_n=tile_n, **tiling)
        for name, count in zip(("sScaleA", "sScaleB"), scales, strict=True):
            assert (config.smem[name].size_bytes if count else 0) == 4 * count * config.stages
            assert (name in config.smem) == bool(count)


def test_what_cannot_be_is_refused():
    with refuses(ValueError):
        signature((1, 64))
    with refuses(ValueError):
        signature(a_dtype="bfloat16", b_dtype="bfloat16")
    with refuses(ValueError):
        GemmConfig(signature=signature(), tile_m=64, tile_n=64, consumers=2)
    with refuses(ValueError):
        GemmConfig(signature=signature(), tile_m=64, tile_n=64, tile_k=64)
    with refuses(ValueError):
        GemmConfig(signature=signature(), tile_m=64, tile_n=64, buffers=2)
    with refuses(ValueError):
        GemmConfig(signature=signature(), tile_m=128, tile_n=256, warpgroups=2)
    with refuses(ValueError):
        GemmConfig(signature=signature(None), tile_m=64, tile_n=64, buffers=1)


def test_every_problem_has_a_configuration():
    for rows in ((1, 128), (1, 1), (128, 1), (0, 0)):
        for m, n, k in ((1, 1, 1), (64, 7168, 4096), (8192, 8192, 8192), (100, 3000, 100), (512, 512, 16384)):
            assert select_config(signature(rows), m, n, k).buffers in (1, 2)


@epilogue
def residual(acc, addend: Tile):
    return acc + addend


@pytest.mark.parametrize("major", ["row", "col"])
@pytest.mark.parametrize(
    ("rows", "shapes"), [((1, 128), ()), ((1, 1), ()), ((0, 0), ("column", "row")), (None, ("column", "row"))], ids=str
)
def test_a_float32_tile_has_a_configuration_with_k_in_parts(rows, shapes, major):
    kinds = (*(("float32", "") for _ in shapes), ("float32", major))
    kind = signature(rows, epilogue=scaled(residual.graph, shapes).text, operand_types=kinds)
    parts = {choose(kind, m, n, 16384).config.split_k for m in (16, 64, 512) for n in (64, 256, 1024)}
    assert {2, 8} <= parts


@pytest.mark.dsl
def test_the_standard_kernels_refuse_scales_and_operands_of_other_names():
    config = GemmConfig(signature=signature(), tile_m=64, tile_n=64)
    with refuses(ValueError):
        compile_gemm(config)
    kind = signature(None, epilogue=residual.text, operand_types=(("float32", "row"),))
    with refuses(ValueError):
        compile_gemm(GemmConfig(signature=kind, tile_m=64, tile_n=64))


def test_signatures_are_plain_values_to_the_tuner():
    for rows in ((1, 128), None):
        assert signature_of(problem_of(signature(rows), 1, 2, 3)) == signature(rows)
    assert signature((1, 128)).transposed.scale_rows == (128, 1)
    assert "promoted1x128" in signature((1, 128)).name


def test_a_thread_waits_for_its_fence_and_the_next_barrier_while_mmas_run_and_sums_are_added():
    of_interest = (
        r"wgmma\.(?:fence|commit_group|wait_group)|fence\.proxy\.async|mbarrier\.(?:test_wait|try_wait)|fma\.rn"
    )
    found = [name for name, _ in groupby(re.findall(of_interest, kernel("TMA loads all scales").ptx))]
    first = found.index("wgmma.fence")
    assert found[first - 1 : first + 6] == [
        "mbarrier.try_wait",
        "wgmma.fence",
        "wgmma.commit_group",
        "fence.proxy.async",
        "wgmma.wait_group",
        "mbarrier.test_wait",
        "fma.rn",
    ]
