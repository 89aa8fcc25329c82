"""Stream-K scheduler: whole tiles, then even shares of the last tiles' K, so that no wave is partly idle (traced).

`cutepy.device.rules.shares` computes the shares. A CTA without a tile's beginning leaves its sums in a workspace in
global memory (`cutepy.device.workspace`); the CTA with the beginning adds them. (Osama et al., "Stream-K: Work-centric
Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU", PPoPP 2023, section 5.)
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.schedulers import KTiles, Persistent, Work


class SharedTileRole(NamedTuple):
    """Role of a CTA in a shared tile: its place in the workspace, and its peers.

    Attributes
    ----------
    is_finished_here : Boolean
        True if this CTA gets the others' sums of the tile and finishes it; else it stores its own.
    place : Int32
        Place in the workspace of this CTA's sums.
    peers, step : Int32, int
        Number of others with sums of this tile; distance of their places, behind this CTA's.
    """

    is_finished_here: cutlass.Boolean
    place: cutlass.Int32
    peers: cutlass.Int32
    step: int


def _choose(condition, x, y):
    """Return x where the condition holds, else y, without a branch."""
    return cutlass.Int32(cutlass.select_(condition, cutlass.Int32(x), cutlass.Int32(y)))


@dataclass(frozen=True)
class StreamK:
    """Stream-K scheduler: each cluster takes its whole tiles as of `Persistent`, then its share of the remaining ones.

    All CTAs must be resident at one time, or start in the order of their indices, since some wait for others that come
    before them: a grid no larger than the GPU holds, which a persistent kernel has anyway.

    Attributes
    ----------
    product : Persistent
        Schedule of one part.
    """

    product: Persistent

    def plan(self):
        """Return the division of the tiles among the clusters."""
        clusters, _, _ = cute.arch.cluster_dim()
        tiles = cutlass.Int32(1)
        for extent in self.product.raster:
            tiles = tiles * extent
        return rules.Shares(tiles, cutlass.max(self.product.k_tiles, 1), clusters, cutlass.min, _choose)

    @cute.jit
    def each(self, worker: Any, turn: Any = 0, turns: cutlass.Constexpr = 1):
        """Run a worker on this CTA's work, as `Persistent.each` does; `sharing` tells shared tiles apart."""
        rules.check_worker(worker)
        rules.check_turns(turns)
        cluster, _, _ = cute.arch.cluster_idx()
        cluster_m, cluster_n = self.product.cluster_mn
        block_m, block_n, _ = cute.arch.block_in_cluster_idx()
        plan = self.plan()
        share = plan.share(cluster)
        end = plan.units(share)
        place = share.number * (cluster_m * cluster_n) + block_n * cluster_m + block_m
        state = worker.first_state(KTiles(0, plan.k_tiles, 1))
        for index in cutlass.range(end, unroll=1):
            unit = plan.unit(cluster, share, index)
            row, column, batch = self.product.locate(unit.tile)
            sharing = SharedTileRole(unit.first == 0, place, unit.peers, cluster_m * cluster_n)
            k = KTiles(unit.first, unit.count, 1)
            work = Work(row, column, batch, k, index, cutlass.Int32(0), end, cutlass.Int32(1), sharing)
            state = worker.on_tile(work, state)
        return state
