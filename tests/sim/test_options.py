"""Options of a run: each of another type, impossible, or without effect, is refused with what is wanted."""

import re

import numpy as np
import pytest

import cutepy
from cutepy.sim import Observer
from cutepy.sim.machine.policies import Late

REFUSED = {
    "an observer alone": ({"observers": Observer()}, "observers must be a sequence of them, such as [observer]"),
    "a class of observers": ({"observers": Observer}, "such as [Observer()]"),
    "a class among observers": ({"observers": [Observer]}, "observers must be instances of cutepy.sim.Observer"),
    "no policy": ({"policy": 7}, "policy must be a CompletionPolicy, its name or None, got 7"),
    "a class of policies": ({"policy": Late}, "make one: Late()"),
    "a policy misspelt": ({"policy": "youngst"}, "got 'youngst'; did you mean youngest?"),
    "a seeded one misspelt": ({"policy": "shedule:3"}, "did you mean schedule?"),
    "a text for a flag": ({"sanitize": "no"}, "sanitize must be True or False, got 'no'"),
    "a text for another": ({"exact_mma": "0"}, "exact_mma must be True or False, got '0'"),
    "a fraction of processes": ({"processes": 2.5}, "processes must be an integer of at least 1, or None"),
    "no processes": ({"processes": 0}, "processes must be at least 1, or None"),
    "CTAs as text": ({"ctas": "0 1"}, "ctas must be coordinates: a list of ints, or of one to three of them each"),
    "a CTA alone": ({"ctas": 3}, "got 3"),
    "no CTAs": ({"ctas": []}, "leave it out to run all"),
    "neither a number nor all": ({"schedules": "al"}, "schedules must be a number of seeds or \"all\", got 'al'"),
    "a flag for schedules": ({"schedules": True}, "schedules must be an integer of at least 0, or"),
    "half a schedule": ({"schedules": 0.5}, "schedules must be an integer of at least 0, or"),
    "a seed of nothing": ({"seed": 0}, "use schedules=100 with it"),
    "a seed of all": ({"schedules": "all", "seed": 0}, "all are asked for"),
    "a limit of nothing": ({"limit": 5}, 'use schedules="all" with it'),
    "a limit of seeds": ({"schedules": 5, "limit": 5}, 'use schedules="all" with it'),
    "a seed below zero": ({"schedules": 5, "seed": -1}, "seed must be at least 0, got -1"),
    "a limit of zero": ({"schedules": "all", "limit": 0}, "limit must be at least 1, got 0"),
    "reasons without a sanitizer": ({"allow": {"unordered-read": "why"}}, "use sanitize=True with it"),
    "a list of kinds": ({"sanitize": True, "allow": ["unordered-read"]}, "allow must be a mapping of kinds to reasons"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name):
    options, said = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=re.escape(said)), cutepy.simulate(**options):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"sanitize": np.bool_(True), "inspect": 0},
        {"schedules": np.int64(0), "processes": np.int32(1)},
        {"ctas": np.zeros((1, 3), int)},
        {"schedules": "all", "limit": 2**70},
        {"observers": iter([Observer()])},
    ],
)
def test_what_is_as_good_is_taken(options):
    with cutepy.simulate(**options):
        pass


def test_so_is_what_is_asked_of_a_run():
    with cutepy.simulate(replay=True) as run:
        for options, said in (
            ({"schedules": 0}, "at least 1"),
            ({"schedules": "all", "seed": 3}, "all are asked for"),
            ({"schedules": 3, "limit": 3}, 'use schedules="all"'),
        ):
            with pytest.raises(ValueError, match=re.escape(said)):
                run.explore(**options)
