"""Tiles of an MN-major B that end within a span of its swizzle: exact, without hazards, compiled as described."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.inspection import facts  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.kernels.grouped import GroupedConfig  # noqa: E402
from tests.kernels.test_grouped import check  # noqa: E402


def configured(tile_m, tile_n, a_major="k", aligns=(16, 16), **more):
    signature = GemmSignature(
        a_dtype="bfloat16",
        b_dtype="bfloat16",
        out_dtype="float32",
        a_major=a_major,
        b_major="mn",
        a_align=aligns[0],
        b_align=aligns[1],
    )
    return GemmConfig(signature=signature, tile_m=tile_m, tile_n=tile_n, **{"epi_n": 16, **more})


CONFIGS = {
    "128x144": configured(128, 144, warpgroups=2),
    "256x152, a multicast of A": configured(256, 152, cluster_n=2, epi_n=8, warpgroups=2, stages=2),
    "64x72, a multicast of B": configured(64, 72, cluster_m=2, epi_n=8, stages=3),
    "two consumers": configured(64, 80, consumers=2, stages=3),
    "both along M and N": configured(64, 48, a_major="mn", stages=2),
    "k in two": configured(64, 48, split_k=2),
    "k shared": configured(64, 112, stream_k=True),
    "a by threads": configured(64, 72, aligns=(8, 16), epi_n=8, stages=2),
}


@pytest.mark.first(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_stage_holds_whole_spans_and_is_compiled_so(name):
    config = CONFIGS[name]
    assert config.staged_n == config.smem["sB"].content.tile[0] == -(-config.tile_n // 64) * 64
    assert config.smem["sB"].content.swizzle == "SW128"
    usual = config.split_k == 1 and not any(config.signature.by_threads)
    assert not usual or all(fact.holds for fact in facts(config, compile_gemm(config)))


@pytest.mark.first(4)
@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=3)
@given(data=st.data())
def test_products_are_exact(name, data):
    config = CONFIGS[name]
    m, n, k = (8 * data.draw(st.integers(1, most)) for most in (40, 50, 30))
    a = torch.randint(-3, 4, (m, k)).bfloat16()
    a = a.t().contiguous().t() if config.signature.a_major == "mn" else a
    b, out = torch.randint(-3, 4, (k, n)).bfloat16().t(), torch.full((m, n), float("nan"))
    sms = data.draw(st.sampled_from([2, 7, 132]))
    shapes = rules.workspace_shapes(sms, config.tile_m, config.tile_n) if config.stream_k else None
    workspace = shapes and (torch.zeros(shapes[0], dtype=torch.int32), torch.empty(shapes[1]))
    with cutepy.simulate(sanitize=True) as run:
        compile_gemm(config)(a, b, None, out, sms, None, workspace)
    assert torch.equal(out, gemm_reference(a, b).float())
    assert not run.hazards


def test_groups_along_k():
    config = GroupedConfig(gemm=configured(64, 80, a_major="mn"), along="k")
    check(config, [70, 70, 75, 140], (72, 104, 144))


def test_a_stage_of_no_whole_spans_is_refused_not_multiplied_in_part():
    assert rules.multiplied_columns(128, 96, "MN") == 96
    with refuses(ValueError):
        rules.check_stages((64, 64), (rules.multiplied_columns(96, 64, "MN"), 64), (64, 64, 16))


def test_narrow_tiles_and_multicasts_that_would_cut_spans_keep_their_own():
    assert configured(64, 32).staged_n == 32
    assert configured(64, 48, cluster_m=2).staged_n == 48
    assert configured(64, 144, cluster_m=2).staged_n == configured(64, 144, aligns=(16, 8)).staged_n == 144
