"""Idioms in use are certified from one trace, whatever the schedule; wrong code that looks alike is not."""

import pytest

from tests.sim.sanitize.certificate.idioms import IDIOMS, ring
from tests.sim.sanitize.certificate.model import explore
from tests.sim.sanitize.certificate.programs import policy_of, run


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_is_certified(name):
    certificate, hazards, error = run(*IDIOMS[name])
    assert (error, hazards, certificate.reasons) == (None, (), ())


@pytest.mark.parametrize("policy", ["late", "random", "youngest"])
@pytest.mark.parametrize("name", ["ring of 2, copy, 2 consumers", "ring of cp.async", "pingpong on one ring"])
def test_so_is_any_other_trace_of_it(name, policy):
    certificate, hazards, error = run(*IDIOMS[name], policy_of(policy))
    assert (error, hazards, certificate.reasons) == (None, (), ())


@pytest.mark.parametrize("name", IDIOMS)
def test_exhaustive_search_agrees(name):
    assert explore(*IDIOMS[name], limit=1 << 20).is_safe


def early_exit():
    """A producer that ends before the consumer has what its copies bring: nobody waits for the last one."""
    (producer, consumer), counts = ring(1, 2, tail=False)
    return [producer, consumer[:-3]], counts


REFUSED = {"a copy that nobody waits for": (early_exit(), "in-flight-at-exit")}


@pytest.mark.parametrize("name", REFUSED)
def test_what_looks_like_one_is_refused(name):
    program, kind = REFUSED[name]
    certificate, hazards, _ = run(*program)
    assert not certificate.is_certified
    assert kind in {hazard.kind for hazard in hazards}
    assert not explore(*program).is_safe
