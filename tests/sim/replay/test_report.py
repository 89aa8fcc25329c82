"""Reports of a run: hazards with their witnesses, schedules with their differences, certificates."""

import html
import json
import re

import numpy as np
import pytest

import cutepy
from cutepy.sim import HazardError, Run
from cutepy.sim.machine.policies import HoldBack, Site, held_of, policy_named
from cutepy.sim.replay import Report
from cutepy.sim.sanitize import Hazards
from tests.messages import pins, refuses
from tests.sim.replay.kernels import RACE, module
from tests.sim.replay.test_witnesses import SHOWN, watched
from tests.sim.sanitize.sarif_rules import check_sarif


@pytest.fixture(scope="module")
def report():
    """A race, played, under three schedules of which some differ."""
    with pytest.raises(HazardError), cutepy.simulate(sanitize=True, replay=True, schedules=3, seed=5) as run:
        module(RACE).launch("k", 1, 64, (np.zeros(64, np.uint32),))
    return run.report(replay=True)


def test_a_report_plays_its_hazards_and_writes_their_scripts(report, tmp_path):
    (witness,) = report.replay()
    assert (witness.hazard.kind, witness.kind) == ("unordered-read", "values")
    assert report.reproducer(tmp_path / "race.py") == (tmp_path / "race.py",)
    both = Report.of_all([report, report])
    assert [path.name for path in both.reproducer(tmp_path / "race.py")] == ["race.py", "race-2.py"]
    assert all("nanosleep" in path.read_text() for path in tmp_path.iterdir())


def test_a_report_that_has_nothing_to_play_says_so():
    assert Report(Hazards()).replay() == ()
    with refuses(ValueError):
        Report(Hazards()).reproducer("race.py")
    with pytest.raises(HazardError), cutepy.simulate(sanitize=True) as run:
        module(RACE).launch("k", 1, 64, (np.zeros(64, np.uint32),))
    with refuses(RuntimeError):
        run.report().replay()


def test_json_has_the_schedules_that_were_played(report):
    told = json.loads(json.dumps(report.to_json()))
    assert [*told] == [
        "version",
        "hazards",
        "advisories",
        "allowed",
        "unused",
        "schedules",
        "certificates",
    ]
    (schedules,) = told["schedules"]
    assert (schedules["kernel"], schedules["launch"], schedules["played"]) == ("k", 0, 3)
    assert schedules["seeds"] == {"first": 5, "last": 7}
    for found in schedules["differ"]:
        assert (found["policy"], found["kind"]) == (f"schedule:{found['seed']}", "values")
        pins(found["what"])
    assert schedules["differ"]
    assert told["certificates"][0]["launches"] == 1


def test_json_has_the_schedule_that_plays_a_hazard(report):
    """The schedule's name plays the hazard in another run."""
    (hazard,) = json.loads(json.dumps(report.to_json()))["hazards"]
    witness = hazard["witness"]
    assert witness["kind"] == "values"
    pins(witness["how"])
    element, now, before = re.search(r"first \[(\d+)\] .*: (\d+), not (\d+)", witness["what"]).groups()
    for policy, value in ((None, before), (witness["policy"], now)):
        x = np.zeros(64, np.uint32)
        with cutepy.simulate(policy=policy):
            module(RACE).launch("k", 1, 64, (x,))
        assert x[int(element)] == int(value)


def test_text_notebook_and_sarif_say_it_too(report):
    (hazard,) = report.hazards
    text, page = str(report), report._repr_html_()
    assert html.unescape(re.sub(r"<[^>]*>", "", page)) == text
    log = report.to_sarif("script.py")
    check_sarif(log)
    (result,) = log["runs"][0]["results"]
    notes = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    for said in (text, result["message"]["text"]):
        assert f"itness: {hazard.witness.said}" in said
    pins(text)
    (explored,), (certificate,) = report.explorations, report.certificates
    for said, level in ((explored, "error"), (certificate, "note")):
        assert str(said) in text
        assert {"level": level, "message": {"text": str(said)}} in notes
    assert not report.is_clean


def test_a_report_needs_no_memory_but_for_witnesses():
    with pytest.raises(HazardError), cutepy.simulate(sanitize=True) as run:
        module(RACE).launch("k", 1, 64, (np.zeros(64, np.uint32),))
    assert run.report().to_json()["hazards"][0]["witness"] is None
    with refuses(RuntimeError):
        run.report(replay=True)
    (hazard,) = run.report().played().hazards
    pins(hazard.witness.said)
    assert Run((), None).report().is_clean


@pytest.mark.integration
@pytest.mark.parametrize("name", [*SHOWN][::3])
def test_the_name_of_a_witness_makes_its_schedule(name):
    run = watched(*SHOWN[name][0])
    for hazard in run.report(replay=True).hazards:
        if hazard.witness.schedule:
            policy = policy_named(hazard.witness.schedule)
            assert repr(policy) == hazard.witness.schedule
            made, told = policy, hazard.witness.policy
            if isinstance(told, HoldBack):
                assert made.poison == told.poison
                sites = [
                    site and (site.instruction, site.is_operation, site.cta, site.warp, site.lane)
                    for site in (made.site, told.site)
                ]
                assert sites[0] == sites[1]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("", ValueError),
        (".", ValueError),
        (3, TypeError),
        (None, TypeError),
        (b"race.py", TypeError),
    ],
)
def test_a_reproducer_is_written_to_a_file(path, error):
    run = watched(*SHOWN[next(iter(SHOWN))][0])
    for writes in (run.hazards[0].reproducer, run.report().reproducer):
        with refuses(error):
            writes(path)


def test_names_of_what_is_held_back():
    site = Site(17, "wgmma", True, (0, 1, 0), 2, 3)
    policy = HoldBack(site, 0xFF)
    assert repr(policy) == "hold:17,mmas,operation,cta=0.1.0,warp=2,lane=3,poison"
    assert policy_named(repr(policy)).site == site
    assert repr(held_of("poison")) == "hold:poison"
    for wrong in ("", "x", "17,", "17,lane", "17,warp=-1", "17,lane=3,warp=2", "17poison", "poison,17", "17,mmas"):
        with refuses(ValueError):
            held_of(wrong)


def test_reports_of_several_runs_are_joined():
    """A line's allowance is in vain only if no run needs it."""
    text = "st.shared.u32 [%r7], %r0; // cutepy: allow[unordered-read] why not\n"
    racing = RACE.replace("st.shared.u32 [%r7], %r0;", text)
    ordered = racing.replace("xor.b32", "bar.sync 0; xor.b32", 1)
    runs = []
    for body in (racing, ordered):
        with cutepy.simulate(sanitize=True) as run:
            module(body).launch("k", 1, 64, (np.zeros(64, np.uint32),))
        runs.append(run)
    assert [len(run.hazards.unused) for run in runs] == [0, 1]
    joined = Report.of_all([run.report() for run in runs])
    assert len(joined.hazards.allowed) == 1
    assert joined.hazards.unused == ()
    assert len(joined.certificates) == 2
    assert len(Hazards.of_all([runs[1].hazards]).unused) == 1
