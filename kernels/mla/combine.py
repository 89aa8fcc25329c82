"""The device code that combines partial results of a sequence: O and the logarithms of the rows' sums (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import reduce
from cutepy.device.bands import Band
from cutepy.device.key_parts import KeyParts, KeysSeen, slot_of
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import LOG2_E, select
from cutepy.device.schedulers import Persistent
from cutepy.device.sequences import Sequences
from cutepy.kernels.mla.config import KEYS, LATENT, LEAST_TILES, ROWS, MlaConfig
from cutepy.layouts.sm90 import arch

WARPS = 4
"""Warps of a CTA, each of a row."""
_VECTOR = 4
_AT_ONCE = 4
"""Partial results that a warp reads at one time."""


class Combine:
    """Results of sequences that several CTAs had parts of: a callable that the DSL compiles.

    Sequences that one CTA had are left as they are; one of no keys gets zeros.
    """

    def __init__(self, config: MlaConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        parts: cute.Tensor,
        lses: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        sharing: cutlass.Int32,
        count: cutlass.Int32,
        most_keys: cutlass.Int32,
        lengths: cute.Tensor | None,
        stream: CUstream,
    ):
        """Launch on what `Mla` writes, with its arguments; a sequence has at most `most_keys`."""
        sequences, rows = cute.size(o, mode=[0]), cute.size(o, mode=[1])
        self.kernel(
            parts,
            lses,
            o,
            lse,
            Sequences(sequences, most_keys, None, lengths),
            Band(rows, cutlass.Int32(0), None, cutlass.Int32(0) if self.config.causal else None, sharing),
            count,
        ).launch(
            grid=(cute.ceil_div(rows, WARPS), sequences, 1), block=(arch.WARP_THREADS * WARPS, 1, 1), use_pdl=True, stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        parts: cute.Tensor,
        lses: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        keys: Sequences,
        band: Band,
        count: cutlass.Int32,
    ):
        """Give each warp a row, and each lane some of its columns."""
        follow_launch(True)
        lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
        group, sequence, _ = cute.arch.block_idx()
        row = group * WARPS + warp
        seen = KeysSeen(keys, band, row // ROWS * ROWS + ROWS - 1)
        owners = KeyParts(seen, 0, KEYS, cutlass.Int32(1), Persistent((1, 1), 1), count, LEAST_TILES).owners(sequence)
        if (row < band.queries) & (owners.count != 1):
            largest = Float32(-Float32.inf)
            for n in cutlass.range(lane, owners.count, arch.WARP_THREADS, unroll=1):
                largest = cute.arch.fmax(largest, lses[slot_of(owners.first + n, n == 0), row])
            largest = reduce.warp_reduce(largest, reduce.maximum)
            # A row that has seen nothing would subtract infinity from infinity.
            base = select(largest == -Float32.inf, 0.0, largest)
            total = Float32(0.0)
            vectors = LATENT // (_VECTOR * arch.WARP_THREADS)
            sums = cute.make_rmem_tensor((_VECTOR, vectors), Float32)
            sums.fill(0.0)
            for n in cutlass.range(owners.count, unroll=_AT_ONCE):
                slot = slot_of(owners.first + n, n == 0)
                weight = cute.math.exp2((lses[slot, row] - base) * LOG2_E, fastmath=True)
                total = total + weight
                for vector in cutlass.range_constexpr(vectors):
                    held = cute.make_rmem_tensor(_VECTOR, Float32)
                    place = vector * arch.WARP_THREADS + lane
                    cute.autovec_copy(cute.local_tile(parts[slot, row, None], (_VECTOR,), (place,)), held)
                    for element in cutlass.range_constexpr(_VECTOR):
                        sums[element, vector] = sums[element, vector] + weight * held[element]
            factor = select(total == 0.0, 0.0, 1.0 / total)
            for vector in cutlass.range_constexpr(vectors):
                out = cute.make_rmem_tensor(_VECTOR, o.element_type)
                for element in cutlass.range_constexpr(_VECTOR):
                    out[element] = (sums[element, vector] * factor).to(o.element_type)
                place = vector * arch.WARP_THREADS + lane
                cute.autovec_copy(out, cute.local_tile(o[sequence, row, None], (_VECTOR,), (place,)))
            if lane == 0:
                log_sum = base + cute.math.log2(total, fastmath=True) / LOG2_E
                lse[sequence, row] = select(total == 0.0, -Float32.inf, log_sum)
