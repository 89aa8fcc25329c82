"""Lists of blocks of an attention matrix that are seen in part or as a whole, and the tiles of these (traced).

A block mask says of each row of blocks which blocks have scores that are seen; a kernel goes through these only. Tiles
are whole parts of blocks. Blocks seen in part come first.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32


@dataclass(frozen=True)
class ListedTiles:
    """Tiles of one row of tiles.

    Attributes
    ----------
    lists : BlockLists
    place : tuple of Int32
        Batch, head, and row of blocks.
    partial, whole : Int32
        Tiles that are seen in part, and as a whole.
    """

    lists: "BlockLists"
    place: tuple
    partial: Int32
    whole: Int32

    @property
    def count(self):
        """Number of tiles."""
        return self.partial + self.whole

    @property
    def first(self):
        """Index of the first tile; 0 if there is none."""
        return self.tile(0)

    @property
    def last(self):
        """Index of the last tile; 0 if there is none."""
        return self.tile(cutlass.max(self.count - 1, 0))

    def partial_tile(self, n):
        """Return the index of a tile that is seen in part."""
        return self._tile(self.lists.partial_indices, n)

    def whole_tile(self, n):
        """Return the index of a tile that is seen as a whole."""
        return self._tile(self.lists.whole_indices, n)

    @cute.jit
    def tile(self, n):
        """Return the index of a tile, of those seen in part first; 0 beyond the last."""
        found = Int32(0)
        if n < self.partial:
            found = self.partial_tile(n)
        elif n < self.count:
            found = self.whole_tile(n - self.partial)
        return found

    def _tile(self, indices, n):
        each = self.lists.tiles_each[1]
        return indices[(*self.place, n // each)] * each + n % each


@dataclass(frozen=True)
class BlockLists:
    """Lists of a block mask.

    Attributes
    ----------
    partial_counts, whole_counts : Tensor (batch, heads, rows of blocks), int32
        Blocks of each row that are seen in part, and as a whole.
    partial_indices, whole_indices : Tensor (batch, heads, rows of blocks, blocks), int32
        Their columns.
    tiles_each : (int, int)
        Tiles of a block along its rows, and along its columns.
    """

    partial_counts: cute.Tensor
    partial_indices: cute.Tensor
    whole_counts: cute.Tensor
    whole_indices: cute.Tensor
    tiles_each: tuple[int, int]

    def tiles(self, row, batch, head) -> ListedTiles:
        """Return the tiles of a row of tiles."""
        place = (batch, head, row // self.tiles_each[0])
        each = self.tiles_each[1]
        return ListedTiles(self, place, self.partial_counts[place] * each, self.whole_counts[place] * each)


def make_block_lists(lists: tuple | None, block: tuple[int, int] | None, tile: tuple[int, int]) -> BlockLists | None:
    """Make the lists of blocks of an extent for tiles of an extent, whole parts of it; None if there are none."""
    return None if lists is None else BlockLists(*lists, (block[0] // tile[0], block[1] // tile[1]))
