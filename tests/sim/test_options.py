"""Options of a run: each of another type, impossible, or without effect, is refused with what is wanted."""

import os

import numpy as np
import pytest

import cutepy
from cutepy.sim import Observer, Run
from cutepy.sim.machine.policies import LateCompletion
from tests.messages import refuses
from tests.sim.kernels.launching import kernel_call, ptx_module

REFUSED = {
    "an observer alone": {"observers": Observer()},
    "a class of observers": {"observers": Observer},
    "a class among observers": {"observers": [Observer]},
    "no policy": {"policy": 7},
    "a class of policies": {"policy": LateCompletion},
    "a policy misspelt": {"policy": "youngst"},
    "a seeded one misspelt": {"policy": "shedule:3"},
    "a text for a flag": {"sanitize": "no"},
    "a text for another": {"exact_mma": "0"},
    "a fraction of processes": {"processes": 2.5},
    "no processes": {"processes": 0},
    "CTAs as text": {"ctas": "0 1"},
    "a CTA alone": {"ctas": 3},
    "no CTAs": {"ctas": []},
    "neither a number nor all": {"schedules": "al"},
    "a flag for schedules": {"schedules": True},
    "half a schedule": {"schedules": 0.5},
    "a seed of nothing": {"seed": 0},
    "a seed of all": {"schedules": "all", "seed": 0},
    "a limit of nothing": {"limit": 5},
    "a limit of seeds": {"schedules": 5, "limit": 5},
    "a seed below zero": {"schedules": 5, "seed": -1},
    "a limit of zero": {"schedules": "all", "limit": 0},
    "reasons without a sanitizer": {"allow": {"unordered-read": "why"}},
    "a list of kinds": {"sanitize": True, "allow": ["unordered-read"]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name):
    with refuses((TypeError, ValueError)), cutepy.simulate(**REFUSED[name]):
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
        for options in (
            {"schedules": 0},
            {"schedules": "all", "seed": 3},
            {"schedules": 3, "limit": 3},
        ):
            with refuses(ValueError):
                run.explore(**options)


def test_launches_of_forked_processes_are_noted(monkeypatch):
    run = Run((), None)
    text = ptx_module("", 0)
    run.launch(kernel_call(text))
    assert not run.has_launched_elsewhere
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    run.launch(kernel_call(text))
    assert run.has_launched_elsewhere
