"""The device code of latent attention: O = softmax(scale Q K^T) V of cached rows, whose first columns are V (traced).

A CTA has 64 rows of queries, of all heads of some tokens, and two consumer warpgroups, which take the keys in tiles of
two blocks. O has 512 columns: each warpgroup sums half of them. Warpgroup b scores block b, whose probabilities both
need. Both scale by one maximum: that of the first block goes to the second warpgroup, which finds that of both, and
sends it back. So the softmax of one block runs beside the products of the other (FlashMLA's schedule).

    warpgroup 0:  softmax of S0  O0 += P0 V0     P0 to shared memory  O0 += P1 V1  next S0
    warpgroup 1:                 softmax of S1   O1 += P1 V1          O1 += P0 V0  next S1

Of a cache of 8-bit floats, one producer warp loads both blocks, and the others dequantise them in shared memory.
"""

from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import operand, product, roles, rules, smem, staging, tma
from cutepy.device.bands import Band, mask_behind
from cutepy.device.dequantising import Dequantisation, make_dequantisation, stages_to_load
from cutepy.device.epilogue import Stage, make_stage
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.key_parts import KeyParts, Piece, VisibleKeys
from cutepy.device.marks import mark
from cutepy.device.overlap import follow_launch
from cutepy.device.pages import make_paged_loads
from cutepy.device.pipeline import RewrittenRing, TmaRing, publish_barriers
from cutepy.device.primitives import LOG2_E
from cutepy.device.ragged import GroupedTiles, ragged_view
from cutepy.device.schedulers import Persistent
from cutepy.device.sequences import Sequences
from cutepy.device.softmax import OnlineSoftmax, make_online_softmax, scale_rows
from cutepy.dsl import to_cute
from cutepy.dsl.atoms import to_tiled_mma
from cutepy.dsl.element_types import element_type
from cutepy.kernels.mla.config import (
    BLOCK,
    CONSUMERS,
    HALF,
    HEAD,
    KEYS,
    LATENT,
    LEAST_TILES,
    PRODUCERS,
    QUANTISED_BYTES,
    ROPE,
    ROWS,
    SCALE_LINE_BYTES,
    MlaConfig,
)


@dataclass(frozen=True)
class CtaRows:
    """Rows of queries of a CTA, and the keys that they see.

    Attributes
    ----------
    row : Int32
        Index of the tile of queries.
    seen : VisibleKeys
    table : Tensor or None
        Pages of each sequence's keys; None if keys are not in pages.
    """

    row: cutlass.Int32
    seen: VisibleKeys
    table: cute.Tensor | None

    def keys(self, sequence):
        """Return the coordinates of a sequence's keys, behind (row, column, head) of TMA's tiles."""
        rows = self.seen.keys.of(sequence)
        return (rows.start if self.table is None else sequence), rows.length


@dataclass(frozen=True)
class QuantisedLoads:
    """Loads of half a block of quantised rows: the halves, and the lines that begin with their scales."""

    values: Any
    lines: Any

    def find(self, place):
        """Read where the rows are."""
        return self.values.find(place)

    def load(self, place, stage, full, found):
        """Issue the loads of both."""
        row, _, *keys = place
        self.values.load(place, stage, full, found)
        self.lines.load((row, LATENT // SCALE_LINE_BYTES, *keys), stage, full, found)


@dataclass(frozen=True)
class MlaProducer:
    """A producer warp: some blocks of each tile of keys, from the last to the first; the first warp loads Q too."""

    blocks: tuple
    rings: tuple
    q_ring: TmaRing | None
    sQ: tma.TmaLoads
    sQRope: tma.TmaLoads
    sK: Any
    sKRope: Any
    cta_rows: CtaRows

    def first_state(self, k):
        """Return the states of the rings at the start."""
        return self.rings[0][0].producer_state(), self.rings[0][0].producer_state()

    @cute.jit
    def load_queries(self, piece: Piece, state):
        """Load the rows of queries."""
        full = self.q_ring.acquire(state)
        for half in cutlass.range_constexpr(2):
            self.sQ.load((self.cta_rows.row, half, 0, piece.sequence), half, full)
        self.sQRope.load((self.cta_rows.row, LATENT // ROPE, 0, piece.sequence), 0, full)

    @cute.jit
    def on_piece(self, piece: Piece, state):
        """Load the operands of a piece."""
        q_state, k_state = state
        if cutlass.const_expr(self.q_ring is not None):
            self.load_queries(piece, q_state)
        q_state.advance()
        keys = self.cta_rows.keys(piece.sequence)
        for done in cutlass.range(piece.end - piece.begin, unroll=1):
            self.load_tile(piece.end - 1 - done, keys, k_state)
            k_state.advance()
        return q_state, k_state

    def load_tile(self, tile, keys, state):
        """Load the blocks of a tile of keys, in the order in which the consumers release them, and need them."""
        rows = {block: 2 * tile + block for block in self.blocks}
        found = {block: self.sK.find((row, 0, 0, *keys)) for block, row in rows.items()}
        for block, row in rows.items():
            near = self.rings[block][0]
            self.sK.load((row, block, 0, *keys), 3 * block, near.acquire(state), found[block])
        for block, row in rows.items():
            rope = self.rings[block][2]
            self.sKRope.load((row, 0, 0, *keys), block, rope.acquire(state), found[block])
        for block, row in rows.items():
            far = self.rings[block][1]
            self.sK.load((row, 1 - block, 0, *keys), block + 1, far.acquire(state), found[block])


@dataclass(frozen=True)
class DequantisingProducer:
    """A producer warp that dequantises halves of blocks in shared memory, in the order in which they are loaded."""

    rings: tuple
    dequantisation: Dequantisation

    def first_state(self, k):
        """Return the state of the rings at the start."""
        return self.rings[0][0].consumer_state()

    @cute.jit
    def on_piece(self, piece: Piece, state):
        """Dequantise the operands of a piece."""
        for _ in cutlass.range(piece.end - piece.begin, unroll=1):
            for far in cutlass.range_constexpr(2):
                for block in cutlass.range_constexpr(2):
                    ring, half = self.rings[block][far], block ^ far
                    ring.wait_loaded(state)
                    self.dequantisation.run(2 * block + half, half * (HALF // rules.SCALED_COLUMNS))
                    ring.commit(state)
            state.advance()
        return state


@dataclass(frozen=True)
class MlaConsumer:
    """A consumer warpgroup: the scores of one block of each tile of keys, and half of O's columns."""

    block: int
    rings: tuple
    far_values: TmaRing
    q_ring: TmaRing
    qk: product.Product
    qk_rope: product.Product
    pv: product.Product
    pv_far: product.Product
    q_rope: operand.OperandLoad
    scores: AccumulatorTile
    sums: AccumulatorTile
    softmax: OnlineSoftmax
    stage: Stage
    own_rows: cute.Tensor
    other_rows: cute.Tensor
    barriers: dict
    cta_rows: CtaRows
    o: cute.Tensor
    lse: cute.Tensor
    parts: cute.Tensor | None
    lses: cute.Tensor | None
    owners: cute.Tensor | None

    def first_state(self, k):
        """Return the states of the rings at the start."""
        return self.q_ring.consumer_state(), self.q_ring.consumer_state()

    @cute.jit
    def on_piece(self, piece: Piece, state):
        """Compute the result of a piece: of a whole sequence, or partial."""
        q_state, k_state = state
        rows = self.cta_rows.seen.keys.of(piece.sequence)
        band = self.cta_rows.seen.band_of(rows)
        tiles = band.tiles(self.cta_rows.row * ROWS, ROWS, KEYS)
        ends = band.ends(self.scores, self.cta_rows.row * ROWS)
        self.q_ring.wait(q_state)
        for step in cutlass.range_constexpr(self.q_rope.steps):
            values = self.q_rope.read(operand.Step(0, 0, step * 16))
            operand.put(values, self.qk_rope.tCrA[step], values.element_type)
        self.softmax.maximum.fill(-Float32.inf)
        self.softmax.total.fill(0.0)
        self.pv.tCrC.fill(0.0)
        # The last tile, which may reach beyond the last key, comes first and is always masked.
        self.score_near(k_state)
        self.score_rest(ends, piece.end - 1, k_state, masked=True)
        last = whole_end = cutlass.max(piece.end - 1, piece.begin)
        if cutlass.const_expr(band.right is not None):
            whole_end = cutlass.max(cutlass.min(tiles.whole_end, last), piece.begin)
            for done in cutlass.range(last - whole_end, unroll=1):
                k_state = self.attend(ends, last - 1 - done, k_state, masked=True)
        for done in cutlass.range(whole_end - piece.begin, unroll=1):
            k_state = self.attend(ends, whole_end - 1 - done, k_state, masked=False)
        self.sum_values(k_state)
        self.release_values(k_state)
        k_state.advance()
        self.q_ring.release(q_state)
        q_state.advance()
        self.store(piece, band)
        return q_state, k_state

    @cute.jit
    def attend(self, ends: cute.Tensor, tile, state, masked: cutlass.Constexpr):
        """Sum the values of a tile of keys whose scores are there, and score the tile that comes next."""
        self.sum_values(state)
        following = state.clone()
        following.advance()
        if cutlass.const_expr(self.block == 0):
            self.score_near(following)
            with mark("multiply"):
                warpgroup.wait_group(1)
            self.far_values.release(state)
        else:
            self.release_values(state)
            self.score_near(following)
        self.score_rest(ends, tile, following, masked)
        return following

    @cute.jit
    def score_near(self, state):
        """Begin to multiply Q with the own block: with its near half."""
        self.rings[0].wait(state)
        self.qk.issue(a=self.block, b=3 * self.block)

    @cute.jit
    def score_rest(self, ends: cute.Tensor, tile, state, masked: cutlass.Constexpr):
        """Multiply Q with the rest of the own block, and mask the scores."""
        _, far, rope = self.rings
        rope.wait(state)
        self.qk_rope.issue(b=self.block, accumulate=True)
        far.wait(state)
        self.qk.issue(a=1 - self.block, b=self.block + 1, accumulate=True)
        with mark("multiply"):
            warpgroup.wait_group(0)
        rope.release(state)
        far.release(state)
        if cutlass.const_expr(masked):
            mask_behind(self.qk.tCrC, self.scores, ends, tile * KEYS + self.block * BLOCK)

    @cute.jit
    def sum_values(self, state):
        """Sum the values of the own block, and begin with those of the other one."""
        if cutlass.const_expr(self.block == 0):
            self.sum_first(state)
        else:
            self.sum_second(state)

    @cute.jit
    def sum_first(self, state):
        """Multiply probabilities by values, in the warpgroup of the first block of keys."""
        factors = self.softmax.update(self.qk.tCrC)
        self.write_rows(self.softmax.maximum)
        self.arrive_at("first")
        self.keep_probabilities()
        scale_rows(self.pv.tCrC, self.sums, factors)
        self.pv.issue(b=0, accumulate=True)
        with mark("multiply"):
            warpgroup.wait_group(0)
        self.rings[0].release(state)
        factors = self.softmax.raise_to(self.hear("second"))
        scale_rows(self.qk.tCrC, self.scores, factors)
        self.write_probabilities()
        cute.arch.fence_proxy("async.shared", space="cta")
        self.arrive_at("probabilities")
        scale_rows(self.pv.tCrC, self.sums, factors)
        self.far_values.wait(state)
        self.wait_at("issued")
        self.pv_far.issue(b=2, accumulate=True)

    @cute.jit
    def sum_second(self, state):
        """Sum values as the warpgroup of the second block."""
        factors = self.softmax.update(self.qk.tCrC)
        grown = self.softmax.raise_to(self.hear("first"))
        self.write_rows(self.softmax.maximum)
        self.arrive_at("second")
        scale_rows(self.qk.tCrC, self.scores, grown)
        self.keep_probabilities()
        for row in cutlass.range_constexpr(cute.size(factors)):
            factors[row] = factors[row] * grown[row]
        scale_rows(self.pv.tCrC, self.sums, factors)
        self.pv.issue(b=3, accumulate=True)
        self.write_probabilities()
        cute.arch.fence_proxy("async.shared", space="cta")
        self.far_values.wait(state)
        self.wait_at("probabilities")
        self.pv_far.issue(b=1, accumulate=True)
        self.arrive_at("issued")

    @cute.jit
    def release_values(self, state):
        """Release both blocks' values once they have been multiplied; the first warpgroup has released its own."""
        if cutlass.const_expr(self.block == 1):
            with mark("multiply"):
                warpgroup.wait_group(1)
            self.rings[0].release(state)
        with mark("multiply"):
            warpgroup.wait_group(0)
        self.far_values.release(state)

    def keep_probabilities(self):
        """Make the exponentials the A of the product with the own block."""
        tile = (ROWS, BLOCK)
        operand.from_accumulators(self.qk.tCrC, self.qk.tiled_mma, tile, self.pv.tiled_mma, into=self.pv.tCrA)

    def write_probabilities(self):
        """Write the exponentials to shared memory, for the MMAs of the other warpgroup."""
        self.stage.write(self.stage.subtiles(self.qk.tCrC)[None, None, None, 0], 0)

    @cute.jit
    def write_rows(self, values: cute.Tensor):
        """Write this thread's value of each row for the thread of the other warpgroup that has the same rows."""
        for row in cutlass.range_constexpr(cute.size(values)):
            self.own_rows[row] = values[row]

    @cute.jit
    def hear(self, barrier: cutlass.Constexpr):
        """Wait at the barrier for the other warpgroup's values of this thread's rows."""
        self.wait_at(barrier)
        values = cute.make_rmem_tensor(self.softmax.maximum.shape, Float32)
        for row in cutlass.range_constexpr(cute.size(values)):
            values[row] = self.other_rows[row]
        return values

    def arrive_at(self, barrier: str):
        """Let the other warpgroup continue."""
        cute.arch.barrier_arrive(barrier_id=self.barriers[barrier], number_of_threads=CONSUMERS)

    def wait_at(self, barrier: str):
        """Wait for the other warpgroup."""
        cute.arch.barrier(barrier_id=self.barriers[barrier], number_of_threads=CONSUMERS)

    @cute.jit
    def store(self, piece: Piece, band: Band):
        """Store half of O, and the logarithms of the rows' sums."""
        self.write_rows(self.softmax.total)
        others = self.hear("sums")
        for row in cutlass.range_constexpr(cute.size(others)):
            self.softmax.total[row] = self.softmax.total[row] + others[row]
        factors, lse = self.softmax.finish()
        scale_rows(self.pv.tCrC, self.sums, factors)
        # The other warpgroup's next maxima come behind its reads of these sums.
        self.wait_at("read")
        result = self.o[piece.sequence, None, None], self.lse[piece.sequence, None]
        if cutlass.const_expr(self.parts is None):
            self.store_rows(*result, band, lse)
        else:
            owners = self.owners
            if (piece.begin == 0) & (cute.arch.thread_idx()[0] == PRODUCERS):
                owners[self.cta_rows.row, piece.sequence, 0] = piece.part
                owners[self.cta_rows.row, piece.sequence, 1] = piece.count
            if piece.count == 1:
                self.store_rows(*result, band, lse)
            else:
                self.store_rows(self.parts[piece.slot, None, None], self.lses[piece.slot, None], band, lse)

    @cute.jit
    def store_rows(self, o: cute.Tensor, lses: cute.Tensor, band: Band, lse):
        """Store to o (rows, columns) and lses (rows,), two adjoining columns of a row at a time."""
        first = self.cta_rows.row * ROWS + self.sums.of_thread(0)
        column = self.block * HALF + self.sums.of_thread(1)
        for place, down in enumerate(self.sums.distinct(0)):
            row = first + down
            if row < band.queries:
                line = o[row, None]
                for register, (own, across) in enumerate(self.sums.registers):
                    if cutlass.const_expr(own == down and register % 2 == 0):
                        pair = cute.make_rmem_tensor(2, o.element_type)
                        pair[0] = self.pv.tCrC[register].to(o.element_type)
                        pair[1] = self.pv.tCrC[register + 1].to(o.element_type)
                        cute.autovec_copy(pair, cute.local_tile(line, (2,), ((column + across) // 2,)))
                if cutlass.const_expr(self.block == 0):
                    if self.scores.is_first(0, cute.arch.lane_idx()):
                        lses[row] = lse[place]


class Mla:
    """Latent attention of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: MlaConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        cache: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        parts: cute.Tensor | None,
        lses: cute.Tensor | None,
        owners: cute.Tensor | None,
        scale: Float32,
        sharing: cutlass.Int32,
        count: cutlass.Int32,
        lengths: cute.Tensor | None,
        table: cute.Tensor | None,
        pitch: Any,
        stream: CUstream,
    ):
        """Launch on q (sequences, rows, columns), cache (keys, columns), o (sequences, rows, latent columns).

        lse is (sequences, rows), fp32. `sharing` adjoining rows are of one token. Each tile of rows has `count` CTAs.
        Where the keys are split, partial results go to parts (2 `count`, rows, latent columns) and lses (2 `count`,
        rows), fp32, and owners (tiles of rows, sequences, 2) tell the first part, and the number of parts, that a
        sequence with keys lies in; else these are None, and `count` is that of sequences. lengths (sequences,) are the
        keys of each, all if None, and `table` (sequences, pages) has their pages, `pitch` rows apart, as sequences are
        without one; None for as many rows as they have.
        """
        config, plan = self.config, self.config.smem
        content = {region.name: region.content for region in plan}
        sequences, rows = cute.size(q, mode=[0]), cute.size(q, mode=[1])
        queries = cute.make_tensor(q.iterator, cute.select(_with_head(q.layout), [1, 2, 3, 0]))
        copies = [
            tma.make_load(queries, to_cute(content[name].layout), content[name].tile, 1) for name in ("sQ", "sQRope")
        ]
        parts_of_rows = [(cache, config.block_copy), (_other_columns(cache), config.rope_copy)]
        if cutlass.const_expr(config.quantised):
            parts_of_rows.append((cache, config.scales_copy))
        for columns, staged in parts_of_rows:
            keys = ragged_view(cute.make_tensor(columns.iterator, _with_head(columns.layout)), 0)
            copies.append(tma.make_load(keys, to_cute(staged.layout), staged.tile, config.cluster))
        rows_of_cache = cute.size(cache, mode=[0])
        if cutlass.const_expr(table is None):
            most_keys = rows_of_cache // sequences if pitch is None else rows_of_cache - (sequences - 1) * pitch
        else:
            most_keys = cute.size(table, mode=[1]) * config.page
        row_tiles = cute.ceil_div(rows, ROWS)
        self.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(
            *zip(*copies, strict=True),
            o,
            lse,
            parts,
            lses,
            owners,
            scale * LOG2_E,
            Sequences(sequences, most_keys, None, lengths, pitch),
            Band(rows, cutlass.Int32(0), None, cutlass.Int32(0) if config.causal else None, sharing),
            table,
            row_tiles,
            count,
            *(to_tiled_mma(mma) for mma in (config.qk, config.qk_rope)),
            *(to_tiled_mma(mma, "K", "MN") for mma in (config.pv, config.pv_far)),
        ).launch(
            grid=(row_tiles * count, 1, 1),
            block=(PRODUCERS + CONSUMERS, 1, 1),
            cluster=(config.cluster, 1, 1),
            min_blocks_per_mp=1,
            use_pdl=True,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        copies: tuple,
        tensors: tuple,
        o: cute.Tensor,
        lse: cute.Tensor,
        parts: cute.Tensor | None,
        lses: cute.Tensor | None,
        owners: cute.Tensor | None,
        scale_log2: Float32,
        keys: Sequences,
        band: Band,
        table: cute.Tensor | None,
        row_tiles: cutlass.Int32,
        count: cutlass.Int32,
        qk: cute.TiledMma,
        qk_rope: cute.TiledMma,
        pv: cute.TiledMma,
        pv_far: cute.TiledMma,
    ):
        """Make the blocks, and part the warps by their roles."""
        config, plan = self.config, self.config.smem
        dtype = element_type(config.dtype)
        staged = ("sQ", "sQRope", "sK", "sKRope", "sP0", "sP1")
        shared = smem.share(plan, **dict.fromkeys(staged, dtype), sRows=Float32)
        q_bytes = sum(plan[name].content.size_bytes for name in ("sQ", "sQRope"))
        q_ring = TmaRing(shared["q_barriers"], 1, q_bytes, CONSUMERS // 32)
        rings = self.rings(shared)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                q_ring.initialise()
                for ring in (*rings[0], *rings[1]):
                    ring.initialise()
        publish_barriers((config.cluster, 1, 1))
        follow_launch(True)
        index, _, _ = cute.arch.block_idx()
        # CTAs that have the same keys run at one time, those of a cluster together.
        row, part = index % row_tiles, index // row_tiles
        if cutlass.const_expr(config.causal and not config.is_split):
            # The last rows see the most keys: the longest tiles begin first.
            row = row_tiles - 1 - row
        cta_rows = CtaRows(row, VisibleKeys(keys, band, config.last_row(row)), table)
        tiles = Persistent((1, 1), 1, (config.cluster, 1))
        schedule = KeyParts(cta_rows.seen, 1, KEYS, cutlass.Int32(1), tiles, count, LEAST_TILES)
        run = schedule.pieces if config.is_split else schedule.sequence
        budget = rules.register_budget(2, producer=config.producer_registers)
        if warp < PRODUCERS // 32:
            cute.arch.setmaxregister_decrease(budget.producer)
            loads = self.loads(copies, tensors, shared, cta_rows, rings[0][0])
            for index, blocks in enumerate(config.loading):
                if warp == index:
                    own = MlaProducer(blocks, rings, q_ring if index == 0 else None, *loads, cta_rows)
                    q_state, k_state = run(own, part)
                    if cutlass.const_expr(index == 0):
                        q_ring.drain(q_state)
                    for block in blocks:
                        for ring in rings[block]:
                            ring.drain(k_state.clone())
            if cutlass.const_expr(config.dequantising_warps > 0):
                if warp >= len(config.loading):
                    share = warp - len(config.loading), config.dequantising_warps
                    run(
                        DequantisingProducer(rings, make_dequantisation(shared["sK"], plan["sK"].content, *share)), part
                    )
        else:
            cute.arch.setmaxregister_increase(budget.consumer)
            tidx = roles.warpgroup_thread(PRODUCERS, CONSUMERS)
            consumer, lane = cute.arch.make_warp_uniform(tidx // 128), tidx % 128
            barriers = rules.named_barriers(first=1, second=1, probabilities=1, issued=1, sums=1, read=1, stage=1)
            exchanged = cute.make_tensor(shared["sRows"], cute.make_layout((128, 2, 2)))
            scores, sums = make_subtile((ROWS, BLOCK), 1, lane), make_subtile((ROWS, HALF), 1, lane)
            for block in cutlass.range_constexpr(2):
                if consumer == block:
                    of_qk = product.make_product(qk, shared["sQ"], shared["sK"], lane)
                    of_rope = product.make_product(qk_rope, ROWS, shared["sKRope"], lane)
                    values = staging.transposed(shared["sK"])
                    of_pv = product.make_product(pv, ROWS, values, lane)
                    of_far = product.make_product(pv_far, shared[f"sP{1 - block}"], values, lane)
                    own = MlaConsumer(
                        block,
                        rings[block],
                        rings[1 - block][1],
                        q_ring,
                        of_qk,
                        replace(of_rope, tCrC=of_qk.tCrC),
                        of_pv,
                        replace(of_far, tCrC=of_pv.tCrC),
                        operand.make_operand_load(qk_rope, shared["sQRope"], lane),
                        scores,
                        sums,
                        make_online_softmax(scores, scale_log2),
                        make_stage(qk, shared[f"sP{block}"], 1, lane, 128, barriers["stage"]),
                        exchanged[lane, None, block],
                        exchanged[lane, None, 1 - block],
                        barriers,
                        cta_rows,
                        o,
                        lse,
                        parts,
                        lses,
                        owners,
                    )
                    run(own, part)

    def rings(self, shared: dict) -> tuple:
        """Return the rings (near, far, rope) of each block; a far half is read by both warpgroups."""
        config = self.config
        near_and_far, arguments = TmaRing, {}
        if config.quantised:
            near_and_far, arguments = RewrittenRing, {"warps": config.dequantising_warps}
        rope_bytes, cluster = config.smem["sKRope"].content.stage_bytes, (config.cluster, 1)
        return tuple(
            (
                near_and_far(shared[f"near{block}_barriers"], 1, config.latent_bytes, 4, cluster, **arguments),
                near_and_far(shared[f"far{block}_barriers"], 1, config.latent_bytes, 8, cluster, **arguments),
                TmaRing(shared[f"rope{block}_barriers"], 1, rope_bytes, 4, cluster),
            )
            for block in range(2)
        )

    def loads(self, copies: tuple, tensors: tuple, shared: dict, cta_rows: CtaRows, ring: TmaRing):
        """Return the loads of Q, and of keys into stages of rings like this one."""
        config = self.config
        q, q_rope = (
            tma.make_tiles(copies[n], tensors[n], shared[name], (ROWS, columns)).loads()
            for n, (name, columns) in enumerate((("sQ", HALF), ("sQRope", ROPE)))
        )

        def loads_of(index: int, staged: cute.Tensor):
            """Return the loads of a part of the keys' columns."""
            tiles = copies[index], tensors[index], staged, (BLOCK, cute.size(staged, mode=[1]))
            if cta_rows.table is None:
                return GroupedTiles(*tiles, 0, batched=True).loads(ring, 0, streams=config.is_split)
            paged = cta_rows.table, config.page, 0, ring, 0
            return make_paged_loads(*tiles, *paged, streams=config.is_split, pitch=cta_rows.seen.keys.pitch)

        k_rope = loads_of(3, shared["sKRope"])
        if not config.quantised:
            return q, q_rope, loads_of(2, shared["sK"]), k_rope
        values, lines = stages_to_load(shared["sK"], config.smem["sK"].content)
        return q, q_rope, QuantisedLoads(loads_of(2, values), loads_of(4, lines)), k_rope


def _other_columns(cache: cute.Tensor) -> cute.Tensor:
    """View the columns of a cache behind the latent ones, and behind their scales where they have some."""
    rows, columns = cache.shape
    if columns == HEAD:
        return cute.make_tensor(cache.iterator + LATENT, cute.make_layout((rows, ROPE), stride=cache.stride))
    begin = cute.recast_ptr(cache.iterator + (QUANTISED_BYTES - 2 * ROPE), dtype=cutlass.BFloat16)
    return cute.make_tensor(begin, cute.make_layout((rows, ROPE), stride=(cache.stride[0] // 2, 1)))


def _with_head(layout: cute.Layout) -> cute.Layout:
    """Add a mode of one head after the columns."""
    return cute.append(layout, cute.make_layout(1, stride=0))
