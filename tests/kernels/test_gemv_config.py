"""Partition of products of few rows, its predicted time, and its tuning: no GPU, no compiler."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, strategies as st

from cutepy.epilogues import Tile, amax, epilogue, swiglu
from cutepy.kernels.gemm import GemmConfig, GemmSignature, tuned
from cutepy.kernels.gemm.gpu import H100, H200
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel
from cutepy.kernels.gemv import GemvConfig, select_gemv
from cutepy.kernels.gemv.choice import MOST_ROWS, choose_gemv, configs, fastest
from cutepy.kernels.gemv.config import ENOUGH_BYTES
from cutepy.kernels.gemv.model import Costs, expected_us
from cutepy.layouts.sm90 import arch
from cutepy.runtime.invariance import batch_invariant
from cutepy.tune.winners import Winner, keep, key_of
from tests.messages import refuses

HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
EIGHT = GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", out_dtype="bfloat16")
# N x K of models that decode.
SHAPES = ((4096, 7168), (7168, 2048), (8192, 8192), (14336, 4096), (4096, 14336), (6144, 6144))
Half = partial(GemvConfig, signature=HALF)


@epilogue
def largest(acc):
    return acc, amax(acc)


@epilogue
def eights(acc, c: Tile):
    first, second = acc.interleaved(2)
    parts = (*first.interleaved(4), *second.interleaved(4))
    return sum(parts[1:], parts[0]) + c


IN_PARTS = replace(EIGHT, epilogue=eights.text, operand_types=(("float32", "row"),))


@pytest.mark.parametrize(
    "options",
    [
        {"tile_m": 3},
        {"warps": 32},
        {"tile_m": 8, "columns": 8},
        {"warps": 4, "k_warps": 3},
        {"columns": 8, "unroll": 8, "warps": 16},
        {"ctas_per_sm": 9},
        {"ctas_per_sm": -1},
        {"signature": replace(HALF, epilogue=swiglu.text), "columns": 1},
        {"signature": replace(HALF, epilogue=largest.text)},
        {"signature": replace(HALF, a_major="mn")},
        {"signature": replace(HALF, b_align=8)},
        {"signature": replace(HALF, batch_modes=1)},
        {"signature": replace(EIGHT, scale_rows=(1, 128))},
        {"signature": GemmSignature(a_dtype="int8", b_dtype="uint8", out_dtype="int32")},
    ],
)
def test_what_the_kernel_cannot_do_is_refused(options):
    with refuses(ValueError):
        Half(**options)


def test_fields_are_whole_numbers():
    with refuses(TypeError):
        Half(unroll=2.0)


def test_enough_is_on_its_way_where_registers_suffice():
    """32 KiB of B for each SM are what 4.2 TB/s are in a microsecond."""
    for signature, rows in ((HALF, (1, 2, 4)), (EIGHT, (1,))):
        for m in rows:
            for n, k in SHAPES:
                assert select_gemv(signature, m, n, k).flying_bytes >= 4.2e12 / 132 * 1e-6
    assert Half(columns=4, unroll=2, warps=4).flying_bytes == ENOUGH_BYTES


def test_shared_memory_is_the_least_percentage_that_ctas_fit_in():
    percentages = set()
    for _, config in (each for m in (1, 2, 4, 8) for each in configs(HALF, m, 4096, 7168, 132)):
        taken = config.ctas_per_sm * (config.smem.size_bytes + arch.RESERVED_SMEM_BYTES) / arch.SMEM_BYTES_PER_SM
        assert config.smem_percent - 1 < 100 * taken <= config.smem_percent
        percentages.add(config.smem_percent)
    assert percentages >= {1, 5}


@pytest.mark.parametrize("signature", [HALF, EIGHT, IN_PARTS], ids=["16 bits", "8 bits", "columns in 8 parts"])
@pytest.mark.parametrize("shape", [*SHAPES, (64, 16384), (512, 300)], ids=str)
def test_the_order_of_sums_depends_on_no_m(signature, shape):
    assert len({select_gemv(signature, m, *shape).k_warps for m in (1, 2, 3, 4, 7, 8, 20)}) == 1


def test_the_model_knows_what_bounds_it():
    one, eight = Half(tile_m=1), Half(tile_m=8)
    read = 8192 * 8192 * 2 * Costs().memory_byte
    assert read < expected_us(one, 1, 8192, 8192) < read + 4
    assert expected_us(eight, 8, 8192, 8192) > expected_us(one, 1, 8192, 8192)
    assert expected_us(one, 8, 8192, 8192) > 2 * expected_us(eight, 8, 8192, 8192), "B is read from L2 for each row"
    slow = replace(Costs(), memory_byte=2 * Costs().memory_byte)
    assert expected_us(one, 1, 8192, 8192, costs=slow) > 1.8 * expected_us(one, 1, 8192, 8192)


def test_tuning_tries_few_rows_without_tensor_cores_and_nothing_else():
    def families(signature, *extents):
        found = tuned.candidates(tuned.problem_of(signature, *extents))
        return {(each.get("family"), each["transposed"]) for each in found}

    assert ("gemv", False) in families(HALF, 4, 4096, 4096)
    assert ("gemv", True) in families(HALF, 4096, 4, 4096)
    for signature, *extents in (
        (HALF, MOST_ROWS + 1, 4096, 4096),
        (replace(HALF, b_major="mn"), 4, 4096, 4096),
        (replace(HALF, epilogue=largest.text), 4, 4096, 4096),
    ):
        assert "gemv" not in {family for family, _ in families(signature, *extents)}
    assert not configs(replace(HALF, batch_modes=1), 1, 64, 64)


def test_few_rows_are_multiplied_without_tensor_cores_where_that_was_faster():
    for signature, extents, is_gemv in (
        (HALF, (1, 8192, 8192), True),
        (HALF, (8192, 1, 8192), True),
        (HALF, (2, 14336, 4096), True),
        (HALF, (4, 8192, 8192), False),
        (HALF, (4, 2048, 1024), True),
        (HALF, (8, 4096, 4096), False),
        (EIGHT, (1, 14336, 4096), True),
        (EIGHT, (2, 14336, 4096), False),
        (replace(HALF, b_major="mn"), (1, 8192, 8192), False),
        (replace(HALF, epilogue=largest.text), (1, 8192, 8192), False),
        (replace(HALF, batch_modes=1), (1, 8192, 8192), False),
        (GemmSignature(a_dtype="float32", b_dtype="float32", out_dtype="float32"), (1, 8192, 8192), False),
    ):
        assert isinstance(fastest(signature, *extents).config, GemvConfig) == is_gemv, (signature, extents)
    with batch_invariant():
        assert isinstance(fastest(HALF, 1, 8192, 8192).config, GemmConfig)


def test_both_families_are_compared_on_the_gpu_that_is_meant():
    assert isinstance(fastest(HALF, 4, 8192, 8192, gpu=H100).config, GemmConfig), "slower memory slows both"
    few = fastest(HALF, 2, 1000, 4096, gpu=replace(H200, sm_count=100))
    assert few == choose_gemv(HALF, 2, 1000, 4096, 100) != fastest(HALF, 2, 1000, 4096)


@pytest.mark.parametrize("signature", [HALF, EIGHT], ids=["16 bits", "8 bits"])
@given(m=st.integers(1, 8), n=st.integers(1, 40_000), k=st.integers(1, 40_000), transposed=st.booleans())
def test_what_is_chosen_computes_the_product(signature, m, n, k, transposed):
    rows, columns = (n, m) if transposed else (m, n)
    transposed, config = fastest(signature, rows, columns, k)
    if isinstance(config, GemvConfig):
        assert min(m, n) <= config.tile_m
        assert (columns if transposed else rows) == min(m, n)


def test_a_winner_is_found_again_and_not_in_batches_that_are_to_be_alike(monkeypatch, tmp_path):
    torch = pytest.importorskip("torch")
    from cutepy.kernels.gemm import op
    from cutepy.ops import batch_invariant

    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))
    problem, chosen = tuned.problem_of(HALF, 4, 4096, 4096), ChosenKernel(False, select_gemv(HALF, 4, 4096, 4096))
    candidate = tuned.candidate_of(chosen)
    assert key_of(candidate)
    assert tuned.chosen_of(problem, candidate) == chosen
    keep("NVIDIA H200", tuned.NAME, [Winner(problem, candidate, 1.0, 2.0, 9)])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(op, "gpu_of", lambda _: H200)
    asked = torch.device("cuda"), HALF, 4, 4096, 4096, 1
    assert op.choose_on(*asked) == chosen
    with batch_invariant():
        assert isinstance(op.choose_on(*asked).config, GemmConfig)
