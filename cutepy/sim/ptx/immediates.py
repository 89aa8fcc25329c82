"""The numbers that instructions take where they are written out: ranges, and operands that must be numbers.

References
----------
PTX ISA, the operands of each instruction; what ptxas 13.0 takes of numbers in each place.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cutepy.layouts.sm100.arch import MIN_ALLOCATION_COLUMNS
from cutepy.sim.ptx.model import Immediate, Operand, Sink
from cutepy.sim.ptx.tokens import PtxSyntaxError

_POSITIVE = range(1, 1 << 63)
_POWERS = frozenset(1 << n for n in range(31))


@dataclass(frozen=True, slots=True)
class _Floats:
    """Range of floats: above a lower bound, up to and including an upper bound."""

    above: float
    most: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.above < value <= self.most


class Limit(NamedTuple):
    """A limit of one operand.

    Attributes
    ----------
    opcode : str
        A pattern that the opcodes match from their beginning.
    place : int
        Of the operand; a missing result counts.
    values : container of int, or of float
    said : str
        The values, for errors.
    is_constant : bool
        True if the operand must be a number, and may be no register.
    bits : int
        Of the number that ptxas looks at.
    """

    opcode: str
    place: int
    values: Container[float]
    said: str
    is_constant: bool = False
    bits: int = 64


_BARRIER = range(16), "a barrier from 0 to 15"
_THREADS = range(0, 1 << 32, 32), "a number of threads that is a multiple of 32"
_SOME_THREADS = range(32, 1 << 32, 32), "a number of threads that is a multiple of 32, and not 0"
_ALLOCATED = tuple(MIN_ALLOCATION_COLUMNS << n for n in range(5))
_COPIED = range(0, 1 << 20, 16), "a multiple of 16 bytes, less than 1048576"
_LINE = (128,), "128 bytes"
_SIGN = (-1, 1), "1 or -1"
_BIT = (0, 1), "0 or 1"
_WGMMA = r"wgmma\.mma_async\.sync"
_HALF = rf"{_WGMMA}\..*\b(bf|f)16\.(bf|f)16"
_SPARSE = r"wgmma\.mma_async\.sp\b"

_LIMITS = (
    *(Limit(r"bf[ei]\.", n, range(256), "a position and a length from 0 to 255") for n in (-1, -2)),
    Limit(r"(bar|barrier)(\.cta)?\.(sync|arrive)", 0, *_BARRIER, bits=32),
    Limit(r"(bar|barrier)(\.cta)?\.sync", 1, *_THREADS, bits=32),
    Limit(r"(bar|barrier)(\.cta)?\.arrive", 1, *_SOME_THREADS, bits=32),
    Limit(r"(bar|barrier)(\.cta)?\.red", 1, *_BARRIER, bits=32),
    Limit(r"(bar|barrier)(\.cta)?\.red", 2, *_THREADS, bits=32),
    Limit(r"mbarrier\.arrive(_drop)?(?!.*expect_tx)", 2, _POSITIVE, "a number of arrivals from 1 on"),
    Limit(r"mbarrier\.(try|test)_wait\.parity", 2, *_BIT),
    Limit(r"cp\.async\.ca\.", 2, (4, 8, 16), "4 or 8 or 16 bytes", True),
    Limit(r"cp\.async\.cg\.", 2, (16,), "16 bytes", True),
    Limit(r"cp\.async\.bulk\.prefetch\.L2", 1, *_COPIED),
    Limit(r"cp\.(reduce\.)?async\.bulk\.(?!tensor|prefetch|commit|wait)", 2, *_COPIED, bits=32),
    Limit(r"cp\.async\.(bulk\.)?wait_group", 0, range(1 << 32), "a number of groups", True, bits=32),
    Limit(r"wgmma\.wait_group", 0, range(1 << 63), "a number of groups from 0 on", True),
    Limit(_WGMMA, 3, *_BIT),
    *(Limit(_WGMMA, n, *_SIGN, is_constant=True) for n in (4, 5)),
    Limit(rf"{_HALF}", 6, *_BIT, is_constant=True),
    Limit(rf"{_HALF}", 7, *_BIT, is_constant=True),
    Limit(_SPARSE, 5, *_BIT),
    *(Limit(_SPARSE, n, *_SIGN, is_constant=True) for n in (6, 7)),
    *(Limit(rf"{_SPARSE}.*16\.b?f16", n, *_BIT, is_constant=True) for n in (8, 9)),
    Limit(r"setmaxnreg", 0, range(24, 257, 8), "a multiple of 8 from 24 to 256", True),
    Limit(r"tcgen05\.alloc", 1, _ALLOCATED, "a number of columns that is a power of two from 32 to 512", bits=32),
    Limit(r"tcgen05\.dealloc", 1, range(0, 1 << 32, 32), "a number of columns that is a multiple of 32", bits=32),
    Limit(r"st\.bulk", 1, range(0, (1 << 24) + 1, 8), "a multiple of 8 bytes up to 16777216"),
    Limit(r"st\.bulk", 2, (0,), "0", True),
    Limit(r"(applypriority|discard)\.", 1, *_LINE, is_constant=True),
    Limit(r"fence\.proxy\.tensormap.*\.acquire", 1, *_LINE, is_constant=True),
    Limit(r"tensormap\.cp_fenceproxy", 2, *_LINE, is_constant=True, bits=32),
    *(
        Limit(rf"tensormap\.replace\.tile\.{field}", 1, range(5), "a number from 0 to 4")
        for field in ("box_dim", "global_dim", "global_stride", "element_stride")
    ),
    *(
        Limit(rf"tensormap\.replace\.tile\.{field}", 1, range(most + 1), f"a number from 0 to {most}", True)
        for field, most in (
            *(("elemtype", 12), ("swizzle_mode", 3), ("swizzle_atomicity", 3), ("interleave_layout", 2)),
            ("fill_mode", 1),
        )
    ),
    Limit(r"pmevent\.mask", 0, range(1 << 16), "a number from 0 to 65535", True),
    Limit(r"pmevent(?!\.mask)", 0, range(16), "a number from 0 to 15", True),
    *(Limit(r"createpolicy\.range", n, range(1 << 32), "a number of bytes", bits=32) for n in (2, 3)),
    # The largest double that rounds to 0 in 32 bits, and the largest that rounds to 1.
    Limit(r"createpolicy\.fractional", 1, _Floats(2.0**-150, 1 + 2.0**-24), "a fraction above 0 and up to 1"),
    Limit(r"alloca\.", 2, _POWERS, "an alignment that is a power of two", True),
)
_NOT_SIMULATED = (
    (
        r"tensormap\.replace\.tile\.elemtype",
        1,
        range(13, 16),
        "13 to 15 are elements of 4 and 6 bits of sm_100 and later, and no public document says which other fields of "
        "a tensor map they change",
    ),
    (
        r"tensormap\.replace\.tile\.swizzle_mode",
        1,
        (4,),
        "4 is a swizzle of 96 bytes of sm_103a, whose code in a tensor map no public document tells",
    ),
)
"""Numbers that ptxas takes of an operand, by opcode and place, and why they are refused."""
_SELECTORS = (
    (r".*\.m16n8k64\..*\b(e4m3|e5m2|[su]8)\b", 0),
    (r".*\.m16n8k128\.", 0),
    (r".*\.m16n8k16\..*tf32", 1),
    (r".*\.m16n8k(32|64)\..*\b[su][48]\b", 1),
    (r"mma\.sp", 3),
    (r".*\.(tf32|b?f16)\.(tf32|b?f16)$", 1),
    (r"wgmma\.mma_async\.sp", 0),
)
"""The largest selector of the lanes that give the metadata of sparse products, by opcode: the first row that matches.
"""


@lru_cache(maxsize=4096)
def limits(opcode: str) -> tuple[Limit, ...]:
    """Return the limits of an opcode's operands.

    Examples
    --------
    >>> [(limit.place, limit.said) for limit in limits("bar.sync")]
    [(0, 'a barrier from 0 to 15'), (1, 'a number of threads that is a multiple of 32')]
    """
    found = [limit for limit in _LIMITS if re.match(limit.opcode, opcode)]
    for pattern, place, bits in ((r"mma\.sp", 5, 64), (_SPARSE, 4, 32)):
        if re.match(pattern, opcode):
            largest = next(largest for pattern, largest in _SELECTORS if re.match(pattern, opcode))
            said = f"a selector from 0 to {largest}" if largest else "a selector of 0"
            found.append(Limit(opcode, place, range(largest + 1), said, is_constant=True, bits=bits))
    return tuple(found)


def check_numbers(opcode: str, operands: tuple[Operand, ...]) -> None:
    """Refuse numbers that an instruction does not take or that are not simulated, and registers in place of numbers.

    Parameters
    ----------
    opcode : str
    operands : tuple of Operand
        All that the instruction may have: a missing result is a `Sink`.

    Raises
    ------
    PtxSyntaxError
    """
    for pattern, place, values, reason in _NOT_SIMULATED:
        operand = operands[place] if place < len(operands) else Sink()
        if isinstance(operand, Immediate) and operand.value in values and re.match(pattern, opcode):
            raise PtxSyntaxError(f"{opcode} of {operand.value} is not simulated: {reason}")
    for limit in limits(opcode):
        at = limit.place if limit.place >= 0 else len(operands) + limit.place
        operand = operands[at] if 0 <= at < len(operands) else Sink()
        if isinstance(operand, Immediate) and operand.float_bits and isinstance(limit.values, _Floats):
            if _double(operand) not in limit.values:
                raise PtxSyntaxError(f"{opcode} takes {limit.said}, got {_double(operand)}")
        elif isinstance(operand, Immediate) and operand.float_bits:
            raise PtxSyntaxError(f"{opcode} takes {limit.said}, got a float")
        elif isinstance(operand, Immediate):
            value = signed(operand.value) if limit.bits == 64 else operand.value % (1 << limit.bits)
            if value not in limit.values:
                raise PtxSyntaxError(f"{opcode} takes {limit.said}, got {operand.value}")
        elif limit.is_constant and not isinstance(operand, Sink):
            raise PtxSyntaxError(f"{opcode} takes {limit.said}, and no register there", _named(operand))
    numbers = [o.value if isinstance(o, Immediate) else None for o in operands]
    if opcode.startswith(("cp.async.ca", "cp.async.cg")) and len(numbers) > 3 and numbers[2] is not None:
        taken = numbers[3]
        has_taken = len(numbers) > 3 + ("L2::cache_hint" in opcode)
        if taken is not None and has_taken and not 0 <= taken <= numbers[2]:
            raise PtxSyntaxError(f"{opcode} reads at most the {numbers[2]} bytes that it writes, got {taken}")
    if opcode.startswith("createpolicy.range"):
        first, all_ = (None if number is None else number % (1 << 32) for number in numbers[2:4])
        if first is not None and all_ is not None and first > all_:
            raise PtxSyntaxError(f"{opcode} takes a first part of at most the whole, got {first} of {all_}")


def _double(operand: Immediate) -> float:
    """Return the value of a float of 32 or 64 bits."""
    size = operand.float_bits // 8
    return float(struct.unpack("<f" if size == 4 else "<d", operand.value.to_bytes(size, "little"))[0])


def signed(value: int) -> int:
    """Return an integer of 64 bits with its sign.

    Examples
    --------
    >>> signed(0xFFFF_FFFF_FFFF_FFFF), signed(5)
    (-1, 5)
    """
    value %= 1 << 64
    return value - (1 << 64) if value >> 63 else value


def _named(operand: Operand) -> str:
    return getattr(operand, "name", "")
