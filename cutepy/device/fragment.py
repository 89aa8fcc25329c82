"""Accumulator registers with their coordinates, one epilogue subtile after another (traced).

A coordinate is the sum of two parts, by the layout of the MMA's accumulators (`sm90.AccumulatorCoordinates`). The
kernel computes one part from the thread index; the other depends on the register alone, and is a constant of the trace.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.dsl import to_cute
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch


class Registers:
    """Coordinates of the registers of a thread in a subtile, to which an epilogue is applied.

    Attributes
    ----------
    registers : tuple of (int, int)
        (row, column) in its subtile of each, to be added to the thread's own.
    has_whole_rows : bool
        True if no other thread has values of this thread's rows.
    """

    registers: tuple[tuple[int, int], ...]
    has_whole_rows = False

    def distinct(self, mode: int) -> tuple[int, ...]:
        """Return the distinct rows (mode 0) or columns (mode 1) of a subtile's registers, in order."""
        return tuple(sorted({register[mode] for register in self.registers}))

    def place(self, mode: int) -> tuple[int, ...]:
        """Return for each register the index of its row (mode 0) or column (mode 1) among the `distinct` ones."""
        index_of = {value: place for place, value in enumerate(self.distinct(mode))}
        return tuple(index_of[register[mode]] for register in self.registers)

    def check(self, rC: cute.Tensor) -> None:
        """Check that `rC` are the fp32 registers of a subtile.

        Raises
        ------
        TypeError
            If they are of another type.
        ValueError
            If they are those of another subtile.
        """
        rules.check_registers(cute.size(rC), len(self.registers))
        rules.check_sums(rC.element_type.__name__)

    def count(self, shape: str) -> int:
        """Return the numbers of distinct values that vary with rows, columns, both or neither: an `Operand`'s shape."""
        return 1 + max(self.slots(shape))

    def slots(self, shape: str) -> tuple[int, ...]:
        """Return for each register the index of its value among those that vary with rows, columns, both or neither."""
        if shape in ("row", "column"):  # a row operand has a value for each column
            return self.place(1 if shape == "row" else 0)
        return tuple(range(len(self.registers))) if shape == "tile" else (0,) * len(self.registers)


class PlacedRegisters(Registers):
    """Registers with coordinates from a layout of threads and registers: `coordinates`, and this thread's `tidx`.

    Where the DSL carries them through a loop, `tidx` is all that it carries: the layouts are known while it traces.
    """

    def __extract_mlir_values__(self) -> list:
        return cutlass.extract_mlir_values(self.tidx)

    def __new_from_mlir_values__(self, values: list) -> "PlacedRegisters":
        return replace(self, tidx=cutlass.new_from_mlir_values(self.tidx, values))

    def thread(self, mode: int):
        """Return the index that determines a thread's row (mode 0) or column (mode 1): its lane if warps agree."""
        return cute.arch.lane_idx() if self.coordinates.by_lane(mode) else self.tidx

    def of_thread(self, mode: int, thread=None):
        """Return the row (mode 0) or column (mode 1) in a subtile of a thread's first register."""
        thread = self.thread(mode) if thread is None else thread
        return cute.crd2idx(thread, to_cute(self.coordinates.of_thread(mode)))


@dataclass(frozen=True)
class AccumulatorTile(PlacedRegisters):
    """Coordinates of a thread's accumulators in the output tile, the same for all subtiles.

    Attributes
    ----------
    coordinates : AccumulatorCoordinates
    epi_tile : (int, int)
        Rows and columns of a subtile.
    tidx : Int32
        Index among the threads of the MMA.
    """

    coordinates: sm90.AccumulatorCoordinates
    epi_tile: tuple[int, int]
    tidx: cutlass.Int32

    def __post_init__(self) -> None:
        along_m, along_n = self.warpgroups
        rules.check_subtile(*self.epi_tile, along_m)
        rules.check_subtile_columns(self.coordinates.tile_mn[1], self.epi_tile[1])
        rules.check_whole_columns(self.coordinates.tile_mn[1], self.epi_tile[1], along_n)

    @property
    def warpgroups(self) -> tuple[int, int]:
        """Warpgroups along M and along N."""
        along_m, along_n, _ = self.coordinates.tiling.atom_layout_mnk.shape
        return along_m, along_n

    @cached_property
    def registers(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of each register within its subtile, relative to the (row, column) of the thread."""
        count = self.epi_tile[0] * self.epi_tile[1] // self.coordinates.tiling.thr_size
        return self.coordinates.registers[:count]

    @cached_property
    def sharing(self) -> tuple[int, int]:
        """Return the number of lanes that share a row, and the number of adjacent columns that each lane holds.

        The columns of a row come in spans of lanes x columns, and lane q holds the q-th run of each span.
        """
        lanes = 1 << len(self.coordinates.lanes_across(1))
        columns = [column for row, column in self.registers if row == self.registers[0][0]]
        run = next((n for n, column in enumerate(columns) if column != n), len(columns))
        of_thread = self.coordinates.of_thread(1)
        assert all(of_thread(lane) == lane % lanes * run for lane in range(arch.WARP_THREADS))
        assert columns == [n // run * lanes * run + n % run for n in range(len(columns))]
        return lanes, run

    def sharing_lanes(self, mode: int) -> tuple[int, ...]:
        """Return the bits in which the lanes of a warp differ that share a row (mode 0) or a column (mode 1)."""
        return self.coordinates.lanes_across(1 - mode)

    def is_first(self, mode: int, lane):
        """Return whether a lane is the first in its warp with its rows (mode 0) or columns (mode 1)."""
        across = self.coordinates.lanes_across(1 - mode)
        count = 1 << len(across)
        if sum(across) == count - 1:  # lanes that share a row differ in the lowest bits
            return lane % count == 0
        # lanes that share a column differ in the highest bits
        assert sum(across) == arch.WARP_THREADS - arch.WARP_THREADS // count
        return lane < arch.WARP_THREADS // count

    def check_widths(self, widest: int) -> None:
        """Check that columns can be parted; see `rules.check_widths`."""
        rules.check_widths(self.epi_tile[1], widest)

    def narrowed(self, width: int) -> "AccumulatorTile":
        """Return the tile whose subtiles have fewer columns by `width`, in the distribution of so wide an MMA."""
        if width == 1:
            return self
        return make_subtile((self.epi_tile[0], self.epi_tile[1] // width), self.warpgroups, self.tidx)

    @property
    def subtiles(self) -> int:
        """Subtiles of the output tile."""
        rows, columns = self.coordinates.tile_mn
        return rows // self.epi_tile[0] * (columns // self.epi_tile[1])

    def origin(self, index):
        """Compute the row and column in the tile where a subtile starts; subtiles run along N first."""
        rules.check_number("subtile", index, self.subtiles)
        columns = self.coordinates.tile_mn[1] // self.epi_tile[1]
        return index // columns * self.epi_tile[0], index % columns * self.epi_tile[1]

    def coordinate(self, index, register: int):
        """Compute the row and column in the tile of a register of a subtile."""
        rules.check_number("register", register, len(self.registers))
        (row, column), (down, across) = self.origin(index), self.registers[register]
        return row + self.of_thread(0) + down, column + self.of_thread(1) + across


@dataclass(frozen=True)
class ThreadColumns(Registers):
    """Adjacent columns of one row that belong to one thread.

    Attributes
    ----------
    columns : int
    """

    columns: int
    has_whole_rows = True

    @property
    def registers(self) -> tuple[tuple[int, int], ...]:
        """Each column of the row."""
        return tuple((0, column) for column in range(self.columns))

    def check_widths(self, widest: int) -> None:
        """Check that columns can be parted."""
        if self.columns % widest:
            raise ValueError(
                f"columns interleaved in {widest} parts must be a multiple of {widest}, got {self.columns}"
            )

    def narrowed(self, width: int) -> "ThreadColumns":
        """Return the columns that remain when there are fewer by `width`."""
        return ThreadColumns(self.columns // width)

    def of_thread(self, mode: int, thread=None) -> int:
        """Return 0: a subtile belongs to one thread."""
        return 0


def make_subtile(epi_tile: tuple[int, int], warpgroups: int | tuple[int, int], tidx) -> AccumulatorTile:
    """Make the coordinates of one subtile's accumulators, the same in all tiles of its rows.

    `warpgroups` are those along M, or along M and N.
    """
    along_n = 1 if isinstance(warpgroups, int) else warpgroups[1]
    tiling = rules.wgmma_tiling("float16", "float16", epi_tile[1] // along_n, warpgroups)
    return AccumulatorTile(sm90.AccumulatorCoordinates(tiling, epi_tile), epi_tile, tidx)
