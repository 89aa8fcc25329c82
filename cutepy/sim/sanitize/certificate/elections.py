"""Elected lanes: happens-before that holds only because `elect.sync` elects the first lane of its mask here.

`elect.sync` elects some lane of its mask, the same each time. The PTX ISA does not say which one; here it is the first.
So the clocks take the elected lane and lane 0 for one thread. A certificate says so as an assumption if it may rest on
that:

- an elected lane does something, and a lane that is chosen by its number does something that must come after it, or the
  other way round, and the warp does not meet in between;
- an elected lane and all lanes of its warp touch the same bytes, and the order of the two holds for that lane only;
- the elected lane releases what all lanes of its warp did, or waits for what all of them touch then, and the order with
  another thread's access holds for that lane only;
- what the elected lane executes depends on the number of that lane;
- the flag that `elect.sync` gives, or what is made of it, is more than a guard or a branch: it is stored, is an
  address, goes to other lanes, or a function is called under it.

The last two are told by the code alone, whatever comes of them. The two before them are told by the vector clocks,
where an access is compared with older ones of the same bytes: see `order/lane_pairs.py`.

The lanes of a warp meet at `bar.warp.sync`, and at barriers that whole warps wait at, but for relaxed arrivals at the
cluster's barrier. An arrival at an mbarrier, and a wait for the phase in which it counts, order what the arriving lane
did before what the waiting one does, whichever lane is elected. Of two operations, the second may
have to come after the first if the first has waited for something or is a fence, if the second releases or issues, if
both are about one mbarrier or about groups of copies, and if both touch the same memory.

References
----------
PTX ISA, "elect.sync": "elects one predicated active leader thread"; "bar.warp.sync".
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.events import (
    BLOCKED,
    ClusterArrive,
    ClusterWait,
    Fence,
    GroupCommit,
    GroupWait,
    MbarrierArrive,
    MbarrierAt,
    MbarrierCount,
    MbarrierEvent,
    MbarrierInit,
    MbarrierWait,
    NamedBarrierEvent,
    NamedBarrierSync,
    WarpSync,
    part_of,
)
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.ptx.linking import LANDING
from cutepy.sim.ptx.memory_order import strength
from cutepy.sim.ptx.model import Address, FrameSlot, Immediate, Register, Special, Vector, registers_in
from cutepy.sim.ptx.source_lines import line_of
from cutepy.sim.sanitize.certificate.dependence import Dependence
from cutepy.sim.translate.effects import written
from cutepy.sim.translate.state_spaces import state_spaces

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, Barrier, BarrierEvent
    from cutepy.sim.machine.lanes import Residents, Threads
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.clocks import Clocks
    from cutepy.sim.sanitize.order.lane_pairs import LanePairs
    from cutepy.sim.translate.control_flow import ControlFlow

_ORDER = (
    "elect.sync elects the first lane of its mask: with another one nothing orders `{}` ({}) and `{}` ({}), of which "
    "one is by the elected lane and the other by a lane that is chosen by its number"
)
_OF_ALL = (
    "elect.sync elects the first lane of its mask: with another one nothing orders `{}` ({}) and `{}` ({}), of which "
    "one is by the elected lane and the other by all lanes of its warp"
)
_BETWEEN = (
    "elect.sync elects the first lane of its mask: with another one nothing orders `{}` ({}) and `{}` ({}), of which "
    "one is by all lanes of a warp, and only its elected lane releases or waits in between"
)
_NUMBER = (
    "elect.sync elects the first lane of its mask: the elected lane executes `{}` ({}), which depends on the number of "
    "that lane"
)
_FLAG = "elect.sync elects the first lane of its mask: `{}` ({}) takes or passes on which lane that is"

_LANES = frozenset("laneid lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt tid tid.x".split())
_OF_ROWS = frozenset(("tid.y", "tid.z"))
_BELOW, _UP_TO = ("lt", "ge", "lo", "hs"), ("gt", "le", "hi", "ls")
_ALL_LANES = (1 << WARP) - 1
_EACH = np.arange(WARP)
_NO_PHASE = np.iinfo(np.int64).max
"""In place of several phases."""

_WAIT, _FENCE, _POLL, _RELEASE, _ISSUE, _TOUCH, _MBARRIER, _GROUP = (
    "wait fence poll release issue touch mbarrier group".split()
)
_PUBLISHES = (MbarrierArrive, NamedBarrierEvent, ClusterArrive, Fence)
_MOST_RELEASES = 1 << 12
"""Releases of a lane that is chosen by its number, and how far it had come: the latest are remembered."""
_OTHERS: dict[type[BarrierEvent], str] = {GroupWait: _WAIT, GroupCommit: _GROUP, Fence: _FENCE}


@dataclass(frozen=True)
class ElectedInstructions:
    """The instructions of a kernel that elected lanes execute.

    Attributes
    ----------
    instructions : frozenset of int
        By index.
    assumed : tuple of str
        Assumptions about the elected lane, from the code alone.
    lane : int
        The lane that is elected here, within its warp.
    """

    instructions: frozenset[int]
    assumed: tuple[str, ...]
    lane: int


def elected(flow: ControlFlow, *, has_whole_rows: bool) -> tuple[ElectedInstructions, ...]:
    """Find the instructions that elected lanes execute, for each mask that a kernel elects from.

    A lane that is elected from one mask may be another one than is elected from a second mask. So the elections from
    each other mask count as choices by number. One lane's mask leaves no choice, and is left out.

    Parameters
    ----------
    flow : ControlFlow
    has_whole_rows : bool
        True if warps are parts of rows of the block: %tid.x counts their lanes, and %tid.y and %tid.z are one value.
    """
    code = Dependence(flow)
    by_mask: dict[object, list[Instruction]] = {}
    for i in code.instructions.values():
        if i.traits.elects:
            by_mask.setdefault(_mask(code, i), []).append(i)
    return tuple(
        _elected_from(code, mask, by_mask, has_whole_rows=has_whole_rows)
        for mask in by_mask
        if not isinstance(mask, int) or mask & (mask - 1)
    )


def _mask(code: Dependence, i: Instruction) -> object:
    """Return the mask of an election: a number where it is a constant, else the register."""
    mask = i.operands[-1]
    if isinstance(mask, Register):
        makers = code.makers(code.block_of(i), i, mask.index)
        values = {
            m.operands[1].value & _ALL_LANES if m.traits.renames and isinstance(m.operands[1], Immediate) else None
            for m in makers
        }
        return next(iter(values)) if len(values) == 1 and None not in values else mask
    return mask.value & _ALL_LANES if isinstance(mask, Immediate) else mask


def _elected_from(
    code: Dependence, mask: object, by_mask: dict[object, list[Instruction]], *, has_whole_rows: bool
) -> ElectedInstructions:
    """Find the instructions that lanes execute which are elected from one mask."""
    flow, elections = code.flow, by_mask[mask]
    chosen = _Taint(code, lambda i, register: True)
    lanes = _LANES if has_whole_rows else _LANES | _OF_ROWS
    numbered = _Taint(code, lambda i, register: not _is_uniform(code, i, register, has_whole_rows))
    for i in elections:
        chosen.make(i)
        numbered.write(i, (r for r in written(i) if r.type != "pred"))
    for other in by_mask:
        for i in by_mask[other] if other != mask else ():
            numbered.make(i)
    for i in code.instructions.values():
        differs = i.traits.threads > 1 or any(_names(lanes, operand) for operand in i.operands)  # or parts of matrices
        if i.traits.tells_active or (differs and not _is_uniform(code, i, None, has_whole_rows)):
            numbered.make(i)
        elif i.traits.shuffles and not _is_in_range_everywhere(i):
            numbered.write(i, (r for r in written(i) if r.type == "pred"))
    found: set[int] = set()
    assumed: list[str] = []
    for block, within in enumerate(flow.blocks):
        for i in within.instructions:
            is_elected = chosen.decides(block, i)
            if is_elected:
                found.add(i.index)
            if i.traits.is_plain:
                continue
            if chosen.enters(block, i) or (is_elected and (i.traits.calls or i.opcode == LANDING)):
                assumed.append(_FLAG.format(i.text.strip(), line_of(i)))
            elif is_elected and (numbered.decides(block, i) or numbered.enters(block, i)):
                assumed.append(_NUMBER.format(i.text.strip(), line_of(i)))
    lane = (mask & -mask).bit_length() - 1 if isinstance(mask, int) and mask else 0
    return ElectedInstructions(frozenset(found), tuple(assumed)[:1], lane)


class _Outcome(NamedTuple):
    """An outcome of branches: the predicate, its source, both by index, and its value."""

    register: int
    makers: frozenset[int]
    value: bool


class _Taint:
    """Follows values to all that depends on them: by registers, by branches, and by memory that each lane has alone.

    A value that is written under a branch depends on that branch where it is read outside: where the same predicate
    does not decide in the same way. Shared and global memory need not be followed: a value that may tell lanes apart
    is told where it is stored there.

    Parameters
    ----------
    code : Dependence
    passes : callable
        Tells whether the results of an instruction depend on the lane if a register, by index, does.
    """

    def __init__(self, code: Dependence, passes: Callable[[Instruction, int], bool]) -> None:
        self._code, self._passes = code, passes
        self._reads: set[tuple[int, int | None, int]] = set()
        self._held = _held(code)
        self._waiting: list[tuple[int, Instruction | None, int]] = []
        operands = (o for i in code.instructions.values() for o in i.operands)
        has_frame = any(isinstance(o.base if isinstance(o, Address) else o, FrameSlot) for o in operands)
        self._own = ("local", "frame", "generic") if has_frame else ()
        instructions = code.instructions.values() if has_frame else ()
        self._loads = [i for i in instructions if not {*state_spaces(i).loads}.isdisjoint(self._own)]

    def make(self, i: Instruction) -> None:
        """Follow all that an instruction writes."""
        self.write(i, written(i))

    def write(self, i: Instruction, registers: Iterable[Register]) -> None:
        """Follow some registers that an instruction writes."""
        self._leave(i, None, registers)
        while self._waiting:
            block, use, register = self._waiting.pop()
            if use is None:
                self._branch(block)
            elif self._passes(use, register):
                self._leave(use, None, written(use))
                if not {*state_spaces(use).stores}.isdisjoint(self._own):
                    for load in self._loads:
                        self._leave(load, None, written(load))

    def decides(self, block: int, i: Instruction) -> bool:
        """Return whether such a value decides if an instruction runs."""
        conditions = ((over, self._code.flow.blocks[over].condition) for over in self._code.over[block])
        return (i.predicate is not None and (block, i.index, i.predicate[0].index) in self._reads) or any(
            c is not None and (over, None, c[0].index) in self._reads for over, c in conditions
        )

    def enters(self, block: int, i: Instruction) -> bool:
        """Return whether an operand of an instruction is such a value."""
        return any((block, i.index, r.index) in self._reads for o in i.operands for r in registers_in(o))

    def _branch(self, over: int) -> None:
        """Follow values written under a branch to their reads outside."""
        for block, outcome in _sides(self._code, over):
            for i in self._code.flow.blocks[block].instructions:
                self._leave(i, outcome, written(i))
                if not {*state_spaces(i).stores}.isdisjoint(self._own):
                    for load in self._loads:
                        if outcome not in self._held[self._code.block_of(load)]:
                            self._leave(load, None, written(load))

    def _leave(self, i: Instruction, outcome: _Outcome | None, registers: Iterable[Register]) -> None:
        """Follow registers that an instruction writes to where they are read under another outcome of a branch."""
        for register in registers:
            for block, use in self._code.uses.after(i, register.index):
                key = block, None if use is None else use.index, register.index
                if key not in self._reads and outcome not in self._held[block]:
                    self._reads.add(key)
                    self._waiting.append((block, use, register.index))


def _sides(code: Dependence, over: int) -> Iterator[tuple[int, _Outcome | None]]:
    """Yield the blocks that a branch decides about, and its outcome that leads there, unless both do."""
    at = code.flow.blocks[over]
    if at.condition is None:
        return
    register, negated = at.condition
    makers = frozenset(i.index for i in code.makers(over, None, register.index))
    sides = [code.flow.blocks_between(side, code.flow.join[over]) for side in at.successors]
    for n, side in enumerate(sides):
        for block in side:
            outcome = _Outcome(register.index, makers, (n == 0) != negated)
            yield block, None if block in sides[1 - n] else outcome


def _held(code: Dependence) -> list[set[_Outcome]]:
    """Return the outcomes of branches that each block runs under."""
    found: list[set[_Outcome]] = [set() for _ in code.flow.blocks]
    for over in range(len(found)):
        for block, outcome in _sides(code, over):
            if outcome is not None:
                found[block].add(outcome)
    return found


def _names(specials: frozenset[str], operand: object) -> bool:
    """Return whether an operand is one of some special registers, or a vector with one."""
    if isinstance(operand, Vector):
        return any(_names(specials, item) for item in operand.items)
    return isinstance(operand, Special) and operand.name.removeprefix("%") in specials


def _is_uniform(code: Dependence, i: Instruction, register: int | None, has_whole_rows: bool) -> bool:
    """Return whether an instruction makes one value for all lanes of a warp, though a register differs among them.

    Parameters
    ----------
    code : Dependence
    i : Instruction
    register : int or None
        By index; None for a special register.
    has_whole_rows : bool
        As of `elected`.
    """
    name = i.parts[0]
    if i.predicate is not None:
        return False
    if i.traits.meets:
        return True
    last = i.operands[-1] if i.operands else None
    if not isinstance(last, Immediate):
        return False
    if name in ("shfl", "vote", "redux"):
        taken = any(r.index == register for o in i.operands[2:] for r in registers_in(o))
        from_one = not i.traits.shuffles or ("idx" in i.parts and i.operands[3:4] == (Immediate(WARP - 1),))
        return last.value & _ALL_LANES == _ALL_LANES and from_one and not taken
    if not (has_whole_rows and len(i.operands) > 2 and _is_thread(code, i)):
        return False
    number = last.value
    if name == "setp":
        bound = number if i.parts[1] in _BELOW else number + 1
        return not bound % WARP and i.parts[1] in (*_BELOW, *_UP_TO)
    if name == "shr":
        return number >= WARP.bit_length() - 1
    return (name == "div" and not number % WARP) or (name == "and" and not number & (WARP - 1))


def _is_in_range_everywhere(i: Instruction) -> bool:
    """Return whether the lane that a shuffle reads is in range for all lanes of a warp."""
    distance, clamp = i.operands[2:4]
    if not (isinstance(distance, Immediate) and isinstance(clamp, Immediate)):
        return isinstance(clamp, Immediate) and clamp.value == WARP - 1 and i.parts[2] in ("idx", "bfly")
    if i.parts[2] in ("up", "down"):
        return not distance.value % WARP
    return clamp.value % WARP == WARP - 1


def _is_thread(code: Dependence, i: Instruction) -> bool:
    """Return whether the first value that an instruction takes is %tid.x, as it is."""
    operand, tid = i.operands[1], frozenset(("tid.x",))
    if isinstance(operand, Register):
        makers = code.makers(code.block_of(i), i, operand.index)
        return bool(makers) and all(
            m.traits.renames and m.predicate is None and _names(tid, m.operands[1]) for m in makers
        )
    return _names(tid, operand)


class _LaneOperation(NamedTuple):
    """Operation of a lane.

    Attributes
    ----------
    what : str
    place : MbarrierAt or str, or None
        The mbarrier or the kind of groups that it is about, or the state space that it touches.
    writes : bool
    """

    what: str
    place: MbarrierAt | str | None = None
    writes: bool = False

    def orders(self, later: _LaneOperation) -> bool:
        """Return whether something later may have to come after it; of memory, if both touch the same bytes."""
        if self.what in (_WAIT, _FENCE):
            return True
        if self.what == _TOUCH:
            if later.what == _TOUCH:
                return self.place == later.place and (self.writes or later.writes)
            return later.what in (_RELEASE, _FENCE, _ISSUE)
        return self.place is not None and self.place == later.place


@dataclass
class _OperationTime:
    """Bytes that an instruction touched last, and the synchronisation of its lanes since.

    Attributes
    ----------
    slots : array of bool, (CTA,)
    low, high : int
        Of memory: the first byte, and the one behind the last.
    instruction : Instruction
        That did it last.
    released : array of bool, (CTA,)
        True if the warp has arrived at the cluster's barrier since, with a release.
    is_open : array of bool, (CTA, lane)
        Of an elected lane's operation the other lanes that no mbarrier orders after it; of other lanes' operations the
        lanes that did it and that no mbarrier orders before the elected one.
    told : dict of MbarrierAt to array of int, (CTA, lane)
        The phase in which such a lane, or the elected one, has arrived since; -1 if it has not.
    counts_at : MbarrierAt or None
        The mbarrier that the operation itself is about.
    """

    slots: Array
    low: int
    high: int
    instruction: Instruction
    released: Array
    is_open: Array
    counts_at: Barrier | None
    told: dict[Barrier, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, what: _LaneOperation, i: Instruction, ctas: int, low: int = 0, high: int = 0) -> _OperationTime:
        """Make the note of an operation that no CTA has executed so far."""
        none = np.zeros((2, ctas), bool)
        counts_at = what.place if what.what == _MBARRIER and isinstance(what.place, MbarrierAt) else None
        return cls(none[0], low, high, i, none[1], np.zeros((ctas, WARP), bool), counts_at)

    def add(self, slots: Array, lanes: Array, phases: Array | None = None) -> None:
        """Note that CTAs execute it: an operation that counts at an mbarrier, in a phase by CTA."""
        at = np.ix_(slots, lanes)
        for barrier, told in self.told.items():
            is_new = ~self.is_open[at] | (told[at] < 0) | (barrier != self.counts_at)
            same = False if phases is None else told[at] == phases[:, None]
            told[at] = np.where(is_new, -1, np.where(same, told[at], _NO_PHASE))
        self.slots[slots], self.released[slots], self.is_open[at] = True, False, True

    def tell(self, barrier: Barrier, slots: Array, lanes: Array, phases: Array) -> None:
        """Note that lanes arrive at an mbarrier, in a phase by CTA: the first since counts."""
        at = np.ix_(slots, lanes)
        told = self.told.setdefault(barrier, np.full(self.is_open.shape, -1, np.int64))
        told[at] = np.where(told[at] < 0, phases[:, None], told[at])

    def close(self, barrier: Barrier, slots: Array, lanes: Array, phases: Array) -> None:
        """Take lanes for ordered that have been told of the operation by a phase that is over, by CTA.

        What counts in an earlier phase must come before the wait by other means: its parity tells phases apart only if
        they follow one another.
        """
        if barrier in self.told:
            at = np.ix_(slots, lanes)
            told = self.told[barrier][at]
            is_over = told == phases[:, None] if barrier == self.counts_at else told <= phases[:, None]
            self.is_open[at] &= (told < 0) | ~is_over

    def meets(self, slots: Array, lanes: Array) -> bool:
        """Return whether lanes of CTAs may come after it in no order."""
        return bool((self.slots[slots] & self.is_open[np.ix_(slots, lanes)].any(axis=1)).any())


class Elections:
    """Follows the operations of elected lanes, and of lanes that are chosen by their number.

    Parameters
    ----------
    found : ElectedInstructions
    slot_bytes : int
        Shared memory of a CTA.
    assume : callable
        Called with facts that rest on which lane is elected.

    Attributes
    ----------
    lane : int
        The lane that is elected here, within its warp.
    is_told : bool
        True if something was assumed: one line is enough.
    """

    def __init__(self, found: ElectedInstructions, slot_bytes: int, assume: Callable[[str], None]) -> None:
        self._elected, self._slot_bytes, self._assume = found.instructions, slot_bytes, assume
        self.lane, self.is_told = found.lane, bool(found.assumed)
        for what in found.assumed:
            assume(what)
        self._residents: Residents | None = None
        self._notes: dict[tuple[int, bool], dict[_LaneOperation, _OperationTime]] = {}
        self._released: dict[int, Array] = {}  # by warp, how far the elected lane had come then, by CTA of the grid
        self._by_number: defaultdict[int, deque[tuple[Array, Array]]] = defaultdict(
            lambda: deque(maxlen=_MOST_RELEASES)
        )

    def access(self, clocks: Clocks, access: Access) -> None:
        """Take an access to memory."""
        if self.is_told or access.instruction.traits.kind == "wgmma":
            return
        by = access if access.part_of is None else access.part_of
        self._begin(by)
        if access.part_of is not None or access.proxy != "generic" or access.threads.full:
            return
        low, high = int(access.addresses.min()), int(access.addresses.max()) + access.size_bytes
        if access.space == "shared":
            low, high = low % self._slot_bytes, (high - 1) % self._slot_bytes + 1
        how = strength(access.instruction.opcode)
        if how.acquires:
            self._take(access, _LaneOperation(_WAIT))
        elif how.scope and access.operation != "write":
            self._take(access, _LaneOperation(_POLL))
        if how.releases:
            self._take(access, _LaneOperation(_RELEASE))
        if how.scope and access.operation != "read":
            self._note_release(clocks, access, releases=how.releases)
        self._take(access, _LaneOperation(_TOUCH, access.space, access.operation != "read"), low, high)

    def _begin(self, by: Access | AsyncOperation | BarrierEvent) -> None:
        """Forget the operations of CTAs that have ended."""
        if by.ctas.residents is not self._residents:
            self._residents, self._notes = by.ctas.residents, {}

    def asks(self, pairs: LanePairs) -> tuple[Array, Array]:
        """Tell of which pairs the order rests on the lane, unless it holds for other lanes of a warp: see `Election`.

        An elected lane and its whole warp are in program order. So are accesses by other threads with what an elected
        lane releases, or has waited for since its warp met.
        """
        is_elected = pairs.before.index in self._elected, pairs.after.index in self._elected
        one = pairs.are_of_one_thread
        of_old, of_new = (
            (threads >= 0) & (threads % WARP == self.lane) & (not by)
            for threads, by in zip((pairs.old_threads, pairs.new_threads), is_elected, strict=True)
        )
        if is_elected[0] == is_elected[1]:
            of_old, of_new = of_old & ~one, of_new & ~one
        return of_old & (one | self._releases(pairs, of_old)), of_new & (one | self._waits(pairs, of_new))

    def _releases(self, pairs: LanePairs, asked: Array) -> Array:
        """Return the pairs in which the elected lane has released since the older thread's access.

        Not of those whose newer thread knows no more than what a lane chosen by its number released.
        """
        result = np.zeros(len(asked), bool)
        for warp, last in self._released.items():
            here = np.flatnonzero(asked & (pairs.old_threads // WARP == warp) & (pairs.old_ctas < len(last)))
            here = here[last[pairs.old_ctas[here]] >= pairs.counts[here]]
            result[here] = True
            for ctas, counts in self._by_number[warp] if len(here) else ():
                same = (pairs.old_ctas[here][:, None] == ctas) & (pairs.known[here][:, None] == counts)
                result[here[same.any(axis=1)]] = False
        return result

    def _waits(self, pairs: LanePairs, asked: Array) -> Array:
        """Tell of which pairs the elected lane of the newer thread's warp has waited since the warp met."""
        result = np.zeros(len(asked), bool)
        for warp in np.unique(pairs.new_threads[asked] // WARP).tolist():
            notes = self._notes.get((warp, True), {})
            there = [note.slots for did, note in notes.items() if did.what in (_WAIT, _FENCE, _POLL)]
            if there and self._residents is not None:
                ctas = self._residents.blocks[np.logical_or.reduce(there)]
                result |= (pairs.new_threads // WARP == warp) & np.isin(pairs.new_ctas, ctas)
        return result

    def rest(self, before: Instruction, after: Instruction, *, of_one_thread: bool) -> None:
        """Note that the order of two accesses depends on the elected lane."""
        text = _OF_ALL if of_one_thread else _BETWEEN
        self._assume(text.format(before.text.strip(), line_of(before), after.text.strip(), line_of(after)))
        self.is_told = True

    def _note_release(self, clocks: Clocks, by: Access | BarrierEvent, *, releases: bool) -> None:
        """Note the progress of an elected lane, or one that is chosen by its number, as it releases its accesses."""
        is_elected, slots = by.instruction.index in self._elected, by.ctas.slots
        for warp in by.threads.warps.tolist():
            lane = warp * WARP + self.lane
            if _lanes(by.threads, warp) == _size(by.threads, warp) or lane not in by.threads.ids:
                continue
            ctas, counts = by.ctas.residents.blocks[slots], clocks.counts(slots, np.array([lane]))[:, 0]
            if is_elected:
                last = self._released.get(warp, np.zeros(0, np.int64))
                more = max(0, int(ctas.max()) + 1 - len(last))
                self._released[warp] = last = np.concatenate([last, np.full(more, -1)])
                last[ctas] = counts
            elif releases:
                self._by_number[warp].append((ctas, counts))

    def issue(self, operation: AsyncOperation) -> None:
        """Take an asynchronous operation that is issued."""
        if not self.is_told and not operation.threads.full:
            self._begin(operation)
            self._take(operation, _LaneOperation(_ISSUE, _groups(operation.instruction)))

    def barrier(self, clocks: Clocks, event: BarrierEvent) -> None:
        """Take an operation on a barrier, or one that lets the lanes of warps meet."""
        if self.is_told or part_of(event) is not None or isinstance(event, BLOCKED):
            return
        i = event.instruction
        self._begin(event)
        if isinstance(event, _PUBLISHES):
            self._note_release(clocks, event, releases="relaxed" not in i.parts)
        if isinstance(event, MbarrierWait):
            self._hear(event)
        if i.traits.meets:
            if isinstance(event, ClusterArrive):
                self._release(event)
            elif isinstance(event, (NamedBarrierSync, ClusterWait, WarpSync)):
                self._meet(event)
        elif event.threads.full:
            if isinstance(event, (MbarrierWait, GroupWait)):
                self._wait_together(event, _groups(i))
        elif isinstance(event, MbarrierEvent):
            self._take(event, _LaneOperation(_WAIT if isinstance(event, MbarrierWait) else _MBARRIER, event.barrier))
            if isinstance(event, MbarrierArrive):
                self._take(event, _LaneOperation(_RELEASE))
        elif type(event) in _OTHERS:
            self._take(event, _LaneOperation(_OTHERS[type(event)], _groups(i)))
        if isinstance(event, MbarrierArrive):
            self._arrive(event)
        elif isinstance(event, MbarrierInit):
            for notes in self._notes.values():
                for note in notes.values():
                    note.told.pop(event.barrier, None)

    def _sides(self, event: BarrierEvent) -> Iterator[tuple[_OperationTime, Array]]:
        """Yield operations of the elected lanes of warps, and of the others, with the lanes of an event."""
        is_elected = event.instruction.index in self._elected
        for warp in event.threads.warps.tolist():
            lanes = _ids(event.threads, warp) % WARP
            has_all = len(lanes) == _size(event.threads, warp)
            for side in (True, False):
                here = lanes if has_all or not is_elected else lanes[:0]
                if isinstance(event, MbarrierArrive) == side:  # it is the elected lane that arrives, or that waits
                    here = _EACH if has_all or is_elected else lanes[:0]
                for note in self._notes.get((warp, side), {}).values() if len(here) else ():
                    yield note, here

    def _arrive(self, event: MbarrierArrive) -> None:
        """Note that lanes release their accesses to those that wait for a phase of an mbarrier of their own CTA."""
        slots = event.ctas.slots
        is_own = event.slots is not None and (event.slots == slots[:, None]).all()
        if is_own and "relaxed" not in event.instruction.parts:
            for note, lanes in self._sides(event):
                note.tell(event.barrier, slots, lanes, _phases(event))

    def _hear(self, event: MbarrierWait) -> None:
        """Note that lanes come after the accesses that a completed phase of an mbarrier released to them."""
        if "relaxed" not in event.instruction.parts:
            for note, lanes in self._sides(event):
                note.close(event.barrier, event.ctas.slots, lanes, _phases(event))

    def _meet(self, event: BarrierEvent) -> None:
        """Close the notes of each warp whose lanes all come to a barrier."""
        for (warp, _), notes in self._notes.items():
            if _lanes(event.threads, warp) == _size(event.threads, warp):
                for note in notes.values():
                    met = event.ctas.slots
                    if isinstance(event, ClusterWait):
                        met = met[note.released[met]]
                    note.slots[met] = note.is_open[met] = False

    def _release(self, event: BarrierEvent) -> None:
        """Note the accesses that whole warps release as they arrive at the cluster's barrier: none if relaxed."""
        for (warp, _), notes in self._notes.items():
            is_whole = _lanes(event.threads, warp) == _size(event.threads, warp)
            for note in notes.values():
                note.released[event.ctas.slots] = is_whole and "relaxed" not in event.instruction.parts

    def _wait_together(self, event: BarrierEvent, groups: str | None) -> None:
        """Note that of lanes that wait for their groups together, one that has issued copies has waited for these."""
        slots = event.ctas.slots
        for (warp, _), notes in self._notes.items():
            if groups is not None and _lanes(event.threads, warp):
                there = np.zeros(event.ctas.residents.count, bool)
                for did, note in notes.items():
                    if did.what in (_ISSUE, _GROUP) and did.place == groups:
                        there[slots] |= note.slots[slots]
                if there.any():
                    mine = notes.setdefault(
                        _LaneOperation(_WAIT, groups),
                        _OperationTime.of(_LaneOperation(_WAIT), event.instruction, len(there)),
                    )
                    mine.add(np.flatnonzero(there), _EACH)

    def _take(
        self, by: Access | AsyncOperation | BarrierEvent, new: _LaneOperation, low: int = 0, high: int = 0
    ) -> None:
        """Compare accesses of some lanes with earlier ones of others of their warps, and note them."""
        i, slots = by.instruction, by.ctas.slots
        is_elected = i.index in self._elected
        for warp in by.threads.warps.tolist():
            lanes = _ids(by.threads, warp) % WARP
            if len(lanes) == _size(by.threads, warp):
                continue
            for old, note in self._notes.get((warp, not is_elected), {}).items():
                meets = new.what != _TOUCH or old.what != _TOUCH or (low < note.high and note.low < high)
                if meets and old.orders(new) and note.meets(slots, _EACH if is_elected else lanes):
                    before = note.instruction
                    self._assume(_ORDER.format(before.text.strip(), line_of(before), i.text.strip(), line_of(i)))
                    self.is_told = True
                    return
            none = _OperationTime.of(new, i, by.ctas.residents.count, low, high)
            note = self._notes.setdefault((warp, is_elected), {}).setdefault(new, none)
            stays = note.slots.any()
            note.low, note.high = (min(note.low, low), max(note.high, high)) if stays else (low, high)
            note.instruction = i
            note.add(slots, _EACH if is_elected else lanes, _phases(by) if isinstance(by, MbarrierCount) else None)


def _phases(event: MbarrierCount | MbarrierWait) -> Array:
    """Return the phases that threads count in, or see complete, by CTA: the least, if there are several."""
    phases: Array = np.broadcast_to(event.counted, (event.ctas.count, event.threads.count)).min(axis=1)
    return phases


def _lanes(threads: Threads, warp: int) -> int:
    """Return how many lanes of a warp are among some threads."""
    return len(_ids(threads, warp))


def _ids(threads: Threads, warp: int) -> Array:
    """Return those of some threads that are of a warp."""
    low, high = np.searchsorted(threads.ids, (warp * WARP, (warp + 1) * WARP))
    return threads.ids[low:high]


def _size(threads: Threads, warp: int) -> int:
    """Return how many lanes a warp has."""
    return min(WARP, math.prod(threads.block) - warp * WARP)


def _groups(i: Instruction) -> str | None:
    """Return the kind of groups of copies that an instruction is about; commits are about all of the tensor core."""
    if i.traits.kind == "tcgen05":
        return "tcgen05"
    if i.traits.is_bulk:
        return None if i.traits.brings_bytes else "bulk"
    return "copies" if i.parts[:2] == ("cp", "async") else None
