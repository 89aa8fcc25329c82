"""The device code that combines the results of parts of the keys: O and the logarithm of a row's sum (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import reduce
from cutepy.device.primitives import LOG2_E, select
from cutepy.layouts.sm90 import arch

WARPS = 4
"""Warps of a CTA, each of a row."""
_VECTOR = 4


class Combine:
    """Results of all keys from those of parts: a callable that the DSL compiles.

    Parameters
    ----------
    head : int
        Extent of a row of O.
    """

    def __init__(self, head: int):
        self.head = head

    @cute.jit
    def __call__(self, parts: cute.Tensor, lses: cute.Tensor, o: cute.Tensor, lse: cute.Tensor, stream: CUstream):
        """Launch on parts (batch, queries, splits * heads, head) and lses (batch, splits * heads, queries), fp32.

        Writes o (batch, queries, heads, head) and lse (batch, heads, queries).
        """
        rows = cute.size(o, mode=[0]) * cute.size(o, mode=[1]) * cute.size(o, mode=[2])
        self.kernel(parts, lses, o, lse).launch(
            grid=(cute.ceil_div(rows, WARPS), 1, 1), block=(arch.WARP_THREADS * WARPS, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(self, parts: cute.Tensor, lses: cute.Tensor, o: cute.Tensor, lse: cute.Tensor):
        """Give each warp a row, and each lane some of its columns."""
        lane, warp = cute.arch.lane_idx(), cute.arch.thread_idx()[0] // arch.WARP_THREADS
        batches, queries, heads = (cute.size(o, mode=[mode]) for mode in range(3))
        splits, row = cute.size(lses, mode=[1]) // heads, cute.arch.block_idx()[0] * WARPS + warp
        if row < batches * queries * heads:
            head, query, batch = row % heads, row // heads % queries, row // (heads * queries)
            largest = Float32(-Float32.inf)
            for split in cutlass.range(lane, splits, arch.WARP_THREADS, unroll=1):
                largest = cute.arch.fmax(largest, lses[batch, split * heads + head, query])
            largest = reduce.warp_reduce(largest, reduce.maximum)
            # A row that has seen nothing would subtract infinity from infinity.
            base = select(largest == -Float32.inf, 0.0, largest)
            total = Float32(0.0)
            vectors = -(-self.head // (_VECTOR * arch.WARP_THREADS))
            sums = cute.make_rmem_tensor((_VECTOR, vectors), Float32)
            sums.fill(0.0)
            for split in cutlass.range(splits, unroll=1):
                weight = cute.math.exp2((lses[batch, split * heads + head, query] - base) * LOG2_E, fastmath=True)
                total = total + weight
                if weight != 0.0:
                    for vector in cutlass.range_constexpr(vectors):
                        place = vector * arch.WARP_THREADS + lane
                        if place * _VECTOR < self.head:
                            held = cute.make_rmem_tensor(_VECTOR, Float32)
                            line = parts[batch, query, split * heads + head, None]
                            cute.autovec_copy(cute.local_tile(line, (_VECTOR,), (place,)), held)
                            for element in cutlass.range_constexpr(_VECTOR):
                                sums[element, vector] = sums[element, vector] + weight * held[element]
            factor = select(total == 0.0, 0.0, 1.0 / total)
            for vector in cutlass.range_constexpr(vectors):
                place = vector * arch.WARP_THREADS + lane
                if place * _VECTOR < self.head:
                    out = cute.make_rmem_tensor(_VECTOR, o.element_type)
                    for element in cutlass.range_constexpr(_VECTOR):
                        out[element] = (sums[element, vector] * factor).to(o.element_type)
                    cute.autovec_copy(out, cute.local_tile(o[batch, query, head, None], (_VECTOR,), (place,)))
            if lane == 0:
                log_sum = base + cute.math.log2(total, fastmath=True) / LOG2_E
                lse[batch, head, query] = select(total == 0.0, -Float32.inf, log_sum)
