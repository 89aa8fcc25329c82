"""Registers and memory without a value: definedness as shadow state that flows, by lane and bit.

A register that may be read before it is written is live at the beginning of the kernel or of a function: no
instruction writes it, or only those on some paths do. Local memory has no value when a thread begins. For such
registers and memory, and for all values computed from them, shadow state holds the defined bits of each lane
(`undefined_bits.py`) and the origin of the undefined ones. Memory keeps the undefined bits of each byte
(`undefined_memory.py`): stores write that shadow state, and loads read it.

Compilers move, shuffle, select, spill and store undefined values where that does not matter. A report comes in three
cases. An undefined value decides an address, a branch, a guard or synchronisation. An MMA or an atomic takes an
undefined value, from registers or from shared memory. Or an undefined bit becomes a result, by a store to global memory
or a copy from shared to global memory. Columns of tensor memory that are stored from undefined registers count as
never written, and a register that tcgen05.ld fills from columns without a write is undefined.

Undefined accumulators are reported where an MMA adds to them. At a call the registers of the function become undefined
again. Where functions may be recursive, a stack keeps the shadow state of the caller. A call through an address may
call any function.

References
----------
PTX ISA, "Data Movement and Conversion Instructions", "selp"; "Local State Space"; "wgmma.mma_async": scale-d.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.lanes import Threads
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Register, Symbol, Vector, registers_in, type_bits
from cutepy.sim.sanitize.definitions import defining_instructions, given_registers, scale_d
from cutepy.sim.sanitize.memory.discarded_loads import stores_of
from cutepy.sim.sanitize.order.uses import once, uses_of, whole_flow
from cutepy.sim.sanitize.undefined_bits import Operands, exchanges, from_lanes, full, passes_on
from cutepy.sim.sanitize.undefined_memory import BESIDE_VALUES, Element, UndefinedMemory
from cutepy.sim.sanitize.unwritten_accumulators import NOT_BEGUN, begun_by_mmas
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import accumulators, has_destination, is_wgmma, read, results, written
from cutepy.sim.translate.state_spaces import may_be_same, state_spaces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from cutepy.sim.machine.events import Access, AsyncOperation, LocalCopy, TensorMemoryAccess
    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.ptx.model import Function, Operand

_KEPT_IN = frozenset("shared local frame generic".split())
"""State spaces of memory that keeps which bits have no value."""
_OF_THREADS = frozenset(("local", "frame"))
"""State spaces of memory that has no value where a thread begins."""
_NOTHING = np.zeros((), np.int64)
_THREAD_BITS = 16
"""An origin is a number and the thread that lacks a value: shuffles and votes bring what other threads lack.

The number is a register's index and 1, or beyond all registers, an index of what loads unwritten local memory. That has
`BESIDE_VALUES` too, as long as it is moved only."""
_SHOWN = 3
"""Writes of a register that a report names."""


PADDING = "undefined-output"
"""Kind of a result without a value that may be padding of a structure."""


class UndefinedUse(NamedTuple):
    """Use of bits without a value.

    Attributes
    ----------
    who : Threads
        The threads that lack it.
    diagnosis : Diagnosis
        The register that has no value, the writes that these threads have not executed, and the remedy.
    address : int or None
        Of shared memory that was stored from it, if it is that which is read: `slot * slot_bytes + offset`.
    kind : str
        Of the hazard.
    """

    who: Threads
    diagnosis: Diagnosis
    address: int | None = None
    kind: str = "uninitialised-read"


class _FollowedRegisters(NamedTuple):
    """Registers of a function that may lack a value, and where.

    Attributes
    ----------
    begins : dict of int to frozenset of int
        By where the function or one that it calls starts, the registers that lack their values there.
    registers : frozenset of int
        These and all that may be made of them, or of memory that keeps them.
    stops : frozenset of int
        The instructions, by index, that may read or overwrite an undefined value.
    recurses : bool
        True if a function may call itself.
    """

    begins: dict[int, frozenset[int]]
    registers: frozenset[int]
    stops: frozenset[int]
    recurses: bool


@once
def _followed(function: Function) -> _FollowedRegisters:
    flow = whole_flow(function)
    apart = {r.index for r in given_registers(function)}
    starts: dict[int, frozenset[int]] = {}
    reach = _Reach(function, apart)
    for n, block in enumerate(flow.blocks):
        first = next(iter(block.instructions), block.branch)
        if first is not None and first.index in (0, *function.callees.values()):
            starts[first.index] = flow.live_in[n] - apart
            for register in starts[first.index]:
                reach.follow(n, register)
    if any(_OF_THREADS.intersection(state_spaces(i).loads) for i in function.instructions):
        reach.keep(_OF_THREADS)
    for i in function.instructions:
        if i.traits.is_tensor_load:
            reach.begin(i)
    begins = {start: starts.get(start, frozenset()) for start in (0, *function.callees.values())}
    return _FollowedRegisters(begins, frozenset(reach.registers), frozenset(reach.stops), not _calls_once(function))


@once
def _idle_branches(function: Function) -> frozenset[int]:
    """Return the branches, by index, that lead to one place either way, with no instruction before that."""
    blocks = whole_flow(function).blocks

    def place(n: int) -> int:
        seen = set[int]()
        while n != EXIT and n not in seen and not blocks[n].instructions and blocks[n].condition is None:
            seen.add(n)
            (n,) = blocks[n].successors
        return n

    branches = ((b.branch.index, b.successors) for b in blocks if b.branch is not None and b.condition is not None)
    return frozenset(index for index, ways in branches if len({*map(place, ways)}) == 1)


class _Reach:
    """The registers and memory that undefined values may reach.

    Parameters
    ----------
    function : Function
    apart : set of int
        Registers that are not followed.
    """

    def __init__(self, function: Function, apart: set[int]) -> None:
        self.registers, self.stops = set[int](), set[int]()
        self._function, self._apart = function, apart
        self._uses, self._blocks = uses_of(function), whole_flow(function).blocks
        self._seen: set[tuple[int, int]] = set()
        self._made: set[tuple[int, int]] = set()
        self._kept: set[str] = set()  # spaces of memory that holds bits without a value

    def follow(self, start: Instruction | int, register: int) -> None:
        """Follow a register from an instruction that writes it, or from where a block begins."""
        waiting: list[tuple[Instruction | int, int]] = [(start, register)]
        while waiting:
            at, value = waiting.pop()
            self.registers.add(value)
            uses, ends = self._uses.spread(at, value, self._seen)
            self.stops.update(i.index for i in ends)
            for block, user in uses:
                i = self._blocks[block].branch if user is None else user
                assert i is not None
                self.stops.add(i.index)
                if _stores_registers(i) and any(r.index == value for r in _values(i)):
                    self.keep(_KEPT_IN.intersection(state_spaces(i).stores))
                elif passes_on(i):
                    waiting += self._new(i)

    def begin(self, i: Instruction) -> None:
        """Follow the results of an instruction."""
        for made in self._new(i):
            self.follow(*made)

    def keep(self, spaces: Collection[str]) -> None:
        """Track definedness through loads from some state spaces."""
        if self._kept.issuperset(spaces):
            return
        self._kept.update(spaces)
        for i in self._function.instructions:
            if _loads_registers(i):
                loads = state_spaces(i).loads
                if any(may_be_same(one, other) for one in loads for other in self._kept):
                    self.stops.add(i.index)
                    self.begin(i)

    def _new(self, i: Instruction) -> list[tuple[Instruction, int]]:
        """Return the results of an instruction, unless they are followed already."""
        found = {r.index for r in written(i)} - self._apart
        new = [(i, r) for r in found if (i.index, r) not in self._made]
        self._made.update((i.index, r) for r in found)
        if found:
            self.stops.add(i.index)
        return new


class UndefinedValues:
    """Lanes and bytes without a value, and the instructions that depend on them."""

    def __init__(self) -> None:
        self._function: Function | None = None
        self._of = _FollowedRegisters({}, frozenset(), frozenset(), recurses=False)
        self._residents: Residents | None = None
        self._threads = 0
        self._bits: dict[int, Array] = {}
        self._origins: dict[int, Array] = {}
        self._memory = UndefinedMemory()
        self._issued: dict[int, list[Element]] = {}  # what asynchronous stores will store, by their operation
        self._sources: dict[int, Array] = {}  # what copies to peers have read, by their operation
        self._depth: Array = np.zeros((0, 0), np.int64)
        self._callers: list[dict[int, tuple[Array, Array]]] = []  # of each depth what the caller's registers lack

    def look_at(self, function: Function) -> None:
        """Begin with a kernel, if it is another one."""
        if self._function is not function:
            self._function, self._residents = function, None
            self._of = _followed(function)

    def stops_at(self, i: Instruction) -> bool:
        """Return whether an instruction may read, overwrite or create an undefined value."""
        if self._of.recurses and self._of.registers and _calls_or_returns(i):
            return True
        return i.index in self._of.stops or bool(self._begins_at(i))

    def _begins_at(self, i: Instruction) -> frozenset[int]:
        """Return the registers that lack a value in a function that is called."""
        if not i.traits.calls:
            return frozenset()
        assert self._function is not None
        return frozenset[int]().union(*(self._of.begins[start] for start in _called(self._function, i)))

    def guard(self, step: Step) -> UndefinedUse | None:
        """Return a finding if lanes evaluate the guard of an instruction, and its predicate has no value."""
        guard = step.instruction.predicate
        if guard is None or guard[0].index not in self._of.registers:
            return None
        return self._tell(guard[0], step, self._begin(step), np.True_)

    def execute(self, step: Step) -> UndefinedUse | None:
        """Propagate definedness through an instruction; return a finding if a bit without a value has an effect."""
        i = step.instruction
        if not self.stops_at(i):
            return None
        assert self._function is not None
        begins = self._begins_at(i)
        is_known = not self._bits and step.ctas.residents is self._residents
        if is_known and not begins and not (self._of.recurses and _calls_or_returns(i)):
            return None  # nothing lacks a value here
        at = self._begin(step)
        wrong: UndefinedUse | None = None
        if i.predicate is not None and i.traits.branches and i.index not in _idle_branches(self._function):
            wrong = self._tell(i.predicate[0], step, at, np.True_)
        for register in _mattering(i):
            wrong = wrong or self._tell(register, step, at, step.executing())
        if is_wgmma(i):
            adding = step.executing() & _accumulates(step)
            for register in accumulators(i):
                lacking = self._tell(register, step, at, adding)
                if lacking is not None and register.index in begun_by_mmas(self._function):
                    lacking = lacking._replace(diagnosis=NOT_BEGUN)
                wrong = wrong or lacking
        self._write(step, at)
        if self._of.recurses:
            self._call(step, at)
        for index in begins:
            register = self._function.registers[index]
            threads = np.broadcast_to(step.threads.ids, step.executing().shape)
            self._hold(
                register,
                at,
                step.executing(),
                np.broadcast_to(full(register.bits), threads.shape),
                _origin(index, threads),
            )
        return wrong

    def access(self, access: Access) -> UndefinedUse | None:
        """Propagate definedness through an access to memory; return a finding if it stores bits without a value."""
        if not self._of.registers:
            return None
        i = access.instruction
        is_of_lanes = access.part_of is None and access.proxy == "generic"
        if access.ctas.residents is not self._residents and not is_of_lanes:
            return None
        at = self._begin(access)
        if access.part_of is not None and access.part_of.kind == "bulk_peer" and "reduce" not in i.parts:
            self._copied(access, access.part_of)
            return None
        wrong = self._taken(access) if access.space == "shared" and not i.traits.transfers else None
        if access.operation == "read":
            if _loads_registers(i) and is_of_lanes:
                self._load(access, at)
            return wrong
        elements: list[Element] = []
        if access.part_of is not None:
            elements = self._issued.pop(id(access.part_of), [])
        elif _stores_registers(i) and is_of_lanes and access.operation == "write":
            elements = self._elements(access, at)
            if access.space == "global":
                found = [self._tell(r, access, at, np.True_, _stored_bits(i), is_result=True) for r in _values(i)]
                wrong = min(filter(None, found), key=lambda lacking: lacking.kind == PADDING, default=None)
        if i.traits.takes_rows:
            self._memory.write_matrices(access, elements)
        elif access.space != "global":
            self._memory.write(access, elements)
        return wrong

    def lacking_columns(self, access: TensorMemoryAccess) -> Array:
        """Return the cells of tensor memory, in register order, to which a warp stores bits without a value."""
        if access.of_registers is None or not access.writes or not self._bits:
            return np.zeros(0, np.int64)
        at = self._begin(access)
        items = _items(access.instruction.operands[1])
        none = np.zeros((1, at[1].shape[1]), np.uint64)
        lacks = [self._mask(x, at) if isinstance(x, Register) else none for x in items]
        is_lacking = np.stack([one[0] != 0 for one in lacks], axis=-1)
        return np.asarray(access.of_registers[is_lacking].reshape(-1))

    def load_columns(self, access: TensorMemoryAccess, lacks: Array) -> None:
        """Take from tensor memory which registers of a load have no value, (threads, registers)."""
        assert self._function is not None
        if not lacks.any() and not self._bits:
            return
        i, at = access.instruction, self._begin(access)
        threads = np.broadcast_to(at[1], (len(at[0]), at[1].shape[1]))
        begun = _origin(len(self._function.registers) + i.index, threads)
        for n, register in enumerate(_items(i.operands[0])[: lacks.shape[1]]):
            if isinstance(register, Register) and register.index in self._of.registers:
                bits = np.where(lacks[:, n], full(register.bits), np.uint64(0))[None]
                self._hold(register, at, np.True_, bits, begun)

    def copy(self, copy: LocalCopy) -> None:
        """Follow arguments or results of a call."""
        if self._of.registers:
            self._begin(copy)
            self._memory.copy("local", copy.source, copy.to, copy.size_bytes)

    def issue(self, operation: AsyncOperation) -> None:
        """Follow an asynchronous store of registers, which takes them as it is issued."""
        if operation.kind == "st_async" and operation.instruction.traits.transfers and self._of.registers:
            elements = self._elements(operation, self._begin(operation))
            if elements:
                self._issued[id(operation)] = elements

    def _copied(self, access: Access, copy: AsyncOperation) -> None:
        """Follow a copy to shared memory of a peer, which is read and then written."""
        if access.operation == "read":
            self._sources[id(copy)] = access.addresses
        else:
            self._memory.copy("shared", self._sources.pop(id(copy)), access.addresses, access.size_bytes)

    def _elements(self, store: Access | AsyncOperation, at: tuple[Array, ...]) -> list[Element]:
        """Return the bits that elements of a store lack, and where that began; nothing if they lack none."""
        items = _items(store.instruction.operands[1])
        none = np.zeros((len(at[0]), at[1].shape[1]), np.int64)
        found = []
        for x in items:
            if isinstance(x, Register) and x.index in self._bits:
                found.append(Element(self._bits[x.index][at], self._origins[x.index][at]))
            else:
                found.append(Element(none.astype(np.uint64), none))
        return found if any(element.lacks.any() for element in found) else []

    def _taken(self, access: Access) -> UndefinedUse | None:
        """Describe the fault if an MMA, an atomic operation or a copy reads shared memory that lacks bits."""
        if access.operation == "write" or "exch" in access.instruction.parts:
            return None  # an exchange makes nothing of what was there
        origins, first = self._memory.take(access)
        if not len(origins):
            return None
        block, part_of = access.threads.block, access.part_of
        is_result = part_of is not None and part_of.kind in ("tma_store", "bulk_store")
        is_result &= "reduce" not in access.instruction.parts
        kind, who = _kind(origins, is_result), Threads(access.threads.ids, block)
        return UndefinedUse(who, self._say("what is read", origins, block, kind), first, kind)

    def _call(self, step: Step, at: tuple[Array, ...]) -> None:
        """Keep the undefined registers of a caller where a function is called, and restore them where that returns."""
        assert self._function is not None
        i, lanes = step.instruction, step.executing()
        if i.traits.calls and _called(self._function, i):
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
        elif i.traits.returns:
            depths = self._depth[at] - 1
            for depth in np.unique(depths[lanes & (depths >= 0)]).tolist():
                here, kept = lanes & (depths == depth), self._callers[depth]
                for index in self._bits.keys() | kept.keys():
                    bits, origins = (held[at] for held in kept[index]) if index in kept else (_NOTHING, _NOTHING)
                    self._hold(self._function.registers[index], at, here, bits, origins)
            self._depth[at] -= lanes & (depths >= 0)

    def _load(self, access: Access, at: tuple[Array, ...]) -> None:
        """Take from memory which bits of registers have no value."""
        assert self._function is not None
        i, beyond = access.instruction, len(self._function.registers)
        items, threads = _items(i.operands[0]), np.broadcast_to(at[1], (len(at[0]), at[1].shape[1]))
        if i.traits.takes_rows:
            found = self._memory.read_matrices(access, len(items))
        else:
            found = self._memory.read(access, len(items), i.parts[-1].startswith("s"))
        for register, element in zip(items, found, strict=False):
            if isinstance(register, Register) and register.index in self._of.registers:
                is_here = element.origins & ~BESIDE_VALUES == 0  # it begins with this load
                begun = element.origins | _origin(beyond + i.index, threads)
                origins = np.where(is_here, begun, element.origins)
                self._hold(register, at, np.True_, element.lacks & full(register.bits), origins)

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

    def _begin(self, lanes: Step | Access | AsyncOperation | LocalCopy | TensorMemoryAccess) -> tuple[Array, ...]:
        """Take lanes; those of CTAs that have just become resident lack all that begins so."""
        if lanes.ctas.residents is not self._residents:
            self._residents, self._threads = lanes.ctas.residents, math.prod(lanes.threads.block)
            assert self._function is not None
            self._memory, self._issued, self._sources = UndefinedMemory(), {}, {}
            shape = self._residents.count, self._threads
            self._depth, self._callers = np.zeros(shape, np.int64), []
            here = self._of.begins[0]
            self._bits = {r: np.full(shape, full(self._function.registers[r].bits)) for r in here}
            threads = np.broadcast_to(np.arange(shape[1]), shape)
            self._origins = {r: _origin(r, threads) for r in here}
        return np.ix_(lanes.ctas.slots, lanes.threads.ids)

    def _mask(self, register: Register, at: tuple[Array, ...]) -> Array:
        held = self._bits.get(register.index)
        return np.zeros((len(at[0]), at[1].shape[1]), np.uint64) if held is None else held[at]

    def _write(self, step: Step, at: tuple[Array, ...]) -> None:
        """Note which bits an instruction gives no value."""
        i = step.instruction
        to = [r for r in written(i) if r.index in self._of.registers]
        sources = [r for r in read(i) if r.index in self._bits]
        if not to or not (sources or any(r.index in self._bits for r in to)):
            return
        executed = step.executing()
        none = np.zeros(executed.shape, np.uint64)
        lacking = [none] * len(written(i))
        if sources and passes_on(i):
            lacking = Operands(step, lambda r: self._mask(r, at)).of_results(i)
        guarded = none != 0 if i.predicate is None else self._mask(i.predicate[0], at) != 0
        origin = np.zeros(executed.shape, np.int64)
        own = {r.index for x in i.operands[1:] for r in registers_in(x)}
        own |= set() if i.predicate is None else {i.predicate[0].index}
        for register in sources:
            if register.index in own:
                its, lacks = self._origins[register.index][at], self._bits[register.index][at] != 0
                origin = np.where(lacks & ((origin == 0) | (its < origin)), its, origin)
        if not (i.traits.moves or _widens(i)):
            origin &= ~BESIDE_VALUES
        if exchanges(i) and origin.any():
            origin = from_lanes(step, origin)
        for register, bits in zip(written(i), lacking, strict=True):
            if register.index not in self._of.registers:
                continue
            bits = np.where(guarded, full(register.bits), bits)
            self._hold(register, at, executed | guarded, bits, origin)

    def _tell(
        self,
        register: Register,
        lanes: Step | Access,
        at: tuple[Array, ...],
        where: Array | np.bool_,
        width: int = 64,
        *,
        is_result: bool = False,
    ) -> UndefinedUse | None:
        """Report undefined low bits of a register once; from then on the bits count as defined."""
        held = self._bits.get(register.index)
        if held is None:
            return None
        lacks = where & (held[at] & full(min(width, register.bits)) != 0)
        if not lacks.any():
            return None
        origins = self._origins[register.index][at][lacks]
        held[at] = np.where(lacks, np.uint64(0), held[at])
        who = Threads(lanes.threads.ids[lacks.any(axis=0)], lanes.threads.block)
        kind = _kind(origins, is_result)
        return UndefinedUse(who, self._say(register.name, origins, lanes.threads.block, kind), kind=kind)

    def _say(self, made: str, origins: Array, block: tuple[int, int, int], kind: str) -> Diagnosis:
        """Report the origin of an undefined value and its threads; the origin may be the register itself."""
        assert self._function is not None
        assert origins.all()
        numbers = (origins & ~BESIDE_VALUES) >> _THREAD_BITS
        chosen = numbers[int(origins.argmin())]
        first = int(chosen) - 1
        if first >= len(self._function.registers):
            load = self._function.instructions[first - len(self._function.registers)]
            if load.traits.kind == "tcgen05":
                return Diagnosis("tensor-memory-not-written", load=_cited(load), made=made)
            if kind == PADDING:
                return Diagnosis("local-memory-beside-values", load=_cited(load), made=made)
            return Diagnosis("local-memory-not-written", load=_cited(load), made=made)
        begun = np.unique(origins[numbers == chosen] & (1 << _THREAD_BITS) - 1)
        who = Threads(begun.astype(np.intp), block).describe()
        name = self._function.registers[first].name
        writes = list(map(_cited, defining_instructions(self._function, frozenset([first]))))
        if not writes and made == name:
            return Diagnosis("register-without-value", register=name)
        if not writes:
            return Diagnosis("register-made-without-value", register=name, made=made)
        shown, more = ", ".join(writes[:_SHOWN]), len(writes) - _SHOWN
        if made == name and more <= 0:
            return Diagnosis("register-of-other-paths", register=name, writes=shown, threads=who)
        if made == name:
            return Diagnosis("register-of-more-paths", register=name, writes=shown, more=more, threads=who)
        if more <= 0:
            return Diagnosis("register-made-of-other-paths", register=name, writes=shown, threads=who, made=made)
        return Diagnosis("register-made-of-more-paths", register=name, writes=shown, more=more, threads=who, made=made)


def loaded_into(load: Instruction, granules: int, granule_bytes: int) -> list[tuple[Register, ...]] | None:
    """List the registers that get something of each granule that a lane loads; None if it is no load of elements."""
    if not _loads_registers(load) or load.traits.takes_rows:
        return None
    items, each = _items(load.operands[0]), type_bits(load.parts[-1]) // 8
    starts = range(0, granules * granule_bytes, granule_bytes)
    parts = (items[start // each : (start + granule_bytes - 1) // each + 1] for start in starts)
    return [tuple(x for x in part if isinstance(x, Register)) for part in parts]


def is_used(function: Function, load: Instruction, register: Register) -> bool:
    """Return whether anything reads the value loaded into a register."""
    return any(True for _ in uses_of(function).after(load, register.index))


def is_copied(function: Function, load: Instruction, registers: Iterable[Register]) -> bool:
    """Return whether the values loaded into some registers are only stored to global memory unchanged."""
    stores = stores_of(function, load, registers, lambda i: i.traits.moves and not i.traits.exchanges).values()
    return bool(stores) and all(state_spaces(i).stores[0] in ("global", "generic") for i in stores)


def _kind(origins: Array, is_result: bool) -> str:
    """Return the kind of the hazard, given its origin: possible padding is only reported in results."""
    return PADDING if is_result and bool((origins & BESIDE_VALUES != 0).all()) else "uninitialised-read"


def _widens(i: Instruction) -> bool:
    """Return whether a conversion is of integers, without rounding, and so moves bits."""
    return i.traits.kind == "conversion" and all(part[0] in "usb" and part[1:].isdigit() for part in i.parts[-2:])


def _cited(i: Instruction) -> str:
    return f"`{i.text.strip()}` ({i.source if i.source is not None else f'line {i.line} of the PTX'})"


def _accumulates(step: Step) -> Array:
    """Tell which lanes add to their accumulators by a wgmma."""
    i = step.instruction
    scale = Operands(step, lambda r: np.zeros(0, np.uint64)).value(i.operands[scale_d(i)])
    adds: Array = scale != 0
    return adds


def _called(function: Function, i: Instruction) -> set[int]:
    """Return where the functions begin that an instruction may call; by an address it may call any."""
    if not i.traits.calls:
        return set()
    target = i.operands[0]
    if isinstance(target, Symbol):
        return {function.callees[target.name]} if target.name in function.callees else set()
    return {*function.callees.values()}


def _calls_once(function: Function) -> bool:
    """Return whether no function may call itself, directly or through others."""
    starts = sorted({0, *function.callees.values()})
    calls: dict[int, set[int]] = {start: set() for start in starts}
    for i in function.instructions:
        calls[starts[bisect_right(starts, i.index) - 1]] |= _called(function, i)
    for _ in starts:
        calls = {start: to.union(*(calls[one] for one in to)) for start, to in calls.items()}
    return not any(start in to for start, to in calls.items())


def _origin(register: int, threads: Array) -> Array:
    origin: Array = register + 1 << _THREAD_BITS | threads.astype(np.int64)
    return origin


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _stores_registers(i: Instruction) -> bool:
    """Return whether an instruction stores registers to memory."""
    return i.traits.transfers and i.traits.access == "write"


def _loads_registers(i: Instruction) -> bool:
    """Return whether an instruction brings registers back from memory."""
    return i.traits.transfers and i.traits.access == "read"


def _values(i: Instruction) -> list[Register]:
    """Return the registers that a store puts into memory."""
    return [r for x in i.operands[1:2] for r in registers_in(x)]


def _stored_bits(i: Instruction) -> int:
    """Return how many of the lowest bits of each register a store puts into memory."""
    size = i.parts[-1].lstrip("busf")
    return int(size) if size.isdigit() and not i.traits.takes_rows else 64


def _needs_values(i: Instruction) -> bool:
    """Return whether each source of an instruction with results must have a value."""
    of_matrices = i.traits.kind == "matrix" and not i.traits.moves
    return of_matrices or i.traits.kind in ("barrier", "atomic") or "private" in i.traits.effects


def _calls_or_returns(i: Instruction) -> bool:
    return i.traits.calls or i.traits.returns


def _mattering(i: Instruction) -> Iterator[Register]:
    """Yield registers of which each bit must have a value."""
    for operand in i.operands:
        if isinstance(operand, Address):
            yield from registers_in(operand)
    if "L2::cache_hint" in i.parts:
        yield from registers_in(i.operands[-1])
    if i.traits.gathers and not isinstance(i.operands[-1], Immediate):
        yield from registers_in(i.operands[-1])  # the lanes that wait for each other
    if _stores_registers(i) or i.traits.is_tensor_store or (has_destination(i) and not _needs_values(i)):
        return
    for operand in i.operands[1 if is_wgmma(i) else results(i) :]:
        if not isinstance(operand, Address | Immediate):
            yield from registers_in(operand)
