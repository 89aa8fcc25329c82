"""Certificates of small programs of the tensor core: idioms, and what each premise about it is needed for."""

import pytest

from tests.sim.sanitize.certificate.generators import TENSOR_IDIOMS
from tests.sim.sanitize.certificate.model import explore
from tests.sim.sanitize.certificate.programs import policy_of, run_tensor

pytestmark = pytest.mark.filterwarnings("ignore::cutepy.sim.AdvisoryWarning")
POLICIES = [None, "late", "youngest", "random", "schedule:3"]


@pytest.mark.first(len(TENSOR_IDIOMS))
@pytest.mark.parametrize("program", TENSOR_IDIOMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_an_idiom_is_certified_from_any_trace(program, policy):
    certificate, hazards, error = run_tensor(*program, policy_of(policy))
    assert (error, [str(hazard) for hazard in hazards], certificate.reasons) == (None, [], ())


@pytest.mark.parametrize("program", TENSOR_IDIOMS)
def test_exhaustive_search_agrees(program):
    assert explore(*program, limit=1 << 20).is_safe


USE = [("tensor_load", 0), ("wait_loads",)]
UNSAFE = {
    "a commit at another barrier": ([[("mma", 0, "a"), ("commit", 1), ("arrive", 0)], [("wait", 0, 0), *USE]], [1, 1]),
    "a load before the wait": ([[("mma", 0, "a"), ("commit", 0)], [*USE, ("wait", 0, 0)]], [1]),
    "a load that is not waited for": ([[("mma", 0, "a"), ("commit", 0)], [("wait", 0, 0), ("tensor_load", 0)]], [1]),
    "columns that are freed while an MMA runs": ([[("mma", 0, "a"), ("commit", 0)], []], [1]),
    "an accumulator that is overwritten while it is loaded": (
        [[("mma", 0, "a"), ("commit", 0), ("mma", 0, "a"), ("commit", 1)], [("wait", 0, 0), *USE, ("wait", 1, 0)]],
        [1, 1],
    ),
    "columns that are released before they are loaded": (
        [
            [("mma", 0, "a"), ("commit", 0), ("wait", 1, 0), ("mma", 0, "a"), ("commit", 2), ("wait", 2, 0)],
            [("wait", 0, 0), ("arrive", 1), *USE],
        ],
        [1, 1, 1],
    ),
    "columns that are released before the loads are waited for": (
        [
            [("mma", 0, "a"), ("commit", 0), ("wait", 1, 0), ("mma", 0, "a"), ("commit", 2), ("wait", 2, 0)],
            [("wait", 0, 0), ("tensor_load", 0), ("arrive", 1), ("wait_loads",)],
        ],
        [1, 1, 1],
    ),
    "a store that is not waited for": (
        [[("wait", 0, 0), ("mma_tensor", 1, 0), ("commit", 1), ("wait", 1, 0)], [("tensor_store", 0), ("arrive", 0)]],
        [1, 1],
    ),
    "a load of what its warp stores": ([[("tensor_store", 0), *USE, ("wait_stores",)]], [1]),
    "operands that are copied again while an MMA reads them": (
        [
            [("arrive_expect", 0, 16), ("copy", 0, 16, "a"), ("arrive_expect", 0, 16), ("copy", 0, 16, "a")],
            [("wait", 0, 0), ("mma", 0, "a"), ("commit", 1), ("wait", 1, 0), ("wait", 0, 1)],
        ],
        [1, 1],
    ),
    "two threads that multiply into the same columns": (
        [[("mma", 0, "a"), ("commit", 0), ("wait", 0, 0)], [("mma", 0, "b"), ("commit", 1), ("wait", 1, 0)]],
        [1, 1],
    ),
    "a commit by another thread": (
        [[("mma", 0, "a"), ("arrive", 1)], [("wait", 1, 0), ("commit", 0), ("wait", 0, 0), *USE]],
        [1, 1],
    ),
    "a commit that may count in the phase before": (
        [[("arrive", 0), ("arrive", 1)], [("mma", 0, "a"), ("commit", 0)], [("wait", 0, 0), ("wait", 0, 1), *USE]],
        [1, 1],
    ),
    "two commits at one barrier, and a wait that may miss a phase": (
        [[("mma", 0, "a"), ("commit", 0), ("mma", 1, "a"), ("commit", 0)], [("wait", 0, 0), ("wait", 0, 1)]],
        [1],
    ),
    "a commit that nobody waits for": (
        [[("mma", 0, "a"), ("commit", 0), ("wait", 0, 0), ("mma", 0, "a"), ("commit", 1)]],
        [1, 1],
    ),
}


@pytest.mark.first(len(UNSAFE))
@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_unsafe_in_some_schedule_is_not_certified(name, policy):
    program = UNSAFE[name]
    assert not explore(*program).is_safe
    certificate, hazards, _ = run_tensor(*program, policy_of(policy))
    assert hazards
    assert certificate is None or not certificate.is_certified


@pytest.mark.parametrize(
    "ops",
    [
        [("mma", 0, "a"), ("commit", 0), ("mma", 0, "a"), ("commit", 1), ("wait", 1, 0)],
        [("mma", 0, "a"), ("commit", 0), ("commit", 1), ("wait", 0, 0)],
    ],
    ids=["later", "of the same MMAs"],
)
def test_a_commit_speaks_for_others(ops):
    """As an assumption: the ISA leaves open in which order commits of one thread arrive."""
    certificate, hazards, error = run_tensor([ops], [1, 1])
    assert (error, [*hazards], certificate.reasons) == (None, [], ())
    assert any("with a commit that is waited for" in one for one in certificate.assumptions)


def test_a_pair_that_the_isa_leaves_open_is_an_assumption():
    """An MMA reads columns that the next one of its thread writes: in order, by no clause."""
    program = [
        [("tensor_store", 0), ("wait_stores",), ("mma_tensor", 1, 0), ("mma", 0, "a"), ("commit", 0), ("wait", 0, 0)]
    ]
    certificate, hazards, error = run_tensor(program, [1])
    assert (error, [*hazards], certificate.reasons) == (None, [], ())
    assert any("in the order in which a thread issues them" in one for one in certificate.assumptions)
    certificate, *_ = run_tensor([[("mma", 0, "a"), ("mma", 0, "b"), ("commit", 0), ("wait", 0, 0)]], [1])
    assert certificate.is_certified
    assert not any("in the order in which a thread issues them" in one for one in certificate.assumptions)
