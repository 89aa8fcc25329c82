"""Advisories of a run: its attribute, a warning at its end, and hazards where the run is strict."""

import warnings

import numpy as np
import pytest

from cutepy.binaries.ptxas import Advice, Assembly
from cutepy.frontends.inherited import inherited_by_runs
from cutepy.sim import AdvisoryWarning, HazardError, Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.sanitize.assembler import assembled_by
from tests.messages import refuses

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b32 %r<5>; .reg .b64 %rd<3>;
.shared .align 8 .b8 tile[256];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; ld.param.u64 %rd1, [out]; add.u64 %rd1, %rd1, %rd2;
"""
GIVES = HEAD + "setmaxnreg.dec.sync.aligned.u32 24;\nret; }\n"
READS = HEAD + "ld.shared.u32 %r2, [tile]; and.b32 %r2, %r2, 0; st.global.u32 [%rd1], %r2;\nret; }\n"
RACES = HEAD + "st.shared.u32 [tile], %r1; ld.shared.u32 %r2, [tile]; st.global.u32 [%rd1], %r2;\nret; }\n"
IGNORED = Assembly("13.0", (), (Advice("C7508", "'setmaxnreg' ignored", None, None),))


def launch(run, *texts):
    out = np.zeros(128, np.uint32)
    run.register(out)
    with assembled_by(lambda ptx: IGNORED if "setmaxnreg" in ptx else None):
        for text in texts:
            address = np.uint64(out.ctypes.data).tobytes()
            run.launch(KernelCall(LoadedModule(text), "kernel", (1, 1, 1), (128, 1, 1), parameters=(address,)))


def played(*texts, **options):
    """Return a run of launches, and the warnings that its end gave."""
    run = Run((), None, sanitize=True, **options)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with run.checked():
            launch(run, *texts)
    return run, given


def test_a_run_warns_once_of_all_its_advisories():
    run, given = played(GIVES, READS, GIVES)
    assert {advisory.kind for advisory in run.advisories} == {"discarded-read", "ignored-setmaxnreg"}
    assert run.hazards == ()
    (warning,) = given
    assert warning.category is AdvisoryWarning
    assert issubclass(AdvisoryWarning, UserWarning)
    assert warning.filename == __file__  # the line that ends the context
    assert all(kind in str(warning.message) for kind in ("discarded-read", "ignored-setmaxnreg"))


def test_nothing_is_warned_of_without_advisories():
    run, given = played(HEAD + "ret; }")
    assert (run.advisories, given) == ((), [])
    assert Run((), None).advisories == ()


def test_what_is_allowed_is_no_advisory():
    run, given = played(GIVES, allow={"ignored-setmaxnreg": "the host gives the registers"})
    assert (run.advisories, given) == ((), [])
    assert [hazard.kind for hazard in run.hazards.allowed] == ["ignored-setmaxnreg"]
    run, _ = played(GIVES, strict=True, allow={"ignored-setmaxnreg": "the host gives the registers"})
    assert not run.hazards


@pytest.mark.parametrize(("text", "kind"), [(GIVES, "ignored-setmaxnreg"), (READS, "discarded-read")])
def test_a_strict_run_fails_by_advisories(text, kind):
    run = Run((), None, sanitize=True, strict=True)
    with pytest.raises(HazardError) as caught, run.checked():
        launch(run, text)
    (hazard,) = caught.value.hazards
    assert (hazard.kind, hazard.severity) == (kind, "hazard")
    assert caught.value.hazards.advisories == ()
    assert [advisory.kind for advisory in run.advisories] == [kind]
    assert not run.report().is_clean
    assert [one["severity"] for one in run.report().to_json()["hazards"]] == ["hazard"]
    assert {result["level"] for result in run.report().to_sarif()["runs"][0]["results"]} == {"error"}
    assert str(run.hazards).startswith("1 hazard\n")


def test_hazards_are_raised_with_the_advisories_in_their_text():
    run = Run((), None, sanitize=True)
    with refuses(HazardError), run.checked():
        launch(run, RACES, GIVES)
    assert [advisory.kind for advisory in run.advisories] == ["ignored-setmaxnreg"]
    assert "ignored-setmaxnreg" not in {hazard.kind for hazard in run.hazards}


@pytest.mark.parametrize("told", ["sanitize", "advisories"])
def test_a_command_that_tells_them_is_not_repeated(told):
    run = Run((), None, sanitize=True)
    run.told_elsewhere = frozenset({told})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with run.checked():
            launch(run, GIVES)
    assert run.advisories


def test_strict_is_of_a_sanitizer():
    with refuses(ValueError):
        Run((), None, strict=True)
    with refuses(TypeError):
        Run((), None, sanitize=True, strict="no")


def test_runs_inherit_strict_unless_they_are_not_sanitized():
    with inherited_by_runs({"sanitize": True, "strict": True}) as inheritance:
        assert inheritance.fill({}) == {"sanitize": True, "strict": True}
        assert inheritance.fill({"sanitize": True}) == {"strict": True}
        assert inheritance.fill({"sanitize": False}) == {}
        assert inheritance.fill({"strict": False}) == {"sanitize": True}


@pytest.mark.parametrize(("options", "told"), [({"sanitize": True}, True), ({"ctas": [0]}, False)])
def test_a_command_that_sanitizes_tells_advisories_of_runs_that_ask_themselves(options, told):
    run = Run((), None, sanitize=True)
    with inherited_by_runs(options, lambda run: None) as inheritance:
        inheritance.begin(run, inheritance.fill({"sanitize": True}))
    assert ("advisories" in run.told_elsewhere) == told
