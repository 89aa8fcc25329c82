"""TMA copies between global tensors and staged shared memory, and the partitions of both sides (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, tcgen05

from cutepy.device import rules
from cutepy.device.marks import mark
from cutepy.device.pipeline import TmaRing
from cutepy.device.staging import contiguous_mode
from cutepy.dsl.launch_facts import launched
from cutepy.dsl.traced_names import at_the_caller

EVICT_FIRST = 0x12F0000000000000
"""Cache policy of `createpolicy.fractional.L2::evict_first` for all of an access (CUTLASS, `CacheHintSm90`)."""


def make_load(
    tensor: cute.Tensor,
    staged_layout: cute.ComposedLayout,
    tile: tuple,
    multicast: int,
    staged_type: type[cutlass.Numeric] | None = None,
    ctas: int = 1,
) -> tuple[cute.CopyAtom, cute.Tensor]:
    """Make the copy atom and the coordinate tensor that load `tile` of `tensor` into one stage.

    Where a mode of the tensor has modes of its own, so has that of the tile.
    With `multicast` > 1, that many CTAs of the cluster each load 1/multicast of the tile and deliver it to all. A
    `staged_type` of TFloat32 has TMA round fp32 to it, to the nearest; others are that of the tensor. With `ctas` of 2,
    on Blackwell, each CTA of a pair loads for itself and signals the even one's barrier.

    Raises
    ------
    TypeError
        If `staged_type` is another than the tensor's: TMA converts nothing else.
    ValueError
        If a stage has other extents than the tile, or can't be loaded in so many parts.
    """
    rules.check_copy_tile(tuple(map(cute.size, tile)), extents(staged_layout.outer))
    rules.check_multicast(*_lines(staged_layout.outer, tensor.element_type.width), multicast)
    if staged_type not in (None, cutlass.TFloat32):
        rules.check_copied_type(staged_type.__name__, tensor.element_type.__name__)
    group = tcgen05.CtaGroup.ONE if ctas == 1 else tcgen05.CtaGroup.TWO
    make = cpasync.CopyBulkTensorTileG2SOp if multicast == 1 else cpasync.CopyBulkTensorTileG2SMulticastOp
    op = make(group)
    rounded = staged_type if staged_type is cutlass.TFloat32 else None
    one_stage = _one_stage(staged_layout)
    return cpasync.make_tiled_tma_atom(op, tensor, one_stage, tile, num_multicast=multicast, internal_type=rounded)


def make_store(
    tensor: cute.Tensor, staged_layout: cute.ComposedLayout, tile: tuple
) -> tuple[cute.CopyAtom, cute.Tensor]:
    """Make the copy atom and the coordinate tensor that store one stage to `tile` of `tensor`.

    Raises
    ------
    ValueError
        If a stage has other extents than the tile.
    """
    rules.check_copy_tile(tuple(map(cute.size, tile)), extents(staged_layout.outer))
    return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), tensor, _one_stage(staged_layout), tile)


def make_reduce(
    tensor: cute.Tensor, staged_layout: cute.ComposedLayout, tile: tuple[int, int]
) -> tuple[cute.CopyAtom, cute.Tensor]:
    """Make the copy atom and the coordinate tensor that add one stage to `tile` of `tensor`, in memory.

    Additions to one element come in any order: sums in floating point differ from run to run.

    Raises
    ------
    ValueError
        If a stage has other extents than the tile.
    """
    rules.check_copy_tile(tile, extents(staged_layout.outer))
    return cpasync.make_tiled_tma_atom(cpasync.CopyReduceBulkTensorTileS2GOp(), tensor, _one_stage(staged_layout), tile)


def _lines(stages: cute.Layout, bits: int) -> tuple[int, int]:
    """Count the lines of a stage, across its contiguous mode, and the bytes from one to the next."""
    across = 1 if contiguous_mode(stages) == 0 else 0
    stride = stages.stride[across]
    while isinstance(stride, tuple):
        stride = stride[0]
    return cute.size(stages, mode=[across]), stride * bits // 8


def check_stores(copy: cute.CopyAtom) -> None:
    """Check that a copy is one of `make_store` or `make_reduce`."""
    if not isinstance(copy.op, cpasync.CopyBulkTensorTileS2GOp | cpasync.CopyReduceBulkTensorTileS2GOp):
        raise TypeError("a store needs a copy that stores, got one that loads; make it with make_store")


def sharing(copy: cute.CopyAtom, ring: TmaRing | None, along: int):
    """Return this CTA's rank among those that share a tile, their number, and the mask of all.

    There is none where it is loaded for this CTA alone.

    Raises
    ------
    TypeError
        If the copy stores.
    ValueError
        If it was made for tiles that CTAs share and these are not, or the other way round.
    """
    if isinstance(copy.op, cpasync.CopyBulkTensorTileS2GOp):
        raise TypeError("loads need a copy that loads, got one that stores; make it with make_load")
    m, n = (1, 1) if ring is None else ring.cluster_mn
    peers, here = (m, n)[along], cute.arch.block_in_cluster_idx()
    rules.check_sharing(isinstance(copy.op, cpasync.CopyBulkTensorTileG2SMulticastOp), peers)
    if peers == 1:
        return here[along], 1, None
    # Ranks run along M first, and planes of the cluster follow one another; with a single plane its index needs no
    # code.
    *_, planes = launched().cluster or (rules.MAX_CLUSTER_CTAS // (m * n),)
    cluster = cute.make_layout((1, m, n, planes))
    return here[along], peers, cpasync.create_tma_multicast_mask(cluster, (0, *here), along + 1)


def _one_stage(staged: cute.ComposedLayout) -> cute.ComposedLayout:
    """Return the layout of one stage: each begins at a multiple of the swizzle's period.

    The DSL 4.8.1 ends the process if it is asked for a slice of the whole whose stages are no multiples of 1024
    elements, since it takes the swizzle of bytes for one of elements.
    """
    return cute.make_composed_layout(staged.inner, staged.offset, cute.slice_(staged.outer, (None, None, 0)))


def partition(
    atom: cute.CopyAtom,
    s_tensor: cute.Tensor,
    g_tensor: cute.Tensor,
    peer: cute.Int32 | int = 0,
    peers: int = 1,
) -> tuple[cute.Tensor, cute.Tensor]:
    """Group each side's tile into one TMA mode: (tile, tile, rest...) -> ((TMA, iterations), rest...).

    `peer` of `peers` is this CTA's rank among those that share the tile by multicast.
    """
    return cpasync.tma_partition(
        atom, peer, cute.make_layout(peers), cute.group_modes(s_tensor, 0, 2), cute.group_modes(g_tensor, 0, 2)
    )


@dataclass(frozen=True)
class TmaLoads:
    """TMA loads of a matrix by one CTA: tiles, or slices of tiles that it multicasts.

    Attributes
    ----------
    copy : CopyAtom
    tSs, tSg : Tensor
        Shared memory ((TMA, iterations), part rows, part columns, stages) and global memory ((TMA, iterations), rows,
        columns, batch...).
    peers : Int16 or None
        The mask of the CTAs that get the slice; None where a tile is for this CTA alone.
    """

    copy: cute.CopyAtom
    tSs: cute.Tensor
    tSg: cute.Tensor
    peers: cutlass.Int16 | None = None

    @at_the_caller
    def load(self, coordinate, stage, full, part=None, *, loc=None, ip=None):
        """Issue TMA loads of the tile at (row, column, batch...) into a stage; barrier `full` counts the bytes.

        One warp calls, and has acquired the stage. Where the tile is shared, each CTA of those that share it loads a
        slice, so all of them call with the same coordinate and stage. Where tiles are parts of a stage, such as pages
        of fewer keys, `part` is the part's number, int or Int32, and the barrier counts the bytes of all.
        """
        rules.check_coordinate(len(coordinate), cute.rank(self.tSg) - 1, "(row, column, batch...)")
        rules.check_number("stage", stage, cute.size(self.tSs, mode=[3]))
        place = rules.place_of_part(part, (cute.size(self.tSs, mode=[1]), cute.size(self.tSs, mode=[2])))
        source, destination = self.tSg[(None, *coordinate)], self.tSs[(None, *place, stage)]
        with mark("load", stage):
            cute.copy(self.copy, source, destination, tma_bar_ptr=full, mcast_mask=self.peers, loc=loc, ip=ip)


@dataclass(frozen=True)
class TmaSubtiles:
    """Subtiles of one tile, rows of them after one another, that TMA loads into stages or stores from them.

    Attributes
    ----------
    copy : CopyAtom
    tSs, tSg : Tensor
        Shared memory ((TMA, iterations), stages) and global memory ((TMA, iterations), rows, columns).
    columns : int
        Subtiles in a row.
    extents : (int, int)
        Rows and columns of one.
    """

    copy: cute.CopyAtom
    tSs: cute.Tensor
    tSg: cute.Tensor
    columns: int
    extents: tuple[int, int]

    @property
    def count(self) -> int:
        """Number of subtiles of the tile."""
        return cute.size(self.tSg, mode=[1]) * self.columns

    @at_the_caller
    def load(self, index, stage, full, *, loc=None, ip=None):
        """Issue the TMA load of a subtile into a stage; barrier `full` counts the bytes; one warp calls."""
        rules.check_number("stage", stage, cute.size(self.tSs, mode=[1]))
        with mark("load", stage):
            cute.copy(self.copy, self.place(index), self.tSs[(None, stage)], tma_bar_ptr=full, loc=loc, ip=ip)

    def origin(self, index):
        """Compute the row and column in the tile where a subtile starts."""
        rules.check_number("subtile", index, self.count)
        return index // self.columns * self.extents[0], index % self.columns * self.extents[1]

    def place(self, index):
        """Return a subtile's coordinates in global memory."""
        rules.check_number("subtile", index, self.count)
        return self.tSg[(None, index // self.columns, index % self.columns)]


@dataclass(frozen=True)
class TmaTiles:
    """Matrix, or batch of them, in tiles: its coordinates in global memory, its stages, and the TMA copy between.

    Attributes
    ----------
    copy : CopyAtom
    tiles : Tensor
        Coordinates (tile rows, tile columns, rows, columns, batch...) in global memory.
    staged : Tensor
        Shared memory: (rows, columns, stages) of one copy, a tile or a subtile of it.
    """

    copy: cute.CopyAtom
    tiles: cute.Tensor
    staged: cute.Tensor

    @property
    def columns(self):
        """Tiles in a row."""
        return cute.size(self.tiles, mode=[3])

    def loads(self, ring: TmaRing | None = None, along=1):
        """Make this CTA's loads into the stages of a ring, of tiles that all CTAs along a mode of its cluster share.

        An operand A (M, K) is shared along N, mode 1: CTAs beside each other need the same rows of it, and each loads a
        slice for all. B, along M. The copy was made for as many (`make_load`). Without a ring no tile is shared. Tiles
        may be parts of a stage: `TmaLoads.load` takes their numbers.

        Raises
        ------
        ValueError
            If a tile is no stage or whole part of one, or the copy was made for tiles that are shared and these are
            not, or the other way round.
        """
        tile = extents(self.tiles)
        rules.parts_of_stage(tile, extents(self.staged), contiguous_mode(self.staged))
        rank, peers, mask = sharing(self.copy, ring, along)
        tSs, tSg = partition(self.copy, parts(self.staged, tile), self.tiles, rank, peers)
        return TmaLoads(self.copy, tSs, tSg, mask)

    def subtiles(self, coordinate):
        """Cut the tile at (row, column, batch...) into subtiles of a stage's extents."""
        rules.check_tile_of_stages(extents(self.tiles), extents(self.staged))
        rows, columns = cute.size(self.staged, mode=[0]), cute.size(self.staged, mode=[1])
        tile = cute.local_tile(self.tiles[(None, None, *coordinate)], (rows, columns), (None, None))
        tSs, tSg = partition(self.copy, self.staged, tile)
        return TmaSubtiles(self.copy, tSs, tSg, cute.size(tile, mode=[3]), (rows, columns))

    def stage_slice(self, index, stages):
        """View the stages of one consumer: `stages` of them, behind those of the `index` consumers before."""
        rows, columns = cute.size(self.staged, mode=[0]), cute.size(self.staged, mode=[1])
        return TmaTiles(self.copy, self.tiles, cute.local_tile(self.staged, (rows, columns, stages), (0, 0, index)))


def make_tiles(
    copy: cute.CopyAtom, tensor: cute.Tensor, staged: cute.Tensor, tile: tuple[int, int], step: int | None = None
) -> TmaTiles:
    """Partition a coordinate tensor (rows, columns, batch...) of `make_load` into tiles for stages `staged`.

    Tiles that are loaded may overlap: one begins `step` rows after another; and they may be parts of a stage.

    Raises
    ------
    TypeError
        If the stages hold another element type than the tensor that the copy was made of.
    ValueError
        If a tile is neither whole stages nor a part of one.
    """
    check_stages(copy, staged, tile)
    return TmaTiles(copy, cut(tensor, tile, step), staged)


def cut(tensor: cute.Tensor, tile: tuple[int, int], step: int | None = None) -> cute.Tensor:
    """Partition a coordinate tensor into tiles (tile rows, tile columns, rows, columns, batch...), as `make_tiles`."""
    if step not in (None, tile[0]):
        count, unit = cute.ceil_div(cute.size(tensor, mode=[0]), step), tensor.stride[0]
        shape, stride = ((tile[0], count), *tensor.shape[1:]), ((unit, step * unit), *tensor.stride[1:])
        tensor = cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))
    return cute.local_tile(tensor, tile, (None,) * cute.rank(tensor))


def parts(staged: cute.Tensor, tile: tuple[int, int]) -> cute.Tensor:
    """View stages (rows, columns, stages) as tiles that are parts: (rows, columns, part rows, part columns, stages)."""
    return cute.local_tile(staged, tile, (None, None, None))


def check_stages(copy: cute.CopyAtom, staged: cute.Tensor, tile: tuple[int, int]) -> None:
    """Check that stages match a copy's tile; errors are those of `make_tiles`."""
    rules.check_copied_type(staged.element_type.__name__, copy.value_type.__name__)
    rules.check_tile_or_part(tile, extents(staged), contiguous_mode(staged))


def extents(tensor: cute.Tensor | cute.Layout) -> tuple[int, int]:
    """Return the extents of the first two modes of a tensor, or layout, which are known while it is traced."""
    return cute.size(tensor, mode=[0]), cute.size(tensor, mode=[1])
