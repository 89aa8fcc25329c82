"""The device code that combines the results of parts of the keys: O and the logarithm of a row's sum (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import reduce
from cutepy.device.bands import Band
from cutepy.device.primitives import LOG2_E, select
from cutepy.device.sequences import Sequences
from cutepy.kernels.attention.config import SharedKeys
from cutepy.kernels.attention.places import Batches, Cached
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
    tile : (int, int)
        Queries and keys of a tile, by which sequences see all keys that they share, or not.
    """

    def __init__(self, head: int, tile: tuple[int, int] = (0, 0)):
        self.head, self.tile = head, tile

    @cute.jit
    def __call__(
        self,
        parts: cute.Tensor,
        lses: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        shared: SharedKeys | None,
        stream: CUstream,
    ):
        """Launch on parts (batch, queries, splits * heads, head) and lses (batch, splits * heads, queries), fp32.

        Writes o (batch, queries, heads, head) and lse (batch, heads, queries). `shared` has results of keys that the
        parts lack where all of them are seen.
        """
        batch, queries, heads = (cute.size(o, mode=[mode]) for mode in range(3))
        places, prefix, sharing = None, None, None
        if cutlass.const_expr(shared is not None):
            prefix = shared.parts, shared.lses
            sharing = cutlass.Int32(1 if shared.sharing is None else shared.sharing)
            band = Band(queries, shared.most_keys, None, shared.right, shared.sharing)
            places = Batches(band, shared=shared.keys)
            if cutlass.const_expr(shared.lengths is not None):
                keys = Sequences(batch, shared.most_keys, None, shared.lengths)
                places = Cached(band, shared=shared.keys, keys=keys)
        self.kernel(parts, lses, o, lse, prefix, places, sharing).launch(
            grid=(cute.ceil_div(batch * queries * heads, WARPS), 1, 1),
            block=(arch.WARP_THREADS * WARPS, 1, 1),
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        parts: cute.Tensor,
        lses: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        prefix: tuple | None,
        places: Batches | Cached | None,
        sharing: cutlass.Int32 | None,
    ):
        """Give each warp a row, and each lane some of its columns."""
        lane, warp = cute.arch.lane_idx(), cute.arch.thread_idx()[0] // arch.WARP_THREADS
        batches, queries, heads = (cute.size(o, mode=[mode]) for mode in range(3))
        splits, row = cute.size(lses, mode=[1]) // heads, cute.arch.block_idx()[0] * WARPS + warp
        if row < batches * queries * heads:
            head, query, batch = row % heads, row // heads % queries, row // (heads * queries)
            # Values of each part: the logarithm of its sum, and its row.
            sources = [
                (
                    splits,
                    lambda n: lses[batch, n * heads + head, query],
                    lambda n: parts[batch, query, n * heads + head, None],
                )
            ]
            if cutlass.const_expr(prefix is not None):
                sources.append(self.of_prefix(prefix, places, sharing, batch, query, head, (queries, heads)))
            largest = Float32(-Float32.inf)
            for count, lse_of, _ in sources:
                for split in cutlass.range(lane, count, arch.WARP_THREADS, unroll=1):
                    largest = cute.arch.fmax(largest, lse_of(split))
            largest = reduce.warp_reduce(largest, reduce.maximum)
            # A row that has seen nothing would subtract infinity from infinity.
            base = select(largest == -Float32.inf, 0.0, largest)
            total = Float32(0.0)
            vectors = -(-self.head // (_VECTOR * arch.WARP_THREADS))
            sums = cute.make_rmem_tensor((_VECTOR, vectors), Float32)
            sums.fill(0.0)
            for count, lse_of, row_of in sources:
                for split in cutlass.range(count, unroll=1):
                    weight = cute.math.exp2((lse_of(split) - base) * LOG2_E, fastmath=True)
                    total = total + weight
                    if weight != 0.0:
                        for vector in cutlass.range_constexpr(vectors):
                            place = vector * arch.WARP_THREADS + lane
                            if place * _VECTOR < self.head:
                                held = cute.make_rmem_tensor(_VECTOR, Float32)
                                cute.autovec_copy(cute.local_tile(row_of(split), (_VECTOR,), (place,)), held)
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

    def of_prefix(self, prefix, places, sharing, batch, query, head, extents):
        """Return how many parts of shared keys a row has, none if it does not see all, and their values."""
        (parts, lses), (queries, heads) = prefix, extents
        place = places.at(batch, head)
        tiles = place.band.tiles(cutlass.Int32(0), *self.tile)
        heads = heads * sharing
        count = select(place.shared_tiles(tiles, self.tile[1]) > 0, cute.size(lses, mode=[0]) // heads, 0)
        token, own = batch * (queries // sharing) + query // sharing, head * sharing + query % sharing
        return count, lambda n: lses[n * heads + own, token], lambda n: parts[token, n * heads + own, None]
