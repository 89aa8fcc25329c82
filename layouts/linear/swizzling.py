"""Optimal swizzle: a layout of shared memory in which given reads and writes take the fewest wavefronts.

Shared memory's offset has three parts, lowest first: the *unit* that a bank or a vector's banks serve at once, the
bank, and the *segment*: which row of all banks. Lanes of one pass conflict if they differ, up to a unit, by a vector of
the segment's span. So an access is free of conflicts if and only if that span meets the span of what a pass touches
only in 0.

A pass touches at most a row of all banks. Two subspaces of at most that dimension always have a common complement, also
over F2: for one writing and one reading layout there is always a memory layout without conflicts. For more accesses the
segments are searched; where all could be tried, none is better beside the same neighbours.

References
----------
arXiv 2505.23819, section on optimal swizzling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal, NamedTuple

from ..banks import BankReport, WarpAccess, bank_conflicts
from ..banks.rule import passes
from ..errors import LayoutError
from ..hardware import SMEM_BANK_BYTES, SMEM_BANKS, UNIT_BITS
from . import f2
from .bits import unpack
from .layout import LinearLayout

_BANK_BITS = SMEM_BANK_BYTES * 8
_LINE_BITS = SMEM_BANKS * _BANK_BITS
_TRIES = 20_000
"""Largest number of sets of segments to try."""


@dataclass(frozen=True)
class Use:
    """Access of warps to a tile: a register layout, and the number of neighbours in one instruction.

    Parameters
    ----------
    kind : "ld" or "st"
    layout : LinearLayout
        (register, lane, ...) -> coordinates in the tile.
    vector : int, optional
        Elements of a lane in one instruction, a power of two. Default: as many as all uses can have.
    """

    kind: Literal["ld", "st"]
    layout: LinearLayout
    vector: int | None = None


@dataclass(frozen=True)
class OptimalSwizzle:
    """Layout of shared memory for given uses, with their bank report.

    Parameters
    ----------
    layout : LinearLayout
        offset -> coordinates in the tile: which element stands where. Its inverse, `memory`, says where each stands.
    uses : tuple of Use
        With the vectors that are used.
    report : BankReport
        One instruction of each use; the other instructions of a use take as many wavefronts: they touch the same
        places, all moved by one exclusive or, which permutes the banks.
    proof : str
        Why no layout takes fewer wavefronts: "conflict-free"; or "exhaustive search" among all layouts with the same
        neighbours in a vector and a word; "" where neither is proven.
    """

    layout: LinearLayout
    uses: tuple[Use, ...]
    report: BankReport
    proof: Literal["conflict-free", "exhaustive search", ""]

    @property
    def memory(self) -> LinearLayout:
        """Coordinates in the tile -> offset in elements."""
        return self.layout.invert()

    @property
    def instructions(self) -> tuple[int, ...]:
        """Number of instructions of each warp for each use."""
        return tuple(use.layout.in_dims["register"] // (use.vector or 1) for use in self.uses)

    @property
    def wavefronts(self) -> tuple[int, ...]:
        """Number of wavefronts of each warp for each use, over all its instructions."""
        each = (report.wavefronts for report in self.report.accesses)
        return tuple(count * one for count, one in zip(self.instructions, each, strict=True))


def optimal_swizzle(uses: Sequence[Use], bits: int) -> OptimalSwizzle:
    """Return a layout of shared memory in which uses of a tile take the fewest wavefronts.

    Parameters
    ----------
    uses : sequence of Use
        All writes and reads, of layouts with the same out-dimensions.
    bits : int
        Width of an element: 8, 16, 32 or 64.

    Raises
    ------
    LayoutError
        If the out-dimensions differ, a layout does not cover the tile, or a vector is wanted that is wider than 16
        bytes or whose elements are not in one thread's registers wherever they would be neighbours.

    Examples
    --------
    A tile of 32 by 32 floats is written by rows and read by columns:

    >>> bits = (1, 2, 4, 8, 16)
    >>> rows = LinearLayout({"register": [[i, 0] for i in bits], "lane": [[0, i] for i in bits]}, ["dim0", "dim1"])
    >>> columns = rows.transpose_ins(["lane", "register"]).reshape_ins({"register": 32, "lane": 32})
    >>> best = optimal_swizzle([Use("st", rows), Use("ld", columns)], 32)
    >>> [report.wavefronts for report in best.report.accesses], best.proof
    ([1, 1], 'conflict-free')
    >>> from cutepy.layouts.linear import to_layout
    >>> print(to_layout(best.memory))
    Sw<5,0,5> o 0 o (32,32):(1,32)
    """
    uses = tuple(uses)
    _check(uses, bits)
    outs = uses[0].layout.out_dims
    dimension = sum(size.bit_length() - 1 for size in outs.values())
    flat = [use.layout.transpose_outs(outs) for use in uses]
    line = min(dimension, (_LINE_BITS // bits).bit_length() - 1)
    uses, low = _vectors(uses, flat, bits)
    low = _fill_words(low, flat, bits, dimension)
    demands = [_demand(use, layout, low, bits) for use, layout in zip(uses, flat, strict=True)]
    segments, exhaustive = _segments(demands, low, dimension, max(0, dimension - line))
    banks = f2.complement([*low, *segments], dimension)
    layout = LinearLayout.of_columns([*low, *banks, *segments], {"offset": 1 << dimension}, outs)
    memory = layout.invert()
    accesses = [_access(use, one, low, memory) for use, one in zip(uses, flat, strict=True)]
    report = bank_conflicts(accesses, memory, bits)
    proof: Literal["conflict-free", "exhaustive search", ""] = "exhaustive search" if exhaustive else ""
    return OptimalSwizzle(layout, uses, report, "conflict-free" if report.conflict_free else proof)


def _check(uses: tuple[Use, ...], bits: int) -> None:
    if not uses:
        raise LayoutError("optimal_swizzle", (uses, bits), "need at least one use, got none")
    if bits not in (8, 16, 32, 64):
        raise LayoutError("optimal_swizzle", (bits,), f"bits must be 8, 16, 32 or 64, got {bits}")
    for use in uses:
        if use.kind not in ("ld", "st"):
            raise LayoutError("optimal_swizzle", (use.kind,), f"a use must be ld or st, got {use.kind!r}")
        if use.layout.out_dims != uses[0].layout.out_dims:
            condition = f"layouts must have one tile, got {uses[0].layout.out_dims} and {use.layout.out_dims}"
            raise LayoutError("optimal_swizzle", (bits,), condition)
        if not {"register", "lane"} <= set(use.layout.in_dims) or use.layout.in_dims["lane"] > 32:
            condition = f"need in-dimensions register and lane, at most 32 of these, got {use.layout.in_dims}"
            raise LayoutError("optimal_swizzle", (bits,), condition)
        if not use.layout.is_surjective:
            raise LayoutError("optimal_swizzle", (use.layout,), "a layout must cover the whole tile")


def _vectors(uses: tuple[Use, ...], flat: Sequence[LinearLayout], bits: int) -> tuple[tuple[Use, ...], list[int]]:
    """Choose the elements that are neighbours in memory: the lowest bits of the offset, for the widest vector."""
    registers = [f2.independent(layout.columns_of("register")) for layout in flat]
    widest = (UNIT_BITS // bits).bit_length() - 1
    common = registers[0]
    for other in registers[1:]:
        common = f2.intersection(common, other)
    default = min(len(common), widest)
    widths = []
    for use in uses:
        vector = 1 << default if use.vector is None else use.vector
        if vector.__class__ is not int or vector < 1 or vector & (vector - 1) or vector.bit_length() - 1 > widest:
            condition = f"vector must be a power of two of at most {1 << widest} elements of {bits} bits, got {vector}"
            raise LayoutError("optimal_swizzle", (vector, bits), condition)
        widths.append(vector.bit_length() - 1)
    low: list[int] = []
    for level in sorted(set(widths)):
        span: list[int] | None = None
        for own, width in zip(registers, widths, strict=True):
            if width >= level:
                span = own if span is None else f2.intersection(span, own)
        more = f2.complement(low, 0, span or ())
        if len(more) < level - len(low):
            condition = f"vectors of {1 << level} elements need neighbours that every such use has in one thread's"
            reached = 1 << (len(low) + len(more))
            raise LayoutError("optimal_swizzle", (bits,), f"{condition} registers, got {reached}", "ask for fewer")
        low += more[: level - len(low)]
    return tuple(Use(use.kind, use.layout, 1 << width) for use, width in zip(uses, widths, strict=True)), low


def _fill_words(low: list[int], flat: Sequence[LinearLayout], bits: int, dimension: int) -> list[int]:
    """Complete the lowest bits to a word of a bank: neighbouring lanes' elements first."""
    width = (_BANK_BITS // bits).bit_length() - 1
    lanes = [column for layout in flat for column in layout.columns_of("lane")]
    return [*low, *f2.complement(low, dimension, lanes)[: max(0, width - len(low))]]


def _access(use: Use, flat: LinearLayout, low: list[int], memory: LinearLayout) -> WarpAccess:
    """Return the first instruction of warp 0: each lane's elements in the order of memory."""
    together = f2.span_of(low[: (use.vector or 1).bit_length() - 1])
    widths = [size.bit_length() - 1 for size in flat.out_dims.values()]
    lanes = []
    for lane in range(flat.in_dims["lane"]):
        first = f2.times(flat.columns_of("lane"), lane)
        inside = sorted((first ^ step for step in together), key=memory)
        lanes.append(tuple(unpack(index, widths) for index in inside))
    return WarpAccess(use.kind, tuple(lanes))


class _Demand(NamedTuple):
    """Requirement of a use on the segments: they meet this span only in 0."""

    touched: list[int]
    weight: int
    """Passes of all its instructions: a lower bound on wavefronts."""

    def cost(self, segments: Sequence[int]) -> int:
        """Return the wavefronts of the use: lanes of a pass conflict where they differ in a segment."""
        return self.weight << (len(self.touched) + len(segments) - f2.rank([*self.touched, *segments]))


def _demand(use: Use, flat: LinearLayout, low: list[int], bits: int) -> _Demand:
    vector = use.vector or 1
    together = f2.Echelon(low[: vector.bit_length() - 1])
    size = max(1, vector * bits // 8)
    lanes = [f2.times(flat.columns_of("lane"), lane) for lane in range(flat.in_dims["lane"])]
    # Passes depend on which lanes have equal addresses only: on their elements up to those of the vector.
    groups = passes(use.kind, size, [together.reduce(at)[0] * size for at in lanes])
    unit = low[: max(vector.bit_length() - 1, (_BANK_BITS // bits).bit_length() - 1)]
    apart = (lanes[lane] ^ lanes[groups[0][0]] for lane in groups[0])
    instructions = flat.in_dims["register"] // vector
    return _Demand(f2.independent([*unit, *apart]), instructions * len(groups))


def _segments(demands: list[_Demand], low: list[int], dimension: int, count: int) -> tuple[list[int], bool]:
    """Choose the segments of least cost; return them, and whether all possible ones were tried."""
    for kept in range(len(demands), 0, -1):
        found = _avoiding([low, *(demand.touched for demand in demands[:kept])], dimension, count)
        if found is not None:
            break
    else:
        found = f2.complement(low, dimension)[-count:]
    if kept == len(demands):
        return found, False
    best, best_cost = found, sum(demand.cost(found) for demand in demands)
    subspaces = _subspaces(dimension, count)
    for tried, segments in enumerate(subspaces):
        if tried == _TRIES:
            return best, False
        if f2.rank([*low, *segments]) == len(low) + count:
            cost = sum(demand.cost(segments) for demand in demands)
            if cost < best_cost:
                best, best_cost = segments, cost
    return best, True


def _avoiding(spans: Sequence[Sequence[int]], dimension: int, count: int) -> list[int] | None:
    """Choose independent vectors whose span meets each of some spans only in 0; None if the search fails.

    A vector that lies in none of the spans, each with the vectors chosen so far, can be added. Two spans that are not
    the whole space never cover it, so for two this never fails; the vectors of few bits come first.
    """
    grown = [f2.Echelon(span) for span in spans]
    chosen: list[int] = []
    if count == 0:
        return chosen
    for weight in range(1, dimension + 1):
        for bits in combinations(range(dimension), weight):
            vector = sum(1 << bit for bit in bits)
            if not any(vector in span for span in grown):
                chosen.append(vector)
                if len(chosen) == count:
                    return chosen
                for span in grown:
                    span.add(vector)
    return None


def _subspaces(dimension: int, count: int) -> Iterator[list[int]]:
    """Yield a basis of every subspace of some dimension, in echelon form, once each."""
    for pivots in combinations(range(dimension), count):
        free = [[bit for bit in range(pivot) if bit not in pivots] for pivot in pivots]
        for fill in product(*(range(1 << len(bits)) for bits in free)):
            yield [
                (1 << pivot) | sum(1 << bits[i] for i in f2.bits_of(mask))
                for pivot, bits, mask in zip(pivots, free, fill, strict=True)
            ]
