"""Stores of accumulators to rows of global memory, from registers: 16 bytes of a row at a time, or fewer (traced).

Four lanes share the rows of an MMA's accumulators, and each lane holds two adjoining columns of every eight. A direct
store of such a pair has 8 bytes of fp32, or 4 bytes of a 16-bit type. If two or four lanes exchange pairs first, each
lane gets four or eight adjoining columns of a row and stores them together. Lane q of n keeps its pair of group q of n
groups of eight columns, gives its other pairs away, and receives the other lanes' pairs of group q.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.fragment import AccumulatorTile
from cutepy.device.primitives import select

WORD_BITS = 32
"""Bits that a shuffle moves."""


@dataclass(frozen=True)
class RowStores:
    """Stores of a tile of accumulators by the warps that hold them, without shared memory.

    Attributes
    ----------
    tile : AccumulatorTile
        Coordinates of the registers.
    lanes : int
        Lanes that exchange pairs: 1, 2 or 4. A store has 2 `lanes` columns of a row.
    """

    tile: AccumulatorTile
    lanes: int = 1

    def __post_init__(self) -> None:
        rules.check_row_stores(self.lanes, self.tile.epi_tile[1])

    @cute.jit
    def store(self, values: cute.Tensor, o: cute.Tensor, first_row, first_column, end):
        """Store this thread's registers to o (rows, columns), but for rows from `end` on; whole warps call.

        `first_row` and `first_column` are those of the tile in o, whose rows are contiguous and aligned to what a
        store has.
        """
        sharing, run = self.tile.sharing
        lane, each = cute.arch.lane_idx() % sharing, run * self.lanes
        for down in self.tile.distinct(0):
            own = [register for register, (row, _) in enumerate(self.tile.registers) if row == down]
            groups = [self.words(values, own[at : at + run], o.element_type) for at in range(0, len(own), run)]
            for group in cutlass.range_constexpr(0, len(groups), self.lanes):
                self.exchange(groups[group : group + self.lanes], lane)
            row = first_row + self.tile.of_thread(0) + down
            if row < end:
                line = o[row, None]
                for group in cutlass.range_constexpr(0, len(groups), self.lanes):
                    held = cute.make_rmem_tensor(each, o.element_type)
                    parts = cute.recast_tensor(held, groups[0].element_type)
                    count = cute.size(groups[0])
                    for n in cutlass.range_constexpr(self.lanes):
                        for word in cutlass.range_constexpr(count):
                            parts[n * count + word] = groups[group + n][word]
                    # Of the groups the lane has the one of its index, from the first of the exchanging lanes on.
                    column = (group + lane % self.lanes) * sharing * run + lane // self.lanes * each
                    into = cute.local_tile(line, (each,), ((first_column + column) // each,))
                    start = into.iterator.align(each * o.element_type.width // 8)
                    cute.autovec_copy(held, cute.make_tensor(start, into.layout))

    def words(self, values: cute.Tensor, registers: list, element_type):
        """Convert a pair of registers, and return the words that hold it."""
        pair = cute.make_rmem_tensor(len(registers), element_type)
        for n, register in enumerate(registers):
            pair[n] = values[register].to(element_type)
        held = cute.make_rmem_tensor(len(registers) * element_type.width // WORD_BITS, cutlass.Int32)
        held.store(cute.recast_tensor(pair, cutlass.Int32).load())
        return held

    def exchange(self, groups: list, lane):
        """Transpose pairs among lanes: lane j gets the j-th group's pairs of all of them, in the order of lanes."""
        distance = 1
        while distance < self.lanes:
            is_upper = lane // distance % 2 == 1
            for index in range(self.lanes):
                if index // distance % 2 == 0:
                    lower, upper = groups[index], groups[index + distance]
                    for word in range(cute.size(lower)):
                        given = select(is_upper, lower[word], upper[word])
                        taken = cute.arch.shuffle_sync_bfly(given, offset=distance)
                        lower[word] = select(is_upper, taken, lower[word])
                        upper[word] = select(is_upper, upper[word], taken)
            distance *= 2
