"""What instructions read and write while a run of them is written: registers, special values, and memory."""

from __future__ import annotations

from typing import Any

from cutepy.sim.native.accesses import LOAD_TYPE, STORE_TYPE
from cutepy.sim.native.writer import BY_CTA, BY_THREAD, LANES, Value, Writer
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Negated, Operand, Register, Sink, Special, Symbol
from cutepy.sim.translate.emitter import Emitter, canonical_bits
from cutepy.sim.translate.memory import space_of

_NOTHING: Any = None  # what numbers and special registers are of does not matter

FIRST_ARGUMENT = 5
"""After the numbers of CTAs, warps and threads, the table of warps and the state."""

EVERY = BY_CTA | BY_THREAD
SLOT_STARTS = "m.memory.slot_bytes * g.ctas.column + m.memory.shared.ctypes.data"


class UnsupportedError(Exception):
    """An instruction, or a form of it, that numpy computes."""


def width(kind: str) -> int:
    """Return the bits of a kind."""
    return 1 if kind == "pred" else 8 * int(kind[1:])


class Lanes:
    """The source of a run of instructions, for inputs that differ along given axes.

    Parameters
    ----------
    kinds : list of str
        Canonical kind of each register.
    axes : dict of str to int
        Along which axes each input differs; those that it lacks, along both.
    full : bool
        Whether all 32 lanes of each warp are here.

    Attributes
    ----------
    inputs : dict
        Expression of each array that is read -> its value and the bits of an element.
    helpers : dict
        (operation, space, bits, count) of each access -> the name of its function.
    uniform : list of (str, int)
        The accesses of global memory by all lanes of a CTA at one address: "load" or "store", and bytes.
    """

    def __init__(self, kinds: list[str], axes: dict[str, int], full: bool) -> None:
        self.w = Writer()
        self.kinds, self._axes, self.full = kinds, axes, full
        self.inputs: dict[str, Value] = {}
        self.arguments: dict[str, int] = {}
        self.helpers: dict[tuple[str, str, int, int], str] = {}
        self.uniform: list[tuple[str, int]] = []
        self.registers: dict[int, Value] = {}
        self.dirty: set[int] = set()
        self.instruction: Instruction | None = None
        self.buffer = 0

    # Operands.

    def argument(self, name: str) -> int:
        """Return the position of an argument, a new one if it is."""
        return self.arguments.setdefault(name, FIRST_ARGUMENT + len(self.arguments))

    def pointer(self, name: str) -> str:
        """Name an argument as a pointer."""
        w, position = self.w, self.argument(name)
        at, pointer = w.fresh(), w.fresh()
        w.once.append(f"{at} = llvm.getelementptr %arguments[{position}] : (!llvm.ptr) -> !llvm.ptr, i64")
        w.once.append(f"{pointer} = llvm.load {at} : !llvm.ptr -> !llvm.ptr")
        return pointer

    def element(self, pointer: str, axes: int, bits: int) -> str:
        """Name the address of a value's element, or of its first here."""
        index = {0: "", BY_CTA: "%row", BY_THREAD: "%start", EVERY: "%position"}[axes]
        if not index:
            return pointer
        name = self.w.fresh()
        self.w.place(axes).append(
            f"{name} = llvm.getelementptr {pointer}[{index}] : (!llvm.ptr, i64) -> !llvm.ptr, i{bits}"
        )
        return name

    def input(self, expression: str, bits: int) -> Value:
        """Return the value of an array that Python gives."""
        if expression not in self.inputs:
            axes = self._axes.get(expression, EVERY)
            stored = max(bits, 8)
            at = self.element(self.pointer(f"in {expression}"), axes, stored)
            kind = self.w.type(stored, axes)
            if axes & BY_THREAD and not self.full:
                value = self._first_lanes(at, axes, stored)
            else:
                value = self.w.new(
                    axes, f"llvm.load {at} {{alignment = {stored // 8} : i64}} : !llvm.ptr -> {kind}", stored
                )
            if bits == 1:
                value = self.w.compare("ne", value, self.w.constant(8, 0))
            self.inputs[expression] = value
        return self.inputs[expression]

    def _first_lanes(self, at: str, axes: int, bits: int) -> Value:
        """Load the lanes that are here; the others repeat the last."""
        w = self.w
        pointers, passed = w.fresh(), w.fresh()
        kind, of_pointers = w.type(bits, BY_THREAD), f"vector<{LANES}x!llvm.ptr>"
        types = f"(!llvm.ptr, vector<{LANES}xi64>) -> {of_pointers}, i{bits}"
        w.by_warp.append(f"{pointers} = llvm.getelementptr {at}[%clamped] : {types}")
        w.by_warp.append(f"{passed} = llvm.mlir.poison : {kind}")
        return w.new(
            axes,
            f"llvm.intr.masked.gather {pointers}, %every, {passed} {{alignment = {bits // 8} : i32}} : "
            f"({of_pointers}, vector<{LANES}xi1>, {kind}) -> {kind}",
            bits,
        )

    def output(self, index: int) -> int:
        """Store a register's array; returns its axes."""
        w, value = self.w, self.registers[index]
        if value.bits == 1:
            value = w.resized(value, 8)
        pointer = self.pointer(f"out {index}")
        at = self.element(pointer, value.axes, value.bits)
        kind, lines = w.type(value.bits, value.axes), w.place(value.axes)
        alignment = value.bits // 8
        if value.axes & BY_THREAD and not self.full:
            lines.append(
                f"llvm.intr.masked.store {value.name}, {at}, %here {{alignment = {alignment} : i32}} : "
                f"{kind}, vector<{LANES}xi1> into !llvm.ptr"
            )
        else:
            lines.append(f"llvm.store {value.name}, {at} {{alignment = {alignment} : i64}} : {kind}, !llvm.ptr")
        return value.axes

    def read(self, operand: Operand, kind: str) -> Value:
        """Return an operand's bits, read as a kind."""
        if isinstance(operand, Register):
            found = self.register(operand.index)
            if found.bits != width(kind):
                raise UnsupportedError
            return found
        if isinstance(operand, Immediate):
            constants: dict[str, object] = {}
            name = Emitter([], constants, {}, _NOTHING).immediate(operand.value, kind, operand.float_bits)
            array = constants[name]
            return self.w.constant(width(kind), int.from_bytes(array.tobytes(), "little"))  # type: ignore[attr-defined]
        if isinstance(operand, Negated):
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
            value = self.input(f"m.symbols[{operand.name!r}]", 64)
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
        if index not in self.registers:
            self.registers[index] = self.input(f"R[{index}]", width(self.kinds[index]))
        return self.registers[index]

    def invert(self, value: Value) -> Value:
        """Return the complement."""
        return self.w.binary("xor", value, self.w.constant(value.bits, -1))

    def write(self, operand: Operand, value: Value, signed: bool = False) -> None:
        """Assign to a destination, extended if it is wider, where the instruction's guard holds."""
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
        self.registers[operand.index] = value
        self.dirty.add(operand.index)

    # Memory.

    def address(self, operand: Operand, is_given: bool = False) -> Value:
        """Return the address that an operand denotes, in 64 bits; its offset is an input if it is given."""
        if not isinstance(operand, Address):
            raise UnsupportedError
        base = operand.base
        value = self.read(base, canonical_bits(base) if isinstance(base, Register) else "u8")
        if is_given:
            offset = self.input(f"number({operand.offset & (1 << 64) - 1})", 64)
            value = self.w.binary("add", value, self.w.resized(offset, value.bits))
        elif operand.offset:
            value = self.w.binary("add", value, self.w.constant(value.bits, operand.offset))
        return self.w.resized(value, 64)

    def load(self, i: Instruction, operand: Operand, bits: int, count: int) -> list[Value]:
        """Load elements of each lane."""
        space = self._space(i)
        address = self.address(operand)
        axes, extra = self._place(space, address, "load", bits // 8 * count)
        w, kind = self.w, f"vector<{LANES}xi{bits}>"
        self.buffer = max(self.buffer, bits * count * LANES // 8)
        function = self._helper("load", "shared" if space == "shared" else "global", bits, count)
        lines = w.place(axes)
        wide = w.spread(address, axes | BY_THREAD)
        lines.append(f"llvm.call {function}(%state, {wide}, {extra}, %buffer) : !llvm.ptr, {LOAD_TYPE}")
        found = []
        for n in range(count):
            at, vector = w.fresh(), w.fresh()
            lines.append(f"{at} = llvm.getelementptr %buffer[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}")
            lines.append(f"{vector} = llvm.load {at} {{alignment = 8 : i64}} : !llvm.ptr -> {kind}")
            if axes & BY_THREAD:
                found.append(Value(vector, bits, axes))
            else:
                zero = w.spread(w.constant(64, 0), 0)
                found.append(w.new(axes, f"llvm.extractelement {vector}[{zero} : i64] : {kind}", bits))
        return found

    def store(self, i: Instruction, operand: Operand, values: list[Value], checks: bool) -> None:
        """Check a store of elements of each lane, or do it."""
        space = self._space(i)
        # Stores that differ in their offsets have one code.
        address = self.address(operand, is_given=True)
        w, bits, count = self.w, values[0].bits, len(values)
        if checks:
            axes, extra = self._place(space, address, "store", bits // 8 * count)
            function = self._helper("check_store", "shared" if space == "shared" else "global", bits, count)
            wide = w.spread(address, axes | BY_THREAD)
            w.place(axes).append(f"llvm.call {function}(%state, {wide}, {extra}, %state) : !llvm.ptr, {LOAD_TYPE}")
            return
        if space == "shared":
            address = w.binary("add", address, self.input(SLOT_STARTS, 64))
        self.buffer = max(self.buffer, bits * count * LANES // 8)
        kind = f"vector<{LANES}xi{bits}>"
        for n, value in enumerate(values):
            at = w.fresh()
            w.by_warp.append(f"{at} = llvm.getelementptr %buffer[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}")
            w.by_warp.append(f"llvm.store {w.spread(value, EVERY)}, {at} {{alignment = 8 : i64}} : {kind}, !llvm.ptr")
        function = self._helper("store", "", bits, count)
        w.by_warp.append(f"llvm.call {function}({w.spread(address, EVERY)}, %lanes, %buffer) : !llvm.ptr, {STORE_TYPE}")

    def _space(self, i: Instruction) -> str:
        space = space_of(i)
        if space not in ("global", "const", "shared", "generic"):
            raise UnsupportedError
        return space

    def _place(self, space: str, address: Value, operation: str, size: int) -> tuple[int, str]:
        """Return the axes of an access, and what its function takes: whether to count, or where the CTA's memory is."""
        axes = address.axes
        if space == "shared":
            start = self.input(SLOT_STARTS, 64)
            axes |= start.axes
            return axes, start.name
        if space == "const" or not axes & BY_THREAD:
            if space != "const":
                self.uniform.append((operation, size))
            return axes, self.w.constant(64, 0).name
        if axes & BY_CTA:
            return axes, self.w.constant(64, 1).name
        return axes, "%isfirst"  # by the first CTA for all

    def _helper(self, operation: str, space: str, bits: int, count: int) -> str:
        key = operation, space, bits, count
        if key not in self.helpers:
            self.helpers[key] = self.pointer(f"call {' '.join(map(str, key))}")
        return self.helpers[key]
