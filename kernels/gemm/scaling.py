"""Block scales in the stages of A and B: their loads and their places in shared memory (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.block_scales import ScaleLoads, make_scale_load, stage_scales
from cutepy.device.schedulers import Work
from cutepy.device.tma import TmaLoads, make_tiles
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.tile_coords import TileCoords
from cutepy.kernels.gemm.views import batch_last

_NAMES = ("sScaleA", "sScaleB")


@dataclass(frozen=True)
class OperandScales:
    """Load the scales of A and B beside their stages, by TMA or by threads.

    Attributes
    ----------
    tile_coords : TileCoords
    sScaleA, sScaleB : ScaleLoads, TmaLoads or None
        Of A, and of B, into their stages; None without scales. Reports name memory by these names.
    k_blocks : int
        Blocks of K in a stage.
    """

    tile_coords: TileCoords
    sScaleA: ScaleLoads | TmaLoads | None
    sScaleB: ScaleLoads | TmaLoads | None
    k_blocks: int

    def load_by_tma(self, work: Work, k_tile, stage, full):
        """Issue TMA loads of the scales for an output tile and K tile into a stage; the leading warp calls."""
        _, _, *batch = self.tile_coords.of(work)
        if isinstance(self.sScaleA, TmaLoads):
            tile = _tile(self.sScaleA, work.row, k_tile, batch)
            self.sScaleA.load(tile, stage, full)
        if isinstance(self.sScaleB, TmaLoads):
            tile = _tile(self.sScaleB, work.column, k_tile, batch)
            self.sScaleB.load(tile, stage, full)

    def load_by_threads(self, work: Work, k_tile, stage):
        """Issue cp.async of the scales for an output tile and K tile into a stage, as `ScaleLoads.load` does."""
        row, column, *batch = self.tile_coords.of(work)
        for loads, first in ((self.sScaleA, row), (self.sScaleB, column)):
            if isinstance(loads, ScaleLoads):
                loads.load(first, batch, k_tile * self.k_blocks, stage)


def _tile(loads: TmaLoads, row, k_tile, batch) -> tuple:
    """Return the coordinates of a tile: without a batch where all products share the scales."""
    return row, k_tile, *batch[: cute.rank(loads.tSg) - 3]


def make_scale_copies(config: GemmConfig, scales: tuple) -> tuple:
    """Make the TMA copies of the scales of A and B: (copy, tensor) for each, with no copy where threads load.

    Copies go with tensors of coordinates; an operand without scales has (None, None).
    """
    pairs = []
    for name, given in zip(_NAMES, scales, strict=True):
        stage, seen = config.scale_stages.get(name), None if given is None else batch_last(given)
        pairs.append(make_scale_load(seen, stage) if stage is not None and stage.by_tma else (None, seen))
    return tuple(pairs)


def make_staged_scales(config: GemmConfig, shared: dict) -> tuple:
    """Return the scales of A and B in shared memory, (rows, K blocks, stages) of a tile; None without scales."""
    stages = config.scale_stages
    return tuple(stage_scales(shared[name], stages[name], config.stages) if name in stages else None for name in _NAMES)


def make_scale_loads(
    config: GemmConfig,
    tile_coords: TileCoords,
    scales: tuple,
    staged: tuple,
    threads: int = 0,
    tidx: cutlass.Int32 | int = 0,
) -> OperandScales | None:
    """Make the loads of the scales of A and B, None without scales.

    `scales` are (copy, tensor); without a copy, so many threads load, of which this has the index `tidx`.
    """
    rows = config.signature.scale_rows or (0, 0)
    if not any(rows):
        return None
    loads = []
    for (copy, tensor), into, per in zip(scales, staged, rows, strict=True):
        if into is None:
            loads.append(None)
        elif copy is not None:
            tile = cute.size(into, mode=[0]), cute.size(into, mode=[1])
            loads.append(make_tiles(copy, tensor, into, tile).loads())
        else:
            loads.append(ScaleLoads(tensor, into, per, threads, tidx))
    return OperandScales(tile_coords, *loads, config.tile_k // rules.K_BLOCK)
