"""Where output tiles are (traced)."""

from dataclasses import dataclass

import cutlass

from cutepy.device.schedulers import Work
from cutepy.kernels.gemm.config import GemmConfig


@dataclass(frozen=True)
class Places:
    """Where the subtiles of output tiles begin.

    Attributes
    ----------
    config : GemmConfig
    """

    config: GemmConfig

    def of(self, work: Work, index: cutlass.Int32 | int = 0):
        """Give row and column of the product at which a subtile of an output tile begins, and those of the batch."""
        config = self.config
        rows, columns = config.epi_tile
        across = config.tile_n // columns
        row = work.row * config.tile_m + index // across * rows
        return row, work.column * config.tile_n + index % across * columns, *work.batch
