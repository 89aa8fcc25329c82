"""Scales of blocks beside the stages of A and B: who loads them, and where they are (traced)."""

from dataclasses import dataclass

import cutlass

from cutepy.device import rules
from cutepy.device.block_scales import ScaleLoads, stage_scales
from cutepy.device.schedulers import Work
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.places import Places


@dataclass(frozen=True)
class OperandScales:
    """Load the scales of A and B by threads, beside their stages.

    Attributes
    ----------
    places : Places
    loads : tuple of ScaleLoads or None
        Of A, and of B; None of what has none.
    k_blocks : int
        Blocks of K in a stage.
    """

    places: Places
    loads: tuple
    k_blocks: int

    def load(self, work: Work, k_tile, stage):
        """Begin to copy those of an output tile and a tile of K into a stage, as `ScaleLoads.load` does."""
        row, column, *batch = self.places.of(work)
        for loads, first in zip(self.loads, (row, column), strict=True):
            if loads is not None:
                loads.load(first, batch, k_tile * self.k_blocks, stage)


def make_staged_scales(config: GemmConfig, shared: dict):
    """See the scales of A and B in shared memory, (places, K blocks, stages) of a tile; None of what has none."""
    rows = config.signature.scale_rows or (0, 0)
    k_blocks = config.tile_k // rules.K_BLOCK
    return stage_scales(shared.get("scales"), (config.tile_m, config.tile_n), rows, k_blocks, config.stages)


def make_scale_loads(
    config: GemmConfig, places: Places, scales: tuple, staged: tuple, threads: int, tidx: cutlass.Int32
):
    """Make what so many threads load of the scales of A and B, of which this is the one with index `tidx`, if any."""
    rows = config.signature.scale_rows or (0, 0)
    if not any(rows):
        return None
    loads = tuple(
        None if into is None else ScaleLoads(tensor, into, per, threads, tidx)
        for tensor, into, per in zip(scales, staged, rows, strict=True)
    )
    return OperandScales(places, loads, config.tile_k // rules.K_BLOCK)
