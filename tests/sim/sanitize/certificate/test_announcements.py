"""Announcements that no arrival waits for: which phases they are safe in, by bytes or by looking at all orders."""

import pytest

from cutepy.sim.sanitize.certificate.exact import MOST
from tests.sim.sanitize.certificate.programs import run

WAIT = ("wait", 0, 0)
SAFE = {
    "what is sure outweighs what may come before": [
        [("arrive_expect", 0, 32), ("copy", 0, 16, "a"), WAIT],
        [("expect", 0, 16), ("copy", 0, 32, "b"), WAIT],
    ],
    "no order comes to nothing before the end": [
        [("arrive_expect", 0, 16), WAIT],
        [("expect", 0, 16), ("copy", 0, 48, "a"), WAIT],
        [("expect", 0, 32), ("copy", 0, 16, "b"), WAIT],
    ],
    "more operations than all orders are looked at of": [
        [("expect", 0, 16), ("copy", 0, 16, "a"), ("arrive", 0), WAIT],
        [*[("arrive", 0)] * 12, WAIT],
    ],
    "as many bytes as an mbarrier counts": [[("arrive_expect", 0, MOST), ("complete", 0, MOST), WAIT]],
    "a phase that lacks an arrival": [[("expect", 0, 16), ("complete", 0, 16)] * 7],
}
UNSAFE = {
    "an arrival may come first, and bytes are left": [[("expect", 0, 16)], [("arrive", 0)]],
    "one of two may be all that comes": [
        [("arrive_expect", 0, 16), WAIT],
        [("expect", 0, 16), ("copy", 0, 32, "a"), WAIT],
        [("expect", 0, 16), ("copy", 0, 16, "b"), WAIT],
    ],
}


@pytest.mark.parametrize("name", SAFE)
def test_what_is_safe_is_certified(name):
    certificate, hazards, error = run(SAFE[name], [13 if "more operations" in name else 1])
    assert (error, hazards, certificate.reasons) == (None, (), ())


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_not_safe_is_told(name):
    certificate, hazards, error = run(UNSAFE[name], [1])
    assert error is not None or not certificate.is_certified
    assert {"premature-completion", "early-arrival"} & {hazard.kind for hazard in hazards}
