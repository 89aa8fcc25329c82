"""The device code of attention backward: dQ, dK and dV, tile by tile of queries (traced).

A CTA has a tile of keys, and loops over the tiles of queries that see these keys, for all heads of a group. It sums dK
and dV in registers, and adds its part of dQ to memory (`gradients`).
"""

from dataclasses import dataclass, replace

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass.cute.nvgpu import cpasync

from cutepy.device import product, roles, rules, smem, staging, tma
from cutepy.device.bands import Band
from cutepy.device.block_lists import BlockLists, make_block_lists
from cutepy.device.dynamic import Dynamic
from cutepy.device.epilogue import make_stage, make_tile_store
from cutepy.device.fragment import make_subtile
from cutepy.device.ordered import AdditionOrder
from cutepy.device.overlap import follow_launch
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.device.score_functions import make_score_functions
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import element_type
from cutepy.kernels.attention.config import DQ_COLUMNS, L2_BYTES, PRODUCERS, VECTOR, BackwardConfig, Lengths
from cutepy.kernels.attention.gradients import DqBarriers, DqWriter, KeyGradients, SharedGradients, TransposedGradients
from cutepy.kernels.attention.tile_coords import (
    Batches,
    RaggedKeys,
    keys_of,
    make_tickets,
    modes,
    queries_of,
    rows_first,
)


@dataclass(frozen=True)
class BackwardProducer:
    """The producer warp: K and V once; Q, dO and the rows' statistics for each tile of queries of each head."""

    config: BackwardConfig
    k_ring: TmaRing
    v_ring: TmaRing | None
    q_ring: TmaRing
    do_ring: TmaRing
    sK: tma.TmaLoads
    sV: tma.TmaLoads
    sQ: tma.TmaLoads
    sdO: tma.TmaLoads
    sStats: tma.TmaLoads
    coords: Batches | RaggedKeys
    group: cutlass.Int32
    lists: BlockLists | None

    def first_state(self, k):
        """Return the states of the rings at the start."""
        return self.k_ring.producer_state(), self.q_ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        """Load the operands of a tile of keys."""
        kv_state, q_state = state
        place = self.coords.of(work)
        tiles = None
        if cutlass.const_expr(self.lists is None):
            tiles = place.tiles(work.row * self.config.tile_k, self.config.tile_k, self.config.tile_q)
        first_tile = place.first_tile(self.config.tile_q)
        full = self.k_ring.acquire(kv_state)
        self.sK.load((work.row, 0, place.head, *place.k), kv_state.index, full)
        # Of lists no tile may be seen. Else Q of the first comes before V, for which S does not wait.
        if cutlass.const_expr(not self.config.begins_with_k):
            self.sV.load((work.row, 0, place.head, *place.k), kv_state.index, full)
        elif cutlass.const_expr(self.lists is not None):
            self.load_v(work, place, kv_state)
        for member in cutlass.range(self.group, unroll=1):
            head = place.head * self.group + member
            listed = tiles if cutlass.const_expr(self.lists is None) else self.lists.tiles(work.row, place.batch, head)
            for done in cutlass.range(listed.count, unroll=1):
                tile = listed.begin + done if cutlass.const_expr(self.lists is None) else listed.tile(done)
                full = self.q_ring.acquire(q_state)
                self.sQ.load((tile, 0, head, *place.q), q_state.index, full)
                self.sStats.load((first_tile + tile, 0, head, place.batch), q_state.index, full)
                if cutlass.const_expr(self.config.begins_with_k and self.lists is None):
                    if (member == 0) & (done == 0):
                        self.load_v(work, place, kv_state)
                full = self.do_ring.acquire(q_state)
                self.sdO.load((tile, 0, head, *place.q), q_state.index, full)
                q_state.advance()
        kv_state.advance()
        return kv_state, q_state

    def load_v(self, work, place, kv_state):
        """Load a tile of V."""
        full = self.v_ring.acquire(kv_state)
        self.sV.load((work.row, 0, place.head, *place.k), kv_state.index, full)


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
        dtables: tuple | None = None,
        counter: cute.Tensor | None = None,
    ):
        """Launch on tensors as of `Forward`; dq has the sums of `BackwardConfig.sums_shape`, and is added to.

        stats (batch, heads, 2, queries), fp32, has the rows' logarithms of sums, of base 2, plus infinity where nothing
        is seen, and their sums of dO * O. With `lengths` it and dq have a batch of one, and sequences in whole tiles.
        `counters` (batch, heads, parts of dq), int32, are zeros, of an ordered configuration, which takes no lists, and
        all of whose CTAs must be on the GPU at one time. `tables` are those of the score and mask functions, and lists
        those of `BlockLists`, for rows of keys. `dtables`, fp32, are added to: the gradients of the tables, None for
        tables that have none. `counter` is as of `Forward`.
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
            _reduce_copy(config, modes(dq, 2, 3, 1, 0)),
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
            coords = Batches(Band(queries, keys, left, right).transposed())
            raster = cute.ceil_div(keys, config.tile_k), 1, batch, kv_heads
            count, at_once = raster[0] * raster[2] * raster[3], cutlass.max(queries_at_once // (queries * group), 1)
        else:
            keys = keys_of(lengths, cute.size(k, mode=[0]), has_tail=True)
            queries = queries_of(lengths, cute.size(q, mode=[0]), has_tail=False)
            coords = RaggedKeys(queries, keys, left, right)
            raster, at_once = kv_heads, cutlass.max(queries_at_once // group, 1)
            count = keys.most_tiles(config.tile_k) * kv_heads
        self.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(
            copies,
            tensors,
            raster,
            group,
            scale,
            coords,
            to_tiled_mma(config.scores),
            to_tiled_mma(config.sums, *_SUMS_MAJORS[config.transposes_sums]),
            to_tiled_mma(config.dq, *(("MN", "K") if config.dq_is_transposed else (("K", "MN")[config.ds_mode], "MN"))),
            at_once,
            None if counters is None else modes(counters, 2, 1, 0),
            tables,
            lists,
            dtables,
            counter,
        ).launch(
            grid=(cutlass.min(count, ctas), 1, 1),
            block=(PRODUCERS + config.consumers, 1, 1),
            min_blocks_per_mp=1,
            stream=stream,
            use_pdl=config.overlaps,
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        raster: tuple | cutlass.Int32,
        group: cutlass.Int32,
        scale: cutlass.Float32,
        coords: Batches | RaggedKeys,
        scores_mma: cute.TiledMma,
        sums_mma: cute.TiledMma,
        dq_mma: cute.TiledMma,
        at_once: cutlass.Int32,
        counters: cute.Tensor | None,
        tables: tuple | None,
        lists: tuple | None,
        dtables: tuple | None,
        counter: cute.Tensor | None,
    ):
        """Make the blocks, and part the warps by their roles."""
        config, plan = self.config, self.config.smem
        tile_k, tile_q, width, width_v = config.tile_k, config.tile_q, config.width, config.width_v
        dtype = element_type(config.dtype)
        names = ("sK", "sV", "sQ", "sdO", "sdS", "sOut")
        shared = smem.share(plan, **dict.fromkeys(names, dtype), sdQ=cutlass.Float32, sStats=cutlass.Float32)
        bytes_of = {name: plan[name].content.stage_bytes for name in ("sK", "sV", "sQ", "sdO")}
        warps = config.consumers // 32
        v_ring, of_k = None, bytes_of["sK"] + (0 if config.begins_with_k else bytes_of["sV"])
        k_ring = TmaRing(shared["k_barriers"], 1, of_k, warps)
        if cutlass.const_expr(config.begins_with_k):
            v_ring = TmaRing(shared["v_barriers"], 1, bytes_of["sV"], warps)
        q_ring = TmaRing(shared["q_barriers"], config.stages, bytes_of["sQ"] + 8 * tile_q, warps)
        do_ring = TmaRing(shared["do_barriers"], config.stages, bytes_of["sdO"], warps)
        senders = 0 if config.shares_keys else config.warpgroups
        tickets = make_tickets(config, shared, counter, 1 + senders + warps)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                k_ring.initialise()
                if cutlass.const_expr(config.begins_with_k):
                    v_ring.initialise()
                q_ring.initialise()
                do_ring.initialise()
                if cutlass.const_expr(config.dynamic):
                    tickets.initialise()
        publish_barriers()
        if cutlass.const_expr(config.overlaps):
            follow_launch(let_next_begin=True)
        staged_stats = cute.make_tensor(shared["sStats"], _stats_layout(config, config.stages))
        keys, queries = coords.keys_of, coords.queries_of
        matrices = (
            ("sK", (tile_k, width), keys),
            ("sV", (tile_k, width_v), keys),
            ("sQ", (tile_q, width), queries),
            ("sdO", (tile_q, width_v), queries),
        )
        k, v, q, do = (cut(copies[n], tensors[n], shared[name], tile) for n, (name, tile, cut) in enumerate(matrices))
        stats = tma.make_tiles(copies[4], tensors[4], staged_stats, (tile_q, 2))
        if cutlass.const_expr(not config.shares_keys):
            staged_dq = cute.make_tensor(shared["sdQ"], _dq_layout(config, config.warpgroups))
            dq = tma.make_tiles(copies[5], tensors[5], staged_dq, (config.dq_rows, DQ_COLUMNS))
        dk, dv = (
            keys(copies[n], tensors[n], shared["sOut"], (config.own_keys, columns))
            for n, columns in ((6, width), (7, width_v))
        )
        grows = config.right and config.ordered
        scheduler = coords.scheduler(raster, tile_k, at_once, 1, longest_first=config.right, grows=grows)
        if cutlass.const_expr(config.dynamic):
            scheduler = Dynamic(scheduler, tickets)
        blocks = None if lists is None else config.scoring.blocks[::-1]
        lists = make_block_lists(lists, blocks, (tile_k, tile_q))
        budget = rules.register_budget(config.warpgroups, producer=config.producer_registers)
        barriers = rules.named_barriers(
            store=config.warpgroups, scores=1, own=config.warpgroups, filled=config.warpgroups
        )
        if warp < PRODUCERS // 32:
            cute.arch.setmaxregister_decrease(budget.producer)
            if warp == 0:
                loads = BackwardProducer(
                    config,
                    k_ring,
                    v_ring,
                    q_ring,
                    do_ring,
                    k.loads(),
                    v.loads(),
                    q.loads(),
                    do.loads(),
                    stats.loads(),
                    coords,
                    group,
                    lists,
                )
                kv_state, q_state = scheduler.each(loads)
                if cutlass.const_expr(config.begins_with_k):
                    v_ring.drain(kv_state.clone())
                k_ring.drain(kv_state)
                q_ring.drain(q_state.clone())
                do_ring.drain(q_state)
            elif warp == PRODUCERS // 32 - 1:
                if cutlass.const_expr(config.dynamic):
                    scheduler.deal()
            elif cutlass.const_expr(not config.shares_keys):
                if warp <= config.warpgroups:
                    sender = warp - 1
                    order = AdditionOrder(counters, 0) if config.ordered else None
                    parts = dq.stage_slice(sender, 1)
                    meeting = DqBarriers(barriers["own"] + sender, barriers["filled"] + sender)
                    sends = DqWriter(config, meeting, parts, order, sender, coords, group, lists)
                    scheduler.each(sends)
                    sends.finish()
        else:
            cute.arch.setmaxregister_increase(budget.consumer)
            tidx = roles.warpgroup_thread(PRODUCERS, config.consumers)
            consumer, lane = cute.arch.make_warp_uniform(tidx // 128), tidx % 128
            thread = lane if config.passes_p else tidx
            own_ds, own_k = self.operands_of_dq(shared["sdS"], k.staged, consumer)
            if cutlass.const_expr(not config.shares_keys):
                own_dq = self.own_dq(shared["sdQ"], consumer, lane)
            of_scores = (tile_q, config.own_keys) if config.transposes_sums else (tile_k, config.own_queries)
            scores, functions = make_subtile(of_scores, config.mma_warpgroups, thread), None
            if cutlass.const_expr(config.scoring.graph is not None):
                functions = make_score_functions(config.scoring.transposed, tables, scores, scale, dtables)
            written, own_dk, own_dv, of_sums = shared["sdS"], dk, dv, tile_k
            if cutlass.const_expr(config.shares_keys):
                written = staging.transposed(self.own_rows(staging.transposed(written), consumer))
                own_dk, own_dv = (
                    keys(copies[n], _behind(tensors[n], consumer * columns), shared["sOut"], (tile_k, columns))
                    for n, columns in ((6, width // config.parts), (7, width_v // config.parts))
                )
                own_dk, own_dv = (each.stage_slice(consumer, config.out_stages[1]) for each in (own_dk, own_dv))
                of_sums = shared["sdS"]
            of_s = k.staged, self.own_rows(q.staged, consumer)
            of_dp = v.staged, self.own_rows(do.staged, consumer)
            columns_q, columns_do = (self.own_rows(staging.transposed(each.staged), consumer) for each in (q, do))
            of_dk, of_dv, mode = (of_sums, columns_q), (of_sums, columns_do), config.ds_mode
            if cutlass.const_expr(config.transposes_sums):
                own_keys = self.own_keys(written, consumer)
                of_s = q.staged, self.own_keys(k.staged, consumer)
                of_dp = do.staged, self.own_keys(v.staged, consumer)
                of_dk, of_dv = (columns_q, own_keys), (columns_do, own_keys)
                written, mode = staging.transposed(own_keys), 1 - mode
                own_dk, own_dv = (each.stage_slice(consumer, config.out_stages[1]) for each in (dk, dv))
            s, dp = (product.make_product(scores_mma, *each, thread) for each in (of_s, of_dp))
            sums_v_mma = sums_mma
            if cutlass.const_expr(width_v != width):
                sums_v_mma = to_tiled_mma(config.sums_v, *_SUMS_MAJORS[config.transposes_sums])
            of_dv = product.make_product(sums_v_mma, *of_dv, thread)
            of_dk = product.make_product(sums_mma, *of_dk, thread)
            own = (own_k, own_ds) if config.dq_is_transposed else (own_ds, own_k)
            of_dq = product.make_product(dq_mma, *own, lane)
            stage = make_stage(scores_mma, written, mode, thread, scores_mma.size, barriers["scores"])
            adds, own_barrier = (tensors[5],), barriers["own"] + consumer
            if cutlass.const_expr(not config.shares_keys):
                adds = own_dq, DqBarriers(own_barrier, barriers["filled"] + consumer)
            order = AdditionOrder(counters, cute.arch.make_warp_uniform(lane // 32)) if config.ordered else None
            barrier = own_barrier if config.shares_keys else barriers["store"]
            staged_out, mode = own_dk.staged, 1
            kind = SharedGradients if config.shares_keys else KeyGradients
            if cutlass.const_expr(config.transposes_sums):
                barrier = barriers["store"] + consumer
                staged_out, mode = staging.transposed(staged_out), 0
                kind = TransposedGradients
            gradients = kind(
                config,
                k_ring,
                v_ring,
                q_ring,
                do_ring,
                s,
                dp,
                of_dq,
                scores,
                self.own_rows(staged_stats, consumer),
                replace(stage, threads=config.consumers),
                own_barrier,
                order,
                consumer,
                own_dk,
                own_dv,
                of_dv,
                of_dk,
                make_tile_store(sums_mma, staged_out, mode, thread, sums_mma.size, barrier),
                coords,
                group,
                scale,
                functions,
                lists,
                *adds,
            )
            scheduler.each(gradients)
            gradients.finish()

    def own_rows(self, staged, consumer):
        """Return a warpgroup's part of the rows of stages; all of them where warpgroups have keys of their own."""
        if not self.config.shares_keys:
            return staged
        rows, columns, stages = (cute.size(staged, mode=[mode]) for mode in range(3))
        return cute.local_tile(staged, (rows // self.config.parts, columns, stages), (consumer, 0, 0))

    def own_keys(self, staged, consumer):
        """Return a warpgroup's part of the keys, the rows of stages, where their sums are transposed."""
        columns, stages = (cute.size(staged, mode=[mode]) for mode in (1, 2))
        return cute.local_tile(staged, (self.config.own_keys, columns, stages), (consumer, 0, 0))

    def operands_of_dq(self, staged_ds, staged_k, consumer):
        """Return the factors of a warpgroup's part of dQ = dS K."""
        config = self.config
        own_ds, own_k = staging.transposed(staged_ds), staging.transposed(staged_k)
        queries, columns = config.dq_part
        if queries < config.tile_q:
            return cute.local_tile(own_ds, (queries, config.tile_k, config.ds_stages), (consumer, 0, 0)), own_k
        return own_ds, cute.local_tile(own_k, (columns, config.tile_k, 1), (consumer, 0, 0))

    def own_dq(self, start, consumer, lane):
        """Return a thread's part of dQ in shared memory, which begins at `start`."""
        config = self.config
        vectors = cute.make_layout((VECTOR, config.dq_registers // VECTOR), stride=(1, VECTOR * 128))
        first = start + (consumer * (config.dq_registers * 128) + lane * VECTOR)
        pointer = cute.make_ptr(cutlass.Float32, first.toint(), cute.AddressSpace.smem, assumed_align=16)
        return cute.make_tensor(pointer, vectors)


_SUMS_MAJORS = {False: ("K", "MN"), True: ("MN", "K")}
"""Majors of the MMAs of dK = dS^T Q and dV = P^T dO, and of the transposed sums."""


def _behind(tensor: cute.Tensor, column):
    """View a coordinate tensor from a column on, which may be after its last."""
    return cute.domain_offset((0, column, *[0] * (cute.rank(tensor) - 2)), tensor)


def _dq_layout(config: BackwardConfig, stages: int):
    """Lay out the sums of dQ of a given number of warpgroups, (rows, columns, stages), contiguous: see `sums_shape`."""
    shape, stride = (config.dq_rows, DQ_COLUMNS), (DQ_COLUMNS, 1)
    if stages == 1:
        return cute.make_layout(shape, stride=stride)
    return cute.make_layout((*shape, stages), stride=(*stride, config.dq_registers * 128))


def _reduce_copy(config: BackwardConfig, tensor: cute.Tensor):
    """Make the copy that adds a warpgroup's part of dQ; none, beside the tensor, where threads add it."""
    if config.shares_keys:
        return None, tensor
    layout, tile = _dq_layout(config, 1), (config.dq_rows, DQ_COLUMNS)
    return cpasync.make_tiled_tma_atom(cpasync.CopyReduceBulkTensorTileS2GOp(), tensor, layout, tile)


def _stats_layout(config: BackwardConfig, stages: int):
    """Lay out the statistics of a tile's queries: (queries, 2, stages)."""
    shape, stride = (config.tile_q, 2), (1, config.tile_q)
    if stages == 1:
        return cute.make_layout(shape, stride=stride)
    return cute.make_layout((*shape, stages), stride=(*stride, 2 * config.tile_q))
