"""Accumulators of tcgen05 in registers, a thread's row at a time, and subtiles of them in shared memory (traced).

Four warps read the 128 lanes of a CTA's accumulators: each thread has one row of the output tile, and all columns of a
subtile.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import CopyUniversalOp, tcgen05

from cutepy.device import rules
from cutepy.device.epilogue import Sink, Stage, TileLoad, TileStore
from cutepy.device.fragment import ThreadColumns
from cutepy.device.sm100 import rules as umma_rules
from cutepy.device.staging import contiguous_mode
from cutepy.device.tma import extents
from cutepy.dsl.launch_facts import launched

VECTOR_BITS = 128


@dataclass(frozen=True)
class AccumulatorRows(ThreadColumns):
    """Coordinates of a thread's registers: one row of a subtile of 128 rows.

    Attributes
    ----------
    columns : int
        Columns of a subtile.
    tidx : Int32
        Index among the 128 threads.
    """

    tidx: cutlass.Int32 | int = 0

    @property
    def epi_tile(self) -> tuple[int, int]:
        """Rows and columns of a subtile."""
        return umma_rules.LANES, self.columns

    def narrowed(self, width: int) -> "AccumulatorRows":
        """Return the row that remains when there are fewer columns by `width`."""
        return AccumulatorRows(self.columns // width, self.tidx)

    def of_thread(self, mode: int, thread=None):
        """Return the row (mode 0) or column (mode 1) in a subtile of a thread's first register."""
        return (self.tidx if thread is None else thread) if mode == 0 else 0

    def sharing_lanes(self, mode: int) -> tuple[int, ...]:
        """Return the bits in which lanes differ that share a row, mode 0, or a column of a partial sum, mode 1."""
        return () if mode == 0 else tuple(1 << bit for bit in range((rules.PARTIAL_ROWS - 1).bit_length()))

    def is_first(self, mode: int, lane):
        """Return whether a lane is the first with its row (mode 0), or with its columns (mode 1)."""
        return True if mode == 0 else lane % rules.PARTIAL_ROWS == 0


@dataclass(frozen=True)
class AccumulatorLoad:
    """Loads of subtiles from tensor memory into registers.

    Attributes
    ----------
    copy : TiledCopy
    tTR_tC : Tensor
        Accumulators of this thread's warp: (copy, 1, 1, subtiles, sets).
    fragment : shape
        This thread's registers of a subtile, one for each column.
    """

    copy: cute.TiledCopy
    tTR_tC: cute.Tensor
    fragment: cute.Shape

    @cute.jit
    def read(self, index, accumulators):
        """Read a subtile of a set of accumulators; its registers, (columns,), hold them on return."""
        source = self.tTR_tC[(None, None, None, index, accumulators)]
        values = cute.make_rmem_tensor(self.fragment, cutlass.Float32)
        cute.copy(self.copy, source, values)
        # tcgen05.ld is asynchronous: without this wait registers may be read, and the accumulators released, too early.
        cute.arch.fence_view_async_tmem_load()
        return cute.make_tensor(values.iterator, cute.make_layout(cute.size(self.fragment)))


def make_accumulator_load(tCtC: cute.Tensor, columns: int, tidx: cutlass.Int32) -> AccumulatorLoad:
    """Partition accumulators ((128, N), 1, 1, sets) in tensor memory into subtiles of a given number of columns.

    Parameters
    ----------
    columns : int
        8, 16, 32, 64 or 128.
    tidx : Int32
        Index among the 128 threads, of which warp w reads lanes 32 w and following.

    Raises
    ------
    ValueError
        If no load reads so many columns, they are no whole subtiles, or the kernel is launched with fewer threads.
    """
    umma_rules.check_row_threads(launched().threads)
    umma_rules.check_loaded_columns(columns, cute.size(tCtC, mode=[0]) // umma_rules.LANES)
    tile = cute.flat_divide(tCtC[((None, None), 0, 0, None)], (umma_rules.LANES, columns))
    tile = tile[(None, None, 0, None, None)]
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(columns)), cutlass.Float32)
    copy = tcgen05.make_tmem_copy(atom, tile[(None, None, 0, 0)])
    thread = copy.get_slice(tidx)
    fragment = cute.shape(thread.partition_D(cute.make_identity_tensor((umma_rules.LANES, columns))))
    return AccumulatorLoad(copy, thread.partition_S(tile), fragment)


def row_copy(staged: cute.Tensor) -> cute.TiledCopy:
    """Make the copy between stages (128, columns, stages) and registers of one row a thread.

    Raises
    ------
    ValueError
        If the stages have other rows, or the kernel is launched with fewer threads.
    """
    umma_rules.check_row_threads(launched().threads)
    rows, columns = extents(staged)
    rules.check_copy_tile((umma_rules.LANES, columns), (rows, columns))
    dtype = staged.element_type
    bits = min(VECTOR_BITS, columns * dtype.width) if contiguous_mode(staged) == 1 else dtype.width
    atom = cute.make_copy_atom(CopyUniversalOp(), dtype, num_bits_per_copy=bits)
    return cute.make_tiled_copy_tv(atom, cute.make_layout((umma_rules.LANES, 1)), cute.make_layout((1, columns)))


def make_row_store(sD: cute.Tensor, tidx: cutlass.Int32, barrier: int = 1) -> TileStore:
    """Partition the staged subtiles `sD` (128, columns, stages), 2 stages or more, for storing rows of accumulators.

    Parameters
    ----------
    tidx : Int32
        Index among the 128 threads, which meet at the named `barrier`.
    """
    rules.check_barrier(barrier)
    copy = row_copy(sD)
    thread = copy.get_slice(tidx)
    shape = cute.shape(thread.partition_S(sD))[:3]
    rows = AccumulatorRows(cute.size(sD, mode=[1]), tidx)
    stage = Stage(copy, thread.partition_D(sD), shape, umma_rules.LANES, barrier, rows)
    return TileStore(stage, Sink(cute.arch.make_warp_uniform(tidx // 32)))


def make_row_load(sC: cute.Tensor, tidx: cutlass.Int32) -> TileLoad:
    """Partition the staged subtiles `sC` (128, columns, stages) for loading rows."""
    copy = row_copy(sC)
    thread = copy.get_slice(tidx)
    return TileLoad(copy, thread.partition_S(sC), cute.shape(thread.partition_D(sC))[:3], tidx)
