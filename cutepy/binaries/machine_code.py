"""Instructions of machine code with their control fields: stall cycles, scoreboards, and the line of PTX.

Since Volta an instruction has 128 bits. Bits 105 to 121 are for the scheduler: the cycles until the warp may issue its
next instruction, the scoreboards that the instruction releases when its result is written or its operands are read, and
the scoreboards that it waits for. An instruction of fixed latency needs no scoreboard: the assembler counts the cycles.

References
----------
Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv 1804.06826, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutepy.binaries.sass import list_kernel, print_code

SCOREBOARDS = 6
_NONE = 7


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One instruction of machine code.

    Attributes
    ----------
    opcode, operands : str
        As the disassembler prints them.
    line : int or None
        Line of the PTX that it was made of.
    is_guarded : bool
    target : int or None
        Of a branch, the number of the instruction that it goes to.
    stall : int
        Cycles until the warp may issue its next instruction.
    yields : bool
    sets, releases : int or None
        Scoreboard that is clear once the result is written, and the one that is once the operands are read.
    waits : tuple of int
        Scoreboards that must be clear before it issues.
    """

    opcode: str
    operands: str
    line: int | None
    is_guarded: bool
    target: int | None
    stall: int
    yields: bool
    sets: int | None
    releases: int | None
    waits: tuple[int, ...]

    @property
    def verb(self) -> str:
        """First part of the opcode."""
        return self.opcode.partition(".")[0]


def control(high: int) -> tuple[int, bool, int | None, int | None, tuple[int, ...]]:
    """Decode the control field: the upper 64 bits -> stall, yields, sets, releases, waits.

    Examples
    --------
    >>> control(0x000E6E0000002100)  # S2R: its result is waited for by scoreboard 1
    (7, False, 1, None, ())
    """
    bits = high >> 41
    sets, releases = bits >> 5 & 7, bits >> 8 & 7
    waits = tuple(n for n in range(SCOREBOARDS) if bits >> 11 & 1 << n)
    return (
        bits & 15,
        not bits >> 4 & 1,
        None if sets == _NONE else sets,
        None if releases == _NONE else releases,
        waits,
    )


def read_code(cubin: bytes, kernel: str, cuda_home: Path | None = None) -> tuple[MachineInstruction, ...]:
    """Read the instructions of a kernel, in the order of its code.

    Parameters
    ----------
    cubin : bytes
        Assembled with ``-lineinfo``, for the lines of PTX.
    kernel : str
        The mangled name.
    cuda_home : Path, optional
        A CUDA toolkit to look for the disassembler in.

    Raises
    ------
    DisassemblyError
        If there is no disassembler, or it can't read the cubin.
    """
    text = print_code(cubin, "--print-line-info-ptx", cuda_home, encodings=True)
    rows, labels, high_words = list_kernel(text, kernel)
    return tuple(
        MachineInstruction(row.opcode, row.operands, row.line, row.is_guarded, labels.get(row.label), *control(high))
        for row, high in zip(rows, high_words, strict=True)
    )
