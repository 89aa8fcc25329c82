"""Coordinates of output tiles and their subtiles (traced)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cutlass

from cutepy.device.schedulers import Work
from cutepy.kernels.gemm.config import GemmConfig


def steps_of(extents: Sequence[Any]) -> tuple[Any, ...]:
    """Return the step of each batch mode in the index of a product; the last mode is fastest.

    Examples
    --------
    >>> steps_of((2, 3, 5)), steps_of((7,)), steps_of(())
    ((15, 5, 1), (1,), ())
    """
    return tuple(math.prod(extents[n + 1 :]) for n in range(len(extents)))


@dataclass(frozen=True)
class TileCoords:
    """Map from tiles and subtiles to coordinates in the results.

    Attributes
    ----------
    config : GemmConfig
    """

    config: GemmConfig

    def of(self, work: Work, index: cutlass.Int32 | int = 0):
        """Return the first row and column of a subtile of an output tile, and its batch coordinates."""
        config = self.config
        rows, columns = config.epi_tile
        across = config.tile_n // columns
        row = work.row * config.tile_m + index // across * rows
        return row, work.column * config.tile_n + index % across * columns, *work.batch
