"""Places of tiles in the kernels' tensors: of batches of equal matrices, or of sequences in one matrix (traced).

Both classes have the same methods: the views of tensors for TMA, the order in which CTAs take tiles, the coordinates of
a tile's queries and keys, and the mask of queries and keys.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute

from cutepy.device import rules, schedulers, tma
from cutepy.device.bands import Band, KeyTiles
from cutepy.device.dynamic import Tickets
from cutepy.device.primitives import select
from cutepy.device.ragged import GroupedTiles, ragged_view
from cutepy.device.rules.ragged import EXTENT, GroupRows
from cutepy.device.score_functions import ScoresPlace
from cutepy.device.sequences import Sequences, SequencesAndTail, SequenceTiles, first_tile
from cutepy.device.tma import cut
from cutepy.kernels.attention.config import BackwardConfig, CachedKeys, ForwardConfig, Lengths


@dataclass(frozen=True)
class WorkCoords:
    """Place of a unit of work.

    Attributes
    ----------
    head : Int32
        Of the tensor whose rows are dealt out.
    band : Band
        Of the sequence's queries and keys.
    q, k : tuple
        Coordinates of its queries, and keys, behind (row, column, head) of TMA's tiles.
    batch : Int32
        Index in the batch of tensors of values of queries.
    queries : GroupRows or None
        Its queries, where they are rows of a matrix of all sequences.
    split : KeySplit or None
        Its part of the keys, if it has not all.
    shared : Int32 or None
        Keys at the beginning that another launch has, of queries that see all of them.
    """

    head: Any
    band: Band
    q: tuple
    k: tuple
    batch: Any = 0
    queries: GroupRows | None = None
    split: "KeySplit | None" = None
    shared: Any = None

    @property
    def query(self):
        """Row of the first query in tensors of values of queries."""
        return 0 if self.queries is None else self.queries.start

    @property
    def result(self):
        """Head of results: those of a split come after those of all splits before."""
        return self.head if self.split is None else self.split.index * self.split.heads + self.head

    @property
    def sequence(self):
        """Index in the batch, or of the sequence: one after the last for rows that no sequence has."""
        return self.batch if self.queries is None else self.queries.group

    def scores(self, head=None) -> ScoresPlace:
        """Return the matrix of its scores, of `head` if that is another: of heads that share keys."""
        return ScoresPlace(self.sequence, self.head if head is None else head, self.band.queries, self.band.keys)

    def first_tile(self, tile: int):
        """Return the first tile of queries in tensors that have sequences in whole tiles."""
        return 0 if self.queries is None else first_tile(self.queries, tile)

    def tiles(self, row, rows: int, width: int):
        """Return the tiles of `width` columns of the band that the rows from `row` on see, of this part."""
        tiles = self.band.tiles(row, rows, width)
        if self.shared is not None:
            tiles = tiles.behind(self.shared_tiles(tiles, width))
        return tiles if self.split is None else tiles.part(self.split.index, self.split.count)

    def shared_tiles(self, tiles: KeyTiles, width: int):
        """Return how many of the first tiles another launch has: all that are shared, or none."""
        count = self.shared // width
        return select(tiles.has_whole(count), count, 0)


class KeySplit(NamedTuple):
    """Part of the keys.

    Attributes
    ----------
    index, count : Int32
        Of the parts.
    heads : Int32
        Heads of queries.
    """

    index: Any
    count: Any
    heads: Any


@dataclass(frozen=True)
class PackedTiles(GroupedTiles):
    """Tiles of queries whose rows are pairs of a query and one of `packed` heads, of a view of `heads_in_rows`.

    It takes (row, column, heads, ...), where heads are so many together, and the rest is a place's `q`.
    """

    packed: int = 1

    @cute.jit
    def of_group(self, heads, *place):
        """Return the tiles (tile rows, tile columns, rows, columns) of some heads' matrix."""
        tensor, shift, behind = self.tensor, 0, place
        if cutlass.const_expr(self.ragged is not None):
            start, length = place
            shift, behind = EXTENT - length, (start + length, EXTENT)
        origin = (heads * self.packed, shift), 0, *(0 for _ in behind)
        matrix = cute.domain_offset(origin, tensor)[(None, None, *behind)]
        (_, tokens), columns = matrix.shape
        layout = cute.make_layout(((self.packed, tokens), columns), stride=matrix.stride)
        return cut(cute.make_tensor(matrix.iterator, layout), self.tile)


@dataclass(frozen=True)
class Batches:
    """Matrices of a batch, each a sequence, all with the same queries and keys.

    Attributes
    ----------
    band : Band
        Of queries and keys, or of keys and queries: those whose tiles are dealt out come first.
    heads, splits : Int32 or None
        Heads of queries, and parts of the keys, which other CTAs have; None if each CTA has all keys.
    shared : Int32 or None
        As of `CachedKeys`.
    divisors : tuple or None
        Fast divisors of tiles, of sections, and of the extents of the batch; see `schedulers`.
    """

    band: Band
    heads: cutlass.Int32 | None = None
    splits: cutlass.Int32 | None = None
    shared: cutlass.Int32 | None = None
    divisors: tuple | None = None

    def of(self, work) -> WorkCoords:
        """Return the place of a unit of work."""
        return self.at(*work.batch)

    def at(self, batch, head, *split) -> WorkCoords:
        """Return the place of a head's tiles, or of a part of its keys."""
        part = KeySplit(*split, self.splits, self.heads) if split else None
        return WorkCoords(head, self.band, (batch,), (batch,), batch, None, part, self.shared)

    def queries_of(self, copy, tensor: cute.Tensor, staged: cute.Tensor, tile: tuple[int, int]):
        """Cut a copy's tensor of queries into tiles."""
        return tma.make_tiles(copy, tensor, staged, tile)

    def keys_of(self, copy, tensor: cute.Tensor, staged: cute.Tensor, tile: tuple[int, int], mode: int = 0):
        """Cut the keys that a copy moves into tiles; `mode` is the mode of tokens."""
        return tma.make_tiles(copy, tensor, staged, tile)

    def scheduler(self, raster: tuple, tile: int, at_once, group, *, longest_first: bool, grows: bool = True):
        """Return the scheduler of tiles of a given number of rows, of which `at_once` matrices share L2."""
        tiles, sections, extents = self.divisors or (None, None, None)
        by = {"divisors": tiles, "extents": extents}
        if longest_first:
            return schedulers.LongestFirst(raster, 1, at_once=at_once, grows=grows, sections=sections, **by)
        return schedulers.Persistent(raster, 1, **by)


@dataclass(frozen=True)
class CachedSequences(Batches):
    """Matrices of queries of a batch, and sequences of keys in one matrix, which other queries share.

    Attributes
    ----------
    keys : Sequences
    table : Tensor or None
        Pages of each sequence's keys; None if keys are not in pages.
    """

    keys: Sequences | None = None
    table: cute.Tensor | None = None

    def at(self, batch, head, *split) -> WorkCoords:
        """Return the place of a head's tiles, or of a part of its keys."""
        k, band, shared = self.keys.of(batch), self.band, self.shared
        band = Band(band.queries, k.length, band.left, band.right, band.sharing)
        part = KeySplit(*split, self.splits, self.heads) if split else None
        if shared is not None:
            # The keys that are shared are those of the first sequence, if it has so many.
            shared = select(self.keys.of(0).length >= shared, shared, 0)
        return WorkCoords(head, band, (batch,), _coordinates(k, self.table), batch, None, part, shared)

    def keys_of(self, copy, tensor: cute.Tensor, staged: cute.Tensor, tile: tuple[int, int], mode: int = 0):
        """Cut the keys that a copy moves into tiles; `mode` is the mode of tokens."""
        return GroupedTiles(copy, tensor, staged, tile, mode, batched=True)


@dataclass(frozen=True)
class RaggedSequences:
    """Sequences of one matrix of queries, and one of keys.

    Attributes
    ----------
    queries, keys : Sequences
    left, right : Int32 or None
        The band's bounds.
    heads, splits : Int32 or None
        As of `Batches`.
    table : Tensor or None
        As of `CachedSequences`.
    packed : int
        Heads whose queries are rows of one tile.
    """

    queries: Sequences
    keys: Sequences
    left: cutlass.Int32 | None
    right: cutlass.Int32 | None
    heads: cutlass.Int32 | None = None
    splits: cutlass.Int32 | None = None
    table: cute.Tensor | None = None
    packed: cutlass.Constexpr = 1

    def of(self, work) -> WorkCoords:
        """Return the place of a unit of work."""
        q, head, part = work.batch, work.column, None
        k = self.keys.of(q.group)
        if self.splits is not None:
            part = KeySplit(head // self.heads, self.splits, self.heads)
            head = head - part.index * self.heads
        band = Band(q.length, k.length, self.left, self.right)
        if self.packed > 1:
            band = Band(q.length * self.packed, k.length, self.left, self.right, self.packed)
        return WorkCoords(head, band, q[1:], _coordinates(k, self.table), 0, q, part)

    def queries_of(self, copy, tensor: cute.Tensor, staged: cute.Tensor, tile: tuple[int, int]):
        """Cut a copy's tensor of queries into tiles."""
        return GroupedTiles(copy, tensor, staged, tile, 0, batched=True)

    def keys_of(self, copy, tensor: cute.Tensor, staged: cute.Tensor, tile: tuple[int, int], mode: int = 0):
        """Cut the keys that a copy moves into tiles; `mode` is the mode of tokens."""
        return GroupedTiles(copy, tensor, staged, tile, mode, batched=True)

    def scheduler(self, heads, tile: int, at_once, group, *, longest_first: bool, grows: bool = True):
        """Return the scheduler of tiles of so many rows, of which L2 serves `at_once` rows, of `group` heads."""
        return SequenceTiles(self.dealt, 0, tile, heads, schedulers.Persistent((1, 1), 1), at_once, group, grows)

    @property
    def dealt(self) -> Sequences:
        """The sequences whose tiles are dealt out."""
        return self.queries


@dataclass(frozen=True)
class RaggedKeys(RaggedSequences):
    """Sequences whose tiles of keys are dealt out; their bands are those of the transposed matrices."""

    def of(self, work) -> WorkCoords:
        """Return the place of a unit of work."""
        k = work.batch
        q = self.queries.of(k.group)
        band = Band(q.length, k.length, self.left, self.right).transposed()
        return WorkCoords(work.column, band, q[1:], k[1:], 0, q)

    @property
    def dealt(self) -> Sequences:
        """The sequences whose tiles are dealt out."""
        return self.keys


def _coordinates(rows: GroupRows, table: cute.Tensor | None) -> tuple:
    """Return the coordinates of a sequence's rows in a matrix of all, or in pages."""
    return (rows.start, rows.length) if table is None else (rows.group, rows.length)


def make_tickets(config: ForwardConfig | BackwardConfig, shared: dict, counter: cute.Tensor | None, readers: int):
    """Make the ring of tiles that a CTA takes by a counter, which so many of its warps read; None if it takes none."""
    if not config.dynamic:
        return None
    return Tickets(counter.iterator, shared["tickets"], shared["ticket_barriers"], rules.ticket_slots(1), readers)


def queries_of(lengths: Lengths, rows, *, has_tail: bool) -> Sequences:
    """Return the sequences of queries in a matrix of a given number of rows."""
    return _sequences(lengths, rows, lengths.q_begins, lengths.q_used, has_tail=has_tail)


def keys_of(lengths: Lengths, rows, *, has_tail: bool) -> Sequences:
    """Return the sequences of keys in a matrix of a given number of rows."""
    return _sequences(lengths, rows, lengths.k_begins, lengths.k_used, has_tail=has_tail)


def cached_keys(lengths: Lengths, rows, table: cute.Tensor | None, page: int, cached: CachedKeys) -> Sequences:
    """Return the sequences of cached keys in a matrix of a given number of rows, or in pages of it."""
    count, pitch = cute.size(lengths.k_used), cached.pitch
    if table is not None:
        most = cute.size(table, mode=[1]) * page
    else:
        most = rows // count if pitch is None else rows - (count - 1) * pitch
    most = most if cached.most is None else cached.most
    return Sequences(count, most, None, lengths.k_used, pitch)


def _sequences(lengths: Lengths, rows, begins, used, *, has_tail: bool) -> Sequences:
    bounds = [each for each in (lengths.q_begins, lengths.k_begins) if each is not None]
    each = [each for each in (lengths.q_used, lengths.k_used) if each is not None]
    count = cute.size(bounds[0]) - 1 if bounds else cute.size(each[0])
    if begins is None:
        return Sequences(count, rows // count, None, used)
    return (SequencesAndTail if has_tail else Sequences)(count, rows, begins, used)


def modes(tensor, *order):
    """View a tensor with its modes in another order."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, list(order)))


def rows_first(tensor):
    """View (batch, tokens, heads, head), or (tokens, heads, head), as matrices of tokens for TMA."""
    return modes(tensor, 1, 3, 2, 0) if cute.rank(tensor) == 4 else ragged_view(modes(tensor, 0, 2, 1), 0)


def heads_in_rows(tensor):
    """View (batch, tokens, heads, head), or (tokens, heads, head), as `rows_first`, heads being a mode of rows."""
    view = rows_first(tensor)
    heads = 2 if cute.rank(tensor) == 4 else 4
    rest = [mode for mode in range(2, cute.rank(view)) if mode != heads]
    shape, stride = (
        ((each[heads], each[0]), each[1], *(each[mode] for mode in rest)) for each in (view.shape, view.stride)
    )
    return cute.make_tensor(view.iterator, cute.make_layout(shape, stride=stride))


def columns_first(tensor):
    """View (batch, tokens, heads, head), or (tokens, heads, head), as transposed matrices of tokens for TMA."""
    return modes(tensor, 3, 1, 2, 0) if cute.rank(tensor) == 4 else ragged_view(modes(tensor, 2, 0, 1), 1)
