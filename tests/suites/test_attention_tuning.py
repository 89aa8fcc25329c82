"""Trials of attention's candidates, on the CPU: the tensors of each launch, with stand-ins for what launches; masks."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.kernels.attention import op, tuned  # noqa: E402
from cutepy.ops import attention  # noqa: E402, F401 - what takes long is loaded here
from cutepy.suites import attention_peers, attention_problems, attention_tuning, tuning  # noqa: E402
from cutepy.suites.attention_problems import AttentionProblem  # noqa: E402
from cutepy.suites.attention_tuning import AttentionTrial  # noqa: E402
from cutepy.tune import Winner  # noqa: E402

pytestmark = pytest.mark.dsl


def asked(kind, right=0, dtype="float16"):
    return tuned.Problem(kind, dtype, 2, 40, 48, 4, 2, 64, 32, None, right)


@pytest.fixture
def trial(monkeypatch):
    """Give a trial with two sets of tensors."""
    from cutepy import benchmark

    monkeypatch.setattr(benchmark, "buffer_sets", lambda each_bytes: 2)
    monkeypatch.setattr(attention_tuning.tuned, "chosen_of", lambda problem, candidate: ("chosen", problem, candidate))
    return lambda *given: AttentionTrial(asked(*given), "cpu")


def test_each_set_is_attended_into_its_own_results(trial, monkeypatch):
    planned, launched = [], []

    def plan(*given, chosen):
        planned.append((given, chosen))
        return lambda *tensors: launched.append(tensors)

    monkeypatch.setattr(op, "plan_forward", plan)
    made = trial("forward")
    for index in (0, 1, 0):
        made.launch(None, {"stages": 2}, index)
    ((given, chosen),) = planned
    assert chosen == ("chosen", asked("forward"), {"stages": 2})
    assert given[3:] == (64**-0.5, None, 0)
    assert [tuple(each.shape) for each in given[:3]] == [(2, 40, 4, 64), (2, 48, 2, 64), (2, 48, 2, 32)]
    for (q, k, v, o, lse), index in zip(launched, (0, 1, 0), strict=True):
        assert all(found is kept for found, kept in zip((q, k, v), made._given[index], strict=False))
        assert (o, lse) == made._results[index] or all(
            found is kept for found, kept in zip((o, lse), made._results[index], strict=True)
        )
        assert (o.shape, lse.shape, lse.dtype) == ((2, 40, 4, 32), (2, 4, 40), torch.float32)
    assert launched[0][0] is not launched[1][0]
    made.launch(None, {"stages": 3}, 0)
    assert len(planned) == 2


def test_gradients_of_each_set_are_derived_into_its_own_results(trial, monkeypatch):
    planned, launched = [], []

    def plan(*given, chosen):
        planned.append((given, chosen))
        return lambda *given: launched.append(given)

    monkeypatch.setattr(op, "plan_backward", plan)
    made = trial("backward")
    assert made.sets == 2
    for index in (0, 1):
        made.launch(None, {"stages": 2}, index)
    ((given, chosen),) = planned
    assert given[3:] == (64**-0.5, None, 0)
    do, q, k, v, o, lse, dlse, grads = launched[1]
    assert all(found is kept for found, kept in zip((q, k, v, do), made._given[1], strict=True))
    assert all(found is kept for found, kept in zip(grads, made._results[1], strict=True))
    assert [each.shape for each in grads] == [q.shape, k.shape, v.shape]
    assert (dlse, chosen[0]) == (None, "chosen")
    assert (o.shape, lse.shape) == (do.shape, (2, 4, 40))


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_results_are_compared_once_and_poisoned(trial, kind):
    made = trial(kind)
    for found, wanted in zip(made._results[0], made._reference(), strict=False):
        found.copy_(wanted)
    assert made.complaint() is None
    assert made._results[0][0].isnan().all()
    assert "the relative error is nan, and at most 2.0e-03 is expected" in str(made.complaint())
    for found, wanted in zip(made._results[0], made._reference(), strict=False):
        found.copy_(wanted * (1 + 2.0**-6))
    assert "the relative error is 1.6e-02" in str(made.complaint())


def test_the_largest_errors_are_a_few_roundings():
    """Of numbers with so many bits: two roundings of 16-bit results; e4m3 results are of probabilities in 4 bits."""
    for name, limit in attention_tuning.LARGEST_ERROR.items():
        rounding = torch.finfo(getattr(torch, name)).eps / 2
        assert limit == (rounding / 2 if name == "float8_e4m3fn" else 4 * rounding)


def test_winners_are_told_with_all_that_is_chosen():
    """Options that are off are left out, those that are on are named, and others have their values."""
    names, gains = ["first", "second"], (2.0, 8.0)
    chosen = {"off": False, "on": True, "none": 0, "one": 1, "tile": 64}
    won = [Winner({}, chosen, 1.0, gain, 7) for gain in gains]
    *lines, mean = tuning.table(names, won).splitlines()
    for name, gain, line in zip(names, gains, lines, strict=True):
        assert line.startswith(f"{name}: 1.0 us, {gain:.3f} times as fast as the {gain:.1f} us ")
        assert line.endswith("of 7 candidates; on none=0 one=1 tile=64")
    assert mean.startswith("2 problems, 4.000 times")


def test_the_window_of_ours_is_that_of_the_problem(monkeypatch):
    """With equal weights a key whose value is large shows which queries see it."""
    window = 24
    for module in (attention_problems, attention_peers):
        monkeypatch.setattr(module, "WINDOW", window)
    problem = AttentionProblem("masks", 1, window + 40, 1, 1, 64, causal=True, rule="window")
    made = attention_problems.buffers(problem, "cpu")
    made.q[0].zero_()
    made.v[0].zero_()
    made.v[0][:, 3] = 1e4
    sees = [out.flatten(2).abs().sum(-1)[0] > 0 for out in (attention_peers.ours(problem, made)(0),)]
    sees.append(attention_problems.wanted(problem, made).flatten(2).abs().sum(-1)[0] > 0)
    expected = torch.tensor([3 <= query < window + 3 for query in range(window + 40)])
    assert all(torch.equal(each, expected) for each in sees)
