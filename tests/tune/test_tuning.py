"""Heats, finals and winners, and what becomes of candidates that fail."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cutepy.suites import tuning
from cutepy.tune import Tuning, TuningError, winner, winners
from cutepy.tune.winners import folder
from tests.messages import refuses
from tests.tune.fakes import Drifting, Fake, compare

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
DEVICE = "NVIDIA H200"
PROBLEMS = [{"m": 2}, {"m": 8}]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CUTEPY_TUNED", raising=False)


def tune(fake, problems=PROBLEMS, **settings):
    return Tuning(fake, DEVICE, compare=compare, **settings).run(problems)


def test_the_fastest_candidate_wins_beside_the_default():
    small, large = tune(Fake())
    assert small.candidate == {"tile": 2, "stages": 3}
    assert (small.us, small.default_us, small.compared) == (1 / 3, 1.5, 4)
    assert large.candidate == {"tile": 8, "stages": 3}
    assert (large.us, large.default_us, large.compared) == (1 / 3, 7.5, 8)
    assert large.gain == pytest.approx(22.5)


def test_winners_are_kept_and_found_by_the_problem_whatever_its_order(monkeypatch):
    tune(Fake(), [{"m": 2, "n": 1}])
    assert winner(DEVICE, "fake", {"n": 1, "m": 2}).candidate == {"tile": 2, "stages": 3}
    assert winner(DEVICE, "fake", {"n": 1, "m": 3}) is None
    assert winner("NVIDIA H100", "fake", {"n": 1, "m": 2}) is None
    assert winner(DEVICE, "other", {"n": 1, "m": 2}) is None
    monkeypatch.setenv("CUTEPY_TUNED", "off")
    assert winner(DEVICE, "fake", {"n": 1, "m": 2}) is None


def test_later_winners_replace_those_of_the_same_problem_only():
    tune(Fake())
    tune(Fake(wrong=(8,)), [{"m": 8}], resume=False)
    assert {key: won.candidate["tile"] for key, won in winners(DEVICE, "fake").items()} == {
        '{"m":2}': 2,
        '{"m":8}': 4,
    }


def test_a_line_that_was_cut_off_or_of_another_version_is_no_winner():
    tune(Fake())
    path = folder(DEVICE) / "fake.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '{"problem": {"m": 3}, "winner": 1}', "[1]", lines[1][:20]]))
    assert list(winners(DEVICE, "fake")) == ['{"m":2}']


class Foreseen(Fake):
    """Is predicted to take what it takes, but for tiles that nothing is known of."""

    def predict(self, pairs):
        return [
            None if candidate["tile"] == 4 else abs(problem["m"] - candidate["tile"]) + 1 / candidate["stages"]
            for problem, candidate in pairs
        ]


def test_candidates_that_are_predicted_to_be_slow_are_not_tried():
    fake = Foreseen()
    (won,) = tune(fake, [{"m": 8}], prune=1.4)
    assert won.candidate == {"tile": 8, "stages": 3}
    tried = {(tile, stages) for _, tile, stages in fake.launched}
    assert tried == {(8, 3), (4, 2), (4, 3), (1, 2)}  # the best, those without a prediction, and the default


def test_a_factor_below_one_is_refused():
    with refuses(ValueError):
        tune(Foreseen(), prune=0.9)


def test_without_predictions_nothing_is_pruned():
    fake = Fake()
    tune(fake, [{"m": 8}], prune=1.0)
    assert len({(tile, stages) for _, tile, stages in fake.launched}) == 8


def test_what_was_timed_before_is_not_timed_again():
    first, again, anew = Fake(), Fake(), Fake()
    tune(first, [{"m": 8}])
    assert [won.candidate["tile"] for won in tune(again, [{"m": 8}])] == [8]
    tune(anew, [{"m": 8}], resume=False)
    finalists = 5 + 1  # the default besides
    heats, launches = 8, 2  # of each, which has two sets; tried alone first; in the final one more, which is checked
    assert len(first.launched) == len(anew.launched) == 2 * heats * launches + finalists * (launches + 1)
    assert len(again.launched) == finalists * (launches + 1)


@pytest.mark.parametrize("drift", [0.004, -0.004])
@pytest.mark.parametrize("first", [False, True])
def test_a_clock_that_drifts_does_not_change_who_wins(drift, first):
    """Over a round of all candidates it drifts by 3%, over three rounds of one after another by 10%."""
    fastest = {"tile": 1, "stages": 2} if first else {"tile": 8, "stages": 3}

    def us(candidate):
        return 1.0 if candidate == fastest else 1.05

    fake = Fake()
    fake.default = lambda problem: None
    (won,) = Tuning(fake, DEVICE, compare=Drifting(us, drift), finalists=1).run([{"m": 8}])
    assert won.candidate == fastest


def test_candidates_that_are_new_meet_those_that_were_timed_before():
    few, all_of_them = Fake(), Fake()
    few.candidates = lambda problem: [{"tile": 1, "stages": 3}]
    tune(few, [{"m": 8}], finalists=1)
    tune(all_of_them, [{"m": 8}], finalists=1)
    heats, tried, launches, finalists = 8, 8 - 2, 2, 2
    assert len(all_of_them.launched) == (tried + heats) * launches + finalists * (launches + 1)


def test_where_a_heat_ends_in_an_error_what_candidates_took_alone_counts():
    def all_at_once_fails(contenders, **how):
        if len(contenders) == 8:
            raise RuntimeError("out of memory")
        return compare(contenders, **how)

    for again in (Fake(), Fake()):
        (won,) = Tuning(again, DEVICE, compare=all_at_once_fails).run([{"m": 8}])
        assert (won.candidate, won.compared) == ({"tile": 8, "stages": 3}, 8)
    assert len(again.launched) == (5 + 1) * 3  # no heat


def test_candidates_that_fail_are_left_out_and_not_tried_again():
    fake = Fake(uncompilable=(8,), unlaunchable=(4,), wrong=(2,))
    (won,) = tune(fake, [{"m": 8}])
    assert won.candidate == {"tile": 1, "stages": 3}
    again = Fake()
    (won,) = tune(again, [{"m": 8}])
    assert won.candidate["tile"] == 1
    # All are timed or have failed, so that there is no heat: both that work are compiled for the final, and meet there.
    assert again.compiled == [1, 1]
    assert again.launched == [(8, 1, 2), (8, 1, 3)] + [(8, 1, 2)] * 2 + [(8, 1, 3)] * 2


def test_a_problem_whose_candidates_all_failed_has_no_heat_again():
    for fake in (Fake(uncompilable=(1,)), Fake(unlaunchable=(1,)), Fake(wrong=(1,))):
        with refuses(TuningError):
            tune(fake, [{"m": 1}], resume=False)
        again = Fake()
        with refuses(TuningError):
            tune(again, [{"m": 1}])
        assert (again.compiled, again.launched) == ([], [])


def test_a_candidate_that_was_tried_and_not_timed_has_a_heat_when_tuning_goes_on():
    """Its line has no time and no failure; that of a candidate that failed has no time either."""
    tune(Fake(unlaunchable=(4,)), [{"m": 8}])
    path = next(folder(DEVICE).glob("fake.*.heats"))
    *before, last = (json.loads(line) for line in path.read_text().splitlines())
    assert last[3] is not None
    before.append([*last[:3], None, ""])
    path.write_text("".join(json.dumps(line) + "\n" for line in before))
    again = Fake()
    tune(again, [{"m": 8}])
    assert {tile for _, tile, _ in again.launched} == {1, 2, 8}
    assert len(again.launched) == 6 * 2 + 6 * 3  # a heat of the six that work, and their final


def test_a_problem_without_a_candidate_that_works_is_told_and_the_others_are_kept():
    with refuses(TuningError):
        tune(Fake(uncompilable=(1,)), [{"m": 1}, {"m": 4}])
    assert winner(DEVICE, "fake", {"m": 4}).candidate["tile"] == 4
    with refuses(TuningError):
        tune(Fake(wrong=(1,)), [{"m": 1}], resume=False)


def test_the_status_of_a_command_tells_that_a_problem_has_no_winner(monkeypatch, capsys):
    monkeypatch.setattr(tuning, "require_hopper", lambda command: True)
    monkeypatch.setattr(tuning, "Tuning", lambda tunable, **rest: Tuning(tunable, DEVICE, compare=compare, **rest))
    options = {"resume": False, "note": lambda *_: None}
    assert tuning.run("tune fake", Fake(), [("one", {"m": 4})], **options) == 0
    assert "one" in capsys.readouterr().out
    assert tuning.run("tune fake", Fake(uncompilable=(1,)), [("one", {"m": 1})], **options) == 1
    assert capsys.readouterr().err


def test_problems_that_make_no_sense_are_refused():
    with refuses(ValueError):
        tune(Fake(), [{"m": 1}, {"m": 1}])
    with refuses(TypeError):
        tune(Fake(), [{"m": (1, 2)}])
    empty = Fake()
    empty.default = lambda problem: None
    with refuses(ValueError):
        tune(empty, [{"m": 0}])


def test_nothing_is_written_where_nothing_is_to_be_kept(tmp_path):
    tune(Fake(), keep=False)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told():
    told = []
    tune(Fake(), [{"m": 1}], note=lambda *facts: told.append(facts))
    assert told[0] == ("compiling", 0, 2)
    assert ("heats", 2, 2) in told
    assert told[-1] == ("finals", 1, 1)


def test_heats_of_other_sources_do_not_count():
    first, second = Fake(), Fake()
    first.sources_digest, second.sources_digest = (lambda: "a"), (lambda: "b")
    tune(first, [{"m": 8}])
    tune(second, [{"m": 8}])
    assert len(second.launched) == len(first.launched)


def run(script, *command, **environment):
    return subprocess.run(
        [*command, "-c", textwrap.dedent(script)] if command == (sys.executable,) else [*command],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_candidate_that_ends_the_process_is_left_out_by_the_next():
    script = """
    from cutepy.tune import Tuning
    from tests.tune.fakes import Drifting, Fake, compare
    fake = Fake(deadly=(8,))
    (won,) = Tuning(fake, "NVIDIA H200", compare=compare).run([{"m": 8}])
    print(won.candidate, len(fake.launched))
    """
    for _ in range(2):  # two candidates have this tile
        assert run(script, sys.executable).returncode == 3
    done = run(script, sys.executable)
    # Six that were tried before run their heat, and then the final.
    assert done.stdout.strip() == f"{{'tile': 4, 'stages': 3}} {6 * 2 + 6 * 3}", done.stderr


def test_a_process_that_ends_in_a_heat_is_followed_by_one_without():
    script = """
    import os
    from cutepy.tune import Tuning
    from tests.tune.fakes import Fake, compare
    fake = Fake()
    def ending(contenders, **how):
        return os._exit(3) if len(contenders) == 8 else compare(contenders, **how)
    (won,) = Tuning(fake, "NVIDIA H200", compare=ending).run([{"m": 8}])
    print(won.candidate, len(fake.launched))
    """
    assert run(script, sys.executable).returncode == 3
    done = run(script, sys.executable)
    assert done.stdout.strip() == "{'tile': 8, 'stages': 3} 18", done.stderr


@pytest.mark.deep
@pytest.mark.integration
def test_two_ranks_share_the_work_and_find_the_same(tmp_path):
    script = tmp_path / "tune_on_ranks.py"
    script.write_text(
        textwrap.dedent("""
        import json, os, sys
        from pathlib import Path
        from cutepy.tune import Tuning
        from tests.tune.fakes import Drifting, Fake, compare
        told = {}
        note = lambda what, done, total: told.update({what: total})
        found = Tuning(Fake(), "NVIDIA H200", compare=compare, note=note).run([{"m": m} for m in (1, 2, 4, 8)])
        facts = [[won.candidate for won in found], told["heats"], told["finals"]]
        Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(facts))
        """)
    )
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = run("", *torchrun, str(script), str(tmp_path))
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / rank).read_text()) for rank in "01")
    expected = [{"tile": tile, "stages": 3} for tile in (1, 2, 4, 8)]
    assert first == second == [expected, (2 + 4 + 6 + 8) // 2, 2]
    assert [won.candidate for won in winners(DEVICE, "fake").values()] == expected
    again = Fake()
    tune(again, [{"m": 8}])  # has the heats of both
    assert len(again.launched) == (5 + 1) * 3
