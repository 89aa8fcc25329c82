"""O = softmax(Q K^T) V, and the logarithms of the sums, of `cutepy.device`'s blocks; it issues and stores by itself."""

from dataclasses import dataclass

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import epilogue, operand, product, roles, rules, schedulers, smem, tma
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.mma import with_accumulate
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.device.softmax import LOG2_E, OnlineSoftmax, make_online_softmax, scale_rows
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.layouts import sm90

HEAD, TILE_M, TILE_N, STAGES = 64, 128, 64, 2
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


@dataclass(frozen=True)
class Loads:
    q_ring: TmaRing
    k_ring: TmaRing
    v_ring: TmaRing
    q: tma.TmaLoads
    k: tma.TmaLoads
    v: tma.TmaLoads
    count: cutlass.Int32

    def first_state(self, k):
        return self.q_ring.producer_state(), self.k_ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        q_state, kv_state = state
        full = self.q_ring.acquire(q_state)
        self.q.load((work.row, 0), q_state.index, full)
        q_state.advance()
        for block in cutlass.range(self.count, unroll=1):
            full = self.k_ring.acquire(kv_state)
            self.k.load((block, 0), kv_state.index, full)
            full = self.v_ring.acquire(kv_state)
            self.v.load((0, block), kv_state.index, full)
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
    count: cutlass.Int32

    def first_state(self, k):
        return self.q_ring.consumer_state(), self.k_ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        q_state, k_state = state
        v_state = k_state.clone()
        self.q_ring.wait(q_state)
        self.k_ring.wait(k_state)
        self.qk.issue(b=k_state.index)
        warpgroup.wait_group(0)
        self.k_ring.release(k_state)
        k_state.advance()
        self.softmax.update(self.qk.tCrC, first=True)
        self.keep_probabilities()
        self.pv.tCrC.fill(0.0)
        for _ in cutlass.range(1, self.count, unroll=1):
            self.k_ring.wait(k_state)
            self.qk.issue(b=k_state.index)
            self.v_ring.wait(v_state)
            self.add_values(v_state)
            warpgroup.wait_group(1)
            self.k_ring.release(k_state)
            k_state.advance()
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
        for row in cutlass.range_constexpr(cute.size(values)):
            query = work.row * TILE_M + self.scores.of_thread(0) + self.scores.distinct(0)[row]
            lse = self.lse
            if self.scores.is_first(0, cute.arch.lane_idx()):
                lse[query] = values[row]

    @cute.jit
    def store(self, work):
        places = self.o.subtiles((work.row, 0))
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
    count = cute.size(tensors[1], mode=[0]) // TILE_N
    scheduler = schedulers.Persistent((cute.size(tensors[0], mode=[0]) // TILE_M, cutlass.Int32(1)), 1)
    if warp < PRODUCERS // 32:
        cute.arch.setmaxregister_decrease(REGISTERS.producer)
        if warp == 0:
            q_state, kv_state = scheduler.each(Loads(q_ring, k_ring, v_ring, q.loads(), k.loads(), v.loads(), count))
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
            count,
        )
        scheduler.each(worker)
        worker.sink.wait()


@cute.jit
def launch(q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: cute.Tensor):
    turned = cute.make_tensor(v.iterator, cute.select(v.layout, [1, 0]))
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
    q, k, v = (torch.randn(rows, HEAD).bfloat16() for rows in (2 * TILE_M, 3 * TILE_N, 3 * TILE_N))
    q = q / 8
    o, lse = torch.empty_like(q), torch.empty(len(q))
    launch(q, k, v, o, lse)
    scores = q.double() @ k.double().T
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), atol=1e-3, rtol=0)
    torch.testing.assert_close(o.double(), scores.softmax(-1) @ v.double(), atol=0.02, rtol=0)


if __name__ == "__main__":
    main()
