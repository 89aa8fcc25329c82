"""What a wgmma instruction says: extents, types, majors, signs.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions: wgmma.mma_async".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutepy.layouts.sm90.arch import DTYPE_BITS
from cutepy.sim.errors import UnknownInstructionError
from cutepy.sim.ptx.model import Immediate, Instruction, Register
from cutepy.sim.translate.effects import accumulators

M = 64
Major = Literal["MN", "K"]


@dataclass(frozen=True)
class Shape:
    """What one wgmma instruction says.

    Attributes
    ----------
    n, k : int
    d, a, b : str
        Element types by PTX's names.
    a_major, b_major : "MN" or "K"
    sign : int
        1 or -1: the product of both negations.
    from_registers : bool
        Whether A comes from registers.
    saturate : bool
    registers : int
        Number of the accumulators' register tuple.
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

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * M * self.n * self.k

    @property
    def smem_bytes(self) -> int:
        """Bytes of the operands that come from shared memory."""
        a_bits = 0 if self.from_registers else M * self.k * DTYPE_BITS[self.a]
        return (a_bits + self.n * self.k * DTYPE_BITS[self.b]) // 8


def parse_shape(i: Instruction, number: int = 0) -> Shape:
    """Read what a wgmma instruction says.

    Parameters
    ----------
    i : Instruction
    number : int
        Of its accumulators' register tuple.

    Raises
    ------
    UnknownInstructionError
        If it is of a form that is not simulated.
    """
    parts = i.parts
    size = next(p for p in parts if p.startswith("m64n"))
    n, k = (int(x) for x in size.removeprefix("m64n").split("k"))
    d, a, b = parts[-3:]
    if d not in ("f16", "f32", "s32") or a not in DTYPE_BITS or b not in DTYPE_BITS:
        raise UnknownInstructionError(i)
    from_registers = not isinstance(i.operands[1], Register)
    immediates = [op.value for op in i.operands[4:] if isinstance(op, Immediate)]
    integer = d == "s32"
    sign = 1 if integer else immediates[0] * immediates[1]
    transposes = [] if integer else immediates[2:]
    if from_registers:
        transposes = [0, *transposes]
    majors: list[Major] = ["MN" if t else "K" for t in [*transposes, 0, 0][:2]]
    if len(accumulators(i)) != n // (4 if d == "f16" else 2):
        raise UnknownInstructionError(i, f"{len(accumulators(i))} accumulators for n = {n}")
    return Shape(n, k, d, a, b, majors[0], majors[1], sign, from_registers, "satfinite" in parts, number)
