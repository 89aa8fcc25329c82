"""Tries at mbarriers: waits that retry until they succeed, peeks that a wait follows, and guesses, which order nothing.

A wait consists of all tries of one mbarrier and phase of which one must succeed. A try is a *peek* if its outcome only
decides whether another wait follows. The success of a peek saves time and orders nothing by itself: the order of the
wait begins where the two paths join. A relaxed try, or one of a narrower scope than the wait that it saves, is no peek,
because the two order different accesses. The simulator makes a peek fail, to see the path with the wait, unless the
thread knows that the phase is complete, so that the peek can't fail.

A try *retries* if each path after its failure leads to it, or to another try of the same mbarrier and phase with which
it is alike, and does nothing else before. Branches on the outcome are decided (`constant_folding.py`); others may go
either way.

A try is a *guess* if all that its success leads to is reached without one too, after so many tries, say: a thread that
goes on knows nothing by it. To find that, the try and all others of the same mbarrier and phase are taken never to
succeed, and the outcome is followed from the beginning of the kernel through moves, selections, comparisons, logic and
votes. Nothing is claimed of paths that something else may bind to the outcome: another try that may stand for this one,
a value that may tell of it (from memory, say), or a value that has decided a branch before, such as the number of
tries: where that is compared once more the kernel may trap. Where that can't be told the try is no wait, and not
certified, but a thread that has seen it succeed goes on knowing it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.memory_order import WEAK, strength
from cutepy.sim.ptx.model import Instruction, Register, Special, registers_in
from cutepy.sim.sanitize.order.constant_folding import sources_of, value_of
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written
from cutepy.sim.translate.state_spaces import may_be_same, state_spaces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cutepy.sim.sanitize.order.uses import Uses
    from cutepy.sim.translate.control_flow import Block, ControlFlow


@dataclass(frozen=True)
class Try:
    """A try, and the effect of its outcome.

    Attributes
    ----------
    instruction : Instruction
    retries : bool
        True if it is tried again until it succeeds.
    followers : frozenset of int
        The other tries that may run only because it failed, by index.
    misuse : Instruction or None
        What uses the outcome for more than to decide whether to wait; or a try that shows more, which this one may
        save.
    may_give_up : bool
        True if it is tried again, but may never succeed before the thread goes on, as far as can be told.
    is_guess : bool
        True if the code after its success is certainly reached without one too (`giving_up.py`).
    """

    instruction: Instruction
    retries: bool
    followers: frozenset[int]
    misuse: Instruction | None
    may_give_up: bool = False
    is_guess: bool = False

    @property
    def is_peek(self) -> bool:
        """True if a wait follows its failure, or nothing depends on its outcome."""
        return not self.retries and self.misuse is None and not self.may_give_up and not self.is_guess


def tries(flow: ControlFlow, uses: Uses) -> list[Try]:
    """Find the tries of a kernel."""
    every = [i for block in flow.blocks for i in block.instructions if is_try(i)]
    again = frozenset(i.index for i in every if is_tried_again(flow, uses, i))
    found = [_follow(flow, i, uses, again) for i in every]
    return [replace(one, is_guess=_is_open(one, again) and goes_on(flow, one.instruction)) for one in found]


def _is_open(one: Try, again: frozenset[int]) -> bool:
    """Return whether a try may be a guess: no wait, and no peek that one follows, or whose outcome decides nothing."""
    if one.instruction.index in again:
        return False
    return not one.is_peek or bool(one.followers and not one.followers & again)


def _follow(flow: ControlFlow, i: Instruction, uses: Uses, again: frozenset[int]) -> Try:
    """Follow an outcome to where it ends: branches, and values that depend on it."""
    returns, misuse = False, None
    followers: set[int] = set()
    waiting = [use for register in written(i) for use in uses.after(i, register.index)]
    seen = set(waiting)
    while waiting and misuse is None:
        number, use = waiting.pop()
        if use is not None:
            if is_try(use) or not is_quiet(use):
                misuse = use
                break
            reached = [x for register in written(use) for x in uses.after(use, register.index)]
        else:
            join = flow.join[number]
            sides = [list(_between(flow, start, join)) for start in set(flow.blocks[number].successors)]
            inside = [x for side in sides for x in side]
            loud = next((x for x in inside if not is_quiet(x)), None)
            if loud is not None or sum(any(map(is_try, side)) for side in sides) > 1:
                misuse = loud or next(filter(is_try, inside))
                break
            found = {x.index for x in inside if is_try(x)}
            returns |= i.index in found
            followers |= found - {i.index}
            changed = {r.index for x in inside for r in written(x)}
            alive = changed & flow.live_in[join] if join != EXIT else set()
            reached = [x for register in alive for x in uses.on_entry(join, register)]
        waiting += [x for x in reached if x not in seen]
        seen.update(reached)
    others = [x for block in flow.blocks for x in block.instructions if x.index in followers]
    misuse = misuse or next((x for x in others if _shown(x) > _shown(i)), None)
    retries, may_give_up = returns and i.index in again, returns and i.index not in again and misuse is None
    if retries and misuse is None and not all(x.operands[1:3] == i.operands[1:3] for x in others):
        misuse = i
    return Try(i, retries, frozenset(followers), misuse, may_give_up)


def _between(flow: ControlFlow, start: int, end: int) -> Iterator[Instruction]:
    """Yield the instructions that run from one block on before another."""
    for n in sorted(flow.blocks_between(start, end)):
        yield from flow.blocks[n].instructions


def _shown(i: Instruction) -> int:
    """Rank the edge that the success of a try gives: none, one of this CTA, or one of the cluster."""
    return 0 if i.traits.is_relaxed else 1 + ("cluster" in i.parts)


def is_try(i: Instruction) -> bool:
    """Return whether an instruction tests a phase of an mbarrier."""
    return i.traits.tries


def is_quiet(i: Instruction) -> bool:
    """Return whether an instruction does no more than to write registers, to wait for a while, or to try."""
    return is_try(i) or i.traits.sleeps or i.traits.is_pure


class _KnownPlace(NamedTuple):
    """A place in a block that may be reached, and the values, 0 or 1, of registers that are known there, by index."""

    block: int
    place: int
    known: frozenset[tuple[int, int]]


def is_tried_again(flow: ControlFlow, uses: Uses, i: Instruction) -> bool:
    """Return whether a try that fails is tried again, or one of the same mbarrier and phase, until one succeeds."""
    waiting, reached = [_failed(flow, i)], {i.index: i}
    seen, passed = set(waiting), set[int]()
    while waiting:
        number, place, known = waiting.pop()
        block, values = flow.blocks[number], dict(known)
        following: list[_KnownPlace] = []
        for x in block.instructions[place:]:
            if is_try(x) and x.operands[1:3] == i.operands[1:3]:
                reached[x.index] = x
                at = _failed(flow, x)
                following.append(at._replace(known=frozenset((values | dict(at.known)).items())))
                break
            if not is_quiet(x):
                return False
            passed.add(x.index)
            _run(x, values)
        else:
            for to in _ways_on(block, values):
                if to == EXIT:
                    return False
                here = flow.live_in[to]
                following.append(_KnownPlace(to, 0, frozenset((r, v) for r, v in values.items() if r in here)))
        waiting += [at for at in following if at not in seen]
        seen.update(following)
    operands = [r for operand in i.operands[1:3] for r in registers_in(operand)]
    return all(_is_kept(flow, uses, reached.values(), r, passed, frozenset()) for r in operands)


def _failed(flow: ControlFlow, i: Instruction) -> _KnownPlace:
    """Return where a try has failed."""
    number, place = place_of(flow, i)
    return _KnownPlace(number, place + 1, frozenset((r.index, 0) for r in written(i)))


def place_of(flow: ControlFlow, i: Instruction) -> tuple[int, int]:
    """Return the block that an instruction is in, and its place there."""
    every = ((b, n) for b, block in enumerate(flow.blocks) for n, x in enumerate(block.instructions) if x is i)
    return next(every)


def _ways_on(block: Block, values: dict[int, int]) -> list[int]:
    """Return the blocks that may come next."""
    if block.condition is None or block.condition[0].index not in values:
        return block.successors
    register, is_negated = block.condition
    return [block.successors[values[register.index] == is_negated]]


def _run(i: Instruction, values: dict[int, int]) -> None:
    """Note the result of an instruction, as far as it is known."""
    guard = True
    if i.predicate is not None:
        register, is_negated = i.predicate
        if register.index in values and bool(values[register.index]) == is_negated:
            return
        guard = register.index in values
    value = value_of(i, values) if guard else None
    for register in written(i):
        values.pop(register.index, None)
        if value in (0, 1) and register == i.operands[0]:
            values[register.index] = value


def _is_kept(
    flow: ControlFlow,
    uses: Uses,
    readers: Collection[Instruction],
    register: Register,
    passed: set[int],
    above: frozenset[int],
) -> bool:
    """Return whether some instructions read the same in a register each time, whichever of `passed` was run between.

    They do if none of these gives them a value; or if one instruction alone does, of what it reads the same each time.
    """
    makers = [
        x
        for block in flow.blocks
        for x in block.instructions
        if register in written(x) and any(u.instruction in readers for u in uses.after(x, register.index))
    ]
    if not any(x.index in passed for x in makers):
        return True
    maker = makers[0]
    if len(makers) > 1 or maker.index in above or is_try(maker):
        return False
    if any(isinstance(operand, Special) for operand in maker.operands):
        return False  # a clock, for one
    return all(_is_kept(flow, uses, [maker], r, passed, above | {maker.index}) for r in read(maker))


_MOST_STATES = 5_000


class _State(NamedTuple):
    """State of a thread at a place in the code.

    Registers by index: `known` values; of these `told`, which depend on a failure; unknown ones that may depend on it,
    `tied`; `judged`, of which a way was decided, or which are made of those; and what registers were made of. In which
    state spaces the thread has `stored` what may tell of the failure.
    """

    known: frozenset[tuple[int, int]] = frozenset()
    told: frozenset[int] = frozenset()
    tied: frozenset[int] = frozenset()
    judged: frozenset[int] = frozenset()
    made: frozenset[tuple[int, frozenset[int]]] = frozenset()
    has_failed: bool = False
    has_gone_on: bool = False
    stored: frozenset[str] = frozenset()


def goes_on(flow: ControlFlow, i: Instruction) -> bool:
    """Return whether all that a success of a try leads to is certainly reached without one."""
    wanted = _after_success(flow, i)
    reached: set[int] = set()
    waiting, seen = [(0, 0, _State())], set[tuple[int, int, _State]]()
    while waiting:
        number, place, state = waiting.pop()
        for following in _passed(flow, i, number, place, state, wanted, reached):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
        if len(seen) > _MOST_STATES:
            return False
    return bool(wanted) and wanted <= reached


def _after_success(flow: ControlFlow, i: Instruction) -> set[int]:
    """Return instructions that may run after a try has succeeded and before one of the same mbarrier and phase."""
    found: set[int] = set()
    number, place = place_of(flow, i)
    known = frozenset((r.index, 1) for r in written(i))
    waiting, seen = [(number, place + 1, known)], set[tuple[int, int, frozenset[tuple[int, int]]]]()
    while waiting:
        number, place, known = waiting.pop()
        block, values = flow.blocks[number], dict(known)
        for x in block.instructions[place:]:
            if _is_alike(x, i):
                break
            if x.predicate is None or values.get(x.predicate[0].index, 1 - x.predicate[1]) != x.predicate[1]:
                if is_try(x) or not is_quiet(x):
                    found.add(x.index)
                value = value_of(x, values) if x.predicate is None else None
                for register in written(x):
                    values.pop(register.index, None)
                    if value is not None and register == x.operands[0]:
                        values[register.index] = value
        else:
            for to, _ in _ways(block, values):
                kept = frozenset((r, v) for r, v in values.items() if r in flow.live_in[to])
                if (to, 0, kept) not in seen:
                    seen.add((to, 0, kept))
                    waiting.append((to, 0, kept))
    return found


def _is_alike(x: Instruction, i: Instruction) -> bool:
    return is_try(x) and x.operands[1:3] == i.operands[1:3]


def _ways(block: Block, values: dict[int, int]) -> Iterator[tuple[int, int | None]]:
    """Yield the successor blocks, each with the value of the condition that leads there, if there is a condition."""
    if block.condition is None:
        yield from ((to, None) for to in block.successors if to != EXIT)
        return
    register, is_negated = block.condition
    for n, to in enumerate(block.successors):
        value = int((n == 0) != is_negated)
        if to != EXIT and values.get(register.index, value) == value:
            yield to, value


def _passed(
    flow: ControlFlow, i: Instruction, number: int, place: int, state: _State, wanted: set[int], reached: set[int]
) -> Iterable[tuple[int, int, _State]]:
    """Run the rest of a block; note the places reached, and return the next ones."""
    block, here = flow.blocks[number], _Registers(state)
    for n, x in enumerate(block.instructions[place:], place):
        if is_try(x) and x.predicate is None:
            reached.add(x.index)
            if _is_alike(x, i) and (here.has_failed or x.index == i.index):
                here.has_failed = True
                here.take(x, 0)
            elif not here.has_failed or (x.index in wanted and here.is_as_after_success):
                outcomes = []
                for value in (0, 1):
                    one = _Registers(here.state(None))
                    one.take(x, value, is_told=False)
                    outcomes.append((number, n + 1, one.state(None)))
                return outcomes
            else:
                here.tie(x)
            continue
        runs = here.runs(x)
        if not is_quiet(x) and here.has_failed and runs is not False:
            if x.predicate is not None and runs is None:
                if here.is_doubtful(x.predicate[0].index):
                    return ()
                if "ends" in x.traits.qualities:
                    here.decide(x.predicate[0].index, int(x.predicate[1]))
            elif "ends" in x.traits.qualities:
                return ()
            reached.add(x.index)
            here.has_gone_on |= x.index in wanted
            if x.index not in wanted or here.is_told(x):
                here.stored |= {"generic"} if x.traits.calls else {*state_spaces(x).stores}
        here.run(x)
    condition = None if block.condition is None else block.condition[0].index
    is_open = condition is not None and condition not in here.values
    if here.has_failed and is_open and condition is not None and here.is_doubtful(condition):
        return ()
    result = []
    for to, way in _ways(block, here.values):
        one = here
        if is_open and condition is not None and way is not None:
            one = _Registers(here.state(None))
            one.decide(condition, way)
        result.append((to, 0, one.state(flow.live_in[to])))
    return result


class _Registers:
    """Registers with known values while a block runs."""

    def __init__(self, state: _State) -> None:
        self.values, self._made = dict(state.known), dict(state.made)
        self._told, self._tied, self._judged = set(state.told), set(state.tied), set(state.judged)
        self.has_failed, self.has_gone_on, self.stored = state[-3:]

    def state(self, live: frozenset[int] | set[int] | None) -> _State:
        """Return it, of the registers that are still read."""

        def kept(of: set[int]) -> frozenset[int]:
            return frozenset(of if live is None else of & live)

        known = frozenset((r, v) for r, v in self.values.items() if live is None or r in live)
        made = frozenset((r, of) for r, of in self._made.items() if live is None or r in live)
        kinds = kept(self._told), kept(self._tied), kept(self._judged), made
        return _State(known, *kinds, self.has_failed, self.has_gone_on, self.stored)

    @property
    def is_as_after_success(self) -> bool:
        """True if the thread does as after a success, and no register tells of the failure."""
        return self.has_gone_on and not (self._told or self._tied)

    def runs(self, i: Instruction) -> bool | None:
        """Return whether an instruction's predicate lets it run."""
        if i.predicate is None:
            return True
        value = self.values.get(i.predicate[0].index)
        return None if value is None else bool(value) != i.predicate[1]

    def is_told(self, i: Instruction) -> bool:
        """Return whether something that an instruction reads may depend on the failure."""
        return any(r.index in self._told or r.index in self._tied for r in read(i))

    def is_doubtful(self, register: int) -> bool:
        """Return whether which way it decides may not be free."""
        return register in self._tied or register in self._judged

    def decide(self, register: int, value: int) -> None:
        """Take the way that leads on for a value of a register."""
        if self.has_failed:
            self._judged |= {register} | self._made.get(register, frozenset())
        self.values[register] = value

    def take(self, i: Instruction, value: int, *, is_told: bool = True) -> None:
        """Let a try have an outcome."""
        for register in written(i):
            self._write(register.index, value, is_told)

    def tie(self, i: Instruction) -> None:
        """Let the result of an instruction depend on values that are not followed."""
        for register in written(i):
            self._write(register.index, None, is_told=True)

    def _write(self, register: int, value: int | None, is_told: bool) -> None:
        self.values.pop(register, None)
        self._made.pop(register, None)
        for of in (self._told, self._tied, self._judged):
            of.discard(register)
        if value is not None:
            self.values[register] = value
        if is_told:
            (self._tied if value is None else self._told).add(register)

    def run(self, i: Instruction) -> None:
        """Take the results of an instruction."""
        runs = self.runs(i)
        if runs is False:
            return
        value, seen = value_of(i, self.values), sources_of(i, self.values)
        own = {r.index for r in written(i)}
        is_told = any(r in self._told or r in self._tied for r in seen) or self._is_of_others(i)
        judged = bool((seen - own) & self._judged)
        made = frozenset[int]().union(*({r} | self._made.get(r, frozenset()) for r in seen - own))
        for register in written(i):
            first, old = register == i.operands[0], self.values.get(register.index)
            new = value if first and (runs or old == value) else None
            depends = is_told or (runs is None and register.index in self._told | self._tied)
            self._write(register.index, new, depends and self.has_failed)
            if new is None and self.has_failed:
                self._made[register.index] = made
                if judged:
                    self._judged.add(register.index)

    def _is_of_others(self, i: Instruction) -> bool:
        """Return whether an instruction brings a value that another thread may have made of an outcome."""
        is_strong = strength(i.opcode).scope != WEAK
        for space in {*state_spaces(i).loads} - {"param", "const"}:
            is_stored = any(may_be_same(space, other) for other in self.stored)
            if is_stored or space == "barrier" or (is_strong and not self.is_as_after_success):
                return True
        return i.traits.calls or i.traits.tells_active or is_try(i) or i.traits.counts_pending
