"""Waits for each other in a circle: near misses are told of the things in it, by things made up for this."""

from itertools import permutations
from types import SimpleNamespace

import pytest

from cutepy.sim.machine.wait_for_graph import _of_the_circle


def told(order, edges):
    """Give the things of which near misses are told; `edges` has pairs: what waits, and what its bringers wait for."""
    things = {
        name: SimpleNamespace(name=name, bringers={}, awaited=SimpleNamespace(chances=(f"chance of {name}",)))
        for name in order
    }
    of = {}
    for one, other in edges.split():
        things[one].bringers[one, other] = []
        of[one, other] = things[other]
    return [chance.removeprefix("chance of ") for chance in _of_the_circle([things[n] for n in order], of)]


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ("", ""),
        ("ab ba", "b"),
        ("ab bc ca", "bc"),
        ("ab bc", ""),  # the first one waits for nothing that waits for it
        ("ab ba cd dc", "b"),  # another circle
        ("ab ba ac", "b"),  # what the circle waits for
        ("ab ba ca", "b"),  # what waits for the circle
        ("ab ba bc cb", "bc"),
        ("aa", ""),
        ("bc cd db", ""),
    ],
)
def test_things_of_the_circle_of_the_first_are_told_in_their_order(edges, found):
    for rest in permutations("bcd"):
        assert told(["a", *rest], edges) == [name for name in rest if name in found]
