"""Readings of the premises that are unsound, each with the smallest program that it would certify; and each premise."""

import pytest

from tests.messages import pins
from tests.sim.sanitize.certificate.model import explore
from tests.sim.sanitize.certificate.programs import policy_of, run

READINGS = {
    "completion is the event of the last who arrives": (
        ([[("arrive", 0), ("arrive", 0)], [("arrive", 0)]], [2]),
        "early-arrival",
    ),
    "the same of a named barrier": (
        ([[("sync", 0, 2), ("sync", 0, 2)], [("bar_arrive", 0, 2), ("sync", 0, 2)]], []),
        "mixed-generation",
    ),
    "the arrival of an increment is an ordinary one": (
        ([[("increment", 0)], [("arrive", 0)]], [1]),
        "premature-completion",
    ),
    "a peek that succeeds ends the wait": (
        ([[("arrive", 0)], [("peek", 0, 0, 0), ("arrive", 0), ("wait_if_not", 0, 0, 0)]], [1]),
        "lapped-wait",
    ),
    "a wait begins at its last try": (
        (
            [
                [("arrive", 0), ("wait", 1, 0), ("arrive", 0)],
                [("peek", 0, 1, 0), ("wait", 0, 0), ("arrive", 1), ("wait_if_not", 0, 0, 1)],
            ],
            [1, 1],
        ),
        None,
    ),
    "an asynchronous arrival is looked at when it counts": (
        ([[("arrive", 0)], [("noinc", 0)]], [1]),
        "early-arrival",
    ),
    "before is earlier in the trace": (([[("arrive", 0)], [("arrive", 0)]], [1]), "early-arrival"),
    "bytes are in range as they come in this trace": (
        (
            [[("arrive_expect", 0, 1 << 20)], *([("copy", 0, 1 << 19, place)] for place in "ab")],
            [1],
        ),
        None,
    ),
    "an announcement completes a phase": (
        ([[("expect", 0, 16)], [("complete", 0, 16), ("arrive", 0)]], [1]),
        "premature-completion",
    ),
    "an issue tells of what its thread did before": (
        ([[("arrive_expect", 0, 16), ("store", 0), ("copy", 0, 16, "a")], [("wait", 0, 0), ("load", 0)]], [1]),
        "unordered-read",
    ),
}
ONLY_OUT_OF_ORDER = {"an issue tells of what its thread did before"}
"""Unsafe where memory is weaker than interleavings are, which the model is not."""


@pytest.mark.parametrize("name", READINGS)
def test_an_unsound_reading_certifies_this(name):
    (threads, counts), kind = READINGS[name]
    for policy in (None, "late", "youngest"):
        certificate, hazards, error = run(threads, counts, policy_of(policy))
        assert error is not None or not certificate.is_certified
        if error is None and kind is not None:
            assert kind in {hazard.kind for hazard in hazards}
    assert explore(threads, counts).is_safe == (name in ONLY_OUT_OF_ORDER)


PREMISES = {
    "0": ([[("arrive", 0)], [("reinit", 0, 1)]], [1], "unordered-write"),
    "0, of copies": ([[("arrive_expect", 0, 16), ("copy", 0, 16, "a")], []], [1], "in-flight-at-exit"),
    "1": ([[("arrive", 0)], [("wait", 0, 1)]], [1], "lapped-wait"),
    "1, of a wait that is over at once": ([[("wait", 0, 1)], [("arrive", 0)]], [1], "lapped-wait"),
    "2": ([[("arrive", 0), ("arrive", 0)], [("wait", 0, 0)]], [1], None),
    "3": ([[("arrive", 0)], [("arrive", 0)]], [1], "early-arrival"),
    "4, an announcement": (
        [[("expect", 0, 16), ("copy", 0, 16, "a"), ("wait", 0, 0)], [("arrive", 0)]],
        [1],
        "premature-completion",
    ),
    "4, of noComplete": ([[("nocomplete", 0)], [("arrive", 0)]], [2], "premature-completion"),
    "4, bytes that nobody announced": (
        [[("arrive_expect", 0, 16), ("copy", 0, 16, "a"), ("copy", 0, 16, "b")]],
        [1],
        None,
    ),
    "5": ([[("sync", 0, 2), ("sync", 0, 2)], [("bar_arrive", 0, 2), ("bar_arrive", 0, 2)]], [], "mixed-generation"),
    "5, counts": ([[("bar_arrive", 0, 2)], [("sync", 0, 3)], [("bar_arrive", 0, 3)]], [], None),
    "6": ([[("store", 0)], [("load", 0)]], [], "unordered-read"),
    "a count of 0": ([[("drop", 0)]], [1], None),
    "a count of 0, by one that drops two": ([[("drop", 0, 2)]], [2], None),
    "a phase that lacks what dropped": ([[("drop", 0, 2), ("wait", 0, 0), ("arrive", 0, 2)]], [3], None),
}


@pytest.mark.parametrize("name", PREMISES)
def test_each_premise_is_checked(name):
    threads, counts, kind = PREMISES[name]
    certificate, hazards, error = run(threads, counts)
    assert error is not None or not certificate.is_certified
    if error is None and kind is not None:
        assert kind in {hazard.kind for hazard in hazards}
    assert not explore(threads, counts).is_safe


@pytest.mark.parametrize("policy", [None, "late", "random"])
def test_a_copy_does_not_come_after_a_read_that_its_thread_does_later(policy):
    threads, counts = [[("arrive_expect", 0, 16), ("copy", 0, 16, "a"), ("load", "a"), ("wait", 0, 0)]], [1]
    certificate, hazards, _ = run(threads, counts, policy_of(policy))
    assert not certificate.is_certified
    assert {"unordered-read", "unordered-write"} & {hazard.kind for hazard in hazards}
    assert not explore(threads, counts).is_safe


def test_a_report_says_what_is_not_ordered_after_what():
    _, hazards, _ = run([[("arrive", 0)], [("arrive", 0)]], [1])
    (found,) = (hazard for hazard in hazards if hazard.kind == "early-arrival")
    assert found.before.who == "warp 0, lane 0 of CTA (0, 0, 0)"
    assert found.after.who == "warp 1, lane 0 of CTA (0, 0, 0)"
    pins(found.missing)


def test_a_reader_that_begins_with_the_parity_of_a_producer_is_told_so():
    _, hazards, _ = run(*PREMISES["1, of a wait that is over at once"][:2])
    (found,) = (hazard for hazard in hazards if hazard.kind == "lapped-wait")
    pins(found.missing)


COPIES = [[("arrive_expect", 0, 16), ("copy", 0, 16, place), ("wait", 0, n)] for n, place in enumerate("ab")]


@pytest.mark.parametrize(
    ("threads", "text"),
    [
        ([[("arrive", 0), ("wait", 0, 0), ("drop", 0)], [("wait", 0, 1)]], "mbarrier.arrive.shared"),
        ([[*COPIES[0][:2], ("sync", 0, 2), COPIES[0][2], *COPIES[1]], [("sync", 0, 2), ("wait", 0, 1)]], "[%r1+512]"),
    ],
    ids=["by a thread", "by a copy"],
)
def test_a_report_names_what_counted_in_the_phase_that_is_not_known(threads, text):
    _, hazards, _ = run(threads, [1])
    (found,) = (hazard for hazard in hazards if hazard.kind == "early-wait")
    assert text in found.before.instruction.text
