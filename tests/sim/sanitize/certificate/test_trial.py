"""Certificates of random programs against exhaustive search: some of what `make certify-trial` does."""

from collections import Counter

import pytest

from tests.messages import pins
from tests.sim.sanitize.certificate.generators import GENERATORS
from tests.sim.sanitize.certificate.programs import run
from tests.sim.sanitize.certificate.trial import examine

PROGRAMS = 25
SHARE = 0.95


@pytest.mark.parametrize("name", GENERATORS)
def test_no_certificate_is_wrong_and_few_are_missing(name):
    kinds = Counter()
    for seed in range(PROGRAMS):
        kind, wrong = examine(name, seed)
        assert wrong is None
        kinds[kind] += 1
    safe = sum(n for kind, n in kinds.items() if kind.startswith("safe"))
    assert kinds["safe, certified"] >= SHARE * safe > 0


HANGS = {
    "a wait that nobody ends": ([[("wait", 0, 0)], [("wait", 0, 0)]], [1]),
    "two threads that wait for each other": (
        [[("wait", 0, 0), ("arrive", 1)], [("wait", 1, 0), ("arrive", 0)]],
        [1, 1],
    ),
    "a count too many": ([[("arrive", 0)], [("wait", 0, 0)]], [2]),
    "bytes that do not come": ([[("arrive_expect", 0, 32), ("copy", 0, 16, "a"), ("wait", 0, 0)]], [1]),
    "a named barrier that lacks one": ([[("sync", 0, 3)], [("sync", 0, 3)]], []),
    "a test in a loop": ([[("wait", 0, 0, "test")], [("wait", 0, 0, "test")]], [1]),
}


@pytest.mark.parametrize("name", HANGS)
def test_what_hangs_in_every_schedule_says_so(name):
    certificate, _, error = run(*HANGS[name])
    pins(str(error))
    assert not certificate.is_certified


def test_what_may_not_hang_says_so():
    program = [[("arrive", 0), ("arrive", 0)], [("wait", 0, 0)]], [1]
    _, hazards, error = run(*program)
    pins(str(error))
    assert [hazard.kind for hazard in hazards] == ["early-wait", "deadlock"]
