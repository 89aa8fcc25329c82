"""Delays of the sides of a hazard: each belongs to the launch whose instruction it is."""

from itertools import product
from types import SimpleNamespace

import pytest

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.replay.reproducers.instrument import Delay
from cutepy.sim.replay.reproducers.scripts import sides_of
from cutepy.sim.sanitize.hazards import Side

LAUNCHES = [SimpleNamespace(name=name) for name in "abc"]
EPISODE = SimpleNamespace(parts=[SimpleNamespace(launch=launch) for launch in LAUNCHES])


def side(number, launch, cta=(0, 0, 0), warp=3):
    i = None if number is None else Instruction(number, "st.shared.u32", ())
    return Side("store", "", i, cta, warp, None, launch=launch)


@pytest.mark.parametrize(("one", "two"), list(product(range(len(LAUNCHES)), repeat=2)))
def test_each_side_is_delayed_in_its_launch(one, two):
    hazard = SimpleNamespace(before=side(5, LAUNCHES[one]), after=side(7, LAUNCHES[two]))
    expected = [[], [], []]
    expected[one].append(Delay(5, 3, None, 0))
    expected[two].append(Delay(7, 3, None, 1))
    assert sides_of(hazard, EPISODE) == expected


def test_sides_of_no_launch_are_of_the_last():
    hazard = SimpleNamespace(before=side(5, None), after=side(7, None))
    assert sides_of(hazard, EPISODE) == [[], [], [Delay(5, 3, None, 0), Delay(7, 3, None, 1)]]


def test_sides_of_two_ctas_are_delayed_there_alone():
    hazard = SimpleNamespace(before=side(5, LAUNCHES[0], (0, 0, 0)), after=side(7, LAUNCHES[0], (1, 0, 0)))
    assert sides_of(hazard, EPISODE)[0] == [Delay(5, 3, (0, 0, 0), 0), Delay(7, 3, (1, 0, 0), 1)]


def test_the_end_of_a_cta_is_not_delayed():
    hazard = SimpleNamespace(before=side(5, LAUNCHES[1]), after=side(None, LAUNCHES[1]))
    assert sides_of(hazard, EPISODE) == [[], [Delay(5, 3, None, 0)], []]
    hazard = SimpleNamespace(before=side(None, LAUNCHES[1]), after=None)
    assert sides_of(hazard, EPISODE) == [[], [], []]
