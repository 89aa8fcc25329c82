"""Attention written from the documentation alone: O = softmax(Q K^T) V, causal, and the logarithms of the sums.

It is made of `cutepy.device`'s blocks, and masks, issues and stores by itself. Heads of Q share those of K and V.
"""

from dataclasses import dataclass

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import epilogue, operand, product, roles, rules, schedulers, smem, tma
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.mma import with_accumulate
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.device.primitives import select
from cutepy.device.softmax import LOG2_E, OnlineSoftmax, make_online_softmax, scale_rows
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.layouts import sm90

HEAD, TILE_M, TILE_N, STAGES, CAUSAL = 64, 128, 64, 2, True
CONSUMERS, PRODUCERS = 256, 128
BF16 = cutlass.BFloat16
QK = rules.wgmma_tiling("bfloat16", "bfloat16", TILE_N, 2)
PV = rules.wgmma_tiling("bfloat16", "bfloat16", HEAD, 2, a_in_registers=True)
OUT = rules.wgmma_tiling("bfloat16", "bfloat16", HEAD, 2)
REGISTERS = rules.register_budget(2)
PLAN = sm90.SmemPlan.of(
    sQ=sm90.StagedTile((TILE_M, HEAD), 1, bits=16),
    sK=sm90.StagedTile((TILE_N, HEAD), STAGES, bits=16),
    sV=sm90.StagedTile((HEAD, TILE_N), STAGES, bits=16, contiguous_mode=0),
    sO=sm90.StagedTile((TILE_M, 32), 2, bits=16),
    q_barriers=sm90.SmemArray(2, bits=64),
    k_barriers=sm90.SmemArray(2 * STAGES, bits=64),
    v_barriers=sm90.SmemArray(2 * STAGES, bits=64),
)


def key_tiles(row, queries, keys):
    """Count the tiles of keys that a tile of queries sees: the last query sees the last key."""
    count = cute.ceil_div(keys, TILE_N)
    return cutlass.min(count, cute.ceil_div((row + 1) * TILE_M + keys - queries, TILE_N)) if CAUSAL else count


@dataclass(frozen=True)
class Loads:
    q_ring: TmaRing
    k_ring: TmaRing
    v_ring: TmaRing
    q: tma.TmaLoads
    k: tma.TmaLoads
    v: tma.TmaLoads
    queries: int
    keys: int
    group: int

    def first_state(self, k):
        return self.q_ring.producer_state(), self.k_ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        q_state, kv_state = state
        (head,) = work.batch
        kv_head = head // self.group
        count = key_tiles(work.row, self.queries, self.keys)
        full = self.q_ring.acquire(q_state)
        self.q.load((work.row, 0, head), q_state.index, full)
        q_state.advance()
        for done in cutlass.range(count, unroll=1):
            block = count - 1 - done
            full = self.k_ring.acquire(kv_state)
            self.k.load((block, 0, kv_head), kv_state.index, full)
            full = self.v_ring.acquire(kv_state)
            self.v.load((0, block, kv_head), kv_state.index, full)
            kv_state.advance()
        return q_state, kv_state


@dataclass(frozen=True)
class Attends:
    q_ring: TmaRing
    k_ring: TmaRing
    v_ring: TmaRing
    qk: product.Product
    pv: product.Product
    scores: AccumulatorTile
    sums: AccumulatorTile
    softmax: OnlineSoftmax
    o: tma.TmaTiles
    stage: epilogue.Stage
    sink: epilogue.Sink
    lse: cute.Tensor
    queries: int
    keys: int

    def first_state(self, k):
        return self.q_ring.consumer_state(), self.k_ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        q_state, k_state = state
        v_state = k_state.clone()
        count = key_tiles(work.row, self.queries, self.keys)
        self.q_ring.wait(q_state)
        self.k_ring.wait(k_state)
        self.qk.issue(b=k_state.index)
        warpgroup.wait_group(0)
        self.k_ring.release(k_state)
        k_state.advance()
        self.mask(work.row, count - 1)
        self.softmax.update(self.qk.tCrC, first=True)
        self.keep_probabilities()
        self.pv.tCrC.fill(0.0)
        for done in cutlass.range(1, count, unroll=1):
            self.k_ring.wait(k_state)
            self.qk.issue(b=k_state.index)
            self.v_ring.wait(v_state)
            self.add_values(v_state)
            warpgroup.wait_group(1)
            self.k_ring.release(k_state)
            k_state.advance()
            if cutlass.const_expr(CAUSAL):
                self.mask(work.row, count - 1 - done)
            factors = self.softmax.update(self.qk.tCrC)
            warpgroup.wait_group(0)
            self.v_ring.release(v_state)
            v_state.advance()
            scale_rows(self.pv.tCrC, self.sums, factors)
            self.keep_probabilities()
        self.q_ring.release(q_state)
        q_state.advance()
        self.v_ring.wait(v_state)
        self.add_values(v_state)
        factors, lse = self.softmax.finish()
        warpgroup.wait_group(0)
        self.v_ring.release(v_state)
        self.store_lse(work, lse)
        scale_rows(self.pv.tCrC, self.sums, factors)
        self.store(work)
        return q_state, k_state

    @cute.jit
    def mask(self, row, block):
        """Forget what lies behind the last key, and, causal, what comes after the query."""
        for register in cutlass.range_constexpr(cute.size(self.qk.tCrC)):
            down, across = self.scores.coordinate(0, register)
            key, query = block * TILE_N + across, row * TILE_M + down
            seen = key < self.keys
            if cutlass.const_expr(CAUSAL):
                seen = seen and key <= query + self.keys - self.queries
            self.qk.tCrC[register] = select(seen, self.qk.tCrC[register], -cutlass.Float32.inf)

    def keep_probabilities(self):
        tile = (TILE_M, TILE_N)
        operand.from_accumulators(self.qk.tCrC, self.qk.tiled_mma, tile, self.pv.tiled_mma, into=self.pv.tCrA)

    @cute.jit
    def add_values(self, state):
        warpgroup.fence()
        for step in cutlass.range_constexpr(self.pv.steps):
            values = self.pv.tCrB[None, None, step, state.index]
            mma = with_accumulate(self.pv.tiled_mma, True)
            cute.gemm(mma, self.pv.tCrC, self.pv.a_of(step, 0), values, self.pv.tCrC)
        warpgroup.commit_group()

    @cute.jit
    def store_lse(self, work, values):
        (head,) = work.batch
        for row in cutlass.range_constexpr(cute.size(values)):
            query = work.row * TILE_M + self.scores.of_thread(0) + self.scores.distinct(0)[row]
            lse = self.lse
            if self.scores.is_first(0, cute.arch.lane_idx()) and query < self.queries:
                lse[head, query] = values[row]

    @cute.jit
    def store(self, work):
        places = self.o.subtiles((work.row, 0, *work.batch))
        subtiles = self.stage.subtiles(self.pv.tCrC)
        for index in cutlass.range_constexpr(places.count):
            self.stage.write(subtiles[None, None, None, index], index % 2)
            cute.arch.fence_proxy("async.shared", space="cta")
            self.stage.meet()
            self.sink.send(places, index % 2, index, 0)


@cute.kernel
def attends(copies: tuple, tensors: tuple, lse: cute.Tensor, qk: cute.TiledMma, pv: cute.TiledMma, out: cute.TiledMma):
    shared = smem.share(PLAN, sQ=BF16, sK=BF16, sV=BF16, sO=BF16)
    q_ring, k_ring, v_ring = (
        TmaRing(shared[f"{which}_barriers"], stages, PLAN[f"s{which.upper()}"].content.stage_bytes, CONSUMERS // 32)
        for which, stages in (("q", 1), ("k", STAGES), ("v", STAGES))
    )
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == 0:
        with cute.arch.elect_one():
            q_ring.initialise()
            k_ring.initialise()
            v_ring.initialise()
    publish_barriers()
    tiles = ((TILE_M, HEAD), (TILE_N, HEAD), (HEAD, TILE_N), (TILE_M, HEAD))
    stages = (shared[name] for name in ("sQ", "sK", "sV", "sO"))
    q, k, v, o = (tma.make_tiles(*each) for each in zip(copies, tensors, stages, tiles, strict=True))
    queries, keys = cute.size(tensors[0], mode=[0]), cute.size(tensors[1], mode=[0])
    heads, kv_heads = cute.size(tensors[0], mode=[2]), cute.size(tensors[1], mode=[2])
    raster = tuple(cutlass.Int32(extent) for extent in (cute.ceil_div(queries, TILE_M), 1, heads))
    scheduler = schedulers.Persistent(raster, 1)
    if warp < PRODUCERS // 32:
        cute.arch.setmaxregister_decrease(REGISTERS.producer)
        if warp == 0:
            loads = q.loads(), k.loads(), v.loads()
            q_state, kv_state = scheduler.each(Loads(q_ring, k_ring, v_ring, *loads, queries, keys, heads // kv_heads))
            q_ring.drain(q_state)
            k_ring.drain(kv_state.clone())
            v_ring.drain(kv_state)
    else:
        cute.arch.setmaxregister_increase(REGISTERS.consumer)
        thread = roles.warpgroup_thread(PRODUCERS, CONSUMERS)
        scores = make_subtile((TILE_M, TILE_N), 2, thread)
        worker = Attends(
            q_ring,
            k_ring,
            v_ring,
            product.make_product(qk, q.staged, k.staged, thread),
            product.make_product(pv, TILE_M, v.staged, thread),
            scores,
            make_subtile((TILE_M, HEAD), 2, thread),
            make_online_softmax(scores, cutlass.Float32(LOG2_E)),
            o,
            epilogue.make_stage(out, o.staged, 1, thread, CONSUMERS, 1),
            epilogue.Sink(cute.arch.make_warp_uniform(thread // 32)),
            lse,
            queries,
            keys,
        )
        scheduler.each(worker)
        worker.sink.wait()


@cute.jit
def launch(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: cute.Tensor):
    q, k, o = (cute.make_tensor(x.iterator, cute.select(x.layout, [1, 2, 0])) for x in (q, k, o))
    turned = cute.make_tensor(v.iterator, cute.select(v.layout, [2, 1, 0]))
    sQ, sK, sV, sO = (PLAN[name].content for name in ("sQ", "sK", "sV", "sO"))
    copies, tensors = zip(
        *(tma.make_load(x, to_cute(s.layout), s.tile, 1) for x, s in ((q, sQ), (k, sK), (turned, sV))),
        tma.make_store(o, to_cute(sO.layout), sO.tile),
        strict=True,
    )
    attends(copies, tensors, lse, to_tiled_mma(QK), to_tiled_mma(PV, "K", "MN"), to_tiled_mma(OUT)).launch(
        grid=(1, 1, 1), block=(PRODUCERS + CONSUMERS, 1, 1), min_blocks_per_mp=1
    )


def main():
    torch.manual_seed(0)
    q, k, v = (torch.randn(heads, rows, HEAD).bfloat16() for heads, rows in ((2, 150), (1, 200), (1, 200)))
    q = q / 8
    o, lse = torch.empty_like(q), torch.empty(q.shape[:2])
    launch(q, k, v, o, lse)
    scores = q.double() @ k.double().mT
    if CAUSAL:
        queries, keys = scores.shape[1:]
        scores += torch.full((queries, keys), -torch.inf).triu(keys - queries + 1)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), atol=1e-3, rtol=0)
    torch.testing.assert_close(o.double(), scores.softmax(-1) @ v.double(), atol=0.02, rtol=0)


if __name__ == "__main__":
    main()
