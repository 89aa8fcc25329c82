"""Extensions of a certificate: loops of a run whose rounds repeat, and that may go around together more often.

Loops of several threads that count in each other's phases are looked at together. Their rounds must repeat: the state
that comes around, the operations, and the phases, which all advance alike. Then rounds are inserted. Each premise that
this needs is one that the run has shown, if it had rounds enough: no two operations that premises compare may lie one
before the loops and one after them. The package's docstring has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.events import MbarrierAt
from cutepy.sim.ptx.places import line_of
from cutepy.sim.sanitize.certificate.any_rounds.rounds import Thing, Visit, visits

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.certificate.any_rounds.bounds import Argument
    from cutepy.sim.sanitize.certificate.any_rounds.loops import Loop
    from cutepy.sim.sanitize.certificate.any_rounds.rounds import Classes, RoundNotes


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
    limit : tuple of (int, Instruction), or None
        As of `Counting.limit`.
    """

    visit: Visit
    first: int
    last: int
    period: int
    shifts: dict[Thing, int]
    spans: dict[Thing, tuple[int, int]]
    grows: int = 0
    limit: tuple[int, Instruction] | None = None


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
                limit = loop.counting.limit(visit.counted, first, period)
                return Steady(visit, *window, period, shifts, spans, grows, limit)
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


_KINDS = 32
"""Clusters that do different things, of which loops are looked at."""


@dataclass(frozen=True)
class Extension:
    """Loops of a launch that go around together, and whether they may do so any number of times more.

    It speaks of launches in which nothing else that steers changes: threads go the same ways, and what synchronises has
    the same operands, but for what the rounds make of them.

    Attributes
    ----------
    loops : tuple of (str, int)
        A line of Python in each loop, and how many rounds more it goes around at once.
    least : int
        Rounds that a loop must make at least, where it is entered, for this to be known of it.
    reason : str
        Why it is not known; empty if it is.
    made : tuple of tuple of int
        How many rounds each of the loops made here, where it was entered: one number if always as many.
    grows : tuple of int
        By how much the number that bounds each loop is to differ then; 0 where the rounds say it.
    steers : str
        What the number of rounds was found to steer besides, so that it may change; empty if nothing was.
    besides : tuple of Argument, or None
        What else of the launch's arguments steers; None if more than arguments does.
    most : int or None
        Rounds up to which this is known, counted as `least` is, if a constant in the code ends a loop; else None.
    ends : str
        The comparison with that constant.

    Examples
    --------
    >>> print(Extension((("k.py:9", 4), ("k.py:30", 4)), 16))  # doctest: +NORMALIZE_WHITESPACE
    also with any number of further rounds, from 16 on, if nothing else that steers changes:
        the loops around k.py:9 (4 more) and k.py:30 (4 more)
    >>> setp = "`setp.eq.u32 %p1, %r1, 99;` (k.py:8)"
    >>> print(Extension((("k.py:9", 2),), 24, most=98, ends=setp))  # doctest: +NORMALIZE_WHITESPACE
    also with further rounds, from 24 to 98, if nothing else that steers changes: the loop around k.py:9 (2 more);
        `setp.eq.u32 %p1, %r1, 99;` (k.py:8) ends it later
    >>> print(Extension((("k.py:9", 1),), 0, "it makes 1 round"))
    not beyond this run: the loop around k.py:9: it makes 1 round
    """

    loops: tuple[tuple[str, int], ...]
    least: int
    reason: str = ""
    made: tuple[tuple[int, ...], ...] = ()
    grows: tuple[int, ...] = ()
    steers: str = ""
    besides: tuple[Argument, ...] | None = ()
    most: int | None = None
    ends: str = ""

    @property
    def holds(self) -> bool:
        """True if it is known for further rounds: any number of them, or up to `most`."""
        return not self.reason

    def __str__(self) -> str:
        if self.reason:
            return f"not beyond this run: the loop around {self.loops[0][0]}: {self.reason}"
        grows = self.grows or (0,) * len(self.loops)
        bounds = [f", where its bound is greater by {by}" if by else "" for by in grows]
        names = [f"{where} ({count} more{by})" for (where, count), by in zip(self.loops, bounds, strict=True)]
        some = (
            f"the loops around {', '.join(names[:-1])} and {names[-1]}" if names[1:] else f"the loop around {names[0]}"
        )
        also = f"; their number also steers {self.steers}" if self.steers else ""
        span = (
            f"any number of further rounds, from {self.least} on"
            if self.most is None
            else f"further rounds, from {self.least} to {self.most}"
        )
        ends = f"; {self.ends} ends {'them' if names[1:] else 'it'} later" if self.ends else ""
        return f"also with {span}, if nothing else that steers changes: {some}{ends}{also}"


def extensions(notes: RoundNotes, loops: Sequence[Loop]) -> list[Extension]:
    """Say of each loop that CTAs went around whether what they did holds for any number of further rounds."""

    def nothing(reason: str) -> list[Extension]:
        return [Extension(((loop.where, 0),), 0, reason) for loop in loops]

    if notes.is_full:
        return nothing("the run is too long to look at its rounds")
    found: list[Extension] = []
    for n, classes in enumerate(notes.clusters()):
        if n == _KINDS:
            return nothing("too many CTAs differ in what they do")
        found += _Together(classes, loops).extensions()
    return found


def merged(found: Sequence[Extension]) -> tuple[Extension, ...]:
    """Say the same once, and of a loop only what holds of all its visits."""
    holding: dict[tuple[object, ...], Extension] = {}
    failing: dict[str, Extension] = {}
    made: dict[str, set[int]] = {}
    for one in found:
        for (where, _), rounds in zip(one.loops, one.made, strict=False):
            made.setdefault(where, set()).update(rounds)
        where = one.loops[0][0]
        if one.holds:
            key = one.loops, one.grows, one.steers, one.besides
            other = holding.get(key, one)
            limited = [each for each in (one, other) if each.most is not None]
            shortest = min(limited, key=lambda each: each.most or 0, default=one)
            least = max(one.least, other.least)
            holding[key] = replace(one, least=least, most=shortest.most, ends=shortest.ends)
        elif where not in failing or one.least > failing[where].least:
            failing[where] = one

    def all_made(loops: tuple[tuple[str, int], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted(made[where])) for where, _ in loops if where in made)

    held = [
        replace(one, made=all_made(one.loops))
        for one in holding.values()
        if not any(where in failing for where, _ in one.loops)
    ]
    return (*held, *(replace(one, made=all_made(one.loops)) for one in failing.values()))


class _Use(NamedTuple):
    """A deed at a barrier: in which phase, and when. A wait begins some time after what its lanes did before."""

    phase: int
    begun: int
    time: int


class _Repeating:
    """Visits whose rounds repeat, by what they are looked up by."""

    def __init__(self, steady: Sequence[Steady]) -> None:
        self.by_visit = {id(one.visit): one for one in steady}
        self.by_lanes: dict[int, list[Steady]] = {}
        self.by_beginning: dict[tuple[int, int], list[Steady]] = {}
        for one in steady:
            self.by_lanes.setdefault(one.visit.of, []).append(one)
            self.by_beginning.setdefault(_beginning(one.visit), []).append(one)


def _beginning(visit: Visit) -> tuple[int, int]:
    """Return what visits of a loop have in common that lanes begin together: the loop, and the time."""
    return id(visit.loop), visit.times[0]


class _Together:
    """Finds the loops that classes of lanes of a cluster go around together."""

    def __init__(self, classes: Classes, loops: Sequence[Loop]) -> None:
        self._deeds, self._beside = classes.deeds, classes.beside
        self._visits = [visit for n, deeds in enumerate(classes.deeds) for visit in visits(deeds, n, loops)]
        self._by_loop: dict[tuple[int, int], list[Visit]] = {}
        for visit in self._visits:
            self._by_loop.setdefault((id(visit.loop), visit.of), []).append(visit)
        self._steady: list[Steady] = []
        self._unsteady: list[tuple[Visit, str]] = []
        for visit in self._visits:
            found = steady(visit)
            if isinstance(found, str):
                self._unsteady.append((visit, found))
            else:
                self._steady.append(found)
        self._users: dict[Thing, dict[int, list[_Use]]] = {}
        for n, deeds in enumerate(classes.deeds):
            begun = 0
            for deed in deeds:
                if deed.thing is not None:
                    use = _Use(deed.phase, min(begun, deed.since), deed.time)
                    self._users.setdefault(deed.thing, {}).setdefault(n, []).append(use)
                begun = deed.since

    def extensions(self) -> Iterator[Extension]:
        """Yield what is known of each visit of a loop."""

        def fails(visit: Visit, reason: str) -> Extension:
            rounds = len(visit.times)
            return Extension(((visit.loop.where, 0),), rounds, reason, ((rounds,),))

        for visit, reason in self._unsteady:
            yield fails(visit, reason)
        done: set[int] = set()
        for seed in self._steady:
            if id(seed.visit) in done:
                continue
            found = self._join(seed, self._whole)
            if isinstance(found, str) and not isinstance(within := self._join(inner(seed), self._inner), str):
                found = within  # others did something at the first rounds only, or the last ones
            if isinstance(found, str):
                yield fails(seed.visit, found)
                continue
            done |= {id(one.visit) for one, _ in found}
            if self._is_too_short(found):
                for one, count in found:
                    yield fails(one.visit, f"{len(one.visit.times)} rounds are too few, which repeat after {count}")
            else:
                counts = {one.visit.loop.where: count for one, count in found}
                made: dict[str, set[int]] = {}
                for one, _ in found:
                    made.setdefault(one.visit.loop.where, set()).add(len(one.visit.times))
                least = min(min(some) for some in made.values())
                each = tuple(tuple(sorted(made[where])) for where in sorted(made))
                bounds = {one.visit.loop.where: one.grows * count // one.period for one, count in found}
                grows = tuple(by for _, by in sorted(bounds.items()))
                grows = grows if any(grows) else ()
                extension = Extension(tuple(sorted(counts.items())), least, "", each, grows, *_steered(found))
                yield _limited(extension, found)

    @cached_property
    def _whole(self) -> _Repeating:
        return _Repeating(self._steady)

    @cached_property
    def _inner(self) -> _Repeating:
        return _Repeating([inner(one) for one in self._steady])

    def _join(self, seed: Steady, steady: _Repeating) -> list[tuple[Steady, int]] | str:
        """Return the visits that count phases together, and of each how many rounds make the same step; or why not.

        Those that begin a loop together are looked at once, and so are the users of something in the same phases at the
        same pace: what holds beside one of them holds beside all.
        """
        chosen = {seed.visit.of: (seed, Fraction(1))}
        waiting = [seed]
        begun: set[tuple[int, int]] = set()
        counted: set[tuple[Thing, int, int, Fraction]] = set()
        while waiting:
            one = waiting.pop()
            _, share = chosen[one.visit.of]
            beginning = _beginning(one.visit)
            mates = () if beginning in begun else self._in_lockstep(one, steady)
            begun.add(beginning)
            for mate in chain(mates, self._meeting(one, steady)):
                if isinstance(mate, str):
                    return mate
                if mate.visit.of not in chosen:
                    chosen[mate.visit.of] = mate, share * one.period / mate.period
                    waiting.append(mate)
                if chosen[mate.visit.of] != (mate, share * one.period / mate.period):
                    return "lanes that begin it together go around it at another pace"
            for thing, shift in one.shifts.items():
                if not shift:
                    continue
                low, high = one.spans[thing]
                if (thing, low, high, shift * share) in counted:
                    continue
                counted.add((thing, low, high, shift * share))
                for of in self._users[thing]:
                    if not any(low <= use.phase <= high for use in self._users[thing][of]):
                        continue
                    if of not in chosen:
                        other = _beside(steady.by_lanes.get(of, ()), thing, low, high)
                        if other is None:
                            return f"others that use {_name(thing)} meanwhile do not go around a loop that repeats"
                        chosen[of] = other, share * shift / other.shifts[thing]
                        waiting.append(other)
                    other, theirs = chosen[of]
                    if other.shifts.get(thing, 0) * theirs != shift * share:
                        return f"others that use {_name(thing)} meanwhile go around at another pace"
        whole = math.lcm(*(share.denominator for _, share in chosen.values()))
        shifts = [(thing, shift * share) for one, share in chosen.values() for thing, shift in one.shifts.items()]
        if any(_has_parity(thing) and shift * whole % 2 for thing, shift in shifts):
            whole *= 2  # who waits by parity, after the loops or beside them, waits as before
        return [(one, int(one.period * share * whole)) for one, share in chosen.values()]

    def _in_lockstep(self, one: Steady, steady: _Repeating) -> Iterator[Steady | str]:
        """Yield the visits of the same loop by lanes that began it together."""
        beginning = _beginning(one.visit)
        yield from (other for other in steady.by_beginning[beginning] if other.visit is not one.visit)
        yield from (reason for visit, reason in self._unsteady if _beginning(visit) == beginning)

    def _meeting(self, one: Steady, steady: _Repeating) -> Iterator[Steady | str]:
        """Yield the visits of the same loop by lanes that meet in it at collectives."""
        loop = one.visit.loop
        mine = self._visits_of(loop, one.visit.of)
        for of in self._beside[loop.unit][one.visit.of] if loop.unit else ():
            theirs = self._visits_of(loop, of)
            if not theirs and loop.meets.isdisjoint(deed.instruction for deed in self._deeds[of]):
                continue
            if [len(visit.times) for visit in mine] != [len(visit.times) for visit in theirs]:
                yield "lanes of one warp, or warps of one warpgroup, do not go around it as often, and meet in it"
                return
            mate = theirs[next(n for n, visit in enumerate(mine) if visit is one.visit)]
            yield steady.by_visit.get(id(mate), "others that meet with it do not repeat")

    def _visits_of(self, loop: Loop, of: int) -> list[Visit]:
        return self._by_loop.get((id(loop), of), [])

    def _is_too_short(self, found: list[tuple[Steady, int]]) -> bool:
        """Tell whether there are too few rounds for what premises compare."""
        begin = max(one.visit.times[one.first] for one, _ in found)
        end = min(one.visit.times[one.last] for one, _ in found)
        late = min(_time_before(one, count, end) for one, count in found)
        for one, count in found:
            times = one.visit.times
            steps = range(one.first, one.last - count + 1)
            if not any(times[n] >= begin and times[n + count] <= late for n in steps):
                return True
        for thing in {thing for one, _ in found for thing, shift in one.shifts.items() if shift}:
            used = [use for some in self._users[thing].values() for use in some]
            lowest = min((use.phase for use in used if use.time >= late), default=0)
            if any(use.phase >= lowest - 1 and use.begun <= begin for use in used):
                return True
        return False


def _beside(steady: Sequence[Steady], thing: Thing, low: int, high: int) -> Steady | None:
    """Return the innermost of the loops of a class in which it uses something in about the same phases."""
    found: list[tuple[int, int, Steady]] = []
    for one in steady:
        if one.shifts.get(thing):
            first, last = one.spans[thing]
            common = min(last, high) - max(first, low) + 1
            if 2 * common > high - low:
                found.append((len(one.visit.loop.instructions), -common, one))
    return min(found, key=lambda some: some[:2], default=(0, 0, None))[2]


def _steered(found: list[tuple[Steady, int]]) -> tuple[str, tuple[Argument, ...] | None]:
    """Name what the number of rounds of loops that go around together steers besides, and return what else steers."""
    loops = {one.visit.loop.head: one.visit.loop for one, _ in found}
    bounds = next(iter(loops.values())).bounds
    if bounds is None:
        return "", None
    together = tuple(one.bounded for _, one in sorted(loops.items()) if one.bounded is not None)
    i = bounds.steered(together)
    return "" if i is None else f"`{i.text.strip()}` ({line_of(i)})", bounds.besides(together)


def _limited(extension: Extension, found: list[tuple[Steady, int]]) -> Extension:
    """Limit an extension to the rounds that constants in the code allow; refuse it if they allow no more."""
    steps = [
        ((one.limit[0] - len(one.visit.times)) // count, one.limit[0] + 1, one.visit.loop.where, one.limit[1])
        for one, count in found
        if one.limit is not None
    ]
    if not steps:
        return extension
    further, rounds, where, i = min(steps, key=lambda some: some[:3])
    by = f"`{i.text.strip()}` ({line_of(i)})"
    if further < 1:
        both = zip(extension.loops, extension.made, strict=True)
        loops = sorted(both, key=lambda one: one[0][0] != where)  # the first one is named
        names, made = tuple((name, 0) for (name, _), _ in loops), tuple(some for _, some in loops)
        return Extension(names, extension.least, f"it makes at most {rounds} rounds, by {by}", made)
    count = min(((len(one.visit.times), count) for one, count in found))[1]
    return replace(extension, most=extension.least + further * count, ends=by)


def _has_parity(thing: Thing) -> bool:
    return isinstance(thing[0], MbarrierAt)


def _time_before(one: Steady, count: int, end: int) -> int:
    """Return when the first round began of those that so many rounds later do not end before some time."""
    times, last = one.visit.times, one.last
    return next(times[n] for n in range(one.first, last) if n + count + 1 > last or times[n + count + 1] > end)


def _name(thing: Thing) -> str:
    return f"{thing[0]}" + (f" of CTA {thing[1]} of the cluster" if thing[1] else "")
