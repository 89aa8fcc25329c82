"""Tables of output tiles that the heuristic chooses from."""

from typing import NamedTuple


class OutputTile(NamedTuple):
    """An output tile, with its stage depth, consumers and split of K.

    Attributes
    ----------
    m, n : int
        Extents.
    k_spans : int
        Times 128 bytes of K make a stage. Small tiles gain from longer stages: TMA reads longer rows.
    consumers : int
        Number of consumers; two are ping-pong.
    split_k : int
        CTAs that share the K of a tile.
    """

    m: int
    n: int
    k_spans: int = 1
    consumers: int = 1
    split_k: int = 1

    @property
    def warpgroups(self) -> int:
        """Warpgroups of a consumer: three have registers for 200 columns at most, so 256 rows have two."""
        if self.consumers > 1:
            return 1
        return 2 if self.m % 128 == 0 else self.m // 64


TILES = (
    # cooperative: one consumer, K whole
    *(OutputTile(64, n) for n in (256, 192, 160, 144, 128, 112, 96, 80, 64, 48, 40, 32, 24, 16)),
    *(OutputTile(64, n, k_spans=2) for n in (80, 64, 32, 16)),
    *(OutputTile(128, n) for n in (256, 224, 208, 192, 128, 64)),
    *(OutputTile(192, n) for n in (192, 160)),
    *(OutputTile(256, n) for n in (144,)),
    # ping-pong: two consumers
    *(OutputTile(64, n, consumers=2) for n in (192, 160, 128, 112, 96, 80, 64, 32)),
    *(OutputTile(64, n, k_spans=2, consumers=2) for n in (48, 32, 24, 16)),
    *(OutputTile(128, n, consumers=2) for n in (192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16)),
    *(OutputTile(192, n, consumers=2) for n in (128, 112, 96, 80, 48)),
    *(OutputTile(256, n, consumers=2) for n in (80,)),
    # split K
    *(OutputTile(64, n, split_k=2) for n in (208, 192, 144, 128, 112, 96, 80, 48, 32, 16)),
    *(OutputTile(64, n, split_k=4) for n in (176, 80, 16)),
    *(OutputTile(64, n, split_k=8) for n in (160, 128, 112, 96, 80, 16)),
    *(OutputTile(64, n, k_spans=2, split_k=2) for n in (64, 48, 32, 24, 16)),
    *(OutputTile(64, n, k_spans=2, split_k=4) for n in (64, 48, 24, 16)),
    *(OutputTile(64, n, k_spans=2, split_k=8) for n in (64, 48, 32, 16)),
    *(OutputTile(128, n, split_k=2) for n in (160, 144, 128, 96, 80, 32, 16)),
    *(OutputTile(128, n, split_k=4) for n in (160, 128, 64, 48)),
    *(OutputTile(128, n, k_spans=2, split_k=4) for n in (24,)),
    *(OutputTile(128, n, split_k=8) for n in (96,)),
    *(OutputTile(256, n, split_k=8) for n in (16,)),
)
"""Base table: few tiles, whose best is within 0.2% of the best of all tiles that were timed for 208 problems."""

MORE_TILES = (
    *(OutputTile(64, n) for n in range(16, 257, 8)),
    *(OutputTile(128, n) for n in range(64, 257, 8)),
    *(OutputTile(192, n) for n in range(96, 201, 8)),
    *(OutputTile(256, n) for n in range(96, 193, 8)),
    *(OutputTile(64, 96, k_spans=2, consumers=consumers) for consumers in (1, 2)),
    *(OutputTile(64, n, consumers=2) for n in range(32, 193, 8)),
    *(OutputTile(128, n, consumers=2) for n in range(16, 193, 8)),
    *(OutputTile(192, n, consumers=2) for n in range(48, 129, 8)),
    *(OutputTile(256, n, consumers=2) for n in range(80, 97, 8)),
    *(OutputTile(64, n, split_k=2) for n in range(16, 209, 8)),
    *(OutputTile(128, n, split_k=2) for n in range(16, 225, 8)),
    *(OutputTile(192, n, split_k=2) for n in range(80, 193, 8)),
    *(OutputTile(64, n, split_k=4) for n in range(16, 177, 16)),
    *(OutputTile(128, n, split_k=4) for n in range(48, 193, 16)),
    *(OutputTile(192, n, split_k=4) for n in (96, 128)),
)
"""Further tiles where the model is refined (`refinement`); the model alone was not fitted to them. Where a few columns
of tiles cover N, some width covers it best. On an H100, 2026-11-26, 1357x2936x8656 took 95 us by tiles of 192x176
(transposed), 101 by the best of the others, and cuBLAS 96.
"""

PROMOTED_TILES = (
    *(OutputTile(m, 128) for m in (256, 192, 128)),
    OutputTile(192, 96),
    *(OutputTile(128, n) for n in (192, 160, 112, 96, 64, 48, 32, 16)),
    *(OutputTile(64, n, k_spans=2) for n in (128, 96, 64, 48, 32, 16)),
    *(OutputTile(128, n, split_k=2) for n in (128, 96, 64)),
    *(OutputTile(64, n, k_spans=2, split_k=split) for n in (64, 48, 32, 16) for split in (2, 4, 8)),
)
"""Tiles for promoted sums: one warpgroup, or one block of the stage, is promoted while another is multiplied."""
