"""Gradients of attention, written from the documentation alone.

dS goes through shared memory, each warpgroup's own, and TMA adds dQ up in memory.
"""

from dataclasses import dataclass

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import epilogue, operand, product, roles, rules, schedulers, smem, staging, tma
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.pipeline import TmaRing, publish_barriers
from cutepy.device.primitives import LOG2_E, select
from cutepy.device.vectors import make_tile_vector
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.layouts import sm90

HEAD, TILE_K, TILE_Q, STAGES = 64, 128, 64, 2
CONSUMERS, PRODUCERS = 256, 128
BF16, F32 = cutlass.BFloat16, cutlass.Float32
BARRIERS = rules.named_barriers(ds=2, dq=2)
REGISTERS = rules.register_budget(2)
S = rules.wgmma_tiling("bfloat16", "bfloat16", TILE_Q, 2)  # keys by queries
KV = rules.wgmma_tiling("bfloat16", "bfloat16", HEAD, 2, a_in_registers=True)  # keys by head
OWN = rules.wgmma_tiling("bfloat16", "bfloat16", HEAD, 1)  # queries by head, of 64 keys
OWN_S = rules.wgmma_tiling("bfloat16", "bfloat16", TILE_Q, 1)
PLAN = sm90.SmemPlan.of(
    sK=sm90.StagedTile((TILE_K, HEAD), 1, bits=16),
    sV=sm90.StagedTile((TILE_K, HEAD), 1, bits=16),
    sQ=sm90.StagedTile((TILE_Q, HEAD), STAGES, bits=16),
    sdO=sm90.StagedTile((TILE_Q, HEAD), STAGES, bits=16),
    sdS=sm90.StagedTile((64, TILE_Q), 2, bits=16),
    sdQ=sm90.StagedTile((TILE_Q, 32), 2, bits=32),
    kv_barriers=sm90.SmemArray(2, bits=64),
    q_barriers=sm90.SmemArray(2 * STAGES, bits=64),
    do_barriers=sm90.SmemArray(2 * STAGES, bits=64),
)


@dataclass(frozen=True)
class Loads:
    kv_ring: TmaRing
    q_ring: TmaRing
    do_ring: TmaRing
    k: tma.TmaLoads
    v: tma.TmaLoads
    q: tma.TmaLoads
    do: tma.TmaLoads
    count: cutlass.Int32

    def first_state(self, k):
        return self.kv_ring.producer_state(), self.q_ring.producer_state()

    @cute.jit
    def on_tile(self, work, state):
        kv_state, q_state = state
        full = self.kv_ring.acquire(kv_state)
        self.k.load((work.row, 0), 0, full)
        self.v.load((work.row, 0), 0, full)
        kv_state.advance()
        for tile in cutlass.range(self.count, unroll=1):
            full = self.q_ring.acquire(q_state)
            self.q.load((tile, 0), q_state.index, full)
            full = self.do_ring.acquire(q_state)
            self.do.load((tile, 0), q_state.index, full)
            q_state.advance()
        return kv_state, q_state


@dataclass(frozen=True)
class Derives:
    kv_ring: TmaRing
    q_ring: TmaRing
    do_ring: TmaRing
    s: product.Product
    ds: product.Product
    dk: product.Product
    dv: product.Product
    dq: product.Product
    exchange: epilogue.Stage
    dq_stage: epilogue.Stage
    dq_tiles: tma.TmaTiles
    sink: epilogue.Sink
    gradients: cute.Tensor
    scores: AccumulatorTile
    lse: cute.Tensor
    delta: cute.Tensor
    queries: int
    count: cutlass.Int32

    def first_state(self, k):
        return self.kv_ring.consumer_state(), self.q_ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        kv_state, q_state = state
        self.dk.tCrC.fill(0.0)
        self.dv.tCrC.fill(0.0)
        self.kv_ring.wait(kv_state)
        for tile in cutlass.range(self.count, unroll=1):
            lse, delta = (make_tile_vector(each, self.scores, 1) for each in (self.lse, self.delta))
            lse.load(tile * TILE_Q)
            delta.load(tile * TILE_Q)
            self.q_ring.wait(q_state)
            self.s.issue(b=q_state.index)
            self.do_ring.wait(q_state)
            self.ds.issue(b=q_state.index)
            warpgroup.wait_group(0)
            self.weigh(tile, lse, delta)
            self.hand_on(self.s, self.dv)
            self.dv.issue(b=q_state.index, accumulate=True)
            self.exchange.write(self.exchange.subtiles(self.ds.tCrC)[None, None, None, 0], 0)
            self.exchange.publish()
            self.dq.issue()
            self.hand_on(self.ds, self.dk)
            self.dk.issue(b=q_state.index, accumulate=True)
            warpgroup.wait_group(0)
            self.do_ring.release(q_state)
            self.q_ring.release(q_state)
            q_state.advance()
            self.add(tile)
        self.kv_ring.release(kv_state)
        kv_state.advance()
        self.store(work)
        return kv_state, q_state

    @cute.jit
    def weigh(self, tile, lse, delta):
        """Make the scores probabilities, and what comes from dO gradients of the scores."""
        for register in cutlass.range_constexpr(cute.size(self.s.tCrC)):
            _, across = self.scores.coordinate(0, register)
            seen = tile * TILE_Q + across < self.queries
            power = cute.math.exp2((self.s.tCrC[register] - lse.at(register)) * LOG2_E, fastmath=True)
            self.s.tCrC[register] = select(seen, power, 0.0)
            self.ds.tCrC[register] = self.s.tCrC[register] * (self.ds.tCrC[register] - delta.at(register))

    def hand_on(self, of, to):
        operand.from_accumulators(of.tCrC, of.tiled_mma, (TILE_K, TILE_Q), to.tiled_mma, into=to.tCrA)

    @cute.jit
    def add(self, tile):
        places = self.dq_tiles.subtiles((tile, 0))
        subtiles = self.dq_stage.subtiles(self.dq.tCrC)
        for index in cutlass.range_constexpr(places.count):
            self.sink.wait()
            self.dq_stage.meet()
            self.dq_stage.write(subtiles[None, None, None, index], 0)
            self.dq_stage.publish()
            self.sink.send(places, 0, index, 1)

    @cute.jit
    def store(self, work):
        thread = roles.warpgroup_thread(PRODUCERS, CONSUMERS)
        for sums, which in ((self.dk, 0), (self.dv, 1)):
            rows = cute.local_tile(self.gradients, (TILE_K, HEAD, 1), (work.row, 0, which))[None, None, 0]
            cute.autovec_copy(sums.tCrC, sums.tiled_mma.get_slice(thread).partition_C(rows))


@cute.kernel
def derives(
    copies: tuple,
    tensors: tuple,
    gradients: cute.Tensor,
    lse: cute.Tensor,
    delta: cute.Tensor,
    s: cute.TiledMma,
    kv: cute.TiledMma,
    own: cute.TiledMma,
    own_s: cute.TiledMma,
):
    shared = smem.share(PLAN, sK=BF16, sV=BF16, sQ=BF16, sdO=BF16, sdS=BF16, sdQ=F32)
    bytes_of = {name: PLAN[name].content.stage_bytes for name in ("sK", "sV", "sQ", "sdO")}
    kv_ring = TmaRing(shared["kv_barriers"], 1, bytes_of["sK"] + bytes_of["sV"], CONSUMERS // 32)
    q_ring = TmaRing(shared["q_barriers"], STAGES, bytes_of["sQ"], CONSUMERS // 32)
    do_ring = TmaRing(shared["do_barriers"], STAGES, bytes_of["sdO"], CONSUMERS // 32)
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == 0:
        with cute.arch.elect_one():
            kv_ring.initialise()
            q_ring.initialise()
            do_ring.initialise()
    publish_barriers()
    rows = (TILE_K, TILE_K, TILE_Q, TILE_Q, TILE_Q)
    stages = (shared[name] for name in ("sK", "sV", "sQ", "sdO", "sdQ"))
    k, v, q, do, dq = (
        tma.make_tiles(copy, tensor, staged, (extent, HEAD))
        for copy, tensor, staged, extent in zip(copies, tensors, stages, rows, strict=True)
    )
    queries = cute.size(tensors[2], mode=[0])
    count = cute.ceil_div(queries, TILE_Q)
    scheduler = schedulers.Persistent((cute.size(tensors[0], mode=[0]) // TILE_K, cutlass.Int32(1)), 1)
    if warp < PRODUCERS // 32:
        cute.arch.setmaxregister_decrease(REGISTERS.producer)
        if warp == 0:
            kv_state, q_state = scheduler.each(
                Loads(kv_ring, q_ring, do_ring, k.loads(), v.loads(), q.loads(), do.loads(), count)
            )
            kv_ring.drain(kv_state)
            q_ring.drain(q_state.clone())
            do_ring.drain(q_state)
    else:
        cute.arch.setmaxregister_increase(REGISTERS.consumer)
        thread = roles.warpgroup_thread(PRODUCERS, CONSUMERS)
        group, lane = cute.arch.make_warp_uniform(thread // 128), thread % 128
        own_ds = cute.local_tile(shared["sdS"], (64, TILE_Q, 1), (0, 0, group))
        own_keys = cute.local_tile(staging.transposed(k.staged), (HEAD, 64, 1), (0, group, 0))
        own_dq = dq.stage_slice(group, 1)
        worker = Derives(
            kv_ring,
            q_ring,
            do_ring,
            product.make_product(s, k.staged, q.staged, thread),
            product.make_product(s, v.staged, do.staged, thread),
            product.make_product(kv, TILE_K, staging.transposed(q.staged), thread),
            product.make_product(kv, TILE_K, staging.transposed(do.staged), thread),
            product.make_product(own, staging.transposed(own_ds), own_keys, lane),
            epilogue.make_stage(own_s, own_ds, 1, lane, 128, BARRIERS["ds"] + group),
            epilogue.make_stage(own, own_dq.staged, 1, lane, 128, BARRIERS["dq"] + group),
            own_dq,
            epilogue.Sink(cute.arch.make_warp_uniform(lane // 32)),
            gradients,
            make_subtile((TILE_K, TILE_Q), 2, thread),
            lse,
            delta,
            queries,
            count,
        )
        scheduler.each(worker)
        worker.sink.wait()


@cute.jit
def launch(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    do: cute.Tensor,
    lse: cute.Tensor,
    delta: cute.Tensor,
    dq: cute.Tensor,
    gradients: cute.Tensor,
):
    parts = {name: PLAN[name].content for name in ("sK", "sV", "sQ", "sdO")}
    copies, tensors = zip(
        *(tma.make_load(x, to_cute(s.layout), s.tile, 1) for x, s in zip((k, v, q, do), parts.values(), strict=True)),
        tma.make_reduce(dq, to_cute(PLAN["sdQ"].content.layout), PLAN["sdQ"].content.tile),
        strict=True,
    )
    mmas = to_tiled_mma(S), to_tiled_mma(KV, "K", "MN"), to_tiled_mma(OWN, "MN", "MN"), to_tiled_mma(OWN_S)
    derives(copies, tensors, gradients, lse, delta, *mmas).launch(
        grid=(1, 1, 1), block=(PRODUCERS + CONSUMERS, 1, 1), min_blocks_per_mp=1
    )


def main():
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(rows, HEAD).bfloat16() for rows in (150, 256, 256, 150))
    q = q / 8
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    scores = inputs[0] @ inputs[1].T
    o, lse = scores.softmax(-1) @ inputs[2], scores.logsumexp(-1)
    delta = (do.double() * o).sum(-1)
    wanted = torch.autograd.grad(o, inputs, do.double())
    dq, gradients = torch.zeros(len(q), HEAD), torch.empty(2, len(k), HEAD).permute(1, 2, 0)
    launch(q, k, v, do, lse.detach().float(), delta.detach().float(), dq, gradients)
    for got, want in zip((dq, gradients[..., 0], gradients[..., 1]), wanted, strict=True):
        torch.testing.assert_close(got.double(), want, atol=0.02, rtol=0.02)


if __name__ == "__main__":
    main()
