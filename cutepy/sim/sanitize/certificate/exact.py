"""Whether a phase completes only with all of its operations, by looking at each: premise 4 in its other forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array

EXACT_OPERATIONS = 12
"""Operations of a phase up to which all parts of it are looked at."""

MOST = (1 << 20) - 1
"""What an mbarrier counts at most: arrivals, and bytes either way."""


class Step(NamedTuple):
    """An operation of a phase.

    Attributes
    ----------
    rank, column, number : int
        Who it was, and what they had counted then.
    known : array of int, (rank, column)
        What they knew.
    arrivals, size : int
        What it adds to the arrivals and bytes that the phase lacks.
    is_loose : bool
        Whether a phase may complete without it, as far as order goes.
    may_complete : bool
        False of .noComplete arrivals and of announcements, which must not be what completes a phase.
    """

    rank: int
    column: int
    number: int
    known: Array
    arrivals: int
    size: int
    is_loose: bool
    may_complete: bool

    def is_before(self, other: Step) -> bool:
        """Tell whether it comes before another."""
        if self is other:
            return False
        if self.column >= other.known.shape[-1]:
            return False
        return bool(other.known[self.rank, self.column] >= self.number)


@dataclass
class Log:
    """The operations of a phase so far.

    Attributes
    ----------
    expected : int
        Arrivals that the phase lacked when it began.
    steps : list of Step
    is_whole : bool
        Whether all that counted is there.
    """

    expected: int
    steps: list[Step] = field(default_factory=list)
    is_whole: bool = True


def bytes_hold(log: Log, late: set[tuple[int, int]]) -> bool:
    """Tell whether bytes are pending as long as an announcement is missing."""
    loose = [s for s in log.steps if s.is_loose and (s.rank, s.column) in late]
    surely = sum(s.size for s in log.steps if s.size > 0 and s not in loose)
    for one in loose:
        if not one.may_complete and one.arrivals < 0:
            return False
        brought = sum(-s.size for s in log.steps if s.size < 0 and not one.is_before(s))
        if brought >= surely:
            return False
    return True


def holds_exactly(log: Log) -> bool:
    """Tell whether no part of a phase that may happen without the rest completes it, or leaves the range of counts."""
    steps = log.steps
    if len(steps) > EXACT_OPERATIONS:
        return False
    before = [sum(1 << m for m, other in enumerate(steps) if other.is_before(one)) for one in steps]
    whole = (1 << len(steps)) - 1
    seen, waiting = {0}, [(0, log.expected, 0)]
    while waiting:
        done, arrivals, size = waiting.pop()
        if not 0 <= arrivals <= MOST or abs(size) > MOST or (arrivals == size == 0 and done != whole):
            return False
        for n, step in enumerate(steps):
            after = done | 1 << n
            if after == done or before[n] & ~done:
                continue
            lacks = arrivals + step.arrivals, size + step.size
            if not step.may_complete and lacks == (0, 0):
                return False
            if after not in seen:
                seen.add(after)
                waiting.append((after, *lacks))
    return True
