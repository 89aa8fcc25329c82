"""The device code of attention forward: O = softmax(scale Q K^T) V, tile by tile of keys (traced).

One warp loads, and each consumer warpgroup has 64 queries. The tensor cores multiply P V of a tile of keys and Q K^T of
the next tile at the same time. The threads of the warpgroup wait for the second product only, and compute its softmax
while the first product runs.

wgmma reads 8-bit operands K-major only, but the rows of V are contiguous along the head. The other three warps of the
producer transpose each tile of V, from the stage that TMA fills to the stage that the MMAs read. So V is read once, and
no kernel runs before this one. The keys of a transposed tile are in the order in which the scores of a thread are its
part of P. Sums have the 14 bits of the tensor cores, as in FlashAttention.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import operand, product, roles, rules, schedulers, smem, tma
from cutepy.device.bands import Band
from cutepy.device.block_lists import BlockLists, make_block_lists
from cutepy.device.dynamic import Dynamic
from cutepy.device.epilogue import TileStore, make_tile_store
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.marks import mark
from cutepy.device.overlap import follow_launch
from cutepy.device.pages import make_paged_loads, make_paged_rows
from cutepy.device.pipeline import MixedRing, StoredRing, TmaRing, publish_barriers
from cutepy.device.primitives import LOG2_E, select
from cutepy.device.row_stores import RowStores
from cutepy.device.score_functions import ScoreFunctions, make_score_functions
from cutepy.device.softmax import OnlineSoftmax, make_online_softmax, scale_rows
from cutepy.device.transposing import make_transposes
from cutepy.device.turns import PingpongOrder
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import element_type
from cutepy.kernels.attention.config import L2_BYTES, PRODUCERS, CachedKeys, ForwardConfig, Lengths
from cutepy.kernels.attention.scales import Scales, make_scales
from cutepy.kernels.attention.tile_coords import (
    Batches,
    CachedSequences,
    PackedTiles,
    RaggedSequences,
    WorkCoords,
    cached_keys,
    columns_first,
    heads_in_rows,
    keys_of,
    make_tickets,
    modes,
    queries_of,
    rows_first,
)
from cutepy.kernels.attention.transposing import ValueTransposer

LANES_OF_STORE = 2
"""Lanes that exchange columns of a part of O, of float32, to store 16 bytes."""


@dataclass(frozen=True)
class ForwardProducer:
    """The producer: Q once a tile; K and V of each tile of keys, from the last to the first.

    One warp calls, or all, where threads copy keys; then `warp` is its index.
    """

    config: ForwardConfig
    q_ring: TmaRing
    k_ring: TmaRing
    v_ring: TmaRing
    sQ: tma.TmaLoads
    sK: Any
    sV: Any
    coords: Batches | RaggedSequences
    group: cutlass.Int32
    lists: BlockLists | None
    warp: cutlass.Int32

    def first_state(self, k):
        """Return the states of the rings at the start."""
        return self.q_ring.producer_state(), self.k_ring.producer_state(), self.v_ring.producer_state()

    def tiles_of(self, work, place):
        """Return the tiles of keys that a tile of queries sees."""
        if self.lists is not None:
            return self.lists.tiles(work.row, place.batch, place.head)
        return place.tiles(work.row * self.config.tile_m, self.config.tile_m, self.config.tile_n)

    @cute.jit
    def on_tile(self, work, state):
        """Load the operands of a tile of queries."""
        q_state, k_state, v_state = state
        place = self.coords.of(work)
        kv, tiles = (place.head // self.group, *place.k), self.tiles_of(work, place)
        if cutlass.const_expr(not self.config.copies_rows):
            self.load_q(work, place, q_state)
        elif self.warp == 0:
            self.load_q(work, place, q_state)
        q_state.advance()
        full = self.k_ring.acquire(k_state)
        self.sK.load((tiles.first, 0, *kv), k_state.index, full)
        k_state.advance()
        # K of a tile is multiplied before V of the tile before it, and so it comes first. V that must be transposed
        # comes with K of its tile.
        ahead = 1 if self.config.transposes else 0
        if cutlass.const_expr(ahead):
            full = self.v_ring.acquire(v_state)
            self.sV.load((0, tiles.first, *kv), v_state.index, full)
            v_state.advance()
        for done in cutlass.range(1, tiles.count, unroll=1):
            full = self.k_ring.acquire(k_state)
            self.sK.load((tiles.tile(done), 0, *kv), k_state.index, full)
            k_state.advance()
            full = self.v_ring.acquire(v_state)
            self.sV.load((0, tiles.tile(done - 1 + ahead), *kv), v_state.index, full)
            v_state.advance()
        if cutlass.const_expr(not ahead):
            full = self.v_ring.acquire(v_state)
            self.sV.load((0, tiles.last, *kv), v_state.index, full)
            v_state.advance()
        return q_state, k_state, v_state

    def load_q(self, work, place, q_state):
        """Load a tile of queries."""
        full = self.q_ring.acquire(q_state)
        self.sQ.load((work.row, 0, place.head, *place.q), q_state.index, full)

    @cute.jit
    def run(self, scheduler):
        """Load all that this CTA needs, then wait until all of it has been read."""
        q_state, k_state, v_state = scheduler.each(self)
        self.q_ring.drain(q_state)
        self.k_ring.drain(k_state)
        self.v_ring.drain(v_state)


@dataclass(frozen=True)
class ForwardConsumer:
    """A consumer warpgroup: scores, softmax, and sums of values, of 64 queries."""

    config: ForwardConfig
    q_ring: TmaRing
    k_ring: TmaRing
    v_ring: TmaRing
    qk: product.Product
    pv: product.Product
    scores: AccumulatorTile
    sums: AccumulatorTile
    softmax: OnlineSoftmax
    turns: PingpongOrder
    o: tma.TmaTiles
    out: TileStore
    lse: cute.Tensor
    coords: Batches | RaggedSequences
    functions: ScoreFunctions | None
    sinks: cute.Tensor | None
    lists: BlockLists | None
    scales: Scales | None = None
    met: cutlass.Constexpr = 0
    pending: cute.Tensor | None = None
    parts: cute.Tensor | None = None

    def first_state(self, k):
        """Return the states of the rings at the start."""
        q_state, k_state = self.q_ring.consumer_state(), self.k_ring.consumer_state()
        if self.config.ordered and self.config.turns_end:
            self.turns.begin()
        if self.config.begins_early:
            self.wait_first(q_state, k_state)
            self.qk.issue(a=q_state.index, b=k_state.index)
            warpgroup.wait_group(0)
            self.k_ring.release(k_state)
            k_state.advance()
        return q_state, k_state, self.v_ring.consumer_state()

    def wait_first(self, q_state, k_state):
        """Wait for a tile of queries, and the first tile of its keys."""
        self.q_ring.wait(q_state)
        self.k_ring.wait(k_state)

    def on_tile(self, work, state):
        """Compute the output of a tile of queries."""
        return (self if self.scales is None else self.scaled(work)).attend_tile(work, state)

    def scaled(self, work):
        """Return the worker with the scales of a tile of queries: those of its keys too, if all have one."""
        place = self.coords.of(work)
        query = work.row * self.config.tile_m + self.turns.consumer * 64
        batch = place.batch if place.queries is None else self.scales.within(place.sequence)
        factor = self.scales.of_queries(batch, place.head, query)
        scales, softmax, functions = self.scales.of(batch, place.head), self.softmax, self.functions
        if not self.config.block and scales.k is not None:
            factor = factor * scales.of_keys().k
        if self.config.scoring.changes:
            functions = replace(functions, scale=functions.scale * factor)
        else:
            softmax = replace(softmax, scale_log2=softmax.scale_log2 * factor)
        return replace(self, scales=scales, softmax=softmax, functions=functions)

    @cute.jit
    def attend_tile(self, work, state):
        """Attend to all tiles of keys, and store the output."""
        q_state, k_state, v_state = state
        place, query = self.coords.of(work), work.row * self.config.tile_m
        # The last tile of keys, which may reach beyond the last key, comes first and is always masked.
        if cutlass.const_expr(self.lists is None):
            tiles, is_whole = place.tiles(query, self.config.tile_m, self.config.tile_n), None
        else:
            tiles = self.lists.tiles(work.row, place.batch, place.head)
            is_whole = tiles.partial == 0
            # Of no tiles the first is loaded, and not seen.
            keys = select(tiles.count == 0, cutlass.Int32(0), place.band.keys)
            place = replace(place, band=Band(place.band.queries, keys))
        of_keys = self.scales_of(tiles.first)
        q_stage = q_state.index if cutlass.const_expr(self.config.q_stages > 1) else 0
        if cutlass.const_expr(not self.config.begins_early):
            self.wait_first(q_state, k_state)
            self.begin_turn(work.is_first)
            self.qk.issue(a=q_stage, b=k_state.index)
            self.end_turn(work, tiles.count > 1)
            with mark("multiply"):
                warpgroup.wait_group(0)
            self.k_ring.release(k_state)
            k_state.advance()
        factor = self.score_tile(place, query, tiles.first, of_keys, shown=is_whole)
        if cutlass.const_expr(self.config.masks_parts and self.lists is None):
            # Where all queries see all of its keys it needs no mask.
            if (tiles.whole_end < tiles.end) | (tiles.whole_begin > tiles.first):
                place.band.mask(self.qk.tCrC, self.scores, query, tiles.first * self.config.tile_n)
        else:
            place.band.mask(self.qk.tCrC, self.scores, query, tiles.first * self.config.tile_n)
        self.softmax.update(self.qk.tCrC, first=True, factor=factor)
        if cutlass.const_expr(self.scales is not None):
            self.scales.begin(of_keys)
        self.weigh(place, query, tiles.first)
        self.keep_probabilities()
        self.pv.tCrC.fill(0.0)
        if cutlass.const_expr(self.pending is not None):
            self.pending.fill(1.0)
        if cutlass.const_expr(self.lists is None):
            k_state, v_state = self.attend_band(work, place, tiles, query, q_stage, k_state, v_state)
        else:
            k_state, v_state = self.attend_lists(work, place, tiles, query, q_stage, k_state, v_state)
        if cutlass.const_expr(not self.config.o_over_q):
            self.q_ring.release(q_state)
            q_state.advance()
        self.rescale(self.pending)
        self.v_ring.wait(v_state)
        self.pv.issue(b=v_state.index, accumulate=True)
        has_next = False
        if cutlass.const_expr(self.config.begins_early):
            has_next = work.has_next
            self.begin_next(has_next, q_state, k_state)
        factors, lse = self.softmax.finish(self.sinks_of(place, query))
        if cutlass.const_expr(self.scales is not None):
            self.scales.finish(factors)
        self.store_lse(place, query, lse)
        with mark("multiply"):
            warpgroup.wait_group(1 if self.config.begins_early else 0)
        self.v_ring.release(v_state)
        v_state.advance()
        scale_rows(self.pv.tCrC, self.sums, factors)
        if cutlass.const_expr(self.config.o_over_q):
            # All warpgroups have read Q.
            cute.arch.barrier(barrier_id=self.met, number_of_threads=self.config.consumers)
        self.store(work, place)
        if cutlass.const_expr(self.config.o_over_q):
            self.out.finish()
            self.q_ring.release(q_state)
            q_state.advance()
        if cutlass.const_expr(self.config.begins_early):
            warpgroup.wait_group(0)
            if has_next:
                self.k_ring.release(k_state)
            k_state.advance()
        return q_state, k_state, v_state

    @cute.jit
    def begin_next(self, has_next, q_state, k_state):
        """Multiply the next tile of queries with the first tile of its keys.

        After the last tile the MMAs multiply stages that have been read: a branch around them would keep the compiler
        from leaving their sums in registers while they run.
        """
        if has_next:
            self.wait_first(q_state, k_state)
        stages = (select(has_next, state.index, 0) for state in (q_state, k_state))
        self.qk.issue(*stages)

    @cute.jit
    def attend_band(self, work, place, tiles, query, q_stage, k_state, v_state):
        """Attend to the tiles but the last, backwards."""
        # Then the tiles that the diagonal cuts, those that every query sees, and those that the window's begin cuts.
        last = whole_end = tiles.end - 1
        if cutlass.const_expr(self.config.right):
            whole_end = cutlass.min(tiles.whole_end, last)
            for done in cutlass.range(last - whole_end, unroll=1):
                tile = last - 1 - done
                k_state, v_state = self.attend(
                    work, place, (tile, tiles.begin), query, tile, q_stage, k_state, v_state, masked=True
                )
        whole_begin = cutlass.min(tiles.whole_begin, whole_end)
        for done in cutlass.range(whole_end - whole_begin, unroll=1):
            tile = whole_end - 1 - done
            k_state, v_state = self.attend(
                work, place, (tile, tiles.begin), query, tile, q_stage, k_state, v_state, masked=False
            )
        if cutlass.const_expr(self.config.left):
            for done in cutlass.range(whole_begin - tiles.begin, unroll=1):
                tile = whole_begin - 1 - done
                k_state, v_state = self.attend(
                    work, place, (tile, tiles.begin), query, tile, q_stage, k_state, v_state, masked=True
                )
        return k_state, v_state

    @cute.jit
    def attend_lists(self, work, place, tiles, query, q_stage, k_state, v_state):
        """Attend to the tiles of the lists but the first."""
        for n in cutlass.range(1, tiles.partial, unroll=1):
            tile, left = tiles.partial_tile(n), (tiles.count - n, 1)
            k_state, v_state = self.attend(work, place, left, query, tile, q_stage, k_state, v_state, masked=True)
        for n in cutlass.range(select(tiles.partial == 0, cutlass.Int32(1), 0), tiles.whole, unroll=1):
            tile, left = tiles.whole_tile(n), (tiles.whole - n, 1)
            k_state, v_state = self.attend(work, place, left, query, tile, q_stage, k_state, v_state, masked=False)
        return k_state, v_state

    @cute.jit
    def attend(self, work, place: WorkCoords, left, query, tile, q_stage, k_state, v_state, masked: cutlass.Constexpr):
        """Multiply Q with a tile of keys, and the probabilities of the tile before with its values.

        It is not the last tile if the first of the two numbers `left` is greater than the second.
        """
        of_keys = self.scales_of(tile) if self.config.block else None
        self.k_ring.wait(k_state)
        self.begin_turn(False)
        self.qk.issue(a=q_stage, b=k_state.index)
        self.rescale(self.pending)
        self.v_ring.wait(v_state)
        self.pv.issue(b=v_state.index, accumulate=True)
        self.end_turn(work, left[0] > left[1])
        with mark("multiply"):
            warpgroup.wait_group(1)
        self.k_ring.release(k_state)
        k_state.advance()
        factor = self.score_tile(place, query, tile, of_keys, hides=masked or self.lists is None)
        if cutlass.const_expr(masked):
            place.band.mask(self.qk.tCrC, self.scores, query, tile * self.config.tile_n)
        factors = self.softmax.update(self.qk.tCrC, factor=factor)
        if cutlass.const_expr(self.config.block):
            self.scales.change(factors, of_keys)
        self.weigh(place, query, tile)
        with mark("multiply"):
            warpgroup.wait_group(0)
        self.v_ring.release(v_state)
        v_state.advance()
        if cutlass.const_expr(self.pending is None):
            self.rescale(factors)
        else:
            self.pending.store(factors.load())
        self.keep_probabilities()
        return k_state, v_state

    def rescale(self, factors):
        """Multiply the rows of O by factors, if given."""
        if factors is not None:
            scale_rows(self.pv.tCrC, self.sums, factors)

    def scales_of(self, tile):
        """Return the scales of a tile of keys, if there are any; they are read while its product is computed."""
        return None if self.scales is None else self.scales.of_keys(tile)

    def score_tile(self, place, query, tile, of_keys, hides=True, shown=None):
        """Apply the score and mask functions, if given, to the products.

        Returns a factor that all of the tile's scores still lack; None if there is none.
        """
        factor = of_keys.k if self.config.block else None
        functions = self.functions
        if functions is not None:
            if functions.changes_scores and factor is not None:
                functions, factor = replace(functions, scale=functions.scale * factor), None
            functions.apply(self.qk.tCrC, query, tile * self.config.tile_n, place.scores(), hides, shown)
        return factor

    def weigh(self, place, query, tile):
        """Multiply exponentials by their weights, if given; sums of rows exclude the weights."""
        if self.functions is not None:
            weights = self.functions.weights(self.qk.tCrC, query, tile * self.config.tile_n, place.scores())
            if weights is not None:
                weights.times(self.qk.tCrC, self.qk.tCrC)

    def sinks_of(self, place, query):
        """Return the logits that join the sums of this thread's rows, times log2(e); None if there are none."""
        if self.sinks is None:
            return None
        rows, sharing = self.scores.distinct(0), place.band.sharing
        if sharing is None:
            found = [self.sinks[place.head].to(cutlass.Float32) * LOG2_E] * len(rows)
        else:  # rows are those of all heads that share keys
            first = query + self.scores.of_thread(0)
            heads = (place.head * sharing + (first + row) % sharing for row in rows)
            found = [self.sinks[head].to(cutlass.Float32) * LOG2_E for head in heads]
        if place.split is not None:  # of the parts of the keys the first has them
            found = [select(place.split.index == 0, each, -cutlass.Float32.inf) for each in found]
        if place.queries is not None:  # rows after the last sequence have none
            is_one = place.queries.group < self.coords.queries.known
            found = [select(is_one, each, -cutlass.Float32.inf) for each in found]
        return found

    @cute.jit
    def begin_turn(self, is_first):
        """Wait until the other warpgroups have issued their MMAs; the first one does not at the start."""
        if cutlass.const_expr(self.config.ordered and self.config.turns_end):
            self.turns.wait(False)
        elif cutlass.const_expr(self.config.ordered):
            self.turns.wait(is_first & (self.turns.consumer == 0))

    @cute.jit
    def end_turn(self, work, goes_on):
        """Let the next warpgroup issue; the last one ends at the last tile."""
        if cutlass.const_expr(self.config.ordered and self.config.turns_end):
            self.turns.hand_over(True)
        elif cutlass.const_expr(self.config.ordered):
            self.turns.hand_over(work.has_next | goes_on | (self.turns.consumer < self.config.warpgroups - 1))

    def finish(self):
        """Wait until TMA has read all that was stored."""
        if self.config.ordered and self.config.turns_end:
            self.turns.end()
        self.out.finish()

    def keep_probabilities(self):
        """Make the exponentials the A of the next product."""
        tile = (self.config.tile_m, self.config.tile_n)
        into, reorders = self.pv.tCrA, self.config.transposes > 0
        operand.from_accumulators(
            self.qk.tCrC, self.qk.tiled_mma, tile, self.pv.tiled_mma, into=into, reorders=reorders
        )

    @cute.jit
    def store_lse(self, place, first, lse):
        """Store the logarithms of the sums, one lane a row."""
        for row in cutlass.range_constexpr(cute.size(lse)):
            query = first + self.scores.of_thread(0) + self.scores.distinct(0)[row]
            stored = self.lse
            if self.scores.is_first(0, cute.arch.lane_idx()) & (query < place.band.queries):
                heads = self.config.packed
                at = place.query + query, place.result
                if cutlass.const_expr(heads > 1):
                    at = place.query + query // heads, place.result * heads + query % heads
                stored[(*at, place.batch)] = lse[row]

    @cute.jit
    def store(self, work, place):
        """Store O, each warpgroup its own rows."""
        if cutlass.const_expr(self.parts is not None):
            part = self.parts[place.batch, None, place.result, None]
            stores = RowStores(self.sums, LANES_OF_STORE)
            stores.store(self.pv.tCrC, part, work.row * self.config.tile_m, 0, place.band.queries)
            return
        row = work.row * self.config.warpgroups + self.turns.consumer
        target = self.o.subtiles((row, 0, place.result, *place.q))
        if cutlass.const_expr(self.config.stores_at_once):
            self.out.store_at_once(self.pv.tCrC, target)
            return
        subtiles = self.out.subtiles(self.pv.tCrC, target)
        for index in cutlass.range_constexpr(target.count):
            self.out.store(subtiles[None, None, None, index], index % self.out.stage.stages, target, index)


class Forward:
    """Attention forward of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: ForwardConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale: cutlass.Float32,
        left: cutlass.Int32,
        right: cutlass.Int32,
        ctas: cutlass.Int32,
        lengths: Lengths | None,
        table: cute.Tensor | None,
        splits: Any,
        sharing: Any,
        stream: CUstream,
        tables: tuple | None = None,
        sinks: cute.Tensor | None = None,
        lists: tuple | None = None,
        scales: tuple | None = None,
        cached: CachedKeys | None = None,
        counter: cute.Tensor | None = None,
    ):
        """Launch on q (batch, queries, heads, head), k and v (batch, keys, kv heads, head), o as q.

        lse is (batch, heads, queries), fp32. At most `ctas` CTAs are launched; `left` and `right` are the band's.

        With `lengths` k and v have the tokens of all sequences as one mode: (keys, kv heads, head). So have q and o, if
        it has lengths of queries, and then lse has a batch of one. With `table` (sequences, pages) k and v are pages of
        one matrix. With `splits` o and lse have so many times the heads: those of each part of the keys. `sharing` is
        the band's, unless heads are packed here. `tables` are those of the score and mask functions, sinks are
        (heads,), lists are those of `BlockLists`, and scales those of `Scales`. `cached` says more of keys with lengths
        that queries don't have. `counter`, int32, is of a dynamic configuration: its first element is 0, before and
        after the launch.
        """
        config, plan = self.config, self.config.smem
        cached = CachedKeys() if cutlass.const_expr(cached is None) else cached
        sQ, sO = (plan[name].content for name in ("sQ", "sO"))
        packed, of_queries, q_tile, o_tile = config.packed, rows_first, sQ.tile, sO.tile
        if cutlass.const_expr(packed > 1):
            of_queries, sharing = heads_in_rows, cutlass.Int32(packed)
            q_tile, o_tile = (((packed, rows // packed), columns) for rows, columns in (sQ.tile, sO.tile))
        tma_q, mQ = tma.make_load(of_queries(q), to_cute(sQ.layout), q_tile, 1)
        (tma_k, mK), (tma_v, mV) = (None, k), (None, v)
        if cutlass.const_expr(not config.copies_rows):
            tma_k, mK = tma.make_load(rows_first(k), to_cute(config.k_copy.layout), config.k_copy.tile, 1)
            tma_v, mV = tma.make_load(columns_first(v), to_cute(config.v_copy.layout), config.v_copy.tile, 1)
        tma_o, mO = tma.make_store(of_queries(o), to_cute(sO.layout), o_tile)
        left, right = left if config.left else None, right if config.right else None
        heads, kv_heads = (cute.size(each, mode=[cute.rank(each) - 2]) for each in (q, k))
        group, heads = heads // kv_heads, heads // packed
        if cutlass.const_expr(packed > 1):
            group = group // packed
        keys_at_once = L2_BYTES * 8 // ((config.head + config.head_v) * config.bits)
        parts = () if splits is None else (splits,)
        if cutlass.const_expr(cute.rank(q) == 4):
            batch, queries = cute.size(q, mode=[0]), cute.size(q, mode=[1]) * packed
            raster = cute.ceil_div(queries, config.tile_m), 1, batch, heads, *parts
            count = math.prod(raster)
            if cutlass.const_expr(lengths is None):
                keys = cute.size(k, mode=[1])
                band = Band(queries, keys, left, right, sharing)
                at_once = cutlass.max(keys_at_once // keys, 1) * group
                divisors = None
                if cutlass.const_expr(config.divides_fast):
                    tiles, sections = None, None
                    if cutlass.const_expr(config.right and not config.is_split):
                        sections = schedulers.section_divisors(raster, at_once)
                    else:
                        tiles = schedulers.make_divisors(raster)
                    divisors = tiles, sections, schedulers.extent_divisors(raster[2:])
                coords = Batches(band, None if splits is None else heads, splits, cached.shared, divisors)
            else:
                keys = cached_keys(lengths, cute.size(k, mode=[0]), table, config.page, cached)
                band = Band(queries, cutlass.Int32(0), left, right, sharing)
                of_result = None if splits is None else heads
                coords = CachedSequences(band, of_result, splits, cached.shared, keys=keys, table=table)
                at_once = group
        else:
            queries = queries_of(lengths, cute.size(q, mode=[0]), has_tail=True)
            # Sequences have at most the pages of a row of their table, which others' tables may have too.
            key_rows = cute.size(k, mode=[0]) if table is None else cute.size(table) * config.page
            keys = keys_of(lengths, key_rows, has_tail=False)
            coords = RaggedSequences(
                queries, keys, left, right, None if splits is None else heads, splits, table, packed
            )
            raster, at_once = math.prod((heads, *parts)), keys_at_once
            count = queries.most_tiles(config.tile_m // packed) * raster
        self.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(
            (tma_q, tma_k, tma_v, tma_o),
            (mQ, mK, mV, mO),
            modes(lse, 2, 1, 0),
            raster,
            group,
            LOG2_E if config.scoring.changes else scale * LOG2_E,
            coords,
            to_tiled_mma(config.qk),
            to_tiled_mma(config.pv, "K", "K" if config.transposes else "MN"),
            at_once,
            scale if config.scoring.changes else None,
            tables,
            sinks,
            lists,
            None if scales is None else (*scales, heads),
            counter,
            o if config.stores_rows else None,
        ).launch(
            grid=(cutlass.min(count, ctas), 1, 1),
            block=(PRODUCERS + config.consumers, 1, 1),
            min_blocks_per_mp=1,
            use_pdl=config.overlaps,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        lse: cute.Tensor,
        raster: tuple | cutlass.Int32,
        group: cutlass.Int32,
        scale_log2: cutlass.Float32,
        coords: Batches | RaggedSequences,
        qk: cute.TiledMma,
        pv: cute.TiledMma,
        at_once: cutlass.Int32,
        scale: cutlass.Float32 | None,
        tables: tuple | None,
        sinks: cute.Tensor | None,
        lists: tuple | None,
        scales: tuple | None,
        counter: cute.Tensor | None,
        parts: cute.Tensor | None,
    ):
        """Make the blocks, and part the warps by their roles."""
        config, plan = self.config, self.config.smem
        tile_m, tile_n = config.tile_m, config.tile_n
        dtype, readers = element_type(config.dtype), config.consumers // 32
        transposed = {"sVt": dtype} if config.transposes else {}
        shared = smem.share(plan, sQ=dtype, sK=dtype, sV=dtype, sO=element_type(config.out_dtype), **transposed)
        q_ring, k_ring, v_ring = (
            TmaRing(shared[f"{name}_barriers"], staged.stages, staged.stage_bytes, warps)
            if name == "q" or not config.copies_rows
            else MixedRing(shared[f"{name}_barriers"], staged.stages, 0, warps, threads=PRODUCERS)
            for name, staged, warps in (
                ("q", plan["sQ"].content, readers),
                ("k", plan["sK"].content, readers),
                ("v", plan["sV"].content, config.transposes or readers),
            )
        )
        sV, read_ring = shared["sV"], v_ring
        if cutlass.const_expr(config.transposes):
            sV = shared["sVt"]
            read_ring = StoredRing(shared["vt_barriers"], config.stages, 0, readers, warps=config.transposes)
        # Of the warps that transpose, one deals tiles.
        tickets = make_tickets(config, shared, counter, 1 + readers + max(config.transposes - 1, 0))
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                q_ring.initialise()
                k_ring.initialise()
                v_ring.initialise()
                if cutlass.const_expr(config.transposes):
                    read_ring.initialise()
                if cutlass.const_expr(config.dynamic):
                    tickets.initialise()
        publish_barriers()
        if cutlass.const_expr(config.overlaps):
            # Of the next kernel's CTAs those that find room begin; where none does, they come as this grid's end.
            follow_launch(True)
        q = copies[0], tensors[0], shared["sQ"], (tile_m, config.width)
        o = copies[3], tensors[3], shared["sO"], (64, config.head_v)
        if cutlass.const_expr(config.packed > 1):
            ragged = 0 if isinstance(coords, RaggedSequences) else None
            q, o = (PackedTiles(*each, ragged, batched=False, packed=config.packed) for each in (q, o))
        else:
            q, o = coords.queries_of(*q), coords.queries_of(*o)
        k = copies[1], tensors[1], shared["sK"], (tile_n, config.width)
        v = copies[2], tensors[2], shared["sV"], (config.head_v, tile_n)
        if cutlass.const_expr(config.copies_rows):
            pages = coords.table, config.page, coords.keys.pitch
            k_loads = make_paged_rows(tensors[1], shared["sK"], *pages, 0, PRODUCERS)
            v_loads = make_paged_rows(tensors[2], shared["sV"], *pages, 1, PRODUCERS)
        elif cutlass.const_expr(config.page):
            k_loads = make_paged_loads(*k, coords.table, config.page, 0, pitch=coords.keys.pitch)
            v_loads = make_paged_loads(*v, coords.table, config.page, 1, pitch=coords.keys.pitch)
        else:
            k_loads, v_loads = coords.keys_of(*k, 0).loads(), coords.keys_of(*v, 1).loads()
        lists = make_block_lists(lists, config.scoring.blocks, (tile_m, tile_n))
        is_uneven = config.right and not config.is_split
        scheduler = coords.scheduler(raster, tile_m // config.packed, at_once, group, longest_first=is_uneven)
        if cutlass.const_expr(config.dynamic):
            scheduler = Dynamic(scheduler, tickets)
        budget = rules.register_budget(config.warpgroups, producer=config.producer_registers)
        if warp < PRODUCERS // 32:
            cute.arch.setmaxregister_decrease(budget.producer)
            loads = ForwardProducer(
                config, q_ring, k_ring, v_ring, q.loads(), k_loads, v_loads, coords, group, lists, warp
            )
            if cutlass.const_expr(config.copies_rows):
                loads.run(scheduler)
            elif warp == 0:
                loads.run(scheduler)
            elif cutlass.const_expr(config.transposes):
                planned = plan["sV"].content, plan["sVt"].content
                share = warp - 1, config.transposes, config.blocks_at_once
                transposes = make_transposes(shared["sV"], planned[0], sV, planned[1], *share)
                values = ValueTransposer(v_ring, read_ring, transposes, coords, loads.tiles_of)
                if cutlass.const_expr(not config.dynamic):
                    scheduler.each(values)
                elif warp == 1:
                    scheduler.deal_to_each(values)
                else:
                    scheduler.each(values)
            elif cutlass.const_expr(config.dynamic):
                if warp == 1:
                    scheduler.deal()
        else:
            cute.arch.setmaxregister_increase(budget.consumer)
            barriers = rules.named_barriers(turns=config.warpgroups, store=config.warpgroups, met=1)
            tidx = roles.warpgroup_thread(PRODUCERS, config.consumers)
            consumer = cute.arch.make_warp_uniform(tidx // 128)
            scores = make_subtile((tile_m, tile_n), config.warpgroups, tidx)
            functions = None
            if cutlass.const_expr(config.scoring.graph is not None):
                functions = make_score_functions(config.scoring.graph, tables, scores, scale)
            own = o.stage_slice(consumer, plan["sO"].content.stages // config.warpgroups)
            store_mma = to_tiled_mma(rules.wgmma_tiling(config.dtype, config.dtype, config.head_v, 1))
            consumer = ForwardConsumer(
                config,
                q_ring,
                k_ring,
                read_ring,
                product.make_product(qk, q.staged, shared["sK"], tidx),
                product.make_product(pv, tile_m, sV, tidx),
                scores,
                make_subtile((tile_m, config.head_v), config.warpgroups, tidx),
                make_online_softmax(scores, scale_log2, config.probability_bits),
                PingpongOrder(barriers["turns"], consumer, 128, config.warpgroups),
                own,
                make_tile_store(store_mma, own.staged, 1, tidx % 128, 128, barriers["store"] + consumer),
                lse,
                coords,
                functions,
                sinks,
                lists,
                make_scales(scales, group, config.block, tile_n),
                barriers["met"],
                cute.make_rmem_tensor((len(scores.distinct(0)),), cutlass.Float32) if config.rescales_late else None,
                parts,
            )
            scheduler.each(consumer)
            consumer.finish()
