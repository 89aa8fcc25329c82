"""Vectors along a mode of the output tile in registers (traced): a bias, or scales."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device.fragment import AccumulatorTile


@dataclass(frozen=True)
class TileVector:
    """Vector in global memory with one element for each column, or row, of the output.

    A thread keeps just the elements that its registers of a subtile meet. Who loads them well before they are needed
    waits for nothing; no other thread takes part.

    Attributes
    ----------
    vector : Tensor, (N,) or (M,)
    tile : AccumulatorTile
    mode : 0 or 1
        0 for an element for each row, 1 for each column.
    values : Tensor
        Registers for them.
    thread : Int32
        Index that determines this thread's rows or columns (`AccumulatorTile.thread`).
    """

    vector: cute.Tensor
    tile: AccumulatorTile
    mode: int
    values: cute.Tensor
    thread: cutlass.Int32

    @cute.jit
    def load(self, first):
        """Load this thread's elements for the subtile with first row or column `first`."""
        first = first + self.tile.of_thread(self.mode, self.thread)
        # Results beyond the end are never stored, so the last element will do there.
        last = cute.size(self.vector) - 1
        for value, offset in enumerate(self.tile.distinct(self.mode)):
            self.values[value] = self.vector[cutlass.min(first + offset, last)]

    def at(self, register: int):
        """Return the element for a register of the subtile, in fp32."""
        return self.values[self.tile.place(self.mode)[register]].to(cutlass.Float32)

    @cute.jit
    def add_to(self, rC):
        """Add the loaded elements to the fp32 subtile `rC`; errors are those of `Registers.check`."""
        self.tile.check(rC)
        for register in cutlass.range_constexpr(cute.size(rC)):
            rC[register] = rC[register] + self.at(register)

    @cute.jit
    def scale(self, rC):
        """Multiply the fp32 subtile `rC` by the loaded elements; errors are those of `Registers.check`."""
        self.tile.check(rC)
        for register in cutlass.range_constexpr(cute.size(rC)):
            rC[register] = rC[register] * self.at(register)


def make_tile_vector(vector: cute.Tensor, tile: AccumulatorTile, mode: int) -> TileVector:
    """Make a vector with one element for each row (mode 0) or column (mode 1) of the output.

    Raises
    ------
    ValueError
        If it is no vector, or the mode is another.
    """
    if cute.rank(vector) != 1 or mode not in (0, 1):
        raise ValueError(
            f"a tile's vector runs along rows, 0, or columns, 1, got rank {cute.rank(vector)}, mode {mode}"
        )
    values = cute.make_rmem_tensor(len(tile.distinct(mode)), vector.element_type)
    return TileVector(vector, tile, mode, values, tile.thread(mode))
