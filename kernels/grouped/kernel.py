"""The device code of the grouped GEMM: the GEMM's, with tiles and a schedule of groups (traced).

Groups are along one of M, N and K; where they begin and end only the device knows. The tensors in which they follow one
another are reached by tensor maps that are the same for all groups (`cutepy.device.ragged`), and each warp finds its
tiles by itself (`cutepy.device.grouped`), so the grid is as large as the GPU, and nothing waits for the host.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy.device.grouped import GroupedK, GroupedRows, Groups
from cutepy.device.ragged import GroupedTiles, ragged_view
from cutepy.device.schedulers import Persistent
from cutepy.kernels.gemm.kernel import Gemm
from cutepy.kernels.gemm.tile_coords import TileCoords
from cutepy.kernels.gemm.views import batch_last
from cutepy.kernels.grouped.config import GroupedConfig


@dataclass(frozen=True)
class GroupedTileCoords(TileCoords):
    """Coordinates of subtiles in the results, vectors and scales of all groups.

    Attributes
    ----------
    ragged : 0, 1 or None
        The mode of the results along which groups follow one another.
    """

    ragged: int | None

    def of(self, work, index=0):
        """Return the first row and column of a subtile, among those of all groups, and its group."""
        row, column, group, start, _ = super().of(work, index)
        return row + (start if self.ragged == 0 else 0), column + (start if self.ragged == 1 else 0), group


class GroupedGemm(Gemm):
    """Grouped GEMM of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: GroupedConfig):
        super().__init__(config.gemm)
        self.grouped = config

    @property
    def name(self):
        """Name of the kernel in PTX and profilers."""
        return self.grouped.name

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        ends: cute.Tensor,
        operands: tuple | None,
        results: tuple,
        sm_count: cutlass.Int32,
        stream: CUstream,
        scale_a: cute.Tensor | None = None,
        scale_b: cute.Tensor | None = None,
    ):
        """Launch, with the ends of groups, or each group's rows where they are padded, and an epilogue's operands.

        Scales are those of `Gemm`, or for each group.
        """
        config, gemm = self.grouped, self.config
        a, b = batch_last(a), batch_last(b)
        extents = (a.shape[0], b.shape[0], a.shape[1])
        extent = extents["mnk".index(config.along)]
        groups = cute.size(ends)
        tiles = (gemm.tile_m * gemm.cluster_m, gemm.tile_n * gemm.cluster_n)
        rows, columns = (cute.ceil_div(extents[mode], tiles[mode]) for mode in (0, 1))
        # Each group may have one tile more than its share of them all.
        if cutlass.const_expr(config.along == "k"):
            most = rows * columns * groups
        elif cutlass.const_expr(config.along == "m"):
            most = (rows * groups if config.padded else rows + groups) * columns
        else:
            most = (columns * groups if config.padded else columns + groups) * rows
        raster = (ends, extent, rows, columns)
        operands = () if operands is None else operands
        self.start((a, b, operands, results), raster, most, sm_count, stream, (scale_a, scale_b))

    def view(self, name, tensor):
        """Return a tensor with the modes that its groups need."""
        ragged = self.grouped.grouping(name).ragged
        return tensor if ragged is None else ragged_view(tensor, ragged)

    def make_tiles(self, name, copy, tensor, shared, tile, step=None):
        """Partition a tensor into tiles of groups for a region of shared memory."""
        return GroupedTiles(copy, tensor, shared[name], tile, *self.grouped.grouping(name), step)

    def make_tile_coords(self):
        """Make the map from tiles and subtiles to coordinates."""
        return GroupedTileCoords(self.config, self.ragged)

    @property
    def ragged(self):
        """The mode of the results along which groups follow one another; None if each has a matrix of its own."""
        return None if self.grouped.padded else self.grouped.grouping("sD").ragged

    def product_steps(self, _):
        """Return the step of a group in the index of products: 0 where its rows are counted with all groups'."""
        return (1,) if self.ragged is None else ()

    def make_scheduler(self, raster, k_tiles, tickets):
        """Make the scheduler of the groups' tiles; it fetches none dynamically."""
        config, gemm = self.grouped, self.config
        ends, extent, rows, columns = raster
        groups = Groups(ends, extent, config.padded, config.unit)
        cluster_mn = (gemm.cluster_m, gemm.cluster_n)
        if config.along == "k":
            product = Persistent((rows, columns, groups.count), k_tiles, cluster_mn, 1, gemm.band_rows)
            return GroupedK(groups, gemm.tile_k, product)
        product = Persistent((1, 1), k_tiles, cluster_mn, gemm.split_k, gemm.band_rows)
        if config.along == "m":
            return GroupedRows(groups, 0, gemm.tile_m, columns, product)
        return GroupedRows(groups, 1, gemm.tile_n, rows, product)
