"""How the rounds of a visit of a loop repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.ptx.places import line_of
from cutepy.sim.sanitize.certificate.rounds import Thing, Visit

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array


class Steady(NamedTuple):
    """A visit of a loop whose rounds repeat.

    Attributes
    ----------
    visit : Visit
    first, last, period : int
        From which round on, before which one, and after how many.
    shifts : dict of Thing to int
        How many phases each advances in a period.
    spans : dict of Thing to (int, int)
        The phases that were counted in, or waited for.
    grows : int
        As of `Counting.grows`, in a period.
    """

    visit: Visit
    first: int
    last: int
    period: int
    shifts: dict[Thing, int]
    spans: dict[Thing, tuple[int, int]]
    grows: int = 0


def steady(visit: Visit) -> Steady | str:
    """Find how the rounds of a visit repeat; or say why they don't."""
    loop, rounds = visit.loop, visit.rounds
    if loop.unknown is not None:
        return loop.unknown
    for register in loop.counters:
        role, i = loop.state[register].role, loop.state[register].instruction
        return f"{register.name} counts its rounds, and steers {role}: `{i.text.strip()}` ({line_of(i)})"
    reason = ""
    alike, numbers = _alike(visit), loop.counting.numbers(visit.counted)
    for period in range(1, len(rounds)):
        first, last = _longest(alike[period:] == alike[:-period], numbers[period:-1] - numbers[: -period - 1])
        if first == last:
            continue
        first, shifts = _shifted(visit, first, last, period)
        last += period
        if last - first >= 2 * period:
            filled = _filled(visit, first, last, shifts)
            if filled is not None:
                return f"its rounds count in one phase of {filled}, which takes only so many"
            window = loop.counting.window(numbers, first, last, period)
            if isinstance(window, tuple):
                spans, grows = spans_of(visit, *window), loop.counting.grows(numbers, first, period)
                return Steady(visit, *window, period, shifts, spans, grows)
            reason = (
                f"further rounds may turn a branch, or there are too few: `{window.text.strip()}` ({line_of(window)})"
            )
        else:
            reason = reason or f"{len(visit.states)} rounds are too few, which repeat after {period}"
    if reason:
        return reason
    if len(visit.states) < 3:
        return "it goes around " + ("once" if len(visit.states) == 1 else "twice")
    return f"its {len(visit.states)} rounds do not repeat"


def _alike(visit: Visit) -> Array:
    """Return numbers of rounds: the same one where but phases, and what is counted, differ."""
    numbers: dict[object, int] = {}
    found = []
    for state, deeds in zip(visit.states, visit.rounds, strict=False):
        key = state, tuple((deed.what, deed.thing, deed.state) for deed in deeds)
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, np.int64)


def _longest(repeats: Array, advances: Array) -> tuple[int, int]:
    """Return where the longest run of what repeats, and counts alike, begins and ends; of several, the last."""
    found, first = (0, 0), 0
    changes = 1 + np.flatnonzero((repeats[1:] != repeats[:-1]) | (advances[1:] != advances[:-1]).any(axis=1))
    for end in (*changes.tolist(), len(repeats)):
        if repeats[first] and end - first >= found[1] - found[0]:
            found = first, end
        first = end
    return found


def _shifted(visit: Visit, first: int, last: int, period: int) -> tuple[int, dict[Thing, int]]:
    """Return from which round on phases advance alike, of rounds that are alike a period later, and by how much."""
    shifts: dict[Thing, int] = {}
    for n in reversed(range(first, last)):
        found = dict(shifts)
        for a, b in zip(visit.rounds[n], visit.rounds[n + period], strict=True):
            if a.thing is not None and found.setdefault(a.thing, b.phase - a.phase) != b.phase - a.phase:
                return n + 1, shifts
        shifts = found
    return first, shifts


def _filled(visit: Visit, first: int, last: int, shifts: dict[Thing, int]) -> str | None:
    """Name what rounds count in without moving it on."""
    deeds = (deed for some in visit.rounds[first:last] for deed in some if not deed.waits)
    return next((str(deed.thing[0]) for deed in deeds if deed.thing is not None and not shifts[deed.thing]), None)


def inner(one: Steady) -> Steady:
    """Leave out a period at the beginning and at the end of what repeats, if enough is left."""
    first, last = one.first + one.period, one.last - one.period
    if last - first < 2 * one.period:
        return one
    return one._replace(first=first, last=last, spans=spans_of(one.visit, first, last))


def spans_of(visit: Visit, first: int, last: int) -> dict[Thing, tuple[int, int]]:
    """Return in which phases of each thing rounds count, or wait."""
    spans: dict[Thing, tuple[int, int]] = {}
    for deed in (deed for some in visit.rounds[first:last] for deed in some):
        if deed.thing is not None:
            low, high = spans.get(deed.thing, (deed.phase, deed.phase))
            spans[deed.thing] = min(low, deed.phase), max(high, deed.phase)
    return spans
