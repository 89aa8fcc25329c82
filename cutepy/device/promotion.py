"""Main loop of 8-bit operands with accumulators promoted to fp32, and scaled, every 128 of K (traced).

The tensor cores keep 14 bits of the sums of 8-bit products. Here they sum at most 128 of K: then fp32 instructions
multiply these sums by the scales of the block, and add the products to fp32 sums of 24 bits. While one warpgroup
promotes, the tensor cores work for another, or for the same one's next block of a stage if its registers hold two.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import cutlass
import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import mma, rules
from cutepy.device.block_scales import BlockScales, ColumnScales, RowScales
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.main_loop import nothing
from cutepy.device.marks import mark
from cutepy.device.pipeline import TmaRing
from cutepy.device.schedulers import Work
from cutepy.device.staging import along_n, check_operands, hold_address
from cutepy.dsl.atoms import a_source
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class _Block:
    """Block of a stage: 64 rows of each warpgroup, and 128 of K, with its set of accumulators."""

    rows: int
    k: int
    buffer: int


@dataclass(frozen=True)
class PromotedLoop:
    """C = (A scaled) (B scaled)^T of one output tile, as `MainLoop` without scales; `tCrC` are fp32 sums.

    Attributes
    ----------
    ring : TmaRing
    tiled_mma : TiledMma
    tCrA, tCrB : Tensor
        Descriptors of the stages, (MMA, MMA_M or MMA_N, MMA_K, stages).
    tCrC : Tensor
        This thread's sums, (MMA, MMA_M, MMA_N).
    partial : tuple of Tensor
        One or two sets of accumulators of the MMAs, (MMA, 1, 1).
    a : RowScales or None
    b : ColumnScales or None
    tile_mn : (int, int)
    block : AccumulatorTile
        Coordinates of the accumulators of a block.
    fenced : bool
        True if TMA loads scales.
    """

    ring: TmaRing
    tiled_mma: cute.TiledMma
    tCrA: cute.Tensor
    tCrB: cute.Tensor
    tCrC: cute.Tensor
    partial: tuple
    a: RowScales | None
    b: ColumnScales | None
    tile_mn: tuple[int, int]
    block: AccumulatorTile
    fenced: bool = False

    @cached_property
    def steps(self) -> int:
        """Number of MMAs along K in a block."""
        return rules.K_BLOCK // self.tiled_mma.get_tile_size(2)

    @cached_property
    def k_blocks(self) -> int:
        """Number of blocks along K in a stage."""
        return cute.size(self.tCrA, mode=[2]) // self.steps

    @cached_property
    def blocks(self) -> tuple[_Block, ...]:
        """Blocks of a stage, in the order in which they are multiplied."""
        row_blocks = cute.size(self.tCrC, mode=[1])
        order = [(rows, k) for k in range(self.k_blocks) for rows in range(row_blocks)]
        return tuple(_Block(rows, k, n % len(self.partial)) for n, (rows, k) in enumerate(order))

    def at(self, work: Work, place: tuple):
        """Return the loop for the output tile at a place: first row, first column, and batch coordinates."""
        a = None if self.a is None else self.a.at_tile(place[0])
        b = None if self.b is None else self.b.at_tile(place[1])
        return replace(self, a=a, b=b)

    @cute.jit
    def multiply(self, state, k_tiles, hand_over: Callable = nothing):
        """Multiply `k_tiles` stages, at least one, from `state` on; return the state after them. tCrC is valid then.

        `hand_over` is called when the last MMAs have finished.
        """
        self.tCrC.fill(0.0)
        arrived = cutlass.Boolean(False)
        for index in cutlass.range(k_tiles, unroll=1):
            self.ring.wait(state, arrived)
            self.multiply_stage(state)
            state.advance()
            # The next stage's barrier is tested here, so that the wait ends while the last block is promoted; during
            # promotion no MMAs of this warpgroup run, and few of the others'.
            if index + 1 < k_tiles:
                arrived = self.ring.has_arrived(state)
            self.promote(self.blocks[-1])
        hand_over()
        return state

    @property
    def scales(self) -> tuple[BlockScales, ...]:
        """Scales of A and B, those that exist."""
        return tuple(scales for scales in (self.a, self.b) if scales is not None)

    def multiply_stage(self, state):
        """Multiply a stage block by block, and promote all blocks but the last, which is multiplied then."""
        pending = ()
        for block in self.blocks:
            self.issue(block, state.index)
            pending = (*pending, block)
            if len(pending) == len(self.partial):
                self.finish(state, *pending)
                pending = pending[1:]
        # No block stays in flight from stage to stage: if other instructions then read its accumulators, ptxas
        # serialises the MMAs (its remark C7514).
        while pending:
            self.finish(state, *pending)
            pending = pending[1:]

    def issue(self, block, stage):
        """Issue the MMAs of a block as one group, which overwrite its set of accumulators."""
        first = block.k * self.steps
        steps = range(first, first + self.steps)
        mma.issue_rows(self.tiled_mma, self.tCrA, self.tCrB, self.partial[block.buffer], block.rows, steps, stage)

    def finish(self, state, block, *in_flight):
        """Wait for the oldest MMA group and promote its block; release the stage instead after its last block.

        `multiply` promotes the last block, once it has begun to wait for the next stage.
        """
        if block.rows == 0:
            self.read_scales(block.k, state.index)
        with mark("multiply"):
            warpgroup.wait_group(len(in_flight))
        if block != self.blocks[-1]:
            self.promote(block)
            return
        if self.scales:
            # One lane releases the stage for the warp, so the other lanes must have read their scales before it does.
            cute.arch.sync_warp()
        self.ring.release(state)

    def read_scales(self, k, stage):
        """Read the scales of a block of K, for all its rows, while its MMAs run."""
        for scales in self.scales:
            scales.read(k, stage)
        if self.fenced and k == self.k_blocks - 1:
            # TMA overwrites the stage's scales through the async proxy, which the release does not order; the fence
            # does. A thread that waits for its fence here has nothing else to do.
            cute.arch.fence_proxy("async.shared", space="cta")

    def promote(self, block):
        """Add a block's accumulators, scaled, to the sums of the tile."""
        partial, down, factors = self.partial[block.buffer], block.rows * self.block.epi_tile[0], {}
        for register, (row, column) in enumerate(self.block.registers):
            value, key = partial[register], (row, self.column_key(column))
            if key not in factors:
                factors[key] = self.factor(down + row, column)
            if factors[key] is not None:
                value = value * factors[key]
            self.tCrC[(register, block.rows, 0)] = self.tCrC[(register, block.rows, 0)] + value

    def column_key(self, column: int):
        """Return a key of a column: equal keys have equal scales."""
        return None if self.b is None else self.b.key(column)

    def factor(self, row: int, column: int):
        """Return the product of the scales of a register; None without scales."""
        found = [] if self.a is None else [self.a.at(row)]
        found += [] if self.b is None else [self.b.at(column)]
        return None if not found else found[0] if len(found) == 1 else found[0] * found[1]


def make_promoted_loop(
    ring: TmaRing,
    tiled_mma: cute.TiledMma,
    sA: cute.Tensor,
    sB: cute.Tensor,
    tidx: cutlass.Int32,
    a_scales: cute.Tensor | None = None,
    b_scales: cute.Tensor | None = None,
    rows: tuple[int, int] = (1, rules.K_BLOCK),
    buffers: int = 1,
    fenced: bool = False,
) -> PromotedLoop:
    """Make the loop over the stages of `sA` (M, K, stages) and `sB` (N, K, stages), with its sums and accumulators.

    Parameters
    ----------
    tidx : Int32
        Index among the threads of `tiled_mma`.
    a_scales, b_scales : Tensor, (places, K blocks, stages), fp32
        In shared memory, filled with the stages: one for so many rows of A, or of B, and 128 of K
        (`block_scales.stage_scales`); None for none.
    rows : (int, int)
        Rows of a scale, of A and of B: 1 or 128 each.
    buffers : 1 or 2
        Sets of accumulators of the MMAs.
    fenced : bool
        True if TMA loads scales, so that their readers fence before they release the stage.

    Raises
    ------
    TypeError
        If the stages hold another element type than the MMAs multiply.
    ValueError
        If the stages are not the ring's, the MMAs or whole blocks don't fill them, or the registers don't suffice.
    """
    tile_m, tile_n, tile_k = cute.size(sA, mode=[0]), cute.size(sB, mode=[0]), cute.size(sA, mode=[1])
    warpgroups = tiled_mma.size // arch.WARPGROUP_THREADS
    rules.check_operand_source(a_source(tiled_mma), "smem")
    rules.check_stacked("a promoted loop", along_n(tiled_mma))
    check_operands(ring, tiled_mma, sA, sB)
    rows = 0 if a_scales is None else rows[0], 0 if b_scales is None else rows[1]
    rules.check_promotion((tile_m, tile_n, tile_k), warpgroups, buffers, rows)
    # wgmma takes descriptors in uniform registers. The compiler can't derive from thread indices that a warp belongs to
    # one warpgroup, and would move each descriptor there just before its MMA. (5% on an H200, 2026-11-24, a median.)
    first = cute.arch.make_warp_uniform(tidx // arch.WARPGROUP_THREADS) * arch.WARPGROUP_THREADS
    thr_mma = tiled_mma.get_slice(first)
    tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
    tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(hold_address(sB)))
    sums = cute.make_rmem_tensor(tiled_mma.partition_shape_C((tile_m, tile_n)), Float32)
    block = make_subtile((arch.WGMMA_M * warpgroups, tile_n), warpgroups, tidx)
    shape = tiled_mma.partition_shape_C(block.epi_tile)
    partial = tuple(cute.make_rmem_tensor(shape, Float32) for _ in range(buffers))
    a = None if a_scales is None else _row_scales(a_scales, rows[0], tile_m, warpgroups, block)
    b = None if b_scales is None else _column_scales(b_scales, rows[1], tile_n, block)
    return PromotedLoop(ring, tiled_mma, tCrA, tCrB, sums, partial, a, b, (tile_m, tile_n), block, fenced)


def _row_scales(staged, rows, tile_m, warpgroups, block) -> RowScales:
    """Make the registers for a thread's scales of A."""
    offsets = rules.row_offsets(tile_m, warpgroups, rows)
    return RowScales(staged, rows, offsets, cute.make_rmem_tensor(len(offsets), Float32), block.of_thread(0))


def _column_scales(staged, rows, tile_n, block) -> ColumnScales:
    """Make the registers for a thread's scales of B."""
    offsets, first = rules.column_offsets(tile_n, rows), block.of_thread(1) if rows == 1 else 0
    return ColumnScales(staged, rows, offsets, cute.make_rmem_tensor(len(offsets), Float32), first, tile_n=tile_n)
