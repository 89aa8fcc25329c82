"""Write operations in MLIR's dialect of LLVM, on the 32 lanes of a warp at once.

A value is uniform, differs by CTA, or differs by lane, just as the arrays over (CTAs, threads) that it stands for have
extent 1 along an axis or not. What does not differ by lane is a scalar.
"""

from __future__ import annotations

from typing import NamedTuple

LANES = 32
BY_CTA, BY_THREAD = 1, 2
"""Bits of the axes along which a value differs."""


class Value(NamedTuple):
    """Bits of some width.

    Attributes
    ----------
    name : str
        In the source.
    bits : int
        1 for a predicate.
    axes : int
        Along which it differs: BY_CTA, BY_THREAD.
    number : int or None
        Value of a constant.
    """

    name: str
    bits: int
    axes: int
    number: int | None = None


class Writer:
    """The source of one function, as it is written.

    Attributes
    ----------
    once, by_cta, by_warp : list of str
        Code of the start, of each CTA, and of each warp of each CTA.
    lines : list of str
        Code at the current place of the function.
    """

    def __init__(self) -> None:
        self.once: list[str] = []
        self.by_cta: list[str] = []
        self.by_warp: list[str] = []
        self.lines: list[str] = []
        self._count = 0
        self._constants: dict[tuple[int, int, bool], str] = {}
        self._floats: dict[str, str] = {}
        self._wide: dict[str, str] = {}

    def fresh(self) -> str:
        """Return a new name."""
        self._count += 1
        return f"%v{self._count}"

    def label(self) -> str:
        """Return a new label."""
        self._count += 1
        return f"^b{self._count}"

    def begin(self, label: str) -> None:
        """Begin a block that other blocks than the last may lead to: their values are unknown here."""
        self.lines.append(f"{label}:")
        self._floats.clear()
        self._wide.clear()

    def emit(self, expression: str) -> str:
        """Name the value of an expression."""
        name = self.fresh()
        self.lines.append(f"{name} = {expression}")
        return name

    def new(self, axes: int, expression: str, bits: int) -> Value:
        """Assign an expression to a new name."""
        return Value(self.emit(expression), bits, axes)

    @staticmethod
    def type(bits: int, axes: int, letter: str = "i") -> str:
        """Return the type of values."""
        return f"vector<{LANES}x{letter}{bits}>" if axes & BY_THREAD else f"{letter}{bits}"

    def constant(self, bits: int, number: int) -> Value:
        """Return a constant."""
        number &= (1 << bits) - 1
        return Value(self._constant(bits, number, False), bits, 0, number)

    def _constant(self, bits: int, number: int, vector: bool) -> str:
        key = bits, number, vector
        if key not in self._constants:
            name = self._constants[key] = self.fresh()
            text = ("true" if number else "false") if bits == 1 else str(number)
            if vector:
                kind = f"vector<{LANES}xi{bits}>"
                self.once.append(f"{name} = llvm.mlir.constant(dense<{text}> : {kind}) : {kind}")
            else:
                text = text if bits == 1 else f"{text} : i{bits}"
                self.once.append(f"{name} = llvm.mlir.constant({text}) : i{bits}")
        return self._constants[key]

    def spread(self, value: Value, axes: int) -> str:
        """Broadcast a value along axes, and return the name of the result."""
        if not axes & BY_THREAD or value.axes & BY_THREAD:
            return value.name
        if value.number is not None:
            return self._constant(value.bits, value.number, True)
        if value.name not in self._wide:
            kind = self.type(value.bits, BY_THREAD)
            zero, some = self._constant(64, 0, False), self._constant(value.bits, 0, True)
            one = self.emit(f"llvm.insertelement {value.name}, {some}[{zero} : i64] : {kind}")
            self._wide[value.name] = self.emit(f"llvm.shufflevector {one}, {one} [{', '.join(['0'] * LANES)}] : {kind}")
        return self._wide[value.name]

    # Operations on integers.

    def binary(self, operation: str, a: Value, b: Value) -> Value:
        """Compute add, sub, mul, and, or, xor, shl, lshr, ashr, udiv, ..."""
        axes = a.axes | b.axes
        x, y = self.spread(a, axes), self.spread(b, axes)
        return self.new(axes, f"llvm.{operation} {x}, {y} : {self.type(a.bits, axes)}", a.bits)

    def compare(self, relation: str, a: Value, b: Value) -> Value:
        """Compare integers: eq, ne, slt, ult, ..."""
        axes = a.axes | b.axes
        x, y = self.spread(a, axes), self.spread(b, axes)
        return self.new(axes, f'llvm.icmp "{relation}" {x}, {y} : {self.type(a.bits, axes)}', 1)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Take `a` where the condition holds."""
        axes = condition.axes | a.axes | b.axes
        c, x, y = (self.spread(v, axes) for v in (condition, a, b))
        return self.new(axes, f"llvm.select {c}, {x}, {y} : {self.type(1, axes)}, {self.type(a.bits, axes)}", a.bits)

    def resized(self, value: Value, bits: int, signed: bool = False) -> Value:
        """Extend, or cut off."""
        if bits == value.bits:
            return value
        if value.number is not None and not (signed and bits > value.bits):
            return self.constant(bits, value.number)
        operation = "trunc" if bits < value.bits else "sext" if signed else "zext"
        types = f"{self.type(value.bits, value.axes)} to {self.type(bits, value.axes)}"
        return self.new(value.axes, f"llvm.{operation} {value.name} : {types}", bits)

    def intrinsic(self, operation: str, *values: Value, more: str = "") -> Value:
        """Call an intrinsic of LLVM on integers."""
        axes = 0
        for value in values:
            axes |= value.axes
        names = ", ".join(self.spread(v, axes) for v in values)
        kind = self.type(values[0].bits, axes)
        types = ", ".join(kind for _ in values)
        return self.new(axes, f'"llvm.intr.{operation}"({names}) {more}: ({types}) -> {kind}', values[0].bits)

    # Operations on floats.

    def _float(self, value: Value, axes: int) -> str:
        name = self.spread(value, axes)
        if name not in self._floats:
            types = f"{self.type(value.bits, axes)} to {self.type(value.bits, axes, 'f')}"
            self._floats[name] = self.emit(f"llvm.bitcast {name} : {types}")
        return self._floats[name]

    def _bits(self, axes: int, expression: str, bits: int) -> Value:
        types = f"{self.type(bits, axes, 'f')} to {self.type(bits, axes)}"
        name = self.emit(expression)
        result = self.emit(f"llvm.bitcast {name} : {types}")
        self._floats[result] = name
        return Value(result, bits, axes)

    def floats(self, operation: str, *values: Value) -> Value:
        """Compute fadd, fsub, fmul, fdiv, or an intrinsic such as intr.fma, on floats of the values' width."""
        axes, bits = 0, values[0].bits
        for value in values:
            axes |= value.axes
        names = [self._float(v, axes) for v in values]
        kind = self.type(bits, axes, "f")
        if operation.startswith("intr."):
            types = ", ".join(kind for _ in values)
            return self._bits(axes, f'"llvm.{operation}"({", ".join(names)}) : ({types}) -> {kind}', bits)
        return self._bits(axes, f"llvm.{operation} {', '.join(names)} : {kind}", bits)

    def compare_floats(self, relation: str, a: Value, b: Value) -> Value:
        """Compare floats: oeq, olt, ..., une, uno."""
        axes = a.axes | b.axes
        x, y = self._float(a, axes), self._float(b, axes)
        return self.new(axes, f'llvm.fcmp "{relation}" {x}, {y} : {self.type(a.bits, axes, "f")}', 1)

    def float_cast(self, operation: str, value: Value, bits: int) -> Value:
        """Convert with fpext or fptrunc."""
        types = f"{self.type(value.bits, value.axes, 'f')} to {self.type(bits, value.axes, 'f')}"
        return self._bits(value.axes, f"llvm.{operation} {self._float(value, value.axes)} : {types}", bits)

    def from_integer(self, value: Value, bits: int, signed: bool) -> Value:
        """Convert an integer to a float, to nearest even."""
        types = f"{self.type(value.bits, value.axes)} to {self.type(bits, value.axes, 'f')}"
        return self._bits(value.axes, f"llvm.{'s' if signed else 'u'}itofp {value.name} : {types}", bits)

    def to_integer(self, value: Value, bits: int, signed: bool) -> Value:
        """Convert an integral float, which the integer type must hold."""
        types = f"{self.type(value.bits, value.axes, 'f')} to {self.type(bits, value.axes)}"
        operation = "fptosi" if signed else "fptoui"
        return self.new(value.axes, f"llvm.{operation} {self._float(value, value.axes)} : {types}", bits)
