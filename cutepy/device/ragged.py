"""Ragged groups of a matrix's rows, loaded and stored through one tensor map for all groups (traced).

`rules.ragged` explains the method: two further modes let TMA's bounds check cut at the end of a group. A load beyond
the end gives zeros, a store writes nothing there, whatever the group's extent is; no tensor map is changed on the
device.
"""

from dataclasses import dataclass, replace

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.pipeline import TmaRing
from cutepy.device.staging import contiguous_mode
from cutepy.device.tma import EVICT_FIRST, TmaSubtiles, check_stages, cut, extents, partition, parts, sharing
from cutepy.dsl.traced_names import at_the_caller


def ragged_view(tensor: cute.Tensor, mode: int) -> cute.Tensor:
    """View a matrix (rows, columns, batch...) with the two further modes for groups along `mode`, after its two.

    The other mode is contiguous, and this one's extent at most `rules.ragged.EXTENT`. Copies are made of the view
    (`cutepy.device.tma`), on the host.
    """
    shape, stride = list(tensor.shape), list(tensor.stride)
    rows, pitch = shape[mode], stride[mode]
    shape[mode] = rules.ragged.EXTENT
    back = cutlass.Int64(rules.ragged.back_stride(0, tensor.element_type.width)) - pitch
    # The second mode's coordinate of a row is the group's end, so groups end at most where the matrix does.
    layout = cute.make_layout(
        (*shape[:2], rows + 1, rules.ragged.EXTENT + 1, *shape[2:]),
        stride=(*stride[:2], pitch, cute.assume(back, divby=128 // tensor.element_type.width), *stride[2:]),
    )
    return cute.make_tensor(tensor.iterator, layout)


@dataclass(frozen=True)
class GroupedTiles:
    """Tiles of each group's matrix: rows of one matrix (`ragged_view`), one of a batch, or both.

    Copies take `GroupedTiles` in place of `TmaTiles`, with coordinates (row, column, group, start, length); `GroupRows`
    has the last three.

    Attributes
    ----------
    copy : CopyAtom
    tensor : Tensor
        Coordinates (rows, columns), then those of `ragged_view`, then of the batch.
    staged : Tensor
        Shared memory: (rows, columns, stages) of one copy, a tile or a subtile of it.
    tile : (int, int)
    ragged : 0, 1 or None
        The mode along which groups follow one another, if they do.
    batched : bool
        True if the last mode is the group's index: each group has a matrix of its own.
    step : int or None
        Rows from one tile to the next, where tiles that are loaded overlap.
    """

    copy: cute.CopyAtom
    tensor: cute.Tensor
    staged: cute.Tensor
    tile: tuple[int, int]
    ragged: int | None
    batched: bool
    step: int | None = None

    def __post_init__(self) -> None:
        check_stages(self.copy, self.staged, self.tile)

    @property
    def columns(self):
        """Tiles in a row, of all groups together."""
        return cute.ceil_div(cute.size(self.tensor, mode=[1]), self.tile[1])

    @cute.jit
    def of_group(self, group, start, length):
        """Return the tiles (tile rows, tile columns, rows, columns) of a group's matrix."""
        tensor, behind = self.tensor, ()
        if cutlass.const_expr(self.ragged is not None):
            shift = [0] * cute.rank(tensor)
            shift[self.ragged] = rules.ragged.EXTENT - length
            tensor = cute.domain_offset(tuple(shift), tensor)
            behind = (start + length, rules.ragged.EXTENT)
        if cutlass.const_expr(self.batched):
            behind = (*behind, group)
        return cut(tensor[(None, None, *behind)], self.tile, self.step)

    def loads(self, ring: TmaRing | None = None, along=1, *, streams: bool = False):
        """Prepare this CTA's loads into a ring, of tiles that all CTAs along a mode share, as of `TmaTiles`.

        L2 keeps what `streams` shortest: it is read once. Tiles may be parts of a stage, as of `TmaTiles.loads`.
        """
        rules.parts_of_stage(self.tile, extents(self.staged), contiguous_mode(self.staged))
        return GroupedLoads(self, *sharing(self.copy, ring, along), streams)

    def subtiles(self, coordinate):
        """Cut the tile at (row, column, group, start, length) into subtiles of a stage's extents."""
        row, column, *group = coordinate
        rules.check_tile_of_stages(self.tile, extents(self.staged))
        rows, columns = cute.size(self.staged, mode=[0]), cute.size(self.staged, mode=[1])
        tile = cute.local_tile(self.of_group(*group)[(None, None, row, column)], (rows, columns), (None, None))
        tSs, tSg = partition(self.copy, self.staged, tile)
        return TmaSubtiles(self.copy, tSs, tSg, cute.size(tile, mode=[3]), (rows, columns))

    def stage_slice(self, index, stages):
        """View the stages of one consumer: `stages` of them, behind those of the `index` consumers before."""
        rows, columns = cute.size(self.staged, mode=[0]), cute.size(self.staged, mode=[1])
        staged = cute.local_tile(self.staged, (rows, columns, stages), (0, 0, index))
        return replace(self, staged=staged)


@dataclass(frozen=True)
class GroupedLoads:
    """TMA loads of `GroupedTiles` by one CTA: tiles, or slices of tiles that it multicasts.

    Attributes
    ----------
    tiles : GroupedTiles
    rank : Int32
        Rank of this CTA among those that share tiles.
    sharing : int
        Number of CTAs that share tiles.
    peers : Int16 or None
        Mask of the CTAs that get the slice.
    streams : bool
        True if L2 evicts the tiles first.
    """

    tiles: GroupedTiles
    rank: cutlass.Int32
    sharing: int
    peers: cutlass.Int16 | None = None
    streams: bool = False

    def find(self, coordinate) -> None:
        """Return nothing: tiles are where their coordinates say, unlike those of `PagedLoads`."""

    @at_the_caller
    def load(self, coordinate, stage, full, found=None, part=None, *, loc=None, ip=None):
        """Issue TMA loads of the tile at (row, column, group, start, length) into a stage, as `TmaLoads` does."""
        row, column, *group = coordinate
        tiles = self.tiles
        staged = parts(tiles.staged, tiles.tile)
        place = rules.place_of_part(part, (cute.size(staged, mode=[2]), cute.size(staged, mode=[3])))
        tSs, tSg = partition(
            tiles.copy, staged[(None, None, *place, None)], tiles.of_group(*group), self.rank, self.sharing
        )
        cute.copy(
            tiles.copy,
            tSg[(None, row, column)],
            tSs[(None, stage)],
            tma_bar_ptr=full,
            mcast_mask=self.peers,
            **({"cache_policy": cutlass.Int64(EVICT_FIRST)} if self.streams else {}),
            loc=loc,
            ip=ip,
        )
