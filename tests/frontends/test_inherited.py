"""Options that a run inherits beside those that it states."""

import pytest

from cutepy.frontends.inherited import Inheritance

ALL = {"sanitize": True, "strict": True, "schedules": 3, "limit": 9, "observers": ("theirs",)}


@pytest.mark.parametrize(
    ("stated", "without"),
    [
        ({}, set()),
        ({"sanitize": True}, {"sanitize"}),
        ({"sanitize": False}, {"sanitize", "strict"}),
        ({"strict": False}, {"strict"}),
        ({"seed": 4}, {"schedules", "limit"}),
        ({"schedules": 5}, {"schedules", "limit"}),
    ],
)
def test_a_run_inherits_what_it_does_not_state(stated, without):
    inherited = Inheritance(ALL)
    assert inherited.fill(stated) == {name: value for name, value in ALL.items() if name not in without}


def test_observers_are_added_to_those_of_a_run():
    assert Inheritance(ALL).fill({"observers": ["own"]})["observers"] == ("own", "theirs")
    assert "observers" not in Inheritance({"strict": True}).fill({"observers": ["own"]})


def test_where_a_run_states_another_value_is_kept_once():
    inherited = Inheritance(ALL)
    for _ in range(2):
        inherited.fill({"strict": False, "sanitize": True, "observers": []})
    assert [stated[1:] for stated in inherited.stated] == [("strict", False)]
