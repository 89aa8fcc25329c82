"""Explanation of a choice: its candidates are the chooser's, in its order, and a part of their time decided."""

import math

import pytest

from cutepy.kernels.gemm import GemmConfig, GemmSignature, explain_choice
from cutepy.kernels.gemm.gpu import H100, Gpu
from cutepy.kernels.gemm.heuristic.choice import choose, chosen_us
from cutepy.kernels.gemv.choice import MOST_ROWS, fastest
from cutepy.kernels.gemv.config import GemvConfig
from tests.messages import pins, refuses

HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
UNALIGNED = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16", a_align=4, b_align=4)


@pytest.mark.parametrize(
    ("signature", "mnk", "batch", "gpu"),
    [
        (HALF, (4096, 4096, 4096), 1, H100),
        (HALF, (64, 64, 8192), 1, Gpu(78, 2.0)),
        (HALF, (16, 8192, 8192), 1, H100),
        (HALF, (512, 512, 512), 4, H100),
        (UNALIGNED, (1000, 501, 802), 1, H100),
    ],
)
def test_the_first_candidate_is_the_choice(capsys, signature, mnk, batch, gpu):
    explanation = explain_choice(signature, *mnk, batch=batch, gpu=gpu)
    assert capsys.readouterr().out == f"{explanation}\n"
    first = explanation.candidates[0]
    assert (first.transposed, first.config) == choose(signature, *mnk, batch=batch, gpu=gpu)
    assert first.expected_us == chosen_us(signature, *mnk, batch=batch, gpu=gpu)
    assert len(explanation.candidates) == 10
    times = [each.expected_us for each in explanation.candidates]
    assert times == sorted(times)
    for each in explanation.candidates:
        assert max(each.parts.values()) < each.model_us < sum(each.parts.values())
        assert ("copies by threads" in each.parts) == (signature is UNALIGNED)
        assert ("exchange of the split K" in each.parts) == (each.config.split_k > 1)
        assert (each.correction == 0) == (batch > 1 or signature is UNALIGNED)


@pytest.mark.parametrize(
    ("mnk", "family"),
    [
        ((1, 8192, 8192), GemvConfig),
        ((8192, 1, 8192), GemvConfig),
        ((4, 8192, 8192), GemmConfig),
        ((4, 2048, 1024), GemvConfig),
        ((9, 8192, 8192), GemmConfig),
    ],
)
def test_few_rows_have_a_candidate_without_tensor_cores(capsys, mnk, family):
    candidates = explain_choice(HALF, *mnk).candidates
    first = candidates[0]
    assert isinstance(first.config, family)
    assert (first.transposed, first.config) == fastest(HALF, *mnk)
    assert f"{first.name}  " in capsys.readouterr().out
    others = [each for each in candidates if isinstance(each.config, GemvConfig)]
    assert len(others) <= (min(mnk) <= MOST_ROWS)
    for each in others:
        assert "without tensor cores" in each.name
        rows, columns = mnk[1::-1] if each.transposed else mnk[:2]
        ctas = math.ceil(rows / each.config.tile_m) * math.ceil(columns / each.config.tile_n)
        assert each.waves * H100.sm_count * each.config.ctas_per_sm == pytest.approx(ctas)
        assert max(each.parts.values()) < each.expected_us == each.model_us < sum(each.parts.values())


@pytest.mark.parametrize(
    ("mnk", "batch", "kind"),
    [
        ((5136, 1080, 5984), 1, "the model: "),
        ((4096, 4096, 4096), 1, "the trees: the model alone"),
        ((8192, 8192, 512), 1, "the trees: to the next"),
        ((512, 512, 512), 4, "the order of the table"),
        ((1, 8192, 8192), 1, "the model: "),
    ],
)
def test_what_decided_is_told(mnk, batch, kind):
    explanation = explain_choice(HALF, *mnk, batch=batch)
    assert explanation.decided.startswith(kind)
    pins(explanation.decided)


def test_a_part_of_the_model_that_decided_is_shorter_than_in_the_next():
    explanation = explain_choice(HALF, 5136, 1080, 5984)
    pins(str(explanation))
    first, following = explanation.candidates[:2]
    less = {name: us - first.parts[name] for name, us in following.parts.items()}
    assert max(less, key=less.get) == "L2 cache"
    assert following.model_us - first.model_us < less["L2 cache"]


def test_a_problem_without_a_kernel_is_refused():
    with refuses(ValueError):
        explain_choice(HALF, 0, 8, 8)
