"""Operands of instructions as machine code is written: registers, special values, and memory.

A register lives in a slot of the function's stack, which the compiler makes a value of; what a node has read or written
of it is kept, and stored at the node's end.
"""

from __future__ import annotations

from typing import Any

from cutepy.sim.native.accesses import ACCESS_TYPE
from cutepy.sim.native.writer import BY_CTA, BY_THREAD, LANES, Value, Writer
from cutepy.sim.ptx.model import (
    Address,
    Immediate,
    Instruction,
    NegatedPredicate,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
)
from cutepy.sim.semantics.types import canonical_bits, constant_bits, width
from cutepy.sim.translate.emitter import Emitter, address_of_symbol
from cutepy.sim.translate.memory import space_of

_NOTHING: Any = None  # what numbers and special registers are of does not matter

FIRST_ARGUMENT = 6
"""After the numbers of CTAs, warps and threads, the table of warps, the state, and the counts of blocks."""

EVERY = BY_CTA | BY_THREAD
SLOT_STARTS = "m.memory.slot_starts(g)"


class UnsupportedError(Exception):
    """An instruction, or a form of it, that numpy computes."""


class Lanes:
    """The source of a region, for inputs that differ along given axes.

    Parameters
    ----------
    kinds : list of str
        Canonical kind of each register.
    axes : dict of str to int
        Along which axes each input differs; those that it lacks, along both.
    full : bool
        True if all 32 lanes of each warp are here.
    of_registers : dict of int to int
        Along which axes each register may differ at any time; those that it lacks, along both.

    Attributes
    ----------
    inputs : dict
        Expression of each array that is read -> its value.
    helpers : dict
        (operation, space, bits, count) of each access -> the name of its function.
    masked : bool
        True if some of the lanes may be elsewhere, or absent.
    writes_shared : bool
        True if shared memory is written.
    waiting : set of int
        The nodes at which lanes may wait for others.
    frame_bytes : int
        State of a warp while it waits at a barrier.
    """

    def __init__(
        self, kinds: list[str], axes: dict[str, int], full: bool, of_registers: dict[int, int] | None = None
    ) -> None:
        self.w = Writer()
        self.kinds, self._axes, self.full = kinds, axes, full
        self._of_registers = of_registers
        self.constants: dict[int, Immediate] = {}
        self.is_ranked = False
        self.inputs: dict[str, Value] = {}
        self.arguments: dict[str, int] = {}
        self.helpers: dict[tuple[str, str, int, int], str] = {}
        self.masked = not full
        self.is_parted = False
        self.writes_shared = False
        self.slots: dict[int, str] = {}
        self._registers: dict[int, Value] = {}
        self._results: dict[int, Value] = {}
        self._dirty: dict[int, None] = {}
        self._here: tuple[str, str] | None = None
        self.instruction: Instruction | None = None
        self.buffer = self.frame_bytes = 0
        self.waiting: set[int] = set()

    # Nodes.

    def begin(self, label: str, parted: bool) -> None:
        """Begin a node, whose lanes may have parted from others of their warp."""
        self.w.begin(label)
        self._registers.clear()
        self._here = None
        self.is_parted, self.masked = parted, parted or not self.full

    def end(self) -> None:
        """Keep the new values of registers."""
        w = self.w
        for index in self._dirty:
            axes = self.axes_of(index)
            value = self._registers[index]
            kind = w.type(value.bits, axes)
            w.lines.append(f"llvm.store {w.spread(value, axes)}, {self.slot(index)} : {kind}, !llvm.ptr")
        self._dirty.clear()

    def axes_of(self, index: int) -> int:
        """Return along which axes a register may differ at any time."""
        return EVERY if self._of_registers is None else self._of_registers.get(index, EVERY)

    def slot(self, index: int) -> str:
        """Return where a register is."""
        if index not in self.slots:
            w = self.w
            kind = w.type(width(self.kinds[index]), self.axes_of(index))
            one, self.slots[index] = w.fresh(), w.fresh()
            w.once.append(f"{one} = llvm.mlir.constant(1 : i64) : i64")
            w.once.append(f"{self.slots[index]} = llvm.alloca {one} x {kind} : (i64) -> !llvm.ptr")
        return self.slots[index]

    def forgotten(self) -> list[str]:
        """Store poison to all registers, so that the compiler carries no value from one warp to the next."""
        lines = []
        for index, slot in self.slots.items():
            kind, name = self.w.type(width(self.kinds[index]), self.axes_of(index)), self.w.fresh()
            lines += [f"{name} = llvm.mlir.poison : {kind}", f"llvm.store {name}, {slot} : {kind}, !llvm.ptr"]
        return lines

    def here(self) -> tuple[str, str]:
        """Return the names of the mask of active lanes, as a vector of booleans and as 32 bits."""
        if self._here is None:
            w = self.w
            bits = w.emit("llvm.load %active : !llvm.ptr -> i32")
            self._here = w.emit(f"llvm.bitcast {bits} : i32 to vector<{LANES}xi1>"), bits
        return self._here if self.masked else ("%every", "%everybits")

    def fail_unless(self, condition: str, place: str = "^fail") -> None:
        """Leave the function where a condition does not hold."""
        label = self.w.label()
        self.w.lines.append(f"llvm.cond_br {condition}, {label}, {place}")
        self.w.lines.append(f"{label}:")

    def need_whole_warp(self) -> None:
        """Leave the function unless all 32 lanes are active."""
        if not self.full:
            raise UnsupportedError
        if self.masked:
            w = self.w
            whole = w.emit(f'llvm.icmp "eq" {self.here()[1]}, %everybits : i32')
            self.fail_unless(whole)

    # Operands.

    def argument(self, name: str) -> int:
        """Return the position of an argument, a new one if it is."""
        return self.arguments.setdefault(name, FIRST_ARGUMENT + len(self.arguments))

    def pointer(self, name: str) -> str:
        """Name an argument as a pointer."""
        return self._given(name, "!llvm.ptr")

    def _given(self, name: str, kind: str) -> str:
        w, position = self.w, self.argument(name)
        at, value = w.fresh(), w.fresh()
        w.once.append(f"{at} = llvm.getelementptr %arguments[{position}] : (!llvm.ptr) -> !llvm.ptr, i64")
        w.once.append(f"{value} = llvm.load {at} : !llvm.ptr -> {kind}")
        return value

    def _element(self, lines: list[str], pointer: str, axes: int, bits: int) -> str:
        """Name the address of a value's element, or of its first here."""
        index = {0: "", BY_CTA: "%row", BY_THREAD: "%start", EVERY: "%position"}[axes]
        if not index:
            return pointer
        name = self.w.fresh()
        lines.append(f"{name} = llvm.getelementptr {pointer}[{index}] : (!llvm.ptr, i64) -> !llvm.ptr, i{bits}")
        return name

    def input(self, expression: str, bits: int) -> Value:
        """Return the value of an array that Python gives."""
        if expression not in self.inputs:
            w, axes = self.w, self._axes.get(expression, EVERY)
            lines = w.by_warp if axes & BY_THREAD else w.by_cta if axes else w.once
            stored = max(bits, 8)
            at = self._element(lines, self.pointer(f"in {expression}"), axes, stored)
            kind, name = w.type(stored, axes), w.fresh()
            if axes & BY_THREAD and not self.full:
                none = w.fresh()
                zero = f"llvm.mlir.constant(dense<0> : {kind}) : {kind}"
                lines += [
                    f"{none} = {zero}",
                    f"{name} = llvm.intr.masked.load {at}, %present, {none} {{alignment = {stored // 8} : i32}} : "
                    f"(!llvm.ptr, vector<{LANES}xi1>, {kind}) -> {kind}",
                ]
            else:
                lines.append(f"{name} = llvm.load {at} {{alignment = {stored // 8} : i64}} : !llvm.ptr -> {kind}")
            if bits == 1:
                zero, stored_name, name = w.spread(w.constant(8, 0), axes), name, w.fresh()
                lines.append(f'{name} = llvm.icmp "ne" {stored_name}, {zero} : {kind}')
            self.inputs[expression] = Value(name, bits, axes)
        return self.inputs[expression]

    def prologue(self, index: int) -> None:
        """Bring a register's value to its slot as a warp begins."""
        value, axes, lines = self.input(f"R[{index}]", width(self.kinds[index])), self.axes_of(index), self.w.lines
        self.w.lines = self.w.by_warp
        name = self.w.spread(value, axes)
        self.w.lines.append(f"llvm.store {name}, {self.slot(index)} : {self.w.type(value.bits, axes)}, !llvm.ptr")
        self.w.lines = lines

    def output(self, index: int) -> int:
        """Store a register's array, as a warp ends; returns its axes."""
        w, axes = self.w, self.axes_of(index)
        bits = width(self.kinds[index])
        value = Value(w.emit(f"llvm.load {self.slot(index)} : !llvm.ptr -> {w.type(bits, axes)}"), bits, axes)
        if bits == 1:
            value = w.resized(value, 8)
        at = self._element(w.lines, self.pointer(f"out {index}"), axes, value.bits)
        kind, alignment = w.type(value.bits, axes), value.bits // 8
        if axes & BY_THREAD and not self.full:
            w.lines.append(
                f"llvm.intr.masked.store {value.name}, {at}, %present {{alignment = {alignment} : i32}} : "
                f"{kind}, vector<{LANES}xi1> into !llvm.ptr"
            )
        else:
            w.lines.append(f"llvm.store {value.name}, {at} {{alignment = {alignment} : i64}} : {kind}, !llvm.ptr")
        return axes

    def read(self, operand: Operand, kind: str) -> Value:
        """Return an operand's bits, read as a kind."""
        if isinstance(operand, Register):
            if operand.index in self.constants and kind[0] == "u" and operand.bits == width(kind):
                return self.read(self.constants[operand.index], kind)
            found = self.register(operand.index)
            if found.bits != width(kind):
                raise UnsupportedError
            return found
        if isinstance(operand, Immediate):
            return self.w.constant(width(kind), constant_bits(operand, kind))
        if isinstance(operand, NegatedPredicate):
            return self.invert(self.read(operand.operand, kind))
        if isinstance(operand, Special):
            text = Emitter([], {}, {}, _NOTHING)._special(operand.name, "u4")
            if "clock" in text or "astype" in text:
                raise UnsupportedError
            value = self.input(text, 32)
            if kind == "pred":
                return self.w.compare("ne", value, self.w.constant(32, 0))
            return self.w.resized(value, width(kind))
        if isinstance(operand, Symbol):
            value = self.input(address_of_symbol(operand.name, self.is_ranked), 64)
            if operand.offset:
                value = self.w.binary("add", value, self.w.constant(64, operand.offset))
            return self.w.resized(value, width(kind))
        raise UnsupportedError

    def read_wide(self, operand: Operand, kind: str) -> Value:
        """Return the low bits of an operand that may be wider than the kind."""
        if isinstance(operand, Register) and operand.type != "pred" and operand.bits > width(kind):
            return self.w.resized(self.register(operand.index), width(kind))
        return self.read(operand, kind)

    def register(self, index: int) -> Value:
        """Return a register's bits."""
        if index not in self._registers:
            bits, axes = width(self.kinds[index]), self.axes_of(index)
            name = self.w.emit(f"llvm.load {self.slot(index)} : !llvm.ptr -> {self.w.type(bits, axes)}")
            self._registers[index] = Value(name, bits, axes)
        return self._registers[index]

    def invert(self, value: Value) -> Value:
        """Return the complement."""
        return self.w.binary("xor", value, self.w.constant(value.bits, -1))

    def write(self, operand: Operand, value: Value, signed: bool = False) -> None:
        """Give a destination a value, extended if it is wider, where the guard holds; `finish` assigns it.

        Until then every register reads as it was before the instruction: its guard, sources and other destinations.
        """
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register) or self.instruction is None:
            raise UnsupportedError
        bits = width(self.kinds[operand.index])
        if value.bits > bits or (value.bits == 1) != (bits == 1):
            raise UnsupportedError
        value = self.w.resized(value, bits, signed)
        guard = self.instruction.predicate
        if guard is not None:
            old, condition = self.register(operand.index), self.register(guard[0].index)
            value = self.w.select(condition, *((old, value) if guard[1] else (value, old)))
        if self.is_parted:
            value = self.w.select(Value(self.here()[0], 1, EVERY), value, self.register(operand.index))
        self._results[operand.index] = value

    def finish(self) -> None:
        """Assign the results of the current instruction to its destinations."""
        self._registers.update(self._results)
        self._dirty.update(dict.fromkeys(self._results))
        self._results.clear()

    # Memory.

    def address(self, operand: Operand) -> Value:
        """Return the address that an operand denotes, in 64 bits."""
        if not isinstance(operand, Address):
            raise UnsupportedError
        base = operand.base
        value = self.read(base, canonical_bits(base) if isinstance(base, Register) else "u8")
        if operand.offset:
            value = self.w.binary("add", value, self.w.constant(value.bits, operand.offset))
        return self.w.resized(value, 64)

    def load(self, i: Instruction, operand: Operand, bits: int, count: int) -> list[Value]:
        """Load elements of each lane."""
        space = self._space(i)
        address = self.address(operand)
        axes = address.axes
        if space == "shared":
            axes |= self.input(SLOT_STARTS, 64).axes
        self._access("load", space, address, bits, count, [])
        return [self._held(n, bits, axes) for n in range(count)]

    def store(self, i: Instruction, operand: Operand, values: list[Value]) -> None:
        """Store elements of each lane."""
        space = self._space(i)
        self.writes_shared |= space == "shared"
        self._access("store", space, self.address(operand), values[0].bits, len(values), values)

    def combine(self, i: Instruction, operand: Operand, operation: str, values: list[Value]) -> Value:
        """Apply an atomic operation of each lane; return the old values."""
        space = self._space(i)
        self.writes_shared |= space == "shared"
        self._access(operation, space, self.address(operand), values[0].bits, 1, values)
        return self._held(0, values[0].bits, EVERY)

    def _held(self, n: int, bits: int, axes: int) -> Value:
        """Return the value that an access leaves in a register."""
        w, kind = self.w, f"vector<{LANES}xi{bits}>"
        at = w.emit(f"llvm.getelementptr %buffer[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}")
        return w.new(axes, f"llvm.load {at} {{alignment = 8 : i64}} : !llvm.ptr -> {w.type(bits, axes)}", bits)

    def _access(self, operation: str, space: str, address: Value, bits: int, count: int, values: list[Value]) -> None:
        w, kind = self.w, f"vector<{LANES}xi{bits}>"
        self.buffer = max(self.buffer, bits * max(count, len(values), 2) * LANES // 8)
        for n, value in enumerate(values):
            at = w.emit(f"llvm.getelementptr %buffer[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}")
            w.lines.append(f"llvm.store {w.spread(value, EVERY)}, {at} {{alignment = 8 : i64}} : {kind}, !llvm.ptr")
        is_shared = space == "shared"
        extra = self.input(SLOT_STARTS, 64).name if is_shared else w.constant(64, space != "const").name
        function = self._helper(operation, "shared" if is_shared else "global", bits, count)
        arguments = f"%state, {w.spread(address, EVERY)}, {self.here()[1]}, {extra}, %buffer"
        way = w.emit(f"llvm.call {function}({arguments}) : !llvm.ptr, {ACCESS_TYPE}")
        self.fail_unless(w.emit(f'llvm.icmp "ne" {way}, {w.constant(64, 0).name} : i64'), "^leave")

    def _space(self, i: Instruction) -> str:
        space = space_of(i)
        if space not in ("global", "const", "shared", "generic"):
            raise UnsupportedError
        return space

    def _helper(self, operation: str, space: str, bits: int, count: int) -> str:
        key = operation, space, bits, count
        if key not in self.helpers:
            self.helpers[key] = self.pointer(f"call {' '.join(map(str, key))}")
        return self.helpers[key]
