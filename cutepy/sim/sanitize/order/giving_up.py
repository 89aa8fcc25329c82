"""Whether threads go on where a phase never completes, to all that they do once it has.

Take a try that never succeeds, nor does another one of the same mbarrier and phase. From the beginning of the kernel
its outcome is followed through moves, selections, comparisons, logic and votes; what else decides may go either way. If
all that a success leads to is reached so as well, the try is a *guess*: to have come there tells nothing.

Nothing is claimed of ways that something else may bind to the outcome: another try that may stand for this one, a value
that may tell of it (from memory, say), or one that has decided a way before, such as the number of tries: where that is
compared once more the kernel may trap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.sanitize.order.failing import is_quiet, is_try, place_of
from cutepy.sim.sanitize.order.outcomes import deciding, value_of
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written
from cutepy.sim.translate.state_spaces import may_be_same, state_spaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.control_flow import Block, ControlFlow

_MOST_STATES = 5_000
_ENDS = frozenset("trap exit ret".split())
_STRONG = frozenset("volatile relaxed acquire acq_rel mmio".split())
_OF_OTHERS = frozenset("call activemask".split())


class _State(NamedTuple):
    """What is known where a thread is.

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
    """Tell whether all that a success of a try leads to is certainly reached without one."""
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
    """Return what may run after a try has succeeded and before one of the same mbarrier and phase: tries, and deeds."""
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
    """Yield the blocks that may come next, and which value of the condition leads there, if there is one."""
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
    """Run the rest of a block; notes what is reached, and returns where it goes on."""
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
                if x.parts[0] in _ENDS:
                    here.decide(x.predicate[0].index, int(x.predicate[1]))
            elif x.parts[0] in _ENDS:
                return ()
            reached.add(x.index)
            here.has_gone_on |= x.index in wanted
            if x.index not in wanted or here.is_told(x):
                here.stored |= {"generic"} if x.parts[0] == "call" else {*state_spaces(x).stores}
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
    """What is known of registers while a block runs."""

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
        """Whether the thread does what it does after a success, and no register tells of the failure."""
        return self.has_gone_on and not (self._told or self._tied)

    def runs(self, i: Instruction) -> bool | None:
        """Tell whether an instruction's predicate lets it run."""
        if i.predicate is None:
            return True
        value = self.values.get(i.predicate[0].index)
        return None if value is None else bool(value) != i.predicate[1]

    def is_told(self, i: Instruction) -> bool:
        """Tell whether something that an instruction reads may depend on the failure."""
        return any(r.index in self._told or r.index in self._tied for r in read(i))

    def is_doubtful(self, register: int) -> bool:
        """Tell whether which way it decides may not be free."""
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
        """Let what an instruction writes depend on what is not followed."""
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
        """Take what an instruction writes."""
        runs = self.runs(i)
        if runs is False:
            return
        value, seen = value_of(i, self.values), deciding(i, self.values)
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
        """Tell whether an instruction brings what somebody may have made of an outcome."""
        is_strong = i.parts[0] == "atom" or not _STRONG.isdisjoint(i.parts)
        for space in {*state_spaces(i).loads} - {"param", "const"}:
            is_stored = any(may_be_same(space, other) for other in self.stored)
            if is_stored or space == "barrier" or (is_strong and not self.is_as_after_success):
                return True
        return i.parts[0] in _OF_OTHERS or is_try(i) or i.parts[:2] == ("mbarrier", "pending_count")
