"""Model of a PTX module: functions, parameters, registers, instructions and their operands.

References
----------
PTX ISA, "Syntax", "State Spaces, Types, and Variables", "Instruction Operands".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cutepy.sim.ptx.instruction_set import Traits, short_name, traits

_WIDTHS = {"pred": 1, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "f32x2": 64}
_WIDTHS |= {"e2m1x4": 16, "e2m3x4": 32, "e3m2x4": 32}


@lru_cache(maxsize=1 << 10)
def type_bits(name: str) -> int:
    """Return the width of a PTX type, such as 32 for "f32"; 1 for "pred".

    Examples
    --------
    >>> type_bits("bf16x2"), type_bits("u8"), type_bits("pred")
    (32, 8, 1)
    """
    if name in _WIDTHS:
        return _WIDTHS[name]
    packed, _, count = name.partition("x")
    digits = "".join(
        c for c in packed.removeprefix("b").removeprefix("f").removeprefix("u").removeprefix("s") if c.isdigit()
    )
    if packed in ("e4m3", "e5m2"):
        digits = "8"
    if packed == "tf32":
        digits = "32"
    return int(digits) * (int(count) if count else 1)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of Python: where an instruction came from.

    Attributes
    ----------
    file : str
    line : int
    caller : SourceLine or None
        The line that called the function which this line is in, where that was inlined.
    """

    file: str
    line: int
    caller: SourceLine | None = None

    def chain(self) -> Iterator[SourceLine]:
        """Yield the line and its callers, innermost first."""
        line: SourceLine | None = self
        while line is not None:
            yield line
            line = line.caller

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register; `index` numbers the registers of its function, `type` is as declared ("pred", "b32")."""

    name: str
    type: str
    index: int

    @property
    def bits(self) -> int:
        """Width: 1 for a predicate."""
        return type_bits(self.type)


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an int, or for a float its bit pattern with `float_bits` 32 or 64."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a variable, parameter, function or kernel, standing for its address, plus an offset in bytes."""

    name: str
    offset: int = 0
    is_kernel: bool = False


@dataclass(frozen=True, slots=True)
class FrameSlot:
    """The address of a variable in a function's frame of local memory; `base` holds the frame's start, None for 0."""

    base: Register | None
    offset: int


@dataclass(frozen=True, slots=True)
class Label:
    """The target of a branch: the index of the instruction it stands before."""

    name: str
    target: int


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``, or ``[base, {coordinates}]`` for a tensor."""

    base: Register | Symbol | Immediate | FrameSlot
    offset: int = 0
    coordinates: tuple[Operand, ...] | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``, or a register or number of 128 bits (`is_wide`): its words of 64 bits, the lower one first."""

    items: tuple[Operand, ...]
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a destination that is not wanted."""


@dataclass(frozen=True, slots=True)
class NegatedPredicate:
    """``!p``: a negated predicate operand."""

    operand: Register


Operand = (
    Register | Immediate | Special | Symbol | FrameSlot | Label | Address | Vector | Pair | Sink | NegatedPredicate
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    index : int
        Position in its function.
    opcode : str
        The full spelling, such as "add.s32".
    operands : tuple
        As written.
    predicate : (Register, bool) or None
        The guard, and whether it is negated.
    text : str
        The instruction as written.
    source : SourceLine or None
        Line of Python that it came from.
    line, column : int
        Its first character in the PTX, from 1.
    file : str
        That the PTX was read from; empty if it wasn't.
    derived : dict
        Results of analyses of the instruction alone, by their names, which are computed once.
    """

    index: int
    opcode: str
    operands: tuple[Operand, ...]
    predicate: tuple[Register, bool] | None = None
    text: str = field(default="", compare=False)
    source: SourceLine | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    file: str = field(default="", compare=False)
    derived: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode, split at its dots."""
        return _parts(self.opcode)

    @property
    def name(self) -> str:
        """The opcode without types, state spaces and other modifiers, such as "mbarrier.arrive"."""
        return short_name(self.opcode)

    @property
    def traits(self) -> Traits:
        """The class, effects and operands of the opcode, by the instruction set."""
        return traits(self.opcode)


@lru_cache(maxsize=1 << 12)
def _parts(opcode: str) -> tuple[str, ...]:
    return tuple(opcode.split("."))


def registers_in(operand: Operand | None) -> Iterator[Register]:
    """Yield each register that an operand mentions."""
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from registers_in(item)
    elif isinstance(operand, Address):
        yield from registers_in(operand.base)
        for item in operand.coordinates or ():
            yield from registers_in(item)
    elif isinstance(operand, Pair):
        yield from registers_in(operand.first)
        yield from registers_in(operand.second)
    elif isinstance(operand, NegatedPredicate):
        yield operand.operand
    elif isinstance(operand, FrameSlot) and operand.base is not None:
        yield operand.base


@dataclass(frozen=True, slots=True)
class UnreadStatement:
    """A part of a module that the parser does not know.

    Attributes
    ----------
    line : int
        Line of the PTX where it begins, from 1.
    text : str
        Beginning of its text.
    reason : str
    """

    line: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: `size_bytes` bytes at a multiple of `alignment`; `type` is that of it or of its elements.

    Those of functions that are called may be registers (`is_register`); `is_array` tells ``a[1]`` from ``a``.
    """

    name: str
    size_bytes: int
    alignment: int
    type: str = field(default="b8", repr=False)
    is_register: bool = field(default=False, repr=False)
    is_array: bool = field(default=False, repr=False, compare=False)

    @property
    def element_bytes(self) -> int:
        """Bytes of its type."""
        return max(type_bits(self.type), 8) // 8


@dataclass(frozen=True, slots=True)
class Reference:
    """The address of a variable as a value.

    Attributes
    ----------
    name : str
        The variable.
    addend : int
    mask : int
        Bits of the address, shifted down to bit 0; 0 for all.
    position, size_bytes : int
        Bytes of the value in the variable that it initialises.
    is_plain : bool
        True if it is the name alone, which may be that of a function.
    """

    name: str
    addend: int = 0
    mask: int = 0
    position: int = 0
    size_bytes: int = 8
    is_plain: bool = field(default=True, repr=False, compare=False)

    def encode(self, address: int) -> bytes:
        """Return the bytes of the value, of a variable that is at an address.

        Examples
        --------
        >>> Reference("x", 4, 0xFF00, size_bytes=1).encode(0x1234).hex()
        '12'
        """
        value = address + self.addend
        if self.mask:
            value = (value & self.mask) // (self.mask & -self.mask)
        return (value % (1 << 8 * self.size_bytes)).to_bytes(self.size_bytes, "little")


@dataclass(frozen=True, slots=True)
class Variable:
    """A module-scope or function-scope variable.

    Attributes
    ----------
    name : str
        Of one of a function's blocks, with a suffix where another block has the name too.
    space : str
        "global", "const", "shared", "local" or "param"; "texref" and the like for what has no bytes.
    size_bytes : int or None
        None for an extern array, the dynamic shared memory.
    alignment : int
    initial : bytes or None
        Initial bytes; the rest is zero.
    references : tuple of Reference
        Initial values that are addresses of variables.
    is_extern : bool
        True if another module defines it.
    element_bytes : int
        Of what an index counts: `a[2]`.
    type : str
        Of it, or of its elements.
    is_array : bool
    """

    name: str
    space: str
    size_bytes: int | None
    alignment: int
    initial: bytes | None = None
    references: tuple[Reference, ...] = ()
    is_extern: bool = False
    element_bytes: int = 1
    type: str = field(default="b8", repr=False, compare=False)
    is_array: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True)
class Function:
    """A function: an entry, which gives no results, or one that is called.

    Attributes
    ----------
    callees : dict of str to int
        Of an entry with the functions that it calls: the index of each one's first instruction, by each name.
    at : int
        Offset of .entry or .func in the text of the module.
    """

    name: str
    parameters: tuple[Parameter, ...]
    registers: tuple[Register, ...] = field(repr=False)
    instructions: tuple[Instruction, ...] = field(repr=False)
    variables: tuple[Variable, ...] = ()
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    results: tuple[Parameter, ...] = ()
    callees: dict[str, int] = field(default_factory=dict)
    at: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True)
class Module:
    """A PTX module.

    Attributes
    ----------
    target : str
    functions : dict of str to Function
        The entries.
    variables : tuple of Variable
    called : dict of str to Function
        Functions that are not entries, by their names and aliases.
    declared : tuple of str
        The names of all functions that are no entries, with those that another module defines.
    version : tuple of (int, int) or None
        Version of the PTX ISA; None if the text names none.
    target_at, version_end : int
        Position of .target in the text, and of the end of its .version.
    """

    target: str
    functions: dict[str, Function]
    variables: tuple[Variable, ...]
    called: dict[str, Function] = field(default_factory=dict)
    declared: tuple[str, ...] = ()
    version: tuple[int, int] | None = None
    target_at: int = field(default=0, repr=False, compare=False)
    version_end: int = field(default=0, repr=False, compare=False)
