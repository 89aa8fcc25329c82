"""Shapes of wgmma instructions: extents, types, majors, signs.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions: wgmma.mma_async", "Asynchronous
Warpgroup Level Multiply-and-Accumulate Operation using wgmma.mma_async.sp instruction".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cutepy.layouts.sm90.arch import DTYPE_BITS
from cutepy.sim.ptx.immediates import signed
from cutepy.sim.ptx.model import Immediate, Instruction, Register

M = 64
Major = Literal["MN", "K"]
BITS = DTYPE_BITS | {"b1": 1}
"""Width of the operands' elements, by PTX's names."""


class SharedTile(NamedTuple):
    """An operand as it lies in shared memory; single bits are taken as bytes.

    Attributes
    ----------
    major : "MN" or "K"
    extent : int
        Of M or N.
    k : int
    bits : int
        Width of an element.
    """

    major: Major
    extent: int
    k: int
    bits: int


@dataclass(frozen=True)
class Shape:
    """Shape of one wgmma instruction.

    Attributes
    ----------
    n, k : int
    d, a, b : str
        Element types by PTX's names.
    a_major, b_major : "MN" or "K"
    sign : int
        1 or -1: the product of both negations.
    from_registers : bool
        True if A comes from registers.
    saturate : bool
    registers : int
        Number of the accumulators' register tuple.
    selector : int or None
        Of a sparse A, which lanes give the metadata.
    """

    n: int
    k: int
    d: str
    a: str
    b: str
    a_major: Major
    b_major: Major
    sign: int
    from_registers: bool
    saturate: bool
    registers: int
    selector: int | None = None

    @property
    def is_sparse(self) -> bool:
        """True if half of A is zero, and the other half given."""
        return self.selector is not None

    @property
    def a_k(self) -> int:
        """Elements that are given of each row of A."""
        return self.k // 2 if self.is_sparse else self.k

    @property
    def a_tile(self) -> SharedTile:
        """A as it lies in shared memory, if it does."""
        return _shared_tile(self.a_major, M, self.a_k, BITS[self.a])

    @property
    def b_tile(self) -> SharedTile:
        """B as it lies in shared memory."""
        return _shared_tile(self.b_major, self.n, self.k, BITS[self.b])

    @property
    def flops(self) -> int:
        """Multiplications and additions; with a sparse A also those that zeros spare, as its peak rate counts them."""
        return 2 * M * self.n * self.k

    @property
    def smem_bytes(self) -> int:
        """Bytes of the operands that come from shared memory."""
        a_bits = 0 if self.from_registers else M * self.a_k * BITS[self.a]
        return (a_bits + self.n * self.k * BITS[self.b]) // 8


def _shared_tile(major: Major, extent: int, k: int, bits: int) -> SharedTile:
    return SharedTile(major, extent, k * bits // max(bits, 8), max(bits, 8))


def parse_shape(i: Instruction, number: int = 0) -> Shape:
    """Read the shape of a wgmma instruction.

    Parameters
    ----------
    i : Instruction
    number : int
        Of its accumulators' register tuple.
    """
    parts = i.parts
    size = next(p for p in parts if p.startswith("m64n"))
    n, k = (int(x) for x in size.removeprefix("m64n").split("k"))
    sparse = "sp" in parts
    d, a, b = [p for p in parts if p in BITS][-3:]
    selector = next(op.value % (1 << 32) for op in i.operands[4:5] if isinstance(op, Immediate)) if sparse else None
    from_registers = not isinstance(i.operands[1], Register)
    immediates = [signed(op.value) for op in i.operands[6 if sparse else 4 :] if isinstance(op, Immediate)]
    integer = d == "s32"
    sign = 1 if integer else immediates[0] * immediates[1]
    transposes = [] if integer else immediates[2:]
    if from_registers:
        transposes = [0, *transposes]
    majors: list[Major] = ["MN" if t else "K" for t in [*transposes, 0, 0][:2]]
    saturates = "satfinite" in parts
    return Shape(n, k, d, a, b, majors[0], majors[1], sign, from_registers, saturates, number, selector)
