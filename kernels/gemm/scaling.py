"""Scales of blocks beside the stages of A and B: who loads them, and where they are (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.device import rules
from cutepy.device.block_scales import ScaleLoads, make_scale_load, stage_scales
from cutepy.device.schedulers import Work
from cutepy.device.tma import TmaLoads, make_tiles
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.places import Places
from cutepy.kernels.gemm.views import batch_last

_NAMES = ("sScaleA", "sScaleB")


@dataclass(frozen=True)
class OperandScales:
    """Load the scales of A and B beside their stages, by TMA or by threads.

    Attributes
    ----------
    places : Places
    sScaleA, sScaleB : ScaleLoads, TmaLoads or None
        Of A, and of B, into their stages; None of what has none. Reports name memory by these names.
    k_blocks : int
        Blocks of K in a stage.
    """

    places: Places
    sScaleA: ScaleLoads | TmaLoads | None
    sScaleB: ScaleLoads | TmaLoads | None
    k_blocks: int

    def load_by_tma(self, work: Work, k_tile, stage, full):
        """Let TMA load those of an output tile and a tile of K into a stage; the warp calls that leads."""
        _, _, *batch = self.places.of(work)
        if isinstance(self.sScaleA, TmaLoads):
            tile = _tile(self.sScaleA, work.row, k_tile, batch)
            self.sScaleA.load(tile, stage, full)
        if isinstance(self.sScaleB, TmaLoads):
            tile = _tile(self.sScaleB, work.column, k_tile, batch)
            self.sScaleB.load(tile, stage, full)

    def load_by_threads(self, work: Work, k_tile, stage):
        """Begin to copy those of an output tile and a tile of K into a stage, as `ScaleLoads.load` does."""
        row, column, *batch = self.places.of(work)
        for loads, first in ((self.sScaleA, row), (self.sScaleB, column)):
            if isinstance(loads, ScaleLoads):
                loads.load(first, batch, k_tile * self.k_blocks, stage)


def _tile(loads: TmaLoads, row, k_tile, batch) -> tuple:
    """Give the place of a tile: without a batch where all products have the same scales."""
    return row, k_tile, *batch[: cute.rank(loads.tSg) - 3]


def make_scale_copies(config: GemmConfig, scales: tuple) -> tuple:
    """Make the copies by which TMA loads the scales of A and B: of each a copy, None where threads load, and a tensor.

    Copies go with tensors of coordinates; (None, None) is of what has no scales.
    """
    pairs = []
    for name, given in zip(_NAMES, scales, strict=True):
        stage, seen = config.scale_stages.get(name), None if given is None else batch_last(given)
        pairs.append(make_scale_load(seen, stage) if stage is not None and stage.by_tma else (None, seen))
    return tuple(pairs)


def make_staged_scales(config: GemmConfig, shared: dict) -> tuple:
    """See the scales of A and B in shared memory, (places, K blocks, stages) of a tile; None of what has none."""
    stages = config.scale_stages
    return tuple(stage_scales(shared[name], stages[name], config.stages) if name in stages else None for name in _NAMES)


def make_scale_loads(
    config: GemmConfig, places: Places, scales: tuple, staged: tuple, threads: int = 0, tidx: cutlass.Int32 | int = 0
) -> OperandScales | None:
    """Make what loads the scales of A and B, None if there are none.

    `scales` are (copy, tensor), where the copy is None of what so many threads load, of which this has the index
    `tidx`.
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
    return OperandScales(places, *loads, config.tile_k // rules.K_BLOCK)
