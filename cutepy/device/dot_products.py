"""Dot products of rows with fused multiply-adds, straight from global memory: for products of few rows (traced).

The speed of few rows of A by many of B is bound by one read of B. An H200 reads 4.2 TB/s, 32 bytes a nanosecond for
each of 132 SMs, and a load takes a microsecond when memory is busy: 32 KiB must be in flight to an SM at any time, and
twice that where loads come in bursts. Loads into registers keep that much in flight without barriers, tensor maps or a
ring that fills first: 16 warps, with 8 pieces of 16 bytes in flight for each lane, have 64 KiB. A is read repeatedly;
it stays in L1, where B is not allocated.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64

from cutepy.device.global_copies import load_vector
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class DotProducts:
    """Products of rows of A (M, K) and rows of B (N, K) by one warp: partial sums in each lane.

    A piece is 16 bytes along K, a chunk one piece for each lane. Of all chunks a warp takes every `parts`-th, in the
    order of K whatever the other extents are, so that the sums of a row of A and one of B are the same in any batch.

    Attributes
    ----------
    a, b : Tensor, (M, K) and (N, K)
        K-major; addresses, rows and K in whole pieces.
    rows, columns : int
        Rows of A and of B that are multiplied at a time.
    unroll : int
        Chunks of B that are on their way before the first is used.
    parts : int
        Warps that share K.
    """

    a: cute.Tensor
    b: cute.Tensor
    rows: int
    columns: int
    unroll: int
    parts: int

    @cute.jit
    def multiply(self, row, column, part):
        """Multiply rows from `row` on by rows of B from `column` on; return this lane's fp32 partial sums.

        The result is (rows, columns). Rows beyond the last one repeat it; their sums must not be used.
        """
        pieces = cute.size(self.b, mode=[1]) // self.piece
        step = self.parts * arch.WARP_THREADS
        first = part * arch.WARP_THREADS + cute.arch.lane_idx()
        rows = [self._start(self.a, row + place) for place in range(self.rows)]
        columns = [self._start(self.b, column + place) for place in range(self.columns)]
        sums = cute.make_rmem_tensor((self.rows, self.columns), Float32)
        sums.fill(0.0)
        together = self.unroll * step
        whole = pieces // together
        for index in cutlass.range(whole, unroll=1):
            self._add(sums, rows, columns, index * together + first, [None] * self.unroll)
        left = whole * together
        if left < pieces:
            exist = [first + turn * step < pieces - left for turn in range(self.unroll)]
            self._add(sums, rows, columns, left + first, exist)
        return sums

    @property
    def piece(self) -> int:
        """Elements of a piece."""
        return arch.UNIT_BITS // self.b.element_type.width

    def _start(self, tensor, index):
        """Return the start of a row; of the last one if there are fewer."""
        index = cutlass.min(index, cute.size(tensor, mode=[0]) - 1)
        return tensor.iterator + cute.assume(Int64(index) * Int64(tensor.stride[0]), divby=self.piece)

    def _add(self, sums, rows, columns, first, exist):
        """Add the products of `unroll` pieces from one on; pieces beyond the end count as zeros, and are not read."""
        offset = cute.assume(Int64(first) * self.piece, divby=self.piece)
        rows, columns = ([start + offset for start in starts] for starts in (rows, columns))
        read = [[self._load(start, turn, exist, streams=True) for start in columns] for turn in range(self.unroll)]
        for turn, pieces in enumerate(read):
            wide = [self._wide(piece) for piece in pieces]
            for m, start in enumerate(rows):
                given = self._wide(self._load(start, turn, exist))
                for n, other in enumerate(wide):
                    total = sums[m, n]
                    for element in range(self.piece):
                        total = cute.math.fma(given[element], other[element], total)
                    sums[m, n] = total

    def _load(self, start, turn, exist, streams=False):
        """Load this lane's piece of a chunk into registers; streamed data is not allocated in L1."""
        place = start + turn * self.parts * arch.WARP_THREADS * self.piece
        return load_vector(place, self.piece, exist[turn], streams)

    def _wide(self, piece):
        """Convert a piece to fp32."""
        wide = cute.make_rmem_tensor(cute.size(piece), Float32)
        wide.store(piece.load().reshape((cute.size(piece),)).to(Float32))
        return wide
