"""Differences between a script's processes, as `python -m tests.host.foreign` finds them."""

import pytest

from tests.host.foreign import differences

pytestmark = pytest.mark.integration

FACT = {"function": "f", "key": "k", "ptx": "p", "host": "h", "built": True}
FOUND = {**FACT, "built": False}
RIGHT = {"first": [FACT, {"end": ""}], "second": [FOUND, {"end": ""}], "uncached": [FACT, {"end": ""}]}


def test_equal_processes_do_not_differ():
    assert list(differences(RIGHT)) == []
    refused = {"function": "g", "error": "no", "dsl": "no"}
    assert list(differences({run: [*facts, refused] for run, facts in RIGHT.items()})) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"second": [FACT]}, "f: built again in the second process"),
        ({"second": []}, "f: another function, key, ptx, host in the second process"),
        ({"second": [{**FOUND, "key": "other"}]}, "f: another key in the second process"),
        ({"uncached": [{**FACT, "ptx": "other"}]}, "f: another ptx in the uncached process"),
        ({"copied": [{**FOUND, "host": "other"}]}, "f: another host in the copied process"),
        ({"first": [FACT, FACT], "second": [FOUND] * 2, "uncached": [FACT] * 2}, "f: built twice in the first process"),
    ],
)
def test_differences_are_told(change, told):
    assert told in list(differences({**RIGHT, **change}))
