"""Premise 6: no value that depends on the schedule affects control flow, addresses or synchronisation on any path.

Values that depend on the schedule: results of atomics, clocks, the SM, the active lanes, tokens of mbarriers, outcomes
of tries, memory that unordered float atomics or racing stores leave, and words that another thread may write meanwhile.
They may be stored, and be part of a result. They must not reach a branch, an address, or an operand of synchronisation.
A try may decide whether to wait (`tries.py`), and a token may say for which phase.

Registers are followed without regard to the order of instructions, memory by state space: what is stored of such a
value is in all that is loaded from that space, and a predicate that such a value gives `bar.red` is in every result.

Reductions of one kind on integers commute: sums of one size, minima and maxima of one type, and, or, xor. They leave
the same in any order, except for two kinds at one place, increments that wrap, and floats. Stores of several lanes of
one instruction to one place matter where the values differ; values of copies are not known, so they may.

References
----------
CUDA C++ Programming Guide, "SIMT Architecture": which thread writes last is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.ptx.instruction_set import COMMUTATIVE, REDUCTIONS
from cutepy.sim.ptx.memory_order import WEAK, strength
from cutepy.sim.ptx.model import Address, Operand, Register, Special, Symbol, Vector, registers_in, type_bits
from cutepy.sim.translate.effects import written
from cutepy.sim.translate.operand_roles import (
    SYNCHRONISATION,
    acquires_maps,
    control_operands,
    is_tensor_copy,
)
from cutepy.sim.translate.state_spaces import may_be_same, space_of, state_spaces

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.tries import Try
    from cutepy.sim.sanitize.order.uses import Uses
    from cutepy.sim.translate.control_flow import ControlFlow


_SPECIAL = {
    "smid": "the number of the SM",
    "warpid": "the number of the warp on the SM",
    "gridid": "the number of the grid",
    **dict.fromkeys(("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"), "a clock"),
    **{f"pm{n}{part}": "a counter of performance" for n in range(8) for part in ("", "_64")},
}


@dataclass(frozen=True)
class Steering:
    """A value that depends on the schedule, and its use that steers.

    Attributes
    ----------
    source : Instruction
        Instruction that it comes from.
    value : str
        Description of the value.
    use : Instruction
        Instruction that depends on the value.
    role : str
        Role: "a branch", "an address", "synchronisation", "a tensor map".
    """

    source: Instruction
    value: str
    use: Instruction
    role: str


class _Spread:
    """Follows values that depend on the schedule, to all that depends on them."""

    def __init__(self, flow: ControlFlow, uses: Uses, allowed: frozenset[int]) -> None:
        self.found: list[Steering] = []
        self._flow, self._uses, self._allowed = flow, uses, allowed
        self._memory: dict[str, Origin] = {}
        self._done: set[int] = set()
        self._seen: dict[tuple[int, str], set[tuple[int, int]]] = {}  # by origin, what of its values was followed
        self._instructions = [i for block in flow.blocks for i in block.instructions]
        self._of_maps = (
            [i for i in self._instructions if is_tensor_copy(i)] if acquires_maps(self._instructions) else []
        )

    def all_that_depends(self) -> list[Steering]:
        """Follow all values that depend on the schedule."""
        for i in self._instructions:
            origin = _origin(i, self._allowed)
            if origin is not None:
                self._write(i, origin)
        for i, space, what in left_by_chance(self._instructions):
            self._store(space, Origin(i, f"what {what} leave in memory"))
        for i in self._instructions:
            if i.traits.calls and isinstance(i.operands[0], Symbol) and i.operands[0].name == "malloc":
                self._store("frame", Origin(i, "what malloc gives"))
        return self.found

    def left_in(self, space: str, origin: Origin) -> list[Steering]:
        """Follow the values left in a state space, and nothing else."""
        self._store(space, origin)
        return self.found

    def _write(self, i: Instruction, origin: Origin) -> None:
        """Follow the results of an instruction."""
        seen = self._seen.setdefault((origin.source.index, origin.value), set())
        waiting = [i]
        while waiting:
            one = waiting.pop()
            if one.index in self._done:
                continue
            self._done.add(one.index)
            for register in written(one):
                for block, use in self._uses.after_unseen(one, register.index, seen):
                    if self._take(block, use, register, origin):
                        assert use is not None
                        waiting.append(use)

    def _take(self, block: int, use: Instruction | None, register: Register, origin: Origin) -> bool:
        """Note the steering by a use; return whether the use passes the value on to registers."""
        if use is None:
            branch = self._flow.blocks[block].branch
            if branch is not None:
                self.found.append(Steering(origin.source, origin.value, branch, "a branch"))
            return False
        if origin.value == _TOKEN and _is_state(use, register):
            return False
        for steered, role in _steered(use):
            if steered.index == register.index:
                self.found.append(Steering(origin.source, origin.value, use, role))
        if _is_stored(use, register):
            for space in state_spaces(use).stores:
                self._store(space, origin)
        return use.index not in self._allowed

    def _store(self, space: str, origin: Origin) -> None:
        """Follow values taken from a state space that stores such a value, through copies to other spaces too."""
        if space in self._memory:
            return
        self._memory[space] = origin
        if may_be_same(space, "global"):
            self.found += (Steering(origin.source, origin.value, i, "a tensor map") for i in self._of_maps)
        for i in self._instructions:
            taken, left = state_spaces(i)
            if any(may_be_same(one, space) for one in taken):
                self._write(i, origin)
                for into in left if i.traits.kind in ("async_copy", "tcgen05") else ():
                    self._store(into, origin)


class Origin(NamedTuple):
    """Origin of a value: the instruction that made it, and its kind."""

    source: Instruction
    value: str


def steering(flow: ControlFlow, uses: Uses, tries: Sequence[Try]) -> list[Steering]:
    """Find values that depend on the schedule, and steer.

    Parameters
    ----------
    flow : ControlFlow
    uses : Uses
        Of the kernel.
    tries : sequence of Try
        All of the kernel.
    """
    found = _Spread(flow, uses, _allowed(tries)).all_that_depends()
    for one in tries:
        if one.misuse is not None:
            found.append(Steering(one.instruction, "the outcome of a try", one.misuse, "more than whether to wait"))
        elif one.may_give_up or one.is_guess:
            i = one.instruction
            found.append(Steering(i, "the outcome of a try", i, "what runs even if none succeeds"))
    return list({(s.source.index, s.use.index): s for s in found}.values())


def steering_stores(flow: ControlFlow, uses: Uses, tries: Sequence[Try]) -> dict[int, Steering]:
    """Return the steering uses of the values that stores leave, by index of the store.

    Which store of a warp stays is chance only where its lanes hit one place with different values, which
    `lanes.undecided` tells of a run.

    Parameters
    ----------
    flow, uses, tries
        As of `steering`.
    """
    spaces: dict[str, list[Instruction]] = {}
    for block in flow.blocks:
        for i in block.instructions:
            if not i.traits.is_atomic and "bulk" not in i.parts:
                for space in state_spaces(i).stores:
                    spaces.setdefault(space, []).append(i)
    found: dict[int, Steering] = {}
    for space, stores in spaces.items():
        value = "which of several lanes' values a store leaves"
        steered = _Spread(flow, uses, _allowed(tries)).left_in(space, Origin(stores[0], value))
        found.update((i.index, replace(one, source=i)) for one in steered[:1] for i in stores)
    return found


def _allowed(tries: Sequence[Try]) -> frozenset[int]:
    return frozenset(one.instruction.index for one in tries if one.misuse is None)


_TOKEN = "the state of an mbarrier"


def _origin(i: Instruction, allowed: frozenset[int]) -> Origin | None:
    """Return the value of an instruction that depends on the schedule."""
    for operand in i.operands:
        for special in _specials(operand):
            if special.name.removeprefix("%") in _SPECIAL:
                return Origin(i, _SPECIAL[special.name.removeprefix("%")])
    if i.traits.is_atomic and i.traits.has_result:
        return Origin(i, "the result of an atomic")
    if i.traits.tells_active:
        return Origin(i, "the mask of active lanes")
    if strength(i.opcode).scope != WEAK and state_spaces(i).loads and written(i):
        return Origin(i, "what a load reads that may race")
    if i.traits.tries and i.index not in allowed:
        return Origin(i, "the outcome of a try")
    if is_arrival(i) and isinstance(i.operands[0], Register):
        return Origin(i, _TOKEN)
    return None


def is_arrival(i: Instruction) -> bool:
    """Return whether an instruction arrives at an mbarrier; its result is a state."""
    return i.traits.arrives and i.traits.has_result


def _specials(operand: Operand) -> Iterator[Special]:
    if isinstance(operand, Special):
        yield operand
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from _specials(item)


def _is_stored(i: Instruction, register: Register) -> bool:
    """Return whether a register is stored, and not where."""
    values = [operand for operand in i.operands if not isinstance(operand, Address)]
    return any(r.index == register.index for operand in values for r in registers_in(operand))


def _steered(i: Instruction) -> Iterator[tuple[Register, str]]:
    """Yield the registers that steer, and the role of each."""
    if i.predicate is not None and not i.traits.is_plain:
        yield i.predicate[0], SYNCHRONISATION
    yield from ((one.register, one.role) for one in control_operands(i))


def _is_state(i: Instruction, register: Register) -> bool:
    """Return whether a register is the state for which an instruction tries."""
    if not i.traits.tries:
        return False
    return "parity" not in i.parts and i.operands[2] == register


_FLOATS = frozenset("f16 f16x2 bf16 bf16x2 f32 f64".split())
_ORDERED = REDUCTIONS - COMMUTATIVE


def left_by_chance(instructions: Sequence[Instruction]) -> Iterator[tuple[Instruction, str, str]]:
    """Yield accesses that may leave different values, the state space, and the name of the access."""
    kinds: dict[str, set[str]] = {}
    for i in instructions:
        if _reduces(i):
            kinds.setdefault(space_of(i), set()).update(_kinds(i))
    for i in instructions:
        space = space_of(i)
        if i.traits.kind == "memory" and i.traits.stores and strength(i.opcode).scope != WEAK:
            yield i, space, "strong stores"
        elif _reduces(i):
            every = set().union(*(some for where, some in kinds.items() if may_be_same(where, space)))
            if _depends(i) or len(every) > 1:
                yield i, space, "unordered atomics"


def _kinds(i: Instruction) -> Iterator[str]:
    """Yield the operations of a reduction: equal ones commute. The map of a tensor gives the type of its elements."""
    kind = i.parts[-1]
    for name in {*i.parts} & REDUCTIONS:
        if name in ("and", "or", "xor") or i.traits.has_tensor_map:
            yield name
        else:
            yield f"{name}.{kind if name != 'add' else type_bits(kind)}"


def _reduces(i: Instruction) -> bool:
    return i.traits.is_atomic or "reduces" in i.traits.effects


def _depends(i: Instruction) -> bool:
    """Return whether reductions of one kind leave a value that depends on their order; a tensor's may be of floats."""
    parts = {*i.parts}
    return bool(parts & (_FLOATS | _ORDERED)) or (i.traits.has_tensor_map and "add" in parts)


def undecided(access: Access) -> bool:
    """Return whether the value that an access leaves depends on the order of its lanes.

    All lanes access one number of bytes, aligned to it: two of them overlap wholly or not at all.
    """
    if access.operation != "write":
        return False
    lanes = access.addresses.shape[-1]  # rows of matrices are more, or fewer, than the threads are
    shape = access.ctas.count, access.threads.count if lanes == 1 else lanes
    places = np.broadcast_to(access.addresses, shape).reshape(-1)
    order = np.argsort(places, kind="stable")
    same = places[order][1:] == places[order][:-1]
    if not same.any() or access.values is None:
        return bool(same.any())
    for value in access.values:
        bits = np.ascontiguousarray(np.broadcast_to(value, shape)).reshape(-1, 1).view(np.uint8)[order]
        if (same & (bits[1:] != bits[:-1]).any(axis=1)).any():
            return True
    return False
