"""The device code that combines partial results of a sequence: O and the logarithms of the rows' sums (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import smem
from cutepy.device.bands import Band
from cutepy.device.combining import VECTOR, CombinedRow, Parts, log_sum
from cutepy.device.key_parts import VisibleKeys, slot_of
from cutepy.device.overlap import follow_launch
from cutepy.device.sequences import Sequences
from cutepy.kernels.mla.config import COMBINING_WARPS, LATENT, ROWS, MlaConfig
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch

_VECTORS = LATENT // (VECTOR * arch.WARP_THREADS)
_AT_ONCE = 4
"""Partial results that a warp reads at one time."""


class Combine:
    """Results of sequences that several CTAs had parts of: a callable that the DSL compiles.

    Sequences that one CTA had are left as they are; one of no keys gets zeros.

    Parameters
    ----------
    config : MlaConfig
    sharing : int
        Warps that share the partial results of a row: 1, or all of a CTA where these are many.
    """

    def __init__(self, config: MlaConfig, sharing: int):
        self.config, self.sharing = config, sharing

    @cute.jit
    def __call__(
        self,
        parts: cute.Tensor,
        lses: cute.Tensor,
        owners: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        heads: cutlass.Int32,
        most_keys: cutlass.Int32,
        ctas: cutlass.Int32,
        lengths: cute.Tensor | None,
        stream: CUstream,
    ):
        """Launch on the results of `Mla`; `heads` rows are of one token, and a sequence has at most `most_keys`.

        Some `ctas` CTAs are launched where there are rows for so many: they run all at one time.
        """
        sequences, rows = cute.size(o, mode=[0]), cute.size(o, mode=[1])
        groups = cute.ceil_div(rows, COMBINING_WARPS // self.sharing)
        self.kernel(
            parts,
            lses,
            owners,
            o,
            lse,
            Sequences(sequences, most_keys, None, lengths),
            Band(rows, cutlass.Int32(0), None, cutlass.Int32(0) if self.config.causal else None, heads),
        ).launch(
            grid=(groups, cutlass.min(cutlass.max(ctas // groups, 1), sequences), 1),
            block=(arch.WARP_THREADS * COMBINING_WARPS, 1, 1),
            use_pdl=True,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        parts: cute.Tensor,
        lses: cute.Tensor,
        owners: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        keys: Sequences,
        band: Band,
    ):
        """Give each warp a row, or a share of one's partial results."""
        follow_launch(True)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        group, first_sequence, _ = cute.arch.block_idx()
        _, step, _ = cute.arch.grid_dim()
        row, share = group * (COMBINING_WARPS // self.sharing) + warp // self.sharing, warp % self.sharing
        tile = row // ROWS
        seen = VisibleKeys(keys, band, self.config.last_row(tile))
        for sequence in cutlass.range(first_sequence, keys.count, step, unroll=1):
            if row < band.queries:
                first, count = cutlass.Int32(0), cutlass.Int32(0)
                if seen.of(sequence).length > 0:
                    first, count = owners[tile, sequence, 0], owners[tile, sequence, 1]
                if count != 1:
                    self.combine(parts, lses, o[sequence, row, None], lse[sequence, None], row, share, first, count)

    @cute.jit
    def combine(
        self, parts: cute.Tensor, lses: cute.Tensor, o: cute.Tensor, lse: cute.Tensor, row, share, first, count
    ):
        """Combine the `count` partial results of a row."""
        found = Parts(count, lambda n: lses[_slot(first, n), row], lambda n: parts[_slot(first, n), row, None])
        combined = CombinedRow((found,), LATENT, at_once=_AT_ONCE)
        base = combined.base()
        sums, total = combined.weighted(base, share, self.sharing)
        if cutlass.const_expr(self.sharing > 1):
            sums, total = self.summed(sums, total, share)
        combined.store(sums, total, o, share)
        if (cute.arch.lane_idx() == 0) & (share == 0):
            lse[row] = log_sum(base, total)

    @cute.jit
    def summed(self, sums: cute.Tensor, total, share):
        """Add up the sums of all warps, in order: those of this lane's adjoining columns, and the total."""
        lane = cute.arch.lane_idx()
        plan = sm90.SmemPlan.of(
            sums=sm90.SmemArray(self.sharing * LATENT, bits=32, alignment_bytes=16),
            totals=sm90.SmemArray(self.sharing, bits=32, alignment_bytes=16),
        )
        shared = smem.share(plan, sums=Float32, totals=Float32)
        rows = cute.make_tensor(shared["sums"], cute.make_layout((LATENT, self.sharing)))
        totals = cute.make_tensor(shared["totals"], cute.make_layout(self.sharing))
        for vector in cutlass.range_constexpr(_VECTORS):
            place = vector * arch.WARP_THREADS + lane
            cute.autovec_copy(sums[None, vector], cute.local_tile(rows[None, share], (VECTOR,), (place,)))
        if lane == 0:
            totals[share] = total
        cute.arch.sync_threads()  # each warp's sums are there
        own = cute.make_rmem_tensor((LATENT // (arch.WARP_THREADS * self.sharing), 1), Float32)
        own.fill(0.0)
        of_all = Float32(0.0)
        for warp in cutlass.range_constexpr(self.sharing):
            of_all = of_all + totals[warp]
            for column in cutlass.range_constexpr(cute.size(own)):
                place = (share * arch.WARP_THREADS + lane) * cute.size(own) + column
                own[column, 0] = own[column, 0] + rows[place, warp]
        cute.arch.sync_threads()  # the next row's sums may be written
        return own, of_all


def _slot(first, n):
    """Return the slot of the n-th part of a sequence, of which only the first begins it."""
    return slot_of(first + n, cutlass.Int32(n == 0))
