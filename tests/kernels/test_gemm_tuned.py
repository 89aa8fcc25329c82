"""Candidates of `cutepy tune gemm`, and the products that run a stored winner."""

from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given, strategies as st

from cutepy.kernels.gemm import GemmConfig, GemmSignature, tuned
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel, choose
from cutepy.kernels.gemv.choice import fastest
from cutepy.tune.winners import Winner, keep, key_of

DEVICE = "NVIDIA H200"
HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
SIGNATURES = (
    HALF,
    GemmSignature(a_dtype="bfloat16", b_dtype="bfloat16", out_dtype="float32", a_major="mn", out_major="col"),
    GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", out_dtype="bfloat16", batch_modes=1),
    GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16", bias_dtype="float16"),
    GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16", c_dtype="float32", c_major="col"),
    replace(HALF, a_align=8, b_align=4),
    GemmSignature(
        a_dtype="float8_e4m3fn",
        b_dtype="float8_e4m3fn",
        out_dtype="bfloat16",
        scale_rows=(1, 128),
        tma_scales=(True, False),
    ),
)


def test_the_operands_of_an_epilogue_are_described_too():
    from cutepy.epilogues import Row, Scalar, Tile, epilogue

    @epilogue
    def finish(acc, bias: Row, scale: Scalar, residual: Tile):
        return acc * scale + bias + residual

    types = (("float32", ""), ("", ""), ("bfloat16", "row"))
    signature = replace(HALF, epilogue=finish.text, operand_types=types)
    described = tuned.problem_of(signature, 64, 64, 64)
    assert key_of(described)
    assert tuned.signature_of(described) == signature


def test_what_is_usual_is_left_out_of_descriptions():
    """As of problems whose winners were kept before there was anything else."""
    assert not {"a_align", "b_align", "tma_scales"} & tuned.problem_of(HALF, 64, 64, 64).keys()


EXTENTS = [(16, 512, 4096), (512, 512, 512), (64, 64, 65536)]


def test_few_rows_are_transposed_with_a_bias_and_not_where_columns_are_parted():
    from cutepy.epilogues import swiglu

    biased = choose(SIGNATURES[3], 16, 8192, 8192)
    assert biased.transposed
    assert biased.config.signature.graph.operand("bias").shape == "column"
    assert not choose(replace(HALF, epilogue=swiglu.text), 16, 8192, 8192).transposed


@given(st.sampled_from(SIGNATURES), *[st.sampled_from((1, 16, 64, 200, 1000, 4096, 16384))] * 3)
def test_what_the_model_chooses_is_described_and_made_again(signature, m, n, k):
    problem = tuned.problem_of(signature, m, n, k)
    assert key_of(problem)
    assert tuned.signature_of(problem) == signature
    assert tuned.chosen_of(problem, tuned.default(problem)) == fastest(signature, m, n, k)


@pytest.mark.parametrize(("signature", "extents"), list(zip(SIGNATURES, cycle(EXTENTS), strict=False)))
def test_candidates_can_be_configured_and_have_the_best_of_the_model_among_them(signature, extents):
    problem = tuned.problem_of(signature, *extents)
    found = tuned.candidates(problem, most=40)
    assert len({key_of(candidate) for candidate in found}) == len(found) == 40
    configs = [tuned.chosen_of(problem, candidate) for candidate in found]
    assert tuned.default(problem) in tuned.candidates(problem)
    assert {chosen.transposed for chosen in configs} == {False, True}
    for chosen in configs:
        assert chosen.config.signature == (signature.transposed if chosen.transposed else signature)


def test_shares_of_waves_and_tiles_of_8_columns_are_tried():
    found = tuned.candidates(tuned.problem_of(HALF, 64, 168, 4096), most=10**6)
    assert any(candidate["stream_k"] and candidate["tile_n"] == 168 for candidate in found)
    assert not any(candidate["stream_k"] and candidate["split_k"] > 1 for candidate in found)
    short = tuned.candidates(tuned.problem_of(HALF, 64, 168, 256), most=10**6)
    assert not any(candidate["stream_k"] for candidate in short), "too little of K for two"


def test_subtiles_of_epilogues_are_parts_of_their_tiles():
    found = tuned.candidates(tuned.problem_of(HALF, 64, 168, 4096), most=10**6)
    subtiles = {n: {each["epi_n"] for each in found if each["tile_n"] == n} for n in (80, 160)}
    assert subtiles == {80: {16, 40}, 160: {16, 32}}, "a tile of two halves has even ones"


def test_tiles_that_are_dealt_out_while_a_launch_runs_are_tried_of_the_best():
    problem = tuned.problem_of(HALF, 8192, 8192, 512)
    found = tuned.candidates(problem)
    count = sum(candidate["dynamic"] for candidate in found)
    assert 10 < count < 50
    assert not any(candidate["dynamic"] for candidate in found[:2])
    assert not any(candidate["stream_k"] and candidate["dynamic"] for candidate in found)
    small = tuned.candidates(tuned.problem_of(HALF, 64, 168, 4096), most=10**6)
    assert not any(candidate["dynamic"] for candidate in small), "one tile for each SM at most"
    assert not tuned.default(problem)["dynamic"]


def test_a_winner_is_found_for_its_problem_and_one_of_another_kernel_is_not(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))
    config = GemmConfig(signature=HALF, tile_m=64, tile_n=48, epi_n=16)
    kept, stale = tuned.problem_of(HALF, 64, 48, 512), tuned.problem_of(HALF, 64, 48, 256)
    candidate = tuned.candidate_of(ChosenKernel(False, config))
    keep(
        DEVICE,
        tuned.NAME,
        [Winner(kept, candidate, 1.0, 2.0, 9), Winner(stale, {**candidate, "tile_x": 3}, 1.0, 2.0, 9)],
    )
    assert tuned.tuned(DEVICE, HALF, 64, 48, 512) == (ChosenKernel(False, config), 1.0)
    assert tuned.tuned(DEVICE, replace(HALF, a_align=8), 64, 48, 512) is None
    assert tuned.tuned(DEVICE, HALF, 64, 48, 512, batch=2) is None
    assert tuned.tuned(DEVICE, HALF, 64, 48, 256) is None


@pytest.mark.dsl
def test_a_problem_is_computed_as_it_was_chosen(monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    import cutepy
    from cutepy.kernels.gemm import op
    from cutepy.ops.checking import describe

    asked = []
    real = op.compile_gemm
    monkeypatch.setattr(op, "compile_gemm", lambda config: asked.append(config) or real(config))
    a, b = torch.randn(24, 64).half(), torch.randn(16, 64).half()
    out = torch.empty(24, 16).half()
    problem = describe(a, b, outs=(out,))
    config = GemmConfig(signature=HALF.transposed, tile_m=64, tile_n=32, stages=2)
    with cutepy.simulate():
        launch = op.plan_gemm(problem, ChosenKernel(True, config))
        launch(a, b, (), (out,))
    assert asked == [config]
    torch.testing.assert_close(out.float(), (a.double() @ b.double().mT).float(), rtol=1e-3, atol=1e-3)
