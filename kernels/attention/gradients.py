"""The consumer warpgroups of attention backward: gradients of a tile of keys, and its part of dQ (traced).

`KeyGradients` computes transposed scores, S^T = K Q^T, so that P^T and dS^T are the operands A of dV = P^T dO and
dK = dS^T Q. P^T and dS^T stay in registers, and each warpgroup has 64 keys. Registers do not hold both accumulators of
wide rows. `SharedGradients` therefore gives both warpgroups the same 64 keys, each warpgroup half of the columns, and
P^T and dS^T pass through shared memory. `TransposedGradients` does not transpose S. It sums dV^T = dO^T P and
dK^T = Q^T dS, with P and dS as operands B. So a warpgroup may have fewer than 64 keys, and both together more than 64.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import operand, product, tma
from cutepy.device.bands import Band
from cutepy.device.block_lists import BlockLists
from cutepy.device.epilogue import Sink, Stage, TileStore
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.marks import mark
from cutepy.device.ordered import AdditionOrder
from cutepy.device.pipeline import TmaRing
from cutepy.device.primitives import LOG2_E, select
from cutepy.device.score_functions import ScoreFunctions, weighted
from cutepy.kernels.attention.config import VECTOR, BackwardConfig
from cutepy.kernels.attention.tile_coords import Batches, RaggedKeys, WorkCoords


def rank_of(config: BackwardConfig, key, tile, band: Band):
    """Return the number of tiles of keys that add to a tile of queries before this one.

    Of the tiles of keys that a tile of queries sees the last is dealt first if queries see none behind their own
    position, so that each tile of keys begins with queries that no other one has yet to add to.
    """
    tile_q, tile_k, seen = config.tile_q, config.tile_k, band.transposed()
    if cutlass.const_expr(config.right):
        behind = select((tile + 1) * tile_q >= seen.queries, seen.keys, seen.end((tile + 1) * tile_q - 1))
        return (behind - 1) // tile_k - key // tile_k
    return key // tile_k - select(tile == 0, cutlass.Int32(0), seen.begin(tile * tile_q) // tile_k)


def row_of_dq(config: BackwardConfig, tile, place: WorkCoords, consumer):
    """Return the index of a warpgroup's part of a tile's dQ in the fp32 sums in memory."""
    return (place.first_tile(config.tile_q) + tile) * config.warpgroups + consumer


@dataclass(frozen=True)
class Gradients:
    """A consumer warpgroup: the tiles of queries that a tile of keys is seen by, and their P and dS.

    Attributes
    ----------
    s, dp, dq, dv, dk : Product
        This warpgroup's part of S^T = K Q^T, dP^T = V dO^T, dQ = dS K, dV = P^T dO and dK = dS^T Q.
    scores : AccumulatorTile
        Coordinates of this warpgroup's part of a tile of S^T and dP^T.
    stats : Tensor (queries, 2, stages), fp32
        Statistics of this warpgroup's queries.
    stage : Stage
        Stages of dS, and of P where it passes through memory.
    out : TileStore
        Of dK and dV.
    """

    config: BackwardConfig
    k_ring: TmaRing
    v_ring: TmaRing | None
    q_ring: TmaRing
    do_ring: TmaRing
    s: product.Product
    dp: product.Product
    dq: product.Product
    scores: AccumulatorTile
    stats: cute.Tensor
    stage: Stage
    own_barrier: cutlass.Int32
    order: AdditionOrder | None
    consumer: cutlass.Int32
    dk_tiles: tma.TmaTiles
    dv_tiles: tma.TmaTiles
    dv: product.Product
    dk: product.Product
    out: TileStore
    coords: Batches | RaggedKeys
    group: cutlass.Int32
    scale: cutlass.Float32
    functions: ScoreFunctions | None
    lists: BlockLists | None

    def first_state(self, k):
        """Return the states of the rings at the start."""
        return self.k_ring.consumer_state(), self.q_ring.consumer_state()

    @cute.jit
    def on_tile(self, work, state):
        """Compute the gradients of a tile of keys, and its part of dQ."""
        kv_state, q_state = state
        place, key = self.coords.of(work), work.row * self.config.tile_k
        seen = self.seen(place, key) if cutlass.const_expr(self.lists is None) else None
        self.dk.tCrC.fill(0.0)
        self.dv.tCrC.fill(0.0)
        self.k_ring.wait(kv_state)
        for member in cutlass.range(self.group, unroll=1):
            head = place.head * self.group + member
            if cutlass.const_expr(self.lists is None):
                q_state = self.derive_band(key, seen, place, head, q_state, kv_state)
            else:
                tiles = self.lists.tiles(work.row, place.batch, head)
                q_state = self.derive_lists(key, tiles, place, head, q_state, kv_state)
        self.k_ring.release(kv_state)
        if cutlass.const_expr(self.config.begins_with_k):
            self.v_ring.release(kv_state)
        kv_state.advance()
        self.dk.tCrC.store(self.dk.tCrC.load() * self.scale)
        self.store((work.row, 0, place.head, *place.k))
        return kv_state, q_state

    @cute.jit
    def seen(self, place: WorkCoords, key):
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
    def derive_band(self, key, seen, place: WorkCoords, head, q_state, kv_state):
        """Go through the queries of a head that see a tile of keys."""
        begin, whole_begin, whole_end, end = seen
        for done in cutlass.range(whole_begin - begin, unroll=1):
            q_state = self.derive(key, begin + done, place, head, q_state, kv_state, masked=True)
        if cutlass.const_expr(self.functions is None):
            for done in cutlass.range(whole_end - whole_begin, unroll=1):
                q_state = self.derive(key, whole_begin + done, place, head, q_state, kv_state, masked=False)
        if cutlass.const_expr(place.band.right is not None and self.functions is None):
            for done in cutlass.range(end - whole_end, unroll=1):
                q_state = self.derive(key, whole_end + done, place, head, q_state, kv_state, masked=True)
        return q_state

    @cute.jit
    def derive_lists(self, key, tiles, place: WorkCoords, head, q_state, kv_state):
        """Go through the tiles of queries of a head that are listed for a tile of keys."""
        for n in cutlass.range(tiles.partial, unroll=1):
            q_state = self.derive(key, tiles.partial_tile(n), place, head, q_state, kv_state, masked=True)
        for n in cutlass.range(tiles.whole, unroll=1):
            q_state = self.derive(key, tiles.whole_tile(n), place, head, q_state, kv_state, masked=False)
        return q_state

    @cute.jit
    def derive(self, key, tile, place: WorkCoords, head, q_state, kv_state, masked: cutlass.Constexpr):
        """Add a tile of queries' part to dK and dV, and this tile of keys' part to its dQ."""
        p, dp, stage = self.s.tCrC, self.dp.tCrC, q_state.index
        weights, derivatives, given = self.find_probabilities(key, tile, place, head, q_state, kv_state, masked)
        if cutlass.const_expr(self.config.keeps_p):
            self.pass_p(self.weighed(weights), q_state)
            self.derive_scores(derivatives)
            if cutlass.const_expr(self.config.delays_dp):
                self.dp.issue(b=stage)
            self.sum(self.dv, self.p_stage(q_state), stage)
            with mark("multiply"):
                warpgroup.wait_group(1)
        else:
            with mark("multiply"):
                warpgroup.wait_group(0)
        self.find_differences(stage, weights)
        if cutlass.const_expr(self.config.scoring.derived):
            self.functions.derive(dp, given, key, self.first_query(tile), place.scores(head))
        if cutlass.const_expr(not self.config.keeps_p):
            self.to_operand(p, self.dv)
        self.pass_ds()
        buffer = self.ds_stage(q_state)
        self.write(dp, buffer)
        if cutlass.const_expr(not self.config.keeps_p):
            self.sum(self.dv, 0, stage)
        self.publish()  # its fence also orders this thread's reads of statistics before TMA overwrites them
        if cutlass.const_expr(self.config.dq_is_transposed):
            self.dq.issue(b=buffer)
        else:
            self.dq.issue(a=buffer)
        self.sum(self.dk, buffer, stage)
        with mark("multiply"):
            warpgroup.wait_group(1)
        self.do_ring.release(q_state)
        self.add_dq(key, tile, place, head)
        with mark("multiply"):
            warpgroup.wait_group(0)
        cute.arch.sync_warp()
        self.q_ring.release(q_state)
        q_state.advance()
        return q_state

    def parity(self, q_state):
        """Return 0 and 1 in turn, tile by tile."""
        # The index of two stages is this number, and takes no register: ptxas (13.0) spills 24 bytes for the other
        # one, of a window on both sides of sequences' queries.
        return q_state.index if self.config.stages == 2 else q_state.count % 2

    def first_query(self, tile):
        """Return the first query of a tile that this warpgroup scores."""
        if self.config.shares_keys:
            return tile * self.config.tile_q + self.consumer * self.config.own_queries
        return tile * self.config.tile_q

    def find_probabilities(self, key, tile, place: WorkCoords, head, q_state, kv_state, masked: bool):
        """Replace S by P, while dP is multiplied; return the factors of P, the derivatives, and functions' arguments.

        There are none of what the functions don't have.
        """
        p, stage = self.s.tCrC, q_state.index
        self.q_ring.wait(q_state)
        self.score(self.s, stage, self.config.head)
        weights = self.weights(key, tile, place.scores(head))
        if self.config.begins_with_k:
            self.v_ring.wait(kv_state)
        self.do_ring.wait(q_state)
        # There are no registers for dP beside what the functions need: it is multiplied after them.
        if self.config.delays_dp:
            with mark("multiply"):
                warpgroup.wait_group(0)
        else:
            self.score(self.dp, stage, self.config.head_v)
            with mark("multiply"):
                warpgroup.wait_group(1)
        given = self.functions.given(p) if self.config.scoring.derived else []
        derivatives = self.score_tile(key, tile, place.scores(head), hides=masked or self.lists is None)
        if masked:
            self.mask(key, tile, place)
        for registers, lse in self.by_query(0, stage):
            for register in registers:
                p[register] = cute.math.exp2(p[register] * self.factor_log2 - lse, fastmath=True)
        return weights, derivatives, given

    def score(self, product, stage, head: int):
        """Multiply K, or V, with a stage of Q, or dO."""
        product.issue(b=stage, steps=self.config.steps(head))

    def sum(self, product, buffer, stage):
        """Multiply P, or dS, with a stage of dO, or Q, and add it to dV, or dK."""
        product.issue(a=buffer, b=stage, accumulate=True)

    def mask(self, key, tile, place: WorkCoords):
        """Set scores that are not seen to minus infinity."""
        rows = self.first_query(tile)
        place.band.mask(self.s.tCrC, self.scores, key, rows, is_ragged=self.masks_rows(place))

    def weighed(self, weights):
        """Return P times its factors, if there are any: the operand of dV."""
        p = self.s.tCrC
        return p if weights is None else weights.times(p, cute.make_rmem_tensor(p.layout, cutlass.Float32))

    def derive_scores(self, derivatives):
        """Multiply P by the derivatives of scores, for dS."""
        p = self.s.tCrC
        for register, derivative in enumerate(derivatives):
            p[register] = weighted(p[register], derivative)

    def find_differences(self, stage, weights):
        """Replace dP by dS."""
        p, dp = self.s.tCrC, self.dp.tCrC
        if weights is not None:
            weights.times(dp, dp)
        for registers, delta in self.by_query(1, stage):
            for register in registers:
                # P (dP - delta), in the form that ptxas (13.0) keeps in registers with as many queries.
                if self.config.keeps_p:
                    dp[register] = p[register] * (dp[register] - delta)
                else:
                    dp[register] = p[register] * dp[register] - p[register] * delta

    def masks_rows(self, place: WorkCoords):
        """Return whether keys beyond the last need a mask: no bound hides them, or a function may be NaN there."""
        return place.band.left is None or self.functions is not None

    def score_tile(self, key, tile, place, hides):
        """Apply the score and mask functions to products in place; return the derivatives, if not 1."""
        if self.functions is None:
            return []
        return self.functions.apply(self.s.tCrC, key, self.first_query(tile), place, hides)

    def weights(self, key, tile, place):
        """Return the factors of the probabilities; None if there are none."""
        if self.functions is None:
            return None
        return self.functions.weights(self.s.tCrC, key, self.first_query(tile), place)

    @property
    def factor_log2(self):
        """Factor of the scores, times log2(e): the score function takes scaled products."""
        if self.functions is not None and self.functions.changes_scores:
            return LOG2_E
        return self.scale * LOG2_E

    def by_query(self, which: int, stage):
        """Yield this thread's registers of each query, with one of its statistics."""
        mode = 0 if self.config.transposes_sums else 1
        scores = self.scores.place(mode)
        for place, across in enumerate(self.scores.distinct(mode)):
            value = self.stats[self.scores.of_thread(mode) + across, which, stage]
            yield [register for register, other in enumerate(scores) if other == place], value

    def meet(self):
        """Wait for the threads of this warpgroup."""
        cute.arch.barrier(barrier_id=self.own_barrier, number_of_threads=128)

    def write(self, sums, buffer):
        """Write accumulators of a tile of scores to a stage."""
        self.stage.write(self.stage.subtiles(sums)[None, None, None, 0], buffer)

    def send(self, sums, to, coordinate):
        """Store a tile of sums."""
        target = to.subtiles(coordinate)
        subtiles = self.out.subtiles(sums, target)
        for index in range(target.count):
            self.out.store(subtiles[None, None, None, index], index % self.out.stage.stages, target, index)


@dataclass(frozen=True)
class KeyGradients(Gradients):
    """A consumer warpgroup with 64 keys of its own: P and dS pass on in registers, and dQ leaves by TMA.

    Attributes
    ----------
    own_dq : Tensor (VECTOR, vectors), fp32
        This thread's part of dQ in shared memory.
    dq_barriers : DqBarriers
        Barriers between this warpgroup and the warp that sends its parts of dQ.
    """

    own_dq: cute.Tensor
    dq_barriers: "DqBarriers"

    def pass_p(self, p, q_state):
        """Make P the operand of dV."""
        self.to_operand(p, self.dv)

    def p_stage(self, q_state):
        """Return 0: P has no stage."""
        return 0

    def pass_ds(self):
        """Make dS the operand of dK."""
        self.to_operand(self.dp.tCrC, self.dk)

    def ds_stage(self, q_state):
        """Return the stage of dS: the other warpgroup has read it two tiles ago, and been at the barrier since."""
        return self.parity(q_state)

    def to_operand(self, sums, into):
        """Make accumulators the A of another product."""
        tile = (self.config.tile_k, self.config.tile_q)
        operand.from_accumulators(sums, self.s.tiled_mma, tile, into.tiled_mma, into=into.tCrA)

    @cute.jit
    def add_dq(self, key, tile, place: WorkCoords, head):
        """Write this warpgroup's part of dQ, not scaled, where a warp sends it from, in the order of registers."""
        self.dq_barriers.wait_until_free()
        for vector in cutlass.range_constexpr(cute.size(self.own_dq, mode=[1])):
            held = cute.make_rmem_tensor(VECTOR, cutlass.Float32)
            for element in cutlass.range_constexpr(VECTOR):
                held[element] = self.dq.tCrC[vector * VECTOR + element]
            cute.autovec_copy(held, self.own_dq[None, vector])
        cute.arch.fence_proxy("async.shared", space="cta")  # TMA reads what was written
        self.dq_barriers.hand_over()

    def publish(self):
        """Make this tile's dS visible to MMAs; all consumers meet."""
        if self.config.overlays_dq:
            # dQ may be written behind this barrier, where dK and dV were staged: by one warp that all wait for.
            cute.arch.cp_async_bulk_wait_group(0, read=True)
        self.stage.publish()

    @cute.jit
    def store(self, coordinate):
        """Store dK and dV of a tile of keys."""
        if cutlass.const_expr(self.config.overlays_dq):
            self.dq_barriers.wait_until_free()  # TMA has read the memory where dK and dV are staged
            self.out.stage.meet()
        self.send(self.dk.tCrC, self.dk_tiles, coordinate)
        self.send(self.dv.tCrC, self.dv_tiles, coordinate)

    def finish(self):
        """Wait until TMA has read all that was sent."""
        self.out.finish()


@dataclass(frozen=True)
class DqBarriers:
    """Named barriers at which a warpgroup and a warp hand over the memory of a part of dQ.

    Attributes
    ----------
    free, filled : Int32
    """

    free: cutlass.Int32
    filled: cutlass.Int32

    THREADS = 128 + 32

    def wait_until_free(self):
        """Wait, in the warpgroup, until TMA has read the part before."""
        cute.arch.barrier(barrier_id=self.free, number_of_threads=self.THREADS)

    def hand_over(self):
        """Tell the warp that a part is written."""
        cute.arch.barrier_arrive(barrier_id=self.filled, number_of_threads=self.THREADS)

    def give_back(self):
        """Tell the warpgroup, once TMA has read all parts so far; a part must be taken before the next call."""
        cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier_arrive(barrier_id=self.free, number_of_threads=self.THREADS)

    def lend(self):
        """Tell the warpgroup as `give_back` does, and wait until it knows: the next part's arrival would count too."""
        cute.arch.cp_async_bulk_wait_group(0, read=True)
        cute.arch.barrier(barrier_id=self.free, number_of_threads=self.THREADS)

    def take(self):
        """Wait, in the warp, until a part is written."""
        cute.arch.barrier(barrier_id=self.filled, number_of_threads=self.THREADS)


@dataclass(frozen=True)
class DqWriter:
    """The warp that adds a warpgroup's parts of dQ to the sums in memory.

    Attributes
    ----------
    barriers : DqBarriers
    tiles : TmaTiles
        Of the sums.
    consumer : Int32
        Index of the warpgroup.
    """

    config: BackwardConfig
    barriers: DqBarriers
    tiles: tma.TmaTiles
    order: AdditionOrder | None
    consumer: cutlass.Int32
    coords: Batches | RaggedKeys
    group: cutlass.Int32
    lists: BlockLists | None

    def first_state(self, k):
        """Return 0: there is no state."""
        return cutlass.Int32(0)

    @cute.jit
    def on_tile(self, work, state):
        """Send the parts of dQ of a tile of keys."""
        place, key = self.coords.of(work), work.row * self.config.tile_k
        tiles = None
        if cutlass.const_expr(self.lists is None):
            tiles = place.tiles(key, self.config.tile_k, self.config.tile_q)
        for member in cutlass.range(self.group, unroll=1):
            head = place.head * self.group + member
            listed = tiles if cutlass.const_expr(self.lists is None) else self.lists.tiles(work.row, place.batch, head)
            for done in cutlass.range(listed.count, unroll=1):
                tile = listed.begin + done if cutlass.const_expr(self.lists is None) else listed.tile(done)
                self.send(key, tile, place, head)
        if cutlass.const_expr(self.config.overlays_dq):
            self.barriers.lend()
        return state

    def finish(self):
        """Wait until TMA has read all that was sent."""
        Sink(0).wait()

    @cute.jit
    def send(self, key, tile, place: WorkCoords, head):
        """Add a part, once it is there, and let the warpgroup write the next one."""
        row = row_of_dq(self.config, tile, place, self.consumer)
        target = self.tiles.subtiles((row, 0, head, place.batch))
        self.barriers.give_back()
        self.barriers.take()
        if cutlass.const_expr(self.order is None):
            Sink(0).send(target, 0, 0, 1)
        else:
            counter, turn = (row, head, place.batch), rank_of(self.config, key, tile, place.band)
            self.order.wait(counter, turn)
            Sink(0).send(target, 0, 0, 1)
            self.order.pass_on(counter, turn)


@dataclass(frozen=True)
class SharedGradients(Gradients):
    """A consumer warpgroup that shares keys: P and dS pass through memory, where queries' and columns' parts meet.

    Attributes
    ----------
    dq_sums : Tensor (rows, columns, heads, batch), fp32
        Sums of dQ in memory.
    """

    dq_sums: cute.Tensor

    def pass_p(self, p, q_state):
        """Make P the operand of dV."""
        self.write(p, self.p_stage(q_state))
        self.stage.publish()

    def p_stage(self, q_state):
        """Return the stage of P, which the other warpgroup read two tiles ago, before the last barrier."""
        return 1 + self.parity(q_state)

    def pass_ds(self):
        """Do nothing: dS is in memory for dQ."""

    def ds_stage(self, q_state):
        """Return the stage of dS: the other warpgroup has read it before it came to the barrier with its part of P."""
        return 0

    def publish(self):
        """Make this tile's dS visible to MMAs; all consumers meet."""
        self.stage.publish()

    @cute.jit
    def add_dq(self, key, tile, place: WorkCoords, head):
        """Add this warpgroup's part of dQ, not scaled, to the sums in memory, in the order of registers.

        There is no shared memory to stage it in, nor time: MMAs of 64 keys wait for their operands.
        """
        row = row_of_dq(self.config, tile, place, self.consumer)
        sums = self.dq_sums[row * self.config.dq_rows, None, head, place.batch].iterator
        lane = cute.arch.thread_idx()[0] % 128
        counter, turn = (row, head, place.batch), None
        if cutlass.const_expr(self.order is not None):
            turn = rank_of(self.config, key, tile, place.band)
            self.order.wait(counter, turn)
            self.meet()
        # A block of a list may have tiles after the last query.
        if cutlass.const_expr(self.lists is None) or tile * self.config.tile_q < place.band.keys:
            for vector in cutlass.range_constexpr(self.config.dq_registers // VECTOR):
                held = cute.make_rmem_tensor(VECTOR, cutlass.Float32)
                for element in cutlass.range_constexpr(VECTOR):
                    held[element] = self.dq.tCrC[vector * VECTOR + element]
                to = sums + (vector * 128 + lane) * VECTOR
                cute.arch.red(to, held.load().ir_value(), op="add", dtype="f32", sem="relaxed", scope="gpu")
        if cutlass.const_expr(self.order is not None):
            self.meet()  # all threads have added
            self.order.pass_on(counter, turn)

    @cute.jit
    def store(self, coordinate):
        """Store this warpgroup's columns of dK and dV of a tile of keys."""
        self.stage.meet()  # all have read the memory where dK and dV are staged
        self.send(self.dk.tCrC, self.dk_tiles, coordinate)
        self.send(self.dv.tCrC, self.dv_tiles, coordinate)
        self.out.finish()
        self.stage.meet()

    def finish(self):
        """Do nothing: TMA has read all that was sent."""


@dataclass(frozen=True)
class TransposedGradients(KeyGradients):
    """A consumer warpgroup with keys of its own as columns: P and dS pass through memory, and dQ leaves by TMA.

    A tile of P is read by the warpgroup that wrote it, whose threads have met since at the barrier before dQ is
    written. One of dS is read by all, which have read it before they come to the barrier with their part of P.
    """

    def score(self, product, stage, head: int):
        """Multiply a stage of Q, or dO, with this warpgroup's K, or V."""
        product.issue(a=stage)

    def sum(self, product, buffer, stage):
        """Multiply a stage of dO^T, or Q^T, with P, or dS, and add it to dV^T, or dK^T."""
        product.issue(a=stage, b=buffer, accumulate=True)

    def mask(self, key, tile, place: WorkCoords):
        """Set scores that are not seen to minus infinity."""
        own = key + self.consumer * self.config.own_keys
        place.band.transposed().mask(self.s.tCrC, self.scores, self.first_query(tile), own)

    def pass_p(self, p, q_state):
        """Make P the operand of dV."""
        self.write(p, self.p_stage(q_state))
        self.stage.publish()

    def p_stage(self, q_state):
        """Return the stage of P."""
        return 1

    def pass_ds(self):
        """Do nothing: dS is in memory for dQ."""

    def ds_stage(self, q_state):
        """Return the stage of dS."""
        return 0

    @cute.jit
    def store(self, coordinate):
        """Store this warpgroup's keys of dK and dV."""
        row, *rest = coordinate
        coordinate, before, out = (row * self.config.warpgroups + self.consumer, *rest), 0, self.out
        self.stage.meet()  # all have read the memory where dK and dV are staged
        for sums, tiles in ((self.dk.tCrC, self.dk_tiles), (self.dv.tCrC, self.dv_tiles)):
            # Subtiles are rows of the sums, and columns of what is stored. Those of dV begin where dK's end.
            target, subtiles = tiles.subtiles(coordinate), out.stage.subtiles(sums)
            for index in cutlass.range_constexpr(target.count):
                buffer = (before + index) % out.stage.stages
                out.stage.write(subtiles[None, None, None, index], buffer)
                out.stage.publish()
                out.sink.send(target, buffer, index, out.stage.stages - 2)
            before = before + target.count
        out.finish()
        self.stage.meet()
