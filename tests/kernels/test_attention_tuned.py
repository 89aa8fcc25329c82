"""Candidates of `cutepy tune attention`: that they compute what they should, and that winners are used."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.attention import op, tuned  # noqa: E402
from cutepy.kernels.attention.config import Lengths  # noqa: E402
from cutepy.kernels.attention.tuned import Problem  # noqa: E402
from cutepy.suites.attention_tuning import AttentionTrial, AttentionTunable  # noqa: E402
from cutepy.tune.winners import Winner, keep, key_of  # noqa: E402
from tests.messages import refuses  # noqa: E402

DEVICE = "NVIDIA H200"


def problem(kind="forward", dtype="bfloat16", tokens=4096, head=128, **changes):
    facts = {"batch": 2, "queries": tokens, "keys": tokens, "heads": 8, "kv_heads": 8, "head": head, "head_v": head}
    return Problem(kind, dtype, **facts | changes)


PROBLEMS = [
    problem(kind, dtype, tokens, head, right=right)
    for kind in ("forward", "backward")
    for dtype in ("bfloat16", "float8_e4m3fn")
    for tokens in (64, 512, 4096)
    for head in (64, 96, 128, 192, 256)
    for right in (None, 0)
    if (kind, dtype) != ("backward", "float8_e4m3fn")
]


@pytest.mark.parametrize("asked", PROBLEMS, ids=str)
def test_what_the_rules_choose_is_described_and_made_again(asked):
    default = tuned.candidate_of(tuned.rules_choice(asked))
    assert key_of(asked.settings)
    assert tuned.problem_of(asked.settings) == asked
    assert tuned.chosen_of(asked, default) == tuned.rules_choice(asked)


@pytest.mark.parametrize("asked", PROBLEMS, ids=str)
def test_candidates_fit_and_differ(asked):
    found = tuned.candidates(asked, most=10**6)
    assert len({key_of(candidate) for candidate in found}) == len(found) >= 2
    assert tuned.candidates(asked, most=1) == found[:1]
    for candidate in found:
        config, _ = tuned.chosen_of(asked, candidate)
        assert config.smem.fits
        assert config.warpgroups == (config.tile_m // 64 if asked.kind == "forward" else 2)
    if asked.queries > 512:
        assert tuned.candidate_of(tuned.rules_choice(asked)) in found


@pytest.mark.parametrize(("heads", "packs"), [(8, False), (32, True), (64, True)])
def test_candidates_pack_the_heads_that_share_keys_where_the_rules_do(heads, packs):
    asked = problem(head=64, heads=heads, right=0)
    rules = tuned.rules_choice(asked).config
    assert (rules.packed > 1) == packs
    described = tuned.shortened(
        asked, tuned.candidate_of(tuned.AttentionChoice(replace(rules, packed=1), False)), rules
    )
    assert described.get("packed") == (rules.packed if packs else None)


def test_a_candidate_whose_stages_do_not_fit_is_none():
    asked = problem(head=256)
    with refuses(ValueError):
        tuned.chosen_of(asked, {**tuned.candidate_of(tuned.rules_choice(asked)), "stages": 4})


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CUTEPY_TUNED", raising=False)
    op._tuned.cache_clear()
    yield
    op._tuned.cache_clear()


def test_a_winner_is_found_for_its_problem_and_one_of_another_kernel_is_not(cache):
    kept, stale = problem(), problem(tokens=512)
    candidate = tuned.candidates(kept)[3]
    winners = [Winner(kept.settings, candidate, 1.0, 2.0, 9)]
    winners += [Winner(stale.settings, {**candidate, "tile_x": 3}, 1.0, 2.0, 9)]
    keep(DEVICE, tuned.NAME, winners)
    assert tuned.tuned(DEVICE, kept) == tuned.chosen_of(kept, candidate)
    assert tuned.tuned(DEVICE, stale) is None
    assert tuned.tuned(DEVICE, problem(right=0)) is None
    assert tuned.tuned(DEVICE, problem("backward")) is None


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU, of which there is none."""

    device = torch.device("cuda")


@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_a_winner_is_found_for_tensors_unless_results_must_not_depend_on_it(cache, monkeypatch, kind):
    asked = problem(kind, tokens=256, head=64, heads=4, kv_heads=2)
    candidate = tuned.candidates(asked)[-1]
    keep(DEVICE, tuned.NAME, [Winner(asked.settings, candidate, 1.0, 2.0, 9)])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: DEVICE)
    q, k = (torch.zeros(2, 256, heads, 64, dtype=torch.bfloat16).as_subclass(OnGpu) for heads in (4, 2))
    assert op.tuned_for(kind, q, k, k, None, None) == tuned.chosen_of(asked, candidate)
    assert op.tuned_for(kind, q, k, k, None, 0) is None
    with cutepy.ops.batch_invariant():
        assert op.tuned_for(kind, q, k, k, None, None) is None
    with cutepy.simulate():
        assert op.tuned_for(kind, q, k, k, None, None) is None


def test_a_winner_is_what_is_launched(monkeypatch):
    """And the rules' choice where the operation has functions of its scores, for which nothing is tuned."""
    q = torch.randn(1, 203, 2, 64).bfloat16().requires_grad_()
    found = {
        kind: tuned.chosen_of(asked, tuned.candidates(asked)[-1])
        for kind, asked in ((kind, problem(kind, tokens=203, head=64)) for kind in ("forward", "backward"))
    }
    monkeypatch.setattr(op, "tuned_for", lambda kind, *_: found[kind])
    with cutepy.simulate() as run:
        cutepy.ops.attention(q, q, q).sum().backward()
        cutepy.ops.attention(q, q, q, soft_cap=3.0).sum().backward()
    names = [launch.kernel for launch in run.launches]
    for chosen in found.values():
        assert sum(chosen.config.name in name for name in names) == 1, names


EACH = 1 << 30
"""CTAs, at most, where each tile has one."""


@pytest.mark.parametrize(
    ("is_persistent", "is_ordered", "right", "ctas"),
    [
        (None, False, 0, EACH),
        (None, True, 0, 132),
        (None, False, None, 132),
        (False, False, None, EACH),
        (False, True, None, 132),
        (True, False, 0, 132),
    ],
)
def test_gradients_in_order_have_all_their_ctas_on_the_gpu(monkeypatch, is_persistent, is_ordered, right, ctas):
    """Such CTAs wait for one another: a winner that has a CTA for each tile would hang."""
    rules = tuned.rules_choice(problem("backward", head=64, right=right))
    chosen = None if is_persistent is None else tuned.AttentionChoice(rules.config, is_persistent)
    assert launched_backward(monkeypatch, rules.config, right=right, is_ordered=is_ordered, chosen=chosen) == (
        ctas,
        is_ordered,
    )


def test_gradients_without_keys_take_no_order(monkeypatch):
    config = tuned.rules_choice(problem("backward", head=64)).config
    assert launched_backward(monkeypatch, config, left=0, right=0, is_ordered=True) == (132, True)
    assert launched_backward(monkeypatch, config, left=-1, right=0, is_ordered=True) == (EACH, False)
    assert launched_backward(monkeypatch, config, left=1, right=-1, is_ordered=True) == (132, True)


@pytest.mark.parametrize(("most_keys", "ctas"), [(None, EACH), (4096, EACH), (64, 132)])
def test_gradients_of_sequences_are_dealt_out_by_the_longest(monkeypatch, most_keys, ctas):
    config = tuned.rules_choice(problem("backward", head=64)).config
    lengths = Lengths(torch.tensor([0, 4096], dtype=torch.int32), torch.tensor([0, 4096], dtype=torch.int32))
    found = launched_backward(monkeypatch, config, lengths=lengths, most_keys=most_keys)
    assert found == (ctas, False)


def launched_backward(monkeypatch, config, *, left=None, right=None, is_ordered=False, lengths=None, **options):
    """Return how many CTAs compute the gradients, at most, and whether they have counters of an order."""
    launches = []

    def backward_of(*given, **_):
        return replace(config, ordered=given[6]), ignored, lambda *given: launches.append(given), ignored

    def ignored(*_):
        pass

    monkeypatch.setattr(op, "_backward_of", backward_of)
    q = torch.empty(*((1,) if lengths is None else ()), 4096, 1, 64, dtype=torch.bfloat16)
    launch = op.plan_backward(q, q, q, 1.0, left, right, lengths, is_ordered=is_ordered, **options)
    launch(q, q, q, q, q, torch.empty(1, 1, 4096), None, (q, q, q), lengths)
    ((*_, ctas, _, counters, _, _, _, _),) = launches
    return ctas, counters is not None


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_gradients_in_order_have_no_dealer(monkeypatch, is_ordered, is_dynamic):
    for name in ("compile_backward", "compile_rows_of_dq", "compile_statistics"):
        monkeypatch.setattr(op, name, lambda *_, **__: None)
    rules = tuned.rules_choice(problem("backward", head=64, right=0))
    chosen = rules._replace(config=replace(rules.config, dynamic=is_dynamic))
    given = "bfloat16", 64, 64, (False, True), rules.config.scoring, None, is_ordered, False, chosen, False
    config, *_ = op._backward_of.__wrapped__(*given, is_short=False)
    assert (config.ordered, config.dynamic) == (is_ordered, is_dynamic and not is_ordered)


TRIED = [
    ("forward", "bfloat16", 64),
    ("forward", "float16", 128),
    ("forward", "float8_e4m3fn", 128),
    ("backward", "bfloat16", 64),
    ("backward", "float16", 128),
    ("backward", "bfloat16", 192),
]


def try_candidate(asked, candidate):
    """Launch a candidate in the simulator, and compare its results with float64."""
    trial = AttentionTrial(asked, "cpu")
    with cutepy.simulate(sanitize=True, allow={"spilled-registers": "tuning times it"}) as run:
        trial.launch(None, candidate, 0)
    assert not run.hazards
    assert trial.complaint() is None, candidate
    assert "nan" in str(trial.complaint()), "results that were looked at are poisoned"


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize(("kind", "dtype", "head"), [TRIED[0], TRIED[3]])
def test_candidates_compute_attention(kind, dtype, head):
    asked = problem(kind, dtype, 250, head, batch=1, heads=2, kv_heads=1, right=0)
    try_candidate(asked, tuned.candidates(asked)[-1])


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_candidate_computes_attention(data):
    kind, dtype, head = data.draw(st.sampled_from(TRIED))
    asked = problem(kind, dtype, 250, head, batch=1, heads=2, kv_heads=1, right=data.draw(st.sampled_from([None, 0])))
    try_candidate(asked, data.draw(st.sampled_from(tuned.candidates(asked, most=10**6))))


def test_every_kernel_of_a_candidate_is_compiled():
    tunable, asked = AttentionTunable(), problem("backward")
    candidate = tunable.candidates(asked.settings)[0]
    names = [each.function.name for each in tunable.variants(asked.settings, candidate)]
    assert [name.partition(":")[2] for name in names] == ["Backward", "Statistics", "RowsOfDq"]
    assert tunable.variant(asked.settings, candidate).function.name == names[0]
    assert tunable.default(asked.settings) in tunable.candidates(asked.settings)
