"""Online softmax: scores come tile by tile, and each row keeps its maximum and its sum in registers (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from cutepy.device import reduce
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.marks import mark
from cutepy.device.primitives import LOG2_E, select


@dataclass(frozen=True)
class OnlineSoftmax:
    """Running maximum and sum of the rows that this thread has scores of.

    For each tile of scores, `update` replaces them by exp(scale * (score - maximum)) and returns by how much sums of
    earlier tiles shrink, since the maximum grew; the caller scales its own sums, such as O, by it. A thread sums its
    own columns only, until `finish` adds up the lanes that share a row. A row all of whose scores are minus infinity
    has a sum of 0.

    Attributes
    ----------
    tile : AccumulatorTile
        Coordinates of the scores, one subtile of all columns.
    scale_log2 : Float32
        Factor of the scores, times log2(e): powers are of base 2. Positive.
    maximum, total : Tensor, (rows,), fp32
        Of each row of this thread: the largest score so far, not scaled, and the sum of the exponentials.
    raised_by : int
        Powers of 2 that exponentials, and their sums, are larger by: 0 but for types of few bits, whose range they
        fill better then. Sums of values are larger by as much, and `finish` gives factors and logarithms that are not.
    """

    tile: AccumulatorTile
    scale_log2: Float32
    maximum: cute.Tensor
    total: cute.Tensor
    raised_by: int = 0

    @cute.jit
    def update(self, scores: cute.Tensor, first: cutlass.Constexpr = False, factor=None):
        """Replace a tile of scores by its exponentials; return each row's factor of earlier sums, 1 for the first tile.

        All threads of a warp call: the lanes that share a row find its maximum together.

        Parameters
        ----------
        scores : Tensor, (MMA, MMA_M, MMA_N), fp32
            Complete and masked, with minus infinity for scores that are not seen.
        first : bool
            True for the first tile of a row: `maximum` and `total` are written, and not read.
        factor : Float32, optional
            Positive factor of all scores of the tile, where there is one. Then maxima are those of the products.
        """
        with mark("softmax"):
            row_of = self.tile.place(0)
            # NaN, as torch: a row with one has no other.
            found = reduce.reduce_rows(scores, self.tile, reduce.maximum)
            factors = cute.make_rmem_tensor(self.maximum.shape, Float32)
            base = cute.make_rmem_tensor(self.maximum.shape, Float32)
            for row in cutlass.range_constexpr(cute.size(self.maximum)):
                largest = found[row]
                if cutlass.const_expr(factor is not None):
                    largest = largest * factor
                if cutlass.const_expr(not first):
                    largest = cute.arch.fmax(largest, self.maximum[row])
                # A row that has seen nothing would subtract infinity from infinity.
                base[row] = select(largest == -Float32.inf, 0.0, largest) * self.scale_log2
                if cutlass.const_expr(not first):
                    factors[row] = cute.math.exp2(self.maximum[row] * self.scale_log2 - base[row], fastmath=True)
                else:
                    factors[row] = Float32(1.0)
                self.maximum[row] = largest
                if cutlass.const_expr(self.raised_by != 0):
                    base[row] = base[row] - Float32(self.raised_by)
            scale_log2 = self.scale_log2 if cutlass.const_expr(factor is None) else self.scale_log2 * factor
            for register, row in enumerate(row_of):
                exponent = scores[register] * scale_log2 - base[row]
                scores[register] = cute.math.exp2(exponent, fastmath=True)
            added = reduce.reduce_registers(scores, self.tile, 0, reduce.add)
            for row in cutlass.range_constexpr(cute.size(self.total)):
                if cutlass.const_expr(first):
                    self.total[row] = added[row]
                else:
                    self.total[row] = self.total[row] * factors[row] + added[row]
        return factors

    @cute.jit
    def raise_to(self, maximum: cute.Tensor):
        """Let the maxima grow to those that other threads have found; return each row's factor of earlier sums.

        Parameters
        ----------
        maximum : Tensor, (rows,), fp32
            Of each row of this thread, not scaled.
        """
        factors = cute.make_rmem_tensor(self.maximum.shape, Float32)
        for row in cutlass.range_constexpr(cute.size(self.maximum)):
            largest = cute.arch.fmax(self.maximum[row], maximum[row])
            base = select(largest == -Float32.inf, 0.0, largest) * self.scale_log2
            factors[row] = cute.math.exp2(self.maximum[row] * self.scale_log2 - base, fastmath=True)
            self.total[row] = self.total[row] * factors[row]
            self.maximum[row] = largest
        return factors

    @cute.jit
    def finish(self, sinks_log2=None):
        """Return, for each row, the reciprocal of its sum, 0 where that is 0, and the natural logarithm of the sum.

        All threads of a warp call. The logarithm is of the sum of exp(scale * score), so that it includes the maximum;
        minus infinity where the sum is 0.

        Parameters
        ----------
        sinks_log2 : sequence of Float32, optional
            Logits that join the sums, of each row of this thread, times log2(e).
        """
        factors = cute.make_rmem_tensor(self.total.shape, Float32)
        lse = cute.make_rmem_tensor(self.total.shape, Float32)
        for row in cutlass.range_constexpr(cute.size(self.total)):
            value = self.total[row]
            for distance in self.tile.coordinates.lanes_across(1):
                value = value + cute.arch.shuffle_sync_bfly(value, offset=distance)
            base = self.maximum[row] * self.scale_log2
            if cutlass.const_expr(self.raised_by != 0):
                base = base - Float32(self.raised_by)
            if cutlass.const_expr(sinks_log2 is not None):
                factors[row], lse[row] = self.joined(base, value, sinks_log2[row])
            else:
                is_seen = value != 0.0
                factors[row] = select(is_seen, 1.0 / value, 0.0)
                log_sum = (base + cute.math.log2(value, fastmath=True)) / LOG2_E
                lse[row] = select(is_seen, log_sum, -Float32.inf)
        return factors, lse

    def joined(self, base, total, sink_log2):
        """Return the factor of a row, and the logarithm of its sum, with the sink's term."""
        # The larger of both is the base, as the sink may be far above all scores, or the only term.
        largest = cute.arch.fmax(base, sink_log2)
        largest = select(largest == -Float32.inf, 0.0, largest)
        shrinks = cute.math.exp2(base - largest, fastmath=True)
        total = total * shrinks + cute.math.exp2(sink_log2 - largest, fastmath=True)
        lse = (largest + cute.math.log2(total, fastmath=True)) / LOG2_E
        return select(total != 0.0, shrinks / total, 0.0), lse


def make_online_softmax(tile: AccumulatorTile, scale_log2: Float32, raised_by: int = 0) -> OnlineSoftmax:
    """Make the registers of a softmax over the rows of `tile`."""
    rows = len(tile.distinct(0))
    return OnlineSoftmax(tile, scale_log2, *(cute.make_rmem_tensor((rows,), Float32) for _ in range(2)), raised_by)


@cute.jit
def scale_rows(sums: cute.Tensor, tile: AccumulatorTile, factors: cute.Tensor):
    """Multiply each row of accumulators by its factor.

    Parameters
    ----------
    sums : Tensor, (MMA, MMA_M, MMA_N)
        Complete.
    tile : AccumulatorTile
        Their coordinates, one subtile of all columns.
    factors : Tensor, (rows,)
        Of the rows of this thread, in the order of ``tile.distinct(0)``.
    """
    for register, row in enumerate(tile.place(0)):
        sums[register] = sums[register] * factors[row]
