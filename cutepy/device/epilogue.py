"""Epilogue stores: accumulator subtiles from registers through swizzled shared memory to global memory (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import CopyUniversalOp, warp

from cutepy.device import rules, staging
from cutepy.device.fragment import AccumulatorTile, make_subtile
from cutepy.device.marks import mark
from cutepy.device.tma import check_stores, extents
from cutepy.layouts.sm90 import arch

STORE_WARP = 0
"""Consumer warp that issues the TMA stores."""


def _matrices(sD: cute.Tensor) -> int:
    """Count the 8x8 matrices of one instruction: 16 rows by 16 columns, or by 8 if 16 don't fit."""
    return 4 if cute.size(sD, mode=[1]) % (2 * rules.SUBTILE_COLUMNS) == 0 else 2


def _fragment_copy(tiled_mma: cute.TiledMma, atom: cute.CopyAtom, matrices: int) -> cute.TiledCopy:
    """Tile a copy atom over the accumulator fragment, in the pieces of an stmatrix of a given number of matrices."""
    pieces = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, matrices), cutlass.Float16)
    return cute.make_tiled_copy_S(atom, cute.make_tiled_copy_C_atom(pieces, tiled_mma))


def register_to_smem(tiled_mma: cute.TiledMma, sD: cute.Tensor, contiguous_mode: int) -> cute.TiledCopy:
    """Make the copy from accumulator registers to shared memory: stmatrix for 16-bit types, else plain stores.

    A wgmma fragment holds 8x8 blocks in just the distribution that stmatrix stores as eight 16-byte rows; the
    transposed form stores eight 16-byte columns, for column-major outputs.
    """
    dtype, matrices = sD.element_type, _matrices(sD)
    op = warp.StMatrix8x8x16bOp(contiguous_mode == 0, matrices) if dtype.width == 16 else CopyUniversalOp()
    return _fragment_copy(tiled_mma, cute.make_copy_atom(op, dtype), matrices)


def smem_to_register(tiled_mma: cute.TiledMma, sC: cute.Tensor, contiguous_mode: int) -> cute.TiledCopy:
    """Make the reverse copy, ldmatrix for 16-bit types: each thread gets its accumulators' elements."""
    dtype, matrices = sC.element_type, _matrices(sC)
    op = warp.LdMatrix8x8x16bOp(contiguous_mode == 0, matrices) if dtype.width == 16 else CopyUniversalOp()
    return _fragment_copy(tiled_mma, cute.make_copy_atom(op, dtype), matrices)


def _check_subtile(tiled_mma: cute.TiledMma, staged: cute.Tensor, contiguous_mode: int) -> None:
    rows, columns = cute.size(staged, mode=[0]), cute.size(staged, mode=[1])
    rules.check_stacked("a stage of accumulators", staging.along_n(tiled_mma))
    rules.check_subtile(rows, columns, tiled_mma.size // arch.WARPGROUP_THREADS)
    rules.check_contiguous_mode(staging.contiguous_mode(staged), contiguous_mode)


@dataclass(frozen=True)
class Stage:
    """Writes of accumulators to stages of shared memory, for the async proxy: TMA, or the MMAs of another product.

    Attributes
    ----------
    copy : TiledCopy
        From the accumulator fragment to shared memory.
    tRS_sD : Tensor
        This thread's part of the stages.
    subtile_shape : shape
        This thread's registers of one subtile.
    threads : int
        Threads that fill a stage together.
    barrier : int or Int32
        The named barrier at which they meet.
    tile : AccumulatorTile
        Coordinates of this thread's registers of one subtile, for vectors, reductions and masks.
    """

    copy: cute.TiledCopy
    tRS_sD: cute.Tensor
    subtile_shape: cute.Shape
    threads: int
    barrier: int | cutlass.Int32
    tile: AccumulatorTile

    @property
    def stages(self) -> int:
        """Subtiles in shared memory."""
        return cute.size(self.tRS_sD, mode=[3])

    def subtiles(self, tCrC):
        """View this thread's accumulators as subtiles, in the order of the copy: (subtile_shape..., subtiles).

        Loop over the last mode with ``cutlass.range(count, unroll_full=True)``, and finish each subtile in place: the
        loop is traced once, and registers have no addresses, so it must be unrolled fully.
        """
        count = cute.size(tCrC) // cute.size(self.subtile_shape)
        return cute.composition(self.copy.retile(tCrC), cute.make_layout((*self.subtile_shape, count)))

    def write(self, rC, buffer):
        """Convert one subtile and write it to stage `buffer`; `meet` must follow before another thread's copy reads it.

        The stage must be free: its readers are known to have finished.

        Parameters
        ----------
        rC : Tensor
            This thread's part, of `subtiles`.
        buffer : int or Int32
        """
        rules.check_registers(cute.size(rC), cute.size(self.subtile_shape))
        rules.check_number("stage", buffer, self.stages)
        rD = cute.make_rmem_tensor(self.subtile_shape, self.tRS_sD.element_type)
        rD.store(rC.load().to(self.tRS_sD.element_type))
        cute.copy(self.copy, rD, self.tRS_sD[(None, None, None, buffer)])

    def publish(self):
        """Make all threads' writes visible to the async proxy; all threads of the stage call."""
        # TMA reads through the async proxy: without this fence it may read bytes older than the stores above. (Left out
        # on an H200, 2026-11-21, relative errors of a GEMM rose from 2e-4 to 1e-2 and more, in large products only.)
        cute.arch.fence_proxy("async.shared", space="cta")
        self.meet()

    def meet(self):
        """Wait for all threads of the stage."""
        cute.arch.barrier(barrier_id=self.barrier, number_of_threads=self.threads)


@dataclass(frozen=True)
class Sink:
    """TMA stores, or additions, of stages to global memory, by one warp.

    Attributes
    ----------
    warp : Int32
        Index among the warps that fill the stages; the first one sends.
    """

    warp: cutlass.Int32

    @cute.jit
    def send(self, target, buffer, index, in_flight: cutlass.Constexpr):
        """Store, or add, stage `buffer` to a subtile of `target`, and wait until only so many sends read their stages.

        All threads of the stage call, after `Stage.publish`. The copy of `target` decides which: `tma.make_store` or
        `tma.make_reduce`.
        """
        check_stores(target.copy)
        tDsD, tDgD = target.tSs, target.place(index)
        if self.warp == STORE_WARP:
            cute.copy(target.copy, tDsD[(None, buffer)], tDgD)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(in_flight, read=True)

    @cute.jit
    def wait(self):
        """Wait, in the warp that sends, until TMA has read all that was sent; `Stage.meet` tells the others.

        Without it memory would be written, or freed by the CTA's exit, that TMA still reads.
        """
        if self.warp == STORE_WARP:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@dataclass(frozen=True)
class TileStore:
    """Store of accumulator tiles, subtile by subtile: registers -> shared memory -> TMA.

    Attributes
    ----------
    stage : Stage
        The threads fill one of its stages while TMA still reads others.
    sink : Sink
    """

    stage: Stage
    sink: Sink

    @property
    def tile(self) -> AccumulatorTile:
        """Coordinates of this thread's registers of one subtile."""
        return self.stage.tile

    @property
    def subtile_shape(self) -> cute.Shape:
        """Registers of one subtile, this thread's."""
        return self.stage.subtile_shape

    def subtiles(self, tCrC, target):
        """View this thread's accumulators as subtiles: see `Stage.subtiles`.

        Parameters
        ----------
        tCrC : Tensor, (MMA, MMA_M, MMA_N)
        target : TmaSubtiles
            Destination subtiles in global memory.

        Raises
        ------
        ValueError
            If the columns are no whole subtiles, or the tile of `target` has other extents than the accumulators'.
        """
        size = cute.size(self.subtile_shape)
        # A thread holds 1/128 of 64 rows: one accumulator for every two columns of them.
        columns_each = arch.WARPGROUP_THREADS // arch.WGMMA_M
        held = cute.size(tCrC, mode=[0]) * cute.size(tCrC, mode=[2])
        columns, across = held * columns_each, size * columns_each
        rules.check_subtile_columns(columns, across)
        count = cute.size(tCrC) // size
        rows = size * self.stage.threads // across
        stored = target.count // target.columns * rows, target.columns * across
        rules.check_covering((count * across // columns * rows, columns), stored)
        return self.stage.subtiles(tCrC)

    @cute.jit
    def store(self, rC, buffer, target, index):
        """Convert one subtile, write it to stage `buffer`, and store it to `target` by TMA; all threads call it.

        Parameters
        ----------
        rC : Tensor
            This thread's part of a subtile, an item of `subtiles`.
        buffer : int or Int32
            Stage to write to; each in turn, over all tiles of this CTA.
        target : TmaSubtiles
        index : int or Int32
            Index of the subtile in the tile.

        Raises
        ------
        IndexError
            If `buffer` is no stage, or `index` no subtile.
        TypeError
            If the copy of `target` loads.
        ValueError
            If `rC` has another shape than a thread's part of a subtile, or another stage's turn has come.
        """
        rules.check_buffer(buffer, index, target.count, self.stage.stages)
        with mark("epilogue", index):
            self.stage.write(rC, buffer)
            # TMA must send every thread's part, so all wait for all. The barrier also tells the threads that the next
            # stage is free: the store warp has waited for that (below) before it arrives here.
            self.stage.publish()
        # At most stages - 2 stores may still be reading then, none of them from the stage that is filled after the next
        # barrier, on which the store warp arrives only after its wait.
        with mark("store", index):
            self.sink.send(target, buffer, index, self.stage.stages - 2)

    @cute.jit
    def store_at_once(self, tCrC, target):
        """Store all subtiles of a tile, which TMA reads until the next tile is stored; all threads call it.

        Parameters
        ----------
        tCrC : Tensor, (MMA, MMA_M, MMA_N)
        target : TmaSubtiles
            Destination, of at most as many subtiles as there are stages.
        """
        self.sink.wait()
        self.stage.meet()
        self.write_all(tCrC, target)
        self.stage.publish()
        self.send_all(target)

    @cute.jit
    def write_all(self, tCrC, target):
        """Convert all subtiles of a tile, and write each to a stage of its own, which is free; all threads call it."""
        rules.check_number("stage", target.count - 1, self.stage.stages)
        subtiles = self.subtiles(tCrC, target)
        for index in cutlass.range_constexpr(target.count):
            self.stage.write(subtiles[None, None, None, index], index)

    @cute.jit
    def send_all(self, target):
        """Send all stages that `write_all` wrote, after `Stage.publish`, without waiting; all threads call it."""
        for index in cutlass.range_constexpr(target.count):
            self.sink.send(target, index, index, target.count)

    def finish(self):
        """Wait until TMA has read all that was stored."""
        self.sink.wait()


def make_stage(
    tiled_mma: cute.TiledMma,
    sD: cute.Tensor,
    contiguous_mode: int,
    tidx: cutlass.Int32,
    threads: int,
    barrier: int | cutlass.Int32,
) -> Stage:
    """Partition the stages `sD` (rows, columns, stages) by the accumulators of `tiled_mma`.

    Parameters
    ----------
    contiguous_mode : int
        1 for row-major stages, 0 for column-major ones.
    tidx : Int32
        Index among the `threads`, those of `tiled_mma`, which meet at the named `barrier`.

    Raises
    ------
    ValueError
        If the threads are not those of `tiled_mma`, or can't fill such stages, these are contiguous in another mode, or
        there is no such named barrier.
    """
    if isinstance(barrier, int):
        rules.check_barrier(barrier)
    if threads != tiled_mma.size:
        raise ValueError(f"a tile store needs the {tiled_mma.size} threads of its MMA, got {threads}")
    _check_subtile(tiled_mma, sD, contiguous_mode)
    copy = register_to_smem(tiled_mma, sD, contiguous_mode)
    thread_copy = copy.get_slice(tidx)
    shape = cute.shape(thread_copy.partition_S(sD))[:3]
    tile = make_subtile(extents(sD), threads // arch.WARPGROUP_THREADS, tidx)
    return Stage(copy, thread_copy.partition_D(sD), shape, threads, barrier, tile)


def make_tile_store(
    tiled_mma: cute.TiledMma,
    sD: cute.Tensor,
    contiguous_mode: int,
    tidx: cutlass.Int32,
    threads: int,
    barrier: int | cutlass.Int32 = 1,
) -> TileStore:
    """Partition the staged subtiles `sD` (rows, columns, stages) for storing the accumulators of `tiled_mma`.

    Parameters and errors are those of `make_stage`; there must be 2 stages or more.
    """
    stage = make_stage(tiled_mma, sD, contiguous_mode, tidx, threads, barrier)
    if stage.stages < 2:
        raise ValueError(
            f"a tile store needs at least 2 stages, got {stage.stages}: the threads fill one while TMA reads the "
            "other; use 2, of half the columns if there is no room"
        )
    return TileStore(stage, Sink(cute.arch.make_warp_uniform(tidx // 32)))


@dataclass(frozen=True)
class TileLoad:
    """Load of subtiles, such as C, from shared memory into the distribution of the accumulators.

    Attributes
    ----------
    copy : TiledCopy
        From shared memory to the accumulators' distribution.
    tSR_sC : Tensor
        This thread's part of the staged subtiles.
    subtile_shape : shape
        This thread's registers of one subtile.
    tidx : Int32
        Index among the consumer threads.
    """

    copy: cute.TiledCopy
    tSR_sC: cute.Tensor
    subtile_shape: cute.Shape
    tidx: cutlass.Int32

    @cute.jit
    def read(self, buffer):
        """Read stage `buffer` into registers, in the accumulators' order.

        After it one lane may release the stage for its warp.
        """
        rules.check_number("stage", buffer, cute.size(self.tSR_sC, mode=[3]))
        values = cute.make_rmem_tensor(self.subtile_shape, self.tSR_sC.element_type)
        cute.copy(self.copy, self.tSR_sC[(None, None, None, buffer)], self.copy.get_slice(self.tidx).retile(values))
        # TMA overwrites this stage through the async proxy, which the release does not order: this fence does. (Without
        # it, with ping-pong consumers, an H200 gave wrong values in 3 of 478 runs, 2026-11-23.)
        cute.arch.fence_proxy("async.shared", space="cta")
        # One lane releases the stage for the warp, so the other lanes must have read their part before it does.
        cute.arch.sync_warp()
        return values


def make_tile_load(tiled_mma: cute.TiledMma, sC: cute.Tensor, contiguous_mode: int, tidx: cutlass.Int32) -> TileLoad:
    """Partition the staged subtiles `sC` (rows, columns, stages) by the accumulators of `tiled_mma`.

    Raises
    ------
    ValueError
        If the threads can't load such subtiles, or these are contiguous in another mode.
    """
    _check_subtile(tiled_mma, sC, contiguous_mode)
    copy = smem_to_register(tiled_mma, sC, contiguous_mode)
    thread_copy = copy.get_slice(tidx)
    shape = cute.shape(thread_copy.partition_D(sC))[:3]
    return TileLoad(copy, thread_copy.partition_S(sC), shape, tidx)
