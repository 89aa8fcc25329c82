"""Registers that only some paths to a use write, followed by lane and bit.

A register whose value may be read before anything has written it, and that some instruction writes, is live where the
kernel begins. For these, and for what is made of them, it is followed which bits have a value in each lane
(`undefined_bits.py`), and which register began it. It is told where a lane without a value stores it, reaches an
address or a branch by it, multiplies matrices by it, or synchronises by it.

Global memory holds results, so a store there is told if any bit that it stores has no value. Compilers store whole
vectors and structures to local and shared memory, and read a part. So a store to shared memory is told only if no bit
of all that it stores has a value, and one to local memory is not. Such memory keeps which bits have no value
(`undefined_memory.py`), and loads bring them back.

MMAs, atomic operations and copies read shared memory as it is: they are told if a bit of what they read has no value.

Accumulators of wgmma are left to `sums.py`, and registers that nothing ever writes to `undefined.py`, unless they are
stored to memory. Where a function is called, its registers lack their values again; where functions may call
themselves, a stack keeps what the caller's lack. A call by an address may be of any function.

References
----------
PTX ISA, "Data Movement and Conversion Instructions", "selp".
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Threads
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Register, Symbol, Vector, registers_in
from cutepy.sim.sanitize.diagnoses import Diagnosis
from cutepy.sim.sanitize.order.uses import whole_flow
from cutepy.sim.sanitize.undefined import givers, with_values
from cutepy.sim.sanitize.undefined_bits import GATHERS, PASSES_ON, Operands, from_lanes, full
from cutepy.sim.sanitize.undefined_memory import Element, UndefinedMemory
from cutepy.sim.translate.effects import accumulators, has_destination, is_wgmma, read, written
from cutepy.sim.translate.state_spaces import may_be_same, state_spaces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cutepy.sim.machine.events import Access, LocalCopy
    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.ptx.model import Function, Operand

_MATTERS = frozenset("mma wmma mbarrier bar barrier atom".split())
"""Opcodes with results for which each source must have a value."""
_BRANCHES = frozenset("bra ret exit".split())
_STORES, _LOADS = ("st", "stmatrix"), ("ld", "ldmatrix")
"""Opcodes that put registers into memory, and that bring them back."""
_KEPT_IN = frozenset("shared local frame generic".split())
"""State spaces of memory that keeps which bits have no value."""
_CALLS = ("call", "ret")
_NOTHING = np.zeros((), np.int64)
_THREAD_BITS = 16
"""An origin is a register and the thread that lacks it: shuffles and votes bring what other threads lack."""
_SHOWN = 3
"""Writes of a register that a report names."""


class Lacking(NamedTuple):
    """A use of what has no value.

    Attributes
    ----------
    who : str
        The threads that lack it.
    diagnosis : Diagnosis
        The register that has no value, the writes that these threads have not executed, and what to do.
    address : int or None
        Of shared memory that was stored from it, if it is that which is read: `slot * slot_bytes + offset`.
    """

    who: str
    diagnosis: Diagnosis
    address: int | None = None


class OneSided:
    """Lanes that have values in registers that only some paths write."""

    def __init__(self) -> None:
        self._function: Function | None = None
        self._followed: set[int] = set()
        self._begins: dict[int, Register] = {}
        self._begins_of: dict[int, frozenset[int] | set[int]] = {}
        self._residents: Residents | None = None
        self._threads = 0
        self._bits: dict[int, Array] = {}
        self._origins: dict[int, Array] = {}
        self._memory = UndefinedMemory()
        self._never: dict[int, Register] = {}
        self._recurses = False
        self._depth: Array = np.zeros((0, 0), np.int64)
        self._callers: list[dict[int, tuple[Array, Array]]] = []  # of each depth what the caller's registers lack

    def look_at(self, function: Function) -> None:
        """Begin with a kernel, if it is another one."""
        if self._function is function:
            return
        self._function, self._residents = function, None
        self._followed, self._begins = set(), {}
        instructions = function.instructions
        self._recurses = not _calls_once(function)
        sums = {r.index for i in instructions if is_wgmma(i) for r in accumulators(i)}
        named = {r.index: r for i in instructions for r in written(i)}
        flow = whole_flow(function)
        # A kernel that only returns has no block of instructions, and begins with nothing.
        begin = {
            b.instructions[0].index: live for b, live in zip(flow.blocks, flow.live_in, strict=False) if b.instructions
        }
        self._begins_of = {
            start: (begin.get(start, frozenset()) & named.keys()) - sums for start in (0, *function.callees.values())
        }
        begins = frozenset().union(*self._begins_of.values())
        valued = with_values(function)
        begins &= valued
        stores = [i for i in instructions if i.parts[0] in _STORES]
        self._never = {r.index: r for i in stores for r in _values(i) if r.index not in valued}
        self._begins = {r: named[r] for r in begins}
        self._followed = set(begins)
        stored: set[str] = set()  # spaces of memory that followed registers are stored to
        before = (-1, -1)
        while (len(self._followed), len(stored)) != before:
            before = len(self._followed), len(stored)
            for i in instructions:
                if i.parts[0] in _STORES and any(r.index in self._followed for r in _values(i)):
                    stored.update(_KEPT_IN.intersection(state_spaces(i).stores))
                loads = state_spaces(i).loads if i.parts[0] in _LOADS else ()
                is_loaded = any(may_be_same(one, other) for one in loads for other in stored)
                if is_loaded or (i.parts[0] in PASSES_ON and any(r.index in self._followed for r in read(i))):
                    self._followed.update(r.index for r in written(i) if r.index not in sums)

    def stops_at(self, i: Instruction) -> bool:
        """Tell whether an instruction reads or writes a register that is followed."""
        if not self._followed:
            return False
        if self._recurses and i.parts[0] in _CALLS:
            return True
        return bool(self._begins_at(i)) or any(r.index in self._followed for r in (*read(i), *written(i)))

    def _begins_at(self, i: Instruction) -> frozenset[int]:
        """Return the registers that lack a value in a function that is called, and some path of it writes."""
        assert self._function is not None
        begins = frozenset[int]().union(*(self._begins_of[start] for start in _called(self._function, i)))
        return begins & self._begins.keys()

    def guard(self, step: Step) -> Lacking | None:
        """Say what is wrong if lanes come to the guard of an instruction, and its predicate has no value."""
        guard = step.instruction.predicate
        if guard is None or guard[0].index not in self._followed:
            return None
        return self._tell([guard[0]], step, self._begin(step), np.True_)

    def execute(self, step: Step) -> Lacking | None:
        """Follow an instruction, and say what is wrong if something comes of what has no value."""
        i = step.instruction
        if not self.stops_at(i):
            return None
        at = self._begin(step)
        wrong: Lacking | None = None
        if i.predicate is not None and i.parts[0] in _BRANCHES:
            wrong = self._tell([i.predicate[0]], step, at, np.True_)
        for registers in _mattering(i):
            if wrong is None and registers:
                wrong = self._tell(registers, step, at, step.executing())
        self._write(step, at)
        if self._recurses:
            self._call(step, at)
        for index in self._begins_at(i):
            register = self._begins[index]
            threads = np.broadcast_to(step.threads.ids, step.executing().shape)
            self._hold(
                register,
                at,
                step.executing(),
                np.broadcast_to(full(register.bits), threads.shape),
                _origin(index, threads),
            )
        return wrong

    def access(self, access: Access) -> Lacking | None:
        """Follow an access to memory, and say what is wrong if it stores what has no value."""
        if not self._begins and not self._never:
            return None
        i = access.instruction
        is_of_lanes = access.part_of is None and access.proxy == "generic"
        if access.ctas.residents is not self._residents and not is_of_lanes:
            return None
        at = self._begin(access)
        wrong = self._taken(access) if access.space == "shared" and i.parts[0] not in (*_LOADS, *_STORES) else None
        if access.operation == "read":
            if i.parts[0] in _LOADS and is_of_lanes:
                self._load(access, at)
            return wrong
        elements: list[Element] = []
        if i.parts[0] in _STORES and is_of_lanes and access.operation == "write":
            wrong = self._stores(access, at)
            elements = self._elements(access, at)
        if i.parts[0] == "stmatrix":
            self._memory.write_matrices(access, elements)
        elif access.space != "global":
            self._memory.write(access, elements)
        return wrong

    def copy(self, copy: LocalCopy) -> None:
        """Follow arguments or results of a call."""
        if self._begins and copy.ctas.residents is self._residents:
            self._memory.copy(copy.source, copy.to, copy.size_bytes)

    def _stores(self, access: Access, at: tuple[Array, ...]) -> Lacking | None:
        """Say what is wrong with a store, by the kind of memory that it stores to."""
        registers, bits = _values(access.instruction), _stored_bits(access.instruction)
        if access.space == "shared":
            return self._tell(registers, access, at, np.True_, bits, any_bit=False) if registers else None
        if access.space == "global":
            for register in registers:
                wrong = self._tell([register], access, at, np.True_, bits)
                if wrong is not None:
                    return wrong
        return None

    def _elements(self, access: Access, at: tuple[Array, ...]) -> list[Element]:
        """Return the bits that elements of a store lack, and where that began; nothing if they lack none."""
        items = _items(access.instruction.operands[1])
        none = np.zeros((len(at[0]), at[1].shape[1]), np.int64)
        found = []
        for x in items:
            if isinstance(x, Register) and x.index in self._bits:
                found.append(Element(self._bits[x.index][at], self._origins[x.index][at]))
            elif isinstance(x, Register) and x.index in self._never:
                threads = np.broadcast_to(at[1], none.shape)
                found.append(Element(np.full(none.shape, full(x.bits)), _origin(x.index, threads)))
            else:
                found.append(Element(none.astype(np.uint64), none))
        return found if any(element.lacks.any() for element in found) else []

    def _taken(self, access: Access) -> Lacking | None:
        """Say what is wrong if an MMA, an atomic operation or a copy reads shared memory that lacks bits."""
        if access.operation == "write" or "exch" in access.instruction.parts:
            return None  # an exchange makes nothing of what was there
        origins, first = self._memory.take(access)
        if not len(origins):
            return None
        register = int(origins[0]) >> _THREAD_BITS
        begun = np.unique(origins[origins >> _THREAD_BITS == register] & (1 << _THREAD_BITS) - 1)
        block = access.threads.block
        who = Threads(begun.astype(np.intp), block).describe()
        return Lacking(Threads(access.threads.ids, block).describe(), self._say("what is read", register, who), first)

    def _call(self, step: Step, at: tuple[Array, ...]) -> None:
        """Keep what the registers of a caller lack where a function is called, and take it up where that returns."""
        assert self._function is not None
        i, lanes = step.instruction, step.executing()
        if i.parts[0] == "call" and _called(self._function, i):
            depths = self._depth[at]
            for depth in np.unique(depths[lanes]).tolist():
                here = lanes & (depths == depth)
                while len(self._callers) <= depth:
                    self._callers.append({})
                kept = self._callers[depth]
                for index in self._bits.keys() | kept.keys():
                    if index not in kept:
                        kept[index] = np.zeros(self._depth.shape, np.uint64), np.zeros(self._depth.shape, np.int64)
                    for held, now in zip(kept[index], (self._bits, self._origins), strict=True):
                        held[at] = np.where(here, now[index][at] if index in now else 0, held[at])
            self._depth[at] = depths + lanes
        elif i.parts[0] == "ret":
            depths = self._depth[at] - 1
            for depth in np.unique(depths[lanes & (depths >= 0)]).tolist():
                here, kept = lanes & (depths == depth), self._callers[depth]
                for index in self._bits.keys() | kept.keys():
                    bits, origins = (held[at] for held in kept[index]) if index in kept else (_NOTHING, _NOTHING)
                    self._hold(self._function.registers[index], at, here, bits, origins)
            self._depth[at] -= lanes & (depths >= 0)

    def _load(self, access: Access, at: tuple[Array, ...]) -> None:
        """Take from memory which bits of registers have no value."""
        i = access.instruction
        items = _items(i.operands[0])
        if i.parts[0] == "ldmatrix":
            found = self._memory.read_matrices(access, len(items))
        else:
            found = self._memory.read(access, len(items), i.parts[-1].startswith("s"))
        for register, element in zip(items, found, strict=False):
            if isinstance(register, Register) and register.index in self._followed:
                self._hold(register, at, np.True_, element.lacks & full(register.bits), element.origins)

    def _hold(
        self, register: Register, at: tuple[Array, ...], lanes: Array | np.bool_, bits: Array, origin: Array
    ) -> None:
        """Note which bits of a register have no value in lanes, and where that began."""
        if register.index not in self._bits:
            if not bits.any():
                return
            assert self._residents is not None
            shape = self._residents.count, self._threads
            self._bits[register.index] = np.zeros(shape, np.uint64)
            self._origins[register.index] = np.zeros(shape, np.int64)
        held, origins = self._bits[register.index], self._origins[register.index]
        held[at] = np.where(lanes, bits, held[at])
        origins[at] = np.where(lanes, origin, origins[at])
        if not held.any():
            del self._bits[register.index], self._origins[register.index]

    def _begin(self, lanes: Step | Access) -> tuple[Array, ...]:
        """Take lanes; those of CTAs that have just become resident lack all that begins so."""
        if lanes.ctas.residents is not self._residents:
            self._residents, self._threads = lanes.ctas.residents, math.prod(lanes.threads.block)
            self._memory = UndefinedMemory()
            shape = self._residents.count, self._threads
            self._depth, self._callers = np.zeros(shape, np.int64), []
            here = [r for r in self._begins if r in self._begins_of[0]]
            self._bits = {r: np.full(shape, full(self._begins[r].bits)) for r in here}
            threads = np.broadcast_to(np.arange(shape[1]), shape)
            self._origins = {r: _origin(r, threads) for r in here}
        return np.ix_(lanes.ctas.slots, lanes.threads.ids)

    def _mask(self, register: Register, at: tuple[Array, ...]) -> Array:
        held = self._bits.get(register.index)
        return np.zeros((len(at[0]), at[1].shape[1]), np.uint64) if held is None else held[at]

    def _write(self, step: Step, at: tuple[Array, ...]) -> None:
        """Note which bits an instruction gives no value."""
        i = step.instruction
        to = [r for r in written(i) if r.index in self._followed]
        sources = [r for r in read(i) if r.index in self._bits]
        if not to or not (sources or any(r.index in self._bits for r in to)):
            return
        executed = step.executing()
        none = np.zeros(executed.shape, np.uint64)
        lacking = [none] * len(written(i))
        if sources and i.parts[0] in PASSES_ON:
            lacking = Operands(step, lambda r: self._mask(r, at)).of_results(i)
        guarded = none != 0 if i.predicate is None else self._mask(i.predicate[0], at) != 0
        origin = np.zeros(executed.shape, np.int64)
        own = {r.index for x in i.operands[1:] for r in registers_in(x)}
        own |= set() if i.predicate is None else {i.predicate[0].index}
        for register in sources:
            if register.index in own:
                origin = np.where(self._bits[register.index][at] != 0, self._origins[register.index][at], origin)
        if i.parts[0] in GATHERS and origin.any():
            origin = from_lanes(step, origin)
        for register, bits in zip(written(i), lacking, strict=True):
            if register.index not in self._followed:
                continue
            bits = np.where(guarded, full(register.bits), bits)
            self._hold(register, at, executed | guarded, bits, origin)

    def _tell(
        self,
        registers: list[Register],
        lanes: Step | Access,
        at: tuple[Array, ...],
        executed: Array | np.bool_,
        width: int = 64,
        *,
        any_bit: bool = True,
    ) -> Lacking | None:
        """Say that registers have no value, once: they are taken for such as have, from then on.

        Each register must lack some of its lowest bits, or all of them, for it to be said.
        """
        lacks = executed
        for register in registers:
            bits = full(min(width, register.bits))
            mask = self._mask(register, at) & bits
            lacks = lacks & ((mask != 0) if any_bit else (mask == bits))
        if not lacks.any():
            return None
        register = registers[0]
        origins = self._origins[register.index][at][np.broadcast_to(lacks, (len(at[0]), lanes.threads.count))]
        first = int(origins[0]) >> _THREAD_BITS
        begun = np.unique(origins[origins >> _THREAD_BITS == first] & (1 << _THREAD_BITS) - 1)
        held = self._bits[register.index]
        held[at] = np.where(lacks, np.uint64(0), held[at])
        who = lanes.threads.ids[np.broadcast_to(lacks, (len(at[0]), lanes.threads.count)).any(axis=0)]
        block = lanes.threads.block
        return Lacking(
            Threads(who, block).describe(),
            self._say(register.name, first, Threads(begun.astype(np.intp), block).describe()),
        )

    def _say(self, made: str, first: int, who: str) -> Diagnosis:
        """Say which register lacked a value in some threads, and what is made of it, which may be that itself."""
        assert self._function is not None
        if first in self._never:
            return Diagnosis("memory-without-value", register=self._never[first].name, made=made)
        begun = self._begins[first]
        writes = [
            f"`{i.text.strip()}` ({i.source if i.source is not None else f'line {i.line} of the PTX'})"
            for i in givers(self._function, frozenset([first]))
        ]
        name, shown, more = begun.name, ", ".join(writes[:_SHOWN]), len(writes) - _SHOWN
        if made == name and more <= 0:
            return Diagnosis("register-of-other-paths", register=name, writes=shown, threads=who)
        if made == name:
            return Diagnosis("register-of-more-paths", register=name, writes=shown, more=more, threads=who)
        if more <= 0:
            return Diagnosis("register-made-of-other-paths", register=name, writes=shown, threads=who, made=made)
        return Diagnosis("register-made-of-more-paths", register=name, writes=shown, more=more, threads=who, made=made)


def _called(function: Function, i: Instruction) -> set[int]:
    """Return where the functions begin that an instruction may call; by an address it may call any."""
    if i.parts[0] != "call":
        return set()
    target = i.operands[0]
    if isinstance(target, Symbol):
        return {function.callees[target.name]} if target.name in function.callees else set()
    return {*function.callees.values()}


def _calls_once(function: Function) -> bool:
    """Tell whether no function may call itself, directly or through others."""
    starts = sorted({0, *function.callees.values()})
    calls: dict[int, set[int]] = {start: set() for start in starts}
    for i in function.instructions:
        calls[starts[bisect_right(starts, i.index) - 1]] |= _called(function, i)
    for _ in starts:
        calls = {start: to.union(*(calls[one] for one in to)) for start, to in calls.items()}
    return not any(start in to for start, to in calls.items())


def _origin(register: int, threads: Array) -> Array:
    origin: Array = register << _THREAD_BITS | threads.astype(np.int64)
    return origin


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _values(i: Instruction) -> list[Register]:
    """Return the registers that a store puts into memory."""
    return [r for x in i.operands[1:2] for r in registers_in(x)]


def _stored_bits(i: Instruction) -> int:
    """Return how many of the lowest bits of each register a store puts into memory."""
    size = i.parts[-1].lstrip("busf")
    return int(size) if size.isdigit() and i.parts[0] == "st" else 64


def _mattering(i: Instruction) -> Iterator[list[Register]]:
    """Yield registers of which one must have a value in each bit."""
    for operand in i.operands:
        if isinstance(operand, Address):
            yield from ([r] for r in registers_in(operand))
    if i.parts[0] in _STORES or (has_destination(i) and i.parts[0] not in _MATTERS):
        return
    results = 1 if has_destination(i) or is_wgmma(i) else 0
    for operand in i.operands[results:]:
        if not isinstance(operand, Address | Immediate):
            yield from ([r] for r in registers_in(operand))
