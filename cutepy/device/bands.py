"""Bands of an attention matrix: the keys that each query sees, by causality, a window, and the keys there are (traced).

A band is known by its first and last key for each query, both of which grow with the query. So a tile of queries sees a
range of tiles of keys, of which those in the middle need no mask.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from cutepy.device.fragment import AccumulatorTile
from cutepy.device.primitives import select


def _ceil_div(number, divisor: int):
    """Divide a number that is not negative, on the host too, and round up."""
    return (number + divisor - 1) // divisor


@dataclass(frozen=True)
class KeyTiles:
    """Tiles of keys that a tile of queries sees, from `begin` to before `end`; there is at least one.

    Attributes
    ----------
    begin, end : Int32
    whole_begin, whole_end : Int32
        Of them, those that every query sees all of: no mask changes them. None if the first is not before the second.
    """

    begin: Int32
    end: Int32
    whole_begin: Int32
    whole_end: Int32

    @property
    def count(self):
        """Number of tiles."""
        return self.end - self.begin

    def part(self, index, parts) -> "KeyTiles":
        """Return one of so many parts; where there are more parts than tiles, the last have a tile beyond the end.

        Examples
        --------
        >>> KeyTiles(0, 5, 1, 4).part(1, 2)
        KeyTiles(begin=3, end=5, whole_begin=3, whole_end=4)
        >>> KeyTiles(0, 5, 0, 5).part(3, 4)
        KeyTiles(begin=5, end=6, whole_begin=5, whole_end=5)
        """
        each = _ceil_div(self.count, parts)
        begin = cutlass.min(self.begin + index * each, self.end)
        end = cutlass.max(cutlass.min(begin + each, self.end), begin + 1)
        whole_end = cutlass.max(cutlass.min(self.whole_end, end), begin)
        return KeyTiles(begin, end, cutlass.min(cutlass.max(self.whole_begin, begin), end), whole_end)

    def has_whole(self, tiles):
        """Tell whether every query sees all keys of the first tiles, a given number of them."""
        return (self.begin == 0) & (self.whole_begin == 0) & (self.whole_end >= tiles)

    def behind(self, tiles) -> "KeyTiles":
        """Return the tiles of keys after the first `tiles`; where there is none, the one beyond the end.

        Examples
        --------
        >>> KeyTiles(0, 5, 0, 4).behind(2)
        KeyTiles(begin=2, end=5, whole_begin=2, whole_end=4)
        >>> KeyTiles(0, 5, 0, 5).behind(5)
        KeyTiles(begin=5, end=6, whole_begin=5, whole_end=5)
        """
        begin = cutlass.max(self.begin, tiles)
        whole = cutlass.max(self.whole_begin, begin), cutlass.max(self.whole_end, begin)
        return KeyTiles(begin, cutlass.max(self.end, begin + 1), *whole)

    @property
    def first(self):
        """Index of the tile that comes first where tiles are taken backwards: the last one."""
        return self.end - 1

    @property
    def last(self):
        """Index of the tile that comes last where tiles are taken backwards."""
        return self.begin

    def tile(self, n):
        """Return the index of a tile, counted backwards."""
        return self.end - 1 - n


@dataclass(frozen=True)
class Band:
    """Keys that queries see: those from `left` before a query's own position to `right` after it.

    Positions are aligned at the end: the last query is at the last key.

    Attributes
    ----------
    queries, keys : Int32
    left, right : Int32 or None
        Keys before and after a query's position that it sees; None for all. Causal: `right` is 0.
    sharing : Int32 or None
        Queries that share a position, one after another, as those of heads that share keys; None for one.
    """

    queries: Int32
    keys: Int32
    left: Int32 | None = None
    right: Int32 | None = None
    sharing: Int32 | None = None

    def transposed(self) -> "Band":
        """Return the band of the transposed matrix: the queries that see each key."""
        return Band(self.keys, self.queries, self.right, self.left)

    def position(self, query):
        """Return the position of a query among the keys."""
        if self.sharing is None:
            return query + (self.keys - self.queries)
        return query // self.sharing + (self.keys - self.queries // self.sharing)

    def begin(self, query):
        """Return the first key that a query sees."""
        if self.left is None:
            return 0
        return cutlass.max(self.position(query) - self.left, 0)

    def end(self, query):
        """Return the key after the last that a query sees."""
        if self.right is None:
            return self.keys
        return cutlass.min(self.position(query) + self.right + 1, self.keys)

    def tiles(self, query, rows: int, width: int) -> KeyTiles:
        """Return the tiles of `width` keys that the `rows` queries from `query` on see."""
        last = query + rows - 1
        end = cutlass.max(_ceil_div(cutlass.max(self.end(last), 0), width), 1)
        begin = cutlass.min(self.begin(query) // width, end - 1)
        whole_end = cutlass.max(cutlass.min(cutlass.max(self.end(query), 0) // width, end), begin)
        whole_begin = cutlass.min(cutlass.max(_ceil_div(self.begin(last), width), begin), end)
        return KeyTiles(begin, end, whole_begin, whole_end)

    @cute.jit
    def mask(self, scores: cute.Tensor, tile: AccumulatorTile, query, key, is_ragged: cutlass.Constexpr = False):
        """Set the scores of keys that a query does not see to minus infinity.

        Parameters
        ----------
        scores : Tensor, (MMA, MMA_M, MMA_N), fp32
        tile : AccumulatorTile
            Their coordinates, one subtile of all columns.
        query, key : Int32
            First query, and first key, of the tile.
        is_ragged : bool
            True to mask rows beyond the last query too.
        """
        first, behind = {}, {}
        own = query + tile.of_thread(0), key + tile.of_thread(1)
        for row in tile.distinct(0):
            first[row] = self.begin(own[0] + row) - own[1]
            behind[row] = self.end(own[0] + row) - own[1]
            if cutlass.const_expr(is_ragged):
                behind[row] = select(own[0] + row < self.queries, behind[row], 0)
        for register, (row, column) in enumerate(tile.registers):
            seen = behind[row] > column
            if cutlass.const_expr(self.left is not None):
                seen = seen & (first[row] <= column)
            scores[register] = select(seen, scores[register], -Float32.inf)

    @cute.jit
    def ends(self, tile: AccumulatorTile, query):
        """Return, for each row of this thread, the key after the last that it sees; `query` is the tile's first row.

        Two registers, where `mask` computes them anew for each tile of keys.
        """
        ends = cute.make_rmem_tensor((len(tile.distinct(0)),), Int32)
        for place, row in enumerate(tile.distinct(0)):
            ends[place] = self.end(query + tile.of_thread(0) + row)
        return ends


def mask_behind(scores: cute.Tensor, tile: AccumulatorTile, ends: cute.Tensor, key):
    """Set the scores of keys after each row's last to minus infinity.

    Parameters
    ----------
    scores : Tensor, (MMA, MMA_M, MMA_N), fp32
    tile : AccumulatorTile
        Their coordinates, one subtile of all columns.
    ends : Tensor (rows,), int32
        Of `Band.ends`.
    key : Int32
        First key of the tile.
    """
    own = key + tile.of_thread(1)
    for register, (place, (_, column)) in enumerate(zip(tile.place(0), tile.registers, strict=True)):
        scores[register] = select(ends[place] - own > column, scores[register], -Float32.inf)
