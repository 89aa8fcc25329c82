"""Results of parts of the terms, joined to those of all: sums, and attention's results, which have maxima (traced).

A function of a thread's registers and those of the same thread elsewhere joins two parts of one tile, for
`exchange.ClusterSums` and `workspace.WorkspaceSums`. `CombinedRow` joins rows of any number of parts in global memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from cutepy.device import reduce, rules
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.primitives import LOG2_E, select
from cutepy.layouts.sm90 import arch

VECTOR = 4
"""fp32 values that a thread moves at once."""


def add(rC, line: Callable):
    """Add another part's values to a thread's own, four at a time: `line(n)` reads its n-th four."""
    for vector in range(cute.size(rC) // VECTOR):
        values = line(vector)
        for v in range(VECTOR):
            rC[vector * VECTOR + v] = rC[vector * VECTOR + v] + values[v]


@dataclass(frozen=True)
class AddResults:
    """Join of attention's results of two parts of the keys, each with maxima of its own.

    A thread's values are its registers of O, not divided by sums yet, then the maximum of each of its rows, then the
    sum of each: fp32, filled up to whole fours. `OnlineSoftmax` keeps them so, with sums of a thread's own columns. A
    part that has seen nothing of a row has a maximum of minus infinity there.

    Attributes
    ----------
    tile : AccumulatorTile
        Coordinates of the registers of O.
    scale_log2 : Float32
        Factor of the maxima: that of the scores, times log2(e).
    """

    tile: AccumulatorTile
    scale_log2: Float32

    def __call__(self, rC, line: Callable):
        """Join another part to a thread's own values, as `add` does."""
        row_of, rows = self.tile.place(0), len(self.tile.distinct(0))
        count = len(row_of)
        rules.check_registers(cute.size(rC), -(-(count + 2 * rows) // VECTOR) * VECTOR)
        lines = {vector: line(vector) for vector in range(count // VECTOR, -(-(count + 2 * rows) // VECTOR))}
        own_factors, factors = [], []
        for row in range(rows):
            maximum, total = (lines[at // VECTOR][at % VECTOR] for at in (count + row, count + rows + row))
            largest = cute.arch.fmax(rC[count + row], maximum)
            # A row that has seen nothing would subtract infinity from infinity.
            base = select(largest == -Float32.inf, 0.0, largest)
            own, other = (
                cute.math.exp2((each - base) * self.scale_log2, fastmath=True) for each in (rC[count + row], maximum)
            )
            rC[count + row] = largest
            rC[count + rows + row] = rC[count + rows + row] * own + total * other
            own_factors.append(own)
            factors.append(other)
        for vector in range(-(-count // VECTOR)):
            values = lines[vector] if vector in lines else line(vector)
            for register in range(vector * VECTOR, min((vector + 1) * VECTOR, count)):
                row = row_of[register]
                rC[register] = rC[register] * own_factors[row] + values[register % VECTOR] * factors[row]


class Parts(NamedTuple):
    """Parts of a row.

    Attributes
    ----------
    count : Int32
    lse : callable
        Reads the natural logarithm of the n-th part's sum.
    row : callable
        Returns its row of O, divided by its sum: (columns,), fp32.
    """

    count: Any
    lse: Callable
    row: Callable


@dataclass(frozen=True)
class CombinedRow:
    """A row of O, and the logarithm of its sum, from those of its parts; a warp has it, or several have a share each.

    Attributes
    ----------
    sources : tuple of Parts
    columns : int
        A multiple of 4.
    at_once : int
        Parts that a warp reads at one time, in `weighted`.
    """

    sources: tuple
    columns: int
    at_once: int = 1

    @property
    def vectors(self) -> int:
        """Vectors of a row that a lane has."""
        return -(-self.columns // (VECTOR * arch.WARP_THREADS))

    @cute.jit
    def base(self):
        """Return the largest of the logarithms, 0 if no part has seen anything; all lanes call."""
        largest = Float32(-Float32.inf)
        for count, lse_of, _ in self.sources:
            for part in cutlass.range(cute.arch.lane_idx(), count, arch.WARP_THREADS, unroll=1):
                largest = cute.arch.fmax(largest, lse_of(part))
        largest = reduce.warp_reduce(largest, reduce.maximum)
        # A row that has seen nothing would subtract infinity from infinity.
        return select(largest == -Float32.inf, 0.0, largest)

    @cute.jit
    def weighted(self, base, first, step: cutlass.Constexpr):
        """Sum every `step`-th part from `first` on, weighted: a lane's columns (4, vectors), and the sum of weights."""
        total = Float32(0.0)
        sums = cute.make_rmem_tensor((VECTOR, self.vectors), Float32)
        sums.fill(0.0)
        for count, lse_of, row_of in self.sources:
            for part in cutlass.range(first, count, step, unroll=self.at_once):
                weight = cute.math.exp2((lse_of(part) - base) * LOG2_E, fastmath=True)
                total = total + weight
                self.add(sums, weight, row_of(part))
        return sums, total

    @cute.jit
    def joined(self, together: cutlass.Constexpr):
        """Return the largest logarithm, and the sums and their weights' of all parts; all lanes call.

        The rows of so many parts of the first source are on their way while the logarithms are read, and then so many
        at one time; the last of a source are read again, and count nothing.
        """
        first = self.read(self.sources[0], cutlass.Int32(0), together)
        base, total = self.base(), Float32(0.0)
        sums = cute.make_rmem_tensor((VECTOR, self.vectors), Float32)
        sums.fill(0.0)
        for index, source in enumerate(self.sources):
            begin = cutlass.Int32(0)
            if cutlass.const_expr(index == 0):
                total = self.add_parts(sums, base, source.count, begin, *first)
                begin = cutlass.Int32(together)
            for part in cutlass.range(begin, source.count, together, unroll=1):
                held = self.read(source, part, together)
                total = total + self.add_parts(sums, base, source.count, part, *held)
        return base, sums, total

    @cute.jit
    def read(self, source: Parts, first, together: cutlass.Constexpr):
        """Read the logarithms and rows of a given number of parts from the first one on, for some the last part's."""
        count, lse_of, row_of = source
        lses = cute.make_rmem_tensor(together, Float32)
        rows = cute.make_rmem_tensor((VECTOR, self.vectors, together), Float32)
        rows.fill(0.0)
        for n in cutlass.range_constexpr(together):
            part = cutlass.min(first + n, count - 1)
            lses[n] = lse_of(part)
            row = row_of(part)
            for vector in cutlass.range_constexpr(self.vectors):
                place = vector * arch.WARP_THREADS + cute.arch.lane_idx()
                if cutlass.const_expr(self.columns % (VECTOR * arch.WARP_THREADS) == 0):
                    cute.autovec_copy(cute.local_tile(row, (VECTOR,), (place,)), rows[None, vector, n])
                elif place * VECTOR < self.columns:
                    cute.autovec_copy(cute.local_tile(row, (VECTOR,), (place,)), rows[None, vector, n])
        return lses, rows

    @cute.jit
    def add_parts(self, sums: cute.Tensor, base, count, first, lses: cute.Tensor, rows: cute.Tensor):
        """Add rows that have been read, and return the sum of their weights."""
        total = Float32(0.0)
        for n in cutlass.range_constexpr(cute.size(lses)):
            weight = cute.math.exp2((lses[n] - base) * LOG2_E, fastmath=True)
            weight = select(first + n < count, weight, 0.0)
            total = total + weight
            for vector in cutlass.range_constexpr(self.vectors):
                for element in cutlass.range_constexpr(VECTOR):
                    # A part that counts nothing may have no numbers.
                    added = select(weight == 0.0, 0.0, weight * rows[element, vector, n])
                    sums[element, vector] = sums[element, vector] + added
        return total

    @cute.jit
    def add(self, sums: cute.Tensor, weight, row: cute.Tensor):
        """Add a part's row, times its weight."""
        for vector in cutlass.range_constexpr(self.vectors):
            place = vector * arch.WARP_THREADS + cute.arch.lane_idx()
            if place * VECTOR < self.columns:
                held = cute.make_rmem_tensor(VECTOR, Float32)
                cute.autovec_copy(cute.local_tile(row, (VECTOR,), (place,)), held)
                for element in cutlass.range_constexpr(VECTOR):
                    sums[element, vector] = sums[element, vector] + weight * held[element]

    @cute.jit
    def store(self, sums: cute.Tensor, total, o: cute.Tensor, share=0):
        """Store a lane's columns, (elements, vectors), divided by the sum of weights; zeros if that is 0.

        `share` tells which of the warps' it has.
        """
        elements, vectors = cute.size(sums, mode=[0]), cute.size(sums, mode=[1])
        factor = select(total == 0.0, 0.0, 1.0 / total)
        for vector in cutlass.range_constexpr(vectors):
            place = (share * vectors + vector) * arch.WARP_THREADS + cute.arch.lane_idx()
            if place * elements < self.columns:
                out = cute.make_rmem_tensor(elements, o.element_type)
                for element in cutlass.range_constexpr(elements):
                    out[element] = (sums[element, vector] * factor).to(o.element_type)
                cute.autovec_copy(out, cute.local_tile(o, (elements,), (place,)))


def log_sum(base, total):
    """Return the natural logarithm of all parts' sum, minus infinity if they have seen nothing."""
    return select(total == 0.0, -Float32.inf, base + cute.math.log2(total, fastmath=True) / LOG2_E)
