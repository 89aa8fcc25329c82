"""The device code that combines the results of parts of the keys: O and the logarithm of a row's sum (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy.device.bands import Band
from cutepy.device.combining import CombinedRow, Parts, log_sum
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.device.sequences import Sequences
from cutepy.kernels.attention.config import SharedKeys
from cutepy.kernels.attention.tile_coords import Batches, CachedSequences
from cutepy.layouts.sm90 import arch

WARPS = 4
"""Warps of a CTA, each of a row."""
TOGETHER = 8
"""Parts of a row that a warp reads at one time."""


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
        coords, prefix, sharing = None, None, None
        if cutlass.const_expr(shared is not None):
            prefix = shared.parts, shared.lses
            sharing = cutlass.Int32(1 if shared.sharing is None else shared.sharing)
            band = Band(queries, shared.most_keys, None, shared.right, shared.sharing)
            coords = Batches(band, shared=shared.keys)
            if cutlass.const_expr(shared.lengths is not None):
                keys = Sequences(batch, shared.most_keys, None, shared.lengths)
                coords = CachedSequences(band, shared=shared.keys, keys=keys)
        self.kernel(parts, lses, o, lse, prefix, coords, sharing).launch(
            grid=(cute.ceil_div(batch * queries * heads, WARPS), 1, 1),
            block=(arch.WARP_THREADS * WARPS, 1, 1),
            use_pdl=True,
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
        coords: Batches | CachedSequences | None,
        sharing: cutlass.Int32 | None,
    ):
        """Give each warp a row, and each lane some of its columns."""
        follow_launch(True)
        lane, warp = cute.arch.lane_idx(), cute.arch.thread_idx()[0] // arch.WARP_THREADS
        batches, queries, heads = (cute.size(o, mode=[mode]) for mode in range(3))
        splits, row = cute.size(lses, mode=[1]) // heads, cute.arch.block_idx()[0] * WARPS + warp
        if row < batches * queries * heads:
            head, query, batch = row % heads, row // heads % queries, row // (heads * queries)
            sources = [
                Parts(
                    splits,
                    lambda n: lses[batch, n * heads + head, query],
                    lambda n: parts[batch, query, n * heads + head, None],
                )
            ]
            if cutlass.const_expr(prefix is not None):
                sources.append(self.of_prefix(prefix, coords, sharing, batch, query, head, (queries, heads)))
            combined = CombinedRow(tuple(sources), self.head)
            base, sums, total = combined.joined(TOGETHER)
            combined.store(sums, total, o[batch, query, head, None])
            if lane == 0:
                lse[batch, head, query] = log_sum(base, total)

    def of_prefix(self, prefix, coords, sharing, batch, query, head, extents):
        """Return how many parts of shared keys a row has, none if it does not see all, and their values."""
        (parts, lses), (queries, heads) = prefix, extents
        place = coords.at(batch, head)
        tiles = place.band.tiles(cutlass.Int32(0), *self.tile)
        heads = heads * sharing
        count = select(place.shared_tiles(tiles, self.tile[1]) > 0, cute.size(lses, mode=[0]) // heads, 0)
        token, own = batch * (queries // sharing) + query // sharing, head * sharing + query % sharing
        return Parts(count, lambda n: lses[n * heads + own, token], lambda n: parts[token, n * heads + own, None])
