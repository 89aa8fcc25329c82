"""Elected lanes: order that holds only because `elect.sync` elects the lane that it does here.

`elect.sync` elects some lane of its mask, the same each time. The PTX ISA does not say which one; here it is the first.
So the clocks take the elected lane and lane 0 for one thread. A certificate says so as an assumption if it may rest on
that:

- an elected lane does something, and a lane that is chosen by its number does something that must come after it, or the
  other way round, and the warp does not meet in between;
- an instruction is for the elected lane if that has a certain number;
- the number of the elected lane is used.

The lanes of a warp meet at `bar.warp.sync`, and at barriers that whole warps wait at. Of two operations, the second may
have to come after the first if the first has waited for something or is a fence, if the second releases or issues, if
both are about one mbarrier or about groups of copies, and if both touch the same memory.

References
----------
PTX ISA, "elect.sync": "elects one predicated active leader thread"; "bar.warp.sync".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.ptx.model import Immediate, Pair, Register, Special, registers_in
from cutepy.sim.ptx.places import line_of
from cutepy.sim.sanitize.certificate.dependence import Dependence
from cutepy.sim.sanitize.order.strength import strength
from cutepy.sim.translate.deciding import is_relevant
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent
    from cutepy.sim.machine.lanes import Threads
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.control_flow import ControlFlow

_ORDER = (
    "elect.sync elects the first lane of its mask: with another one nothing orders `{}` ({}) and `{}` ({}), of which "
    "one is by the elected lane and the other by a lane that is chosen by its number"
)
_NESTED = "elect.sync elects the first lane of its mask: `{}` ({}) is for the elected lane if that has a certain number"
_NUMBER = "elect.sync elects the first lane of its mask: its number is used, from `{}` ({})"

_ALIKE = frozenset("shfl vote redux match bar barrier activemask".split())
"""Opcodes whose results lanes of a warp share, as they are used."""

_WAIT, _FENCE, _RELEASE, _ISSUE, _TOUCH, _MBARRIER, _GROUP = "wait fence release issue touch mbarrier group".split()
_OTHERS = {"wait": _WAIT, "commit": _GROUP, "fence": _FENCE}


@dataclass(frozen=True)
class Elected:
    """The instructions of a kernel that elected lanes execute.

    Attributes
    ----------
    instructions : frozenset of int
        By index.
    assumed : tuple of str
        What rests on which lane it is, by the code alone.
    """

    instructions: frozenset[int]
    assumed: tuple[str, ...]


def elected(flow: ControlFlow) -> Elected | None:
    """Find the instructions that elected lanes execute; None if a kernel elects none."""
    instructions = [i for block in flow.blocks for i in block.instructions]
    elections = [i for i in instructions if i.parts[0] == "elect"]
    if not elections:
        return None
    code = Dependence(flow)
    chosen = code.made_from((i, r.index) for i in elections for r in written(i) if r.type == "pred")
    by_number = _by_number(code)

    def is_made(block: int, use: Instruction | None, register: Register, values: set[tuple[int, int]]) -> bool:
        return any((i.index, register.index) in values for i in code.makers(block, use, register.index))

    def depends(block: int, i: Instruction, values: set[tuple[int, int]]) -> bool:
        if i.predicate is not None and is_made(block, i, i.predicate[0], values):
            return True
        conditions = [(over, flow.blocks[over].condition) for over in code.over[block]]
        return any(c is not None and is_made(over, None, c[0], values) for over, c in conditions)

    found: set[int] = set()
    assumed: list[str] = []
    for block, within in enumerate(flow.blocks):
        for i in within.instructions:
            if depends(block, i, chosen):
                found.add(i.index)
                if is_relevant(i) and depends(block, i, by_number):
                    assumed.append(_NESTED.format(i.text.strip(), line_of(i)))
    for i in elections:
        first = i.operands[0].first if isinstance(i.operands[0], Pair) else i.operands[0]
        for register in registers_in(first):
            if code.uses.after(i, register.index):
                assumed.append(_NUMBER.format(i.text.strip(), line_of(i)))
    return Elected(frozenset(found), tuple(assumed)[:1])


def _by_number(code: Dependence) -> set[tuple[int, int]]:
    """Return the values that differ among the lanes of a warp as their numbers do: instructions and registers."""
    waiting = [i for i in code.instructions.values() if any(map(_names_lanes, i.operands)) and not _is_alike(i)]
    found: set[tuple[int, int]] = set()
    while waiting:
        i = waiting.pop()
        for register in written(i):
            if (i.index, register.index) not in found:
                found.add((i.index, register.index))
                uses = (use for _, use in code.uses.after(i, register.index) if use is not None)
                waiting += [use for use in uses if not _is_alike(use)]
    return found


def _names_lanes(operand: object) -> bool:
    return isinstance(operand, Special) and operand.name.removeprefix("%").partition(".")[0] in ("laneid", "tid")


def _is_alike(i: Instruction) -> bool:
    """Tell whether an instruction makes one value of a warp's lanes from one that tells them by their number."""
    number = i.operands[-1].value if isinstance(i.operands[-1], Immediate) else None
    name = i.parts[0]
    if name in _ALIKE or number is None:
        return name in _ALIKE
    if name == "setp":
        below, upto = not number % WARP, not (number + 1) % WARP
        return (below and i.parts[1] in ("lt", "ge", "lo", "hs")) or (upto and i.parts[1] in ("gt", "le", "hi", "ls"))
    if name == "shr":
        return number >= WARP.bit_length() - 1
    return (name == "div" and not number % WARP) or (name == "and" and not number & (WARP - 1))


class _Did(NamedTuple):
    """What a lane did.

    Attributes
    ----------
    what : str
    place : str or None
        The mbarrier or the kind of groups that it is about, or the state space that it touches.
    writes : bool
    """

    what: str
    place: str | None = None
    writes: bool = False

    def orders(self, later: _Did) -> bool:
        """Tell whether something later may have to come after it; of memory, if both touch the same bytes."""
        if self.what in (_WAIT, _FENCE):
            return True
        if self.what == _TOUCH:
            if later.what == _TOUCH:
                return self.place == later.place and (self.writes or later.writes)
            return later.what in (_RELEASE, _FENCE, _ISSUE)
        return self.place is not None and self.place == later.place


@dataclass
class _Note:
    """Where something was done.

    Attributes
    ----------
    slots : array of bool, (CTA,)
    low, high : int
        Of memory: the first byte, and the one behind the last.
    instruction : Instruction
        That did it last.
    """

    slots: Array
    low: int
    high: int
    instruction: Instruction


class Elections:
    """Follows what elected lanes do, and lanes that are chosen by their number.

    Parameters
    ----------
    found : Elected
    slot_bytes : int
        Shared memory of a CTA.
    assume : callable
        Called with what rests on which lane is elected.
    """

    def __init__(self, found: Elected, slot_bytes: int, assume: Callable[[str], None]) -> None:
        self._elected, self._slot_bytes, self._assume = found.instructions, slot_bytes, assume
        self._is_over = bool(found.assumed)  # one line is enough
        for what in found.assumed:
            assume(what)
        self._residents: object = None
        self._notes: dict[tuple[int, bool], dict[_Did, _Note]] = {}

    def access(self, access: Access) -> None:
        """Take an access to memory."""
        if self._is_over or access.part_of is not None or access.proxy != "generic" or access.threads.full:
            return
        low, high = int(access.addresses.min()), int(access.addresses.max()) + access.size_bytes
        if access.space == "shared":
            low, high = low % self._slot_bytes, (high - 1) % self._slot_bytes + 1
        how = strength(access.instruction.opcode)
        if how.acquires:
            self._take(access, _Did(_WAIT))
        if how.releases:
            self._take(access, _Did(_RELEASE))
        self._take(access, _Did(_TOUCH, access.space, access.operation != "read"), low, high)

    def issue(self, operation: AsyncOperation) -> None:
        """Take an asynchronous operation that is issued."""
        if not self._is_over and not operation.threads.full:
            self._take(operation, _Did(_ISSUE, _groups(operation.instruction)))

    def barrier(self, event: BarrierEvent) -> None:
        """Take an operation on a barrier, or one that lets the lanes of warps meet."""
        if self._is_over or event.part_of is not None or event.operation == "blocked":
            return
        i = event.instruction
        if i.parts[0] in ("bar", "barrier"):
            if event.operation in ("sync", "cluster_wait") or event.barrier == "bar.warp":
                self._meet(event)
        elif event.threads.full:
            if event.operation == "wait":
                self._wait_together(event, _groups(i))
        elif event.barrier.startswith("mbarrier"):
            self._take(event, _Did(_WAIT if event.operation == "wait" else _MBARRIER, event.barrier))
            if event.operation == "arrive":
                self._take(event, _Did(_RELEASE))
        elif event.operation in _OTHERS:
            self._take(event, _Did(_OTHERS[event.operation], _groups(i)))

    def _meet(self, event: BarrierEvent) -> None:
        """Let the lanes of whole warps know of each other."""
        for (warp, _), notes in self._notes.items():
            if _lanes(event.threads, warp) == _size(event.threads, warp):
                for note in notes.values():
                    note.slots[event.ctas.slots] = False

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
                    mine = notes.setdefault(_Did(_WAIT, groups), _Note(there, 0, 0, event.instruction))
                    mine.slots |= there

    def _take(self, by: Access | AsyncOperation | BarrierEvent, new: _Did, low: int = 0, high: int = 0) -> None:
        """Compare what some lanes do with what others of their warps did before, and note it."""
        if by.ctas.residents is not self._residents:
            self._residents, self._notes = by.ctas.residents, {}
        i, slots = by.instruction, by.ctas.slots
        is_elected = i.index in self._elected
        for warp in by.threads.warps.tolist():
            if _lanes(by.threads, warp) == _size(by.threads, warp):
                continue
            for old, note in self._notes.get((warp, not is_elected), {}).items():
                meets = new.what != _TOUCH or old.what != _TOUCH or (low < note.high and note.low < high)
                if meets and old.orders(new) and note.slots[slots].any():
                    before = note.instruction
                    self._assume(_ORDER.format(before.text.strip(), line_of(before), i.text.strip(), line_of(i)))
                    self._is_over = True
                    return
            note = self._notes.setdefault((warp, is_elected), {}).setdefault(
                new, _Note(np.zeros(by.ctas.residents.count, bool), low, high, i)
            )
            stays = note.slots.any()
            note.low, note.high = (min(note.low, low), max(note.high, high)) if stays else (low, high)
            note.slots[slots], note.instruction = True, i


def _lanes(threads: Threads, warp: int) -> int:
    """Return how many lanes of a warp are among some threads."""
    low, high = np.searchsorted(threads.ids, (warp * WARP, (warp + 1) * WARP))
    return int(high - low)


def _size(threads: Threads, warp: int) -> int:
    """Return how many lanes a warp has."""
    return min(WARP, math.prod(threads.block) - warp * WARP)


def _groups(i: Instruction) -> str | None:
    """Return the kind of groups of copies that an instruction is about."""
    if "bulk" in i.parts:
        return None if i.parts[-1].startswith("mbarrier") or "mbarrier::complete_tx::bytes" in i.parts else "bulk"
    return "copies" if i.parts[:2] == ("cp", "async") else None
