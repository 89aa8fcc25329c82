"""The device code of attention backward: dQ, dK and dV, tile by tile of queries (traced).

A CTA has a tile of keys, and goes through the queries that see it, of all heads of its group: it sums dK and dV in
registers, and adds its part of dQ to memory. Scores are transposed, S^T = K Q^T, so that P^T and dS^T, which come from
accumulators, are the A of dV = P^T dO and dK = dS^T Q; dS reaches dQ = dS K through shared memory.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync, warpgroup

from cutepy.device import operand, product, roles, rules, smem, staging, tma
from cutepy.device.bands import Band
from cutepy.device.block_lists import BlockLists, make_block_lists
from cutepy.device.epilogue import Sink, Stage, TileStore, make_stage, make_tile_store
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.ordered import Order
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.device.primitives import LOG2_E, select
from cutepy.device.score_functions import ScoreFunctions, make_score_functions, weighted
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import element_type
from cutepy.kernels.attention.config import DQ_COLUMNS, L2_BYTES, PRODUCERS, VECTOR, BackwardConfig, Lengths
from cutepy.kernels.attention.places import Batches, Place, RaggedByKeys, keys_of, modes, queries_of, rows_first


@dataclass(frozen=True)
class Loads:
    """The producer warp: K and V once; Q, dO and the rows' statistics for each tile of queries of each head."""

    config: BackwardConfig
    kv_ring: TmaRing
    q_ring: TmaRing
    do_ring: TmaRing
    sK: tma.TmaLoads
    sV: tma.TmaLoads
    sQ: tma.TmaLoads
    sdO: tma.TmaLoads
    sStats: tma.TmaLoads
    places: Batches | RaggedByKeys
    group: cutlass.Int32
    lists: BlockLists | None

    def first_state(self, k):
        """Return the states of the rings at the start."""
        return self.kv_ring.producer_state(), self.q_ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        """Load what a tile of keys needs."""
        kv_state, q_state = state
        place = self.places.of(work)
        tiles = None
        if cutlass.const_expr(self.lists is None):
            tiles = place.tiles(work.row * self.config.tile_k, self.config.tile_k, self.config.tile_q)
        first_tile = place.first_tile(self.config.tile_q)
        full = self.kv_ring.acquire(kv_state)
        self.sK.load((work.row, 0, place.head, *place.k), kv_state.index, full)
        self.sV.load((work.row, 0, place.head, *place.k), kv_state.index, full)
        kv_state.advance()
        for member in cutlass.range(self.group, unroll=1):
            head = place.head * self.group + member
            listed = tiles if cutlass.const_expr(self.lists is None) else self.lists.tiles(work.row, place.batch, head)
            for done in cutlass.range(listed.count, unroll=1):
                tile = listed.begin + done if cutlass.const_expr(self.lists is None) else listed.tile(done)
                full = self.q_ring.acquire(q_state)
                self.sQ.load((tile, 0, head, *place.q), q_state.index, full)
                self.sStats.load((first_tile + tile, 0, head, place.batch), q_state.index, full)
                full = self.do_ring.acquire(q_state)
                self.sdO.load((tile, 0, head, *place.q), q_state.index, full)
                q_state.advance()
        return kv_state, q_state


@dataclass(frozen=True)
class Derives:
    """The consumer warpgroups: gradients of 64 keys each, and a part of dQ."""

    config: BackwardConfig
    kv_ring: TmaRing
    q_ring: TmaRing
    do_ring: TmaRing
    s: product.Product
    dp: product.Product
    dv: product.Product
    dk: product.Product
    dq: product.Product
    scores: AccumulatorTile
    stats: cute.Tensor
    ds_stage: Stage
    own_dq: cute.Tensor
    own_barrier: cutlass.Int32
    dq_sink: Sink
    dq_tiles: tma.TmaTiles
    order: Order | None
    consumer: cutlass.Int32
    dk_tiles: tma.TmaTiles
    dv_tiles: tma.TmaTiles
    out: TileStore
    places: Batches | RaggedByKeys
    group: cutlass.Int32
    scale: cutlass.Float32
    functions: ScoreFunctions | None
    lists: BlockLists | None

    def first_state(self, k):
        """Return the states of the rings at the start."""
        return self.kv_ring.consumer_state(), self.q_ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        """Compute the gradients of a tile of keys, and its part of dQ."""
        kv_state, q_state = state
        place, key = self.places.of(work), work.row * self.config.tile_k
        seen = self.seen(place, key) if cutlass.const_expr(self.lists is None) else None
        self.dk.tCrC.fill(0.0)
        self.dv.tCrC.fill(0.0)
        self.kv_ring.wait(kv_state)
        for member in cutlass.range(self.group, unroll=1):
            head = place.head * self.group + member
            if cutlass.const_expr(self.lists is None):
                q_state = self.derive_band(key, seen, place, head, q_state)
            else:
                tiles = self.lists.tiles(work.row, place.batch, head)
                q_state = self.derive_lists(key, tiles, place, head, q_state)
        self.kv_ring.release(kv_state)
        kv_state.advance()
        self.dk.tCrC.store(self.dk.tCrC.load() * self.scale)
        if cutlass.const_expr(self.config.overlays_out):
            self.dq_sink.wait()  # it has read the memory where dK and dV are staged
            self.out.stage.meet()
        for sums, to in ((self.dk.tCrC, self.dk_tiles), (self.dv.tCrC, self.dv_tiles)):
            places = to.subtiles((work.row, 0, place.head, *place.k))
            subtiles = self.out.subtiles(sums, places)
            for index in cutlass.range_constexpr(places.count):
                self.out.store(subtiles[None, None, None, index], index % self.out.stage.stages, places, index)
        return kv_state, q_state

    @cute.jit
    def seen(self, place: Place, key):
        """Return the tiles of queries that see a tile of keys: the first, those that need no mask, and the last."""
        band, tiles = place.band, place.tiles(key, self.config.tile_k, self.config.tile_q)
        # Queries beyond the last are zeros, with a dO of zeros: only bounds of the band, and missing keys, need masks.
        whole_begin, whole_end = tiles.whole_begin, tiles.whole_end
        if cutlass.const_expr(band.right is None):
            whole_end = tiles.end
        if cutlass.const_expr(band.left is None):
            if key + self.config.tile_k > band.queries:
                whole_begin = whole_end
        whole_begin = cutlass.min(whole_begin, whole_end)
        # A function of a score may be infinite or NaN there: all tiles are masked.
        if cutlass.const_expr(self.functions is not None):
            whole_begin = tiles.end
        return tiles.begin, whole_begin, whole_end, tiles.end

    @cute.jit
    def derive_band(self, key, seen, place: Place, head, q_state):
        """Go through the queries of a head that see a tile of keys."""
        begin, whole_begin, whole_end, end = seen
        for done in cutlass.range(whole_begin - begin, unroll=1):
            q_state = self.derive(key, begin + done, place, head, q_state, masked=True)
        if cutlass.const_expr(self.functions is None):
            for done in cutlass.range(whole_end - whole_begin, unroll=1):
                q_state = self.derive(key, whole_begin + done, place, head, q_state, masked=False)
        if cutlass.const_expr(place.band.right is not None and self.functions is None):
            for done in cutlass.range(end - whole_end, unroll=1):
                q_state = self.derive(key, whole_end + done, place, head, q_state, masked=True)
        return q_state

    @cute.jit
    def derive_lists(self, key, tiles, place: Place, head, q_state):
        """Go through the tiles of queries of a head that are listed for a tile of keys."""
        for n in cutlass.range(tiles.partial, unroll=1):
            q_state = self.derive(key, tiles.partial_tile(n), place, head, q_state, masked=True)
        for n in cutlass.range(tiles.whole, unroll=1):
            q_state = self.derive(key, tiles.whole_tile(n), place, head, q_state, masked=False)
        return q_state

    @cute.jit
    def derive(self, key, tile, place: Place, head, q_state, masked: cutlass.Constexpr):
        """Add a tile of queries' part to dK and dV, and this tile of keys' part to its dQ."""
        p, dp, stage = self.s.tCrC, self.dp.tCrC, q_state.index
        self.q_ring.wait(q_state)
        self.s.issue(b=stage)
        weights = self.weights(key, tile, place.scores(head))
        self.do_ring.wait(q_state)
        # There are no registers for dP beside what the functions need: it is multiplied after them.
        if cutlass.const_expr(self.config.scoring.needs_registers):
            warpgroup.wait_group(0)
        else:
            self.dp.issue(b=stage)
            warpgroup.wait_group(1)
        derivatives = self.score_tile(key, tile, place.scores(head), hides=masked or self.lists is None)
        if cutlass.const_expr(masked):
            query = tile * self.config.tile_q
            place.band.mask(p, self.scores, key, query, is_ragged=self.masks_rows(place))
        for registers, lse in self.by_query(0, stage):
            for register in registers:
                p[register] = cute.math.exp2(p[register] * self.factor_log2 - lse, fastmath=True)
        if cutlass.const_expr(self.config.keeps_p):
            of_values = p
            if cutlass.const_expr(weights is not None):
                of_values = weights.times(p, cute.make_rmem_tensor(p.layout, cutlass.Float32))
            self.to_operand(of_values, self.dv)
            for register, derivative in enumerate(derivatives):
                p[register] = weighted(p[register], derivative)
            if cutlass.const_expr(self.config.scoring.needs_registers):
                self.dp.issue(b=stage)
            self.dv.issue(b=stage, accumulate=True)
            warpgroup.wait_group(1)
        else:
            warpgroup.wait_group(0)
        if cutlass.const_expr(weights is not None):
            weights.times(dp, dp)
        for registers, delta in self.by_query(1, stage):
            for register in registers:
                # P (dP - delta), in the form that ptxas (13.0) keeps in registers with as many queries.
                if cutlass.const_expr(self.config.keeps_p):
                    dp[register] = p[register] * (dp[register] - delta)
                else:
                    dp[register] = p[register] * dp[register] - p[register] * delta
        if cutlass.const_expr(not self.config.keeps_p):
            self.to_operand(p, self.dv)
        self.to_operand(dp, self.dk)
        # The other warpgroup has read this stage of dS two tiles ago: it has been at the barrier since.
        buffer = q_state.count % 2
        self.ds_stage.write(self.ds_stage.subtiles(dp)[None, None, None, 0], buffer)
        if cutlass.const_expr(not self.config.keeps_p):
            self.dv.issue(b=stage, accumulate=True)
        self.ds_stage.publish()  # its fence also orders this thread's reads of statistics before TMA overwrites them
        if cutlass.const_expr(self.config.dq_is_transposed):
            self.dq.issue(b=buffer)
        else:
            self.dq.issue(a=buffer)
        self.dk.issue(b=stage, accumulate=True)
        warpgroup.wait_group(1)
        self.do_ring.release(q_state)
        self.add_dq(key, tile, place, head)
        warpgroup.wait_group(0)
        cute.arch.sync_warp()
        self.q_ring.release(q_state)
        q_state.advance()
        return q_state

    def masks_rows(self, place: Place):
        """Return whether keys beyond the last need a mask: no bound hides them, or a function may be NaN there."""
        return place.band.left is None or self.functions is not None

    def score_tile(self, key, tile, place, hides):
        """Replace products by what the score and mask functions make of them; return the derivatives, if not 1."""
        if self.functions is None:
            return []
        return self.functions.apply(self.s.tCrC, key, tile * self.config.tile_q, place, hides)

    def weights(self, key, tile, place):
        """Return the factors of the probabilities; None if there are none."""
        if self.functions is None:
            return None
        return self.functions.weights(self.s.tCrC, key, tile * self.config.tile_q, place)

    @property
    def factor_log2(self):
        """Factor of the scores, times log2(e): the score function takes scaled products."""
        if self.functions is not None and self.functions.changes_scores:
            return LOG2_E
        return self.scale * LOG2_E

    def by_query(self, which: int, stage):
        """Yield this thread's registers of each query, with one of its statistics."""
        places = self.scores.place(1)
        for place, across in enumerate(self.scores.distinct(1)):
            value = self.stats[self.scores.of_thread(1) + across, which, stage]
            yield [register for register, column in enumerate(places) if column == place], value

    def to_operand(self, sums, into):
        """Make accumulators the A of another product."""
        tile = (self.config.tile_k, self.config.tile_q)
        operand.from_accumulators(sums, self.s.tiled_mma, tile, into.tiled_mma, into=into.tCrA)

    @cute.jit
    def add_dq(self, key, tile, place: Place, head):
        """Add this warpgroup's part of dQ, not scaled, to the sums in memory, in the order of registers."""
        row = (place.first_tile(self.config.tile_q) + tile) * self.config.warpgroups + self.consumer
        places = self.dq_tiles.subtiles((row, 0, head, place.batch))
        self.dq_sink.wait()
        self.meet()
        for vector in cutlass.range_constexpr(cute.size(self.own_dq, mode=[1])):
            held = cute.make_rmem_tensor(VECTOR, cutlass.Float32)
            for element in cutlass.range_constexpr(VECTOR):
                held[element] = self.dq.tCrC[vector * VECTOR + element]
            cute.autovec_copy(held, self.own_dq[None, vector])
        cute.arch.fence_proxy("async.shared", space="cta")  # TMA reads what was written
        self.meet()
        if cutlass.const_expr(self.order is None):
            self.dq_sink.send(places, 0, 0, 1)
        else:
            counter, rank = (row, head, place.batch), self.rank(key, tile, place.band)
            self.order.wait(counter, rank)
            self.dq_sink.send(places, 0, 0, 1)
            self.order.pass_on(counter, rank)

    def rank(self, key, tile, band: Band):
        """Return how many tiles of keys add to a tile of queries before this one: those that are dealt before it.

        Of the tiles of keys that a tile of queries sees the last is dealt first if queries see none behind their own
        position, so that each tile of keys begins with queries that no other one has yet to add to.
        """
        tile_q, tile_k, seen = self.config.tile_q, self.config.tile_k, band.turned()
        if cutlass.const_expr(self.config.right):
            behind = select((tile + 1) * tile_q >= seen.queries, seen.keys, seen.end((tile + 1) * tile_q - 1))
            return (behind - 1) // tile_k - key // tile_k
        return key // tile_k - select(tile == 0, cutlass.Int32(0), seen.begin(tile * tile_q) // tile_k)

    def meet(self):
        """Wait for the threads of this warpgroup."""
        cute.arch.barrier(barrier_id=self.own_barrier, number_of_threads=128)


class Backward:
    """Attention backward of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: BackwardConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        do: cute.Tensor,
        stats: cute.Tensor,
        dq: cute.Tensor,
        dk: cute.Tensor,
        dv: cute.Tensor,
        scale: cutlass.Float32,
        left: cutlass.Int32,
        right: cutlass.Int32,
        ctas: cutlass.Int32,
        lengths: Lengths | None,
        counters: cute.Tensor | None,
        stream: CUstream,
        tables: tuple | None = None,
        lists: tuple | None = None,
    ):
        """Launch on tensors as of `Forward`; dq has the sums of `BackwardConfig.sums_shape`, and is added to.

        stats (batch, heads, 2, queries), fp32, has the rows' logarithms of sums, of base 2, plus infinity where nothing
        is seen, and their sums of dO * O. With `lengths` it and dq have a batch of one, and sequences in whole tiles.
        `counters` (batch, heads, parts of dq), int32, are zeros, of an ordered configuration, which takes no lists, and
        all of whose CTAs must be on the GPU at one time. `tables` are those of the score and mask functions, and lists
        those of `BlockLists`, for rows of keys.
        """
        config, plan = self.config, self.config.smem
        content = {region.name: region.content for region in plan}
        stats_layout = _stats_layout(config, 1)
        loads_and_stores = (
            tma.make_load(rows_first(k), to_cute(content["sK"].layout), content["sK"].tile, 1),
            tma.make_load(rows_first(v), to_cute(content["sV"].layout), content["sV"].tile, 1),
            tma.make_load(rows_first(q), to_cute(content["sQ"].layout), content["sQ"].tile, 1),
            tma.make_load(rows_first(do), to_cute(content["sdO"].layout), content["sdO"].tile, 1),
            cpasync.make_tiled_tma_atom(
                cpasync.CopyBulkTensorTileG2SOp(), modes(stats, 3, 2, 1, 0), stats_layout, (config.tile_q, 2)
            ),
            _reduce_copy(modes(dq, 2, 3, 1, 0), _dq_layout(config, 1)),
            tma.make_store(rows_first(dk), to_cute(content["sOut"].layout), content["sOut"].tile),
            tma.make_store(rows_first(dv), to_cute(content["sOut"].layout), content["sOut"].tile),
        )
        copies, tensors = zip(*loads_and_stores, strict=True)
        left, right = left if config.left else None, right if config.right else None
        heads, kv_heads = (cute.size(each, mode=[cute.rank(each) - 2]) for each in (q, k))
        group = heads // kv_heads
        queries_at_once = L2_BYTES // (config.width * 8)
        if cutlass.const_expr(lengths is None):
            batch, queries, keys = cute.size(q, mode=[0]), cute.size(q, mode=[1]), cute.size(k, mode=[1])
            places = Batches(Band(queries, keys, left, right).turned())
            raster = cute.ceil_div(keys, config.tile_k), 1, batch, kv_heads
            count, at_once = raster[0] * raster[2] * raster[3], cutlass.max(queries_at_once // (queries * group), 1)
        else:
            keys = keys_of(lengths, cute.size(k, mode=[0]), has_tail=True)
            queries = queries_of(lengths, cute.size(q, mode=[0]), has_tail=False)
            places = RaggedByKeys(queries, keys, left, right)
            raster, at_once = kv_heads, cutlass.max(queries_at_once // group, 1)
            count = keys.most_tiles(config.tile_k) * kv_heads
        self.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(
            copies,
            tensors,
            raster,
            group,
            scale,
            places,
            to_tiled_mma(config.scores),
            to_tiled_mma(config.sums, "K", "MN"),
            to_tiled_mma(config.dq, *(("MN", "K") if config.dq_is_transposed else (("K", "MN")[config.ds_mode], "MN"))),
            at_once,
            None if counters is None else modes(counters, 2, 1, 0),
            tables,
            lists,
        ).launch(
            grid=(cutlass.min(count, ctas), 1, 1),
            block=(PRODUCERS + config.consumers, 1, 1),
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        raster: tuple | cutlass.Int32,
        group: cutlass.Int32,
        scale: cutlass.Float32,
        places: Batches | RaggedByKeys,
        scores_mma: cute.TiledMma,
        sums_mma: cute.TiledMma,
        dq_mma: cute.TiledMma,
        at_once: cutlass.Int32,
        counters: cute.Tensor | None,
        tables: tuple | None,
        lists: tuple | None,
    ):
        """Make the blocks, and part the warps by their roles."""
        config, plan = self.config, self.config.smem
        tile_k, tile_q, head = config.tile_k, config.tile_q, config.width
        dtype = element_type(config.dtype)
        names = ("sK", "sV", "sQ", "sdO", "sdS", "sOut")
        shared = smem.share(plan, **dict.fromkeys(names, dtype), sdQ=cutlass.Float32, sStats=cutlass.Float32)
        bytes_of = {name: plan[name].content.stage_bytes for name in ("sK", "sV", "sQ", "sdO")}
        warps = config.consumers // 32
        kv_ring = TmaRing(shared["kv_barriers"], 1, bytes_of["sK"] + bytes_of["sV"], warps)
        q_ring = TmaRing(shared["q_barriers"], config.stages, bytes_of["sQ"] + 8 * tile_q, warps)
        do_ring = TmaRing(shared["do_barriers"], config.stages, bytes_of["sdO"], warps)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                kv_ring.initialise()
                q_ring.initialise()
                do_ring.initialise()
        publish_barriers()
        staged_stats = cute.make_tensor(shared["sStats"], _stats_layout(config, config.stages))
        keys, queries = places.keys_of, places.queries_of
        matrices = (
            ("sK", tile_k, keys),
            ("sV", tile_k, keys),
            ("sQ", tile_q, queries),
            ("sdO", tile_q, queries),
        )
        k, v, q, do = (
            cut(copies[n], tensors[n], shared[name], (rows, head)) for n, (name, rows, cut) in enumerate(matrices)
        )
        stats = tma.make_tiles(copies[4], tensors[4], staged_stats, (tile_q, 2))
        staged_dq = cute.make_tensor(shared["sdQ"], _dq_layout(config, config.warpgroups))
        dq = tma.make_tiles(copies[5], tensors[5], staged_dq, (config.dq_rows, DQ_COLUMNS))
        dk, dv = (keys(copies[n], tensors[n], shared["sOut"], (tile_k, head)) for n in (6, 7))
        grows = config.right and config.ordered
        scheduler = places.scheduler(raster, tile_k, at_once, 1, longest_first=config.right, grows=grows)
        blocks = None if lists is None else config.scoring.blocks[::-1]
        lists = make_block_lists(lists, blocks, (tile_k, tile_q))
        budget = rules.register_budget(config.warpgroups, producer=24)
        if warp < PRODUCERS // 32:
            cute.arch.setmaxregister_decrease(budget.producer)
            if warp == 0:
                loads = Loads(
                    config,
                    kv_ring,
                    q_ring,
                    do_ring,
                    k.loads(),
                    v.loads(),
                    q.loads(),
                    do.loads(),
                    stats.loads(),
                    places,
                    group,
                    lists,
                )
                kv_state, q_state = scheduler.each(loads)
                kv_ring.drain(kv_state)
                q_ring.drain(q_state.clone())
                do_ring.drain(q_state)
        else:
            cute.arch.setmaxregister_increase(budget.consumer)
            barriers = rules.named_barriers(store=1, scores=1, own=config.warpgroups)
            tidx = roles.warpgroup_thread(PRODUCERS, config.consumers)
            consumer, lane = cute.arch.make_warp_uniform(tidx // 128), tidx % 128
            own_ds, own_k = staging.turned(shared["sdS"]), staging.turned(k.staged)
            queries_of_dq, columns_of_dq = config.dq_part
            if cutlass.const_expr(queries_of_dq < tile_q):
                own_ds = cute.local_tile(own_ds, (queries_of_dq, tile_k, 2), (consumer, 0, 0))
            else:
                own_k = cute.local_tile(own_k, (columns_of_dq, tile_k, 1), (consumer, 0, 0))
            vectors = cute.make_layout((VECTOR, config.dq_registers // VECTOR), stride=(1, VECTOR * 128))
            first = shared["sdQ"] + (consumer * (config.dq_registers * 128) + lane * VECTOR)
            own_dq = cute.make_tensor(
                cute.make_ptr(cutlass.Float32, first.toint(), cute.AddressSpace.smem, assumed_align=16), vectors
            )
            scores, functions = make_subtile((tile_k, tile_q), config.warpgroups, tidx), None
            if cutlass.const_expr(config.scoring.graph is not None):
                functions = make_score_functions(config.scoring.transposed, tables, scores, scale)
            derives = Derives(
                config,
                kv_ring,
                q_ring,
                do_ring,
                product.make_product(scores_mma, k.staged, q.staged, tidx),
                product.make_product(scores_mma, v.staged, do.staged, tidx),
                product.make_product(sums_mma, tile_k, staging.turned(do.staged), tidx),
                product.make_product(sums_mma, tile_k, staging.turned(q.staged), tidx),
                product.make_product(dq_mma, *((own_k, own_ds) if config.dq_is_transposed else (own_ds, own_k)), lane),
                scores,
                staged_stats,
                make_stage(scores_mma, shared["sdS"], config.ds_mode, tidx, config.consumers, barriers["scores"]),
                own_dq,
                barriers["own"] + consumer,
                Sink(cute.arch.make_warp_uniform(lane // 32)),
                dq.stage_slice(consumer, 1),
                Order(counters, cute.arch.make_warp_uniform(lane // 32)) if config.ordered else None,
                consumer,
                dk,
                dv,
                make_tile_store(sums_mma, dk.staged, 1, tidx, config.consumers, barriers["store"]),
                places,
                group,
                scale,
                functions,
                lists,
            )
            scheduler.each(derives)
            derives.out.finish()
            if cutlass.const_expr(not config.overlays_out):
                derives.dq_sink.wait()


def _dq_layout(config: BackwardConfig, stages: int):
    """Lay out the sums of dQ of so many warpgroups, (rows, columns, stages), contiguous: see `sums_shape`."""
    shape, stride = (config.dq_rows, DQ_COLUMNS), (DQ_COLUMNS, 1)
    if stages == 1:
        return cute.make_layout(shape, stride=stride)
    return cute.make_layout((*shape, stages), stride=(*stride, config.dq_registers * 128))


def _reduce_copy(tensor: cute.Tensor, layout):
    tile = (cute.size(layout, mode=[0]), cute.size(layout, mode=[1]))
    return cpasync.make_tiled_tma_atom(cpasync.CopyReduceBulkTensorTileS2GOp(), tensor, layout, tile)


def _stats_layout(config: BackwardConfig, stages: int):
    """Lay out the statistics of a tile's queries: (queries, 2, stages)."""
    shape, stride = (config.tile_q, 2), (1, config.tile_q)
    if stages == 1:
        return cute.make_layout(shape, stride=stride)
    return cute.make_layout((*shape, stages), stride=(*stride, 2 * config.tile_q))
