"""Which tiles there are to choose from."""

from typing import NamedTuple


class Tile(NamedTuple):
    """An output tile, and how it is computed.

    Attributes
    ----------
    m, n : int
        Extents.
    k_spans : int
        Times 128 bytes of K make a stage. Small tiles gain from longer stages: TMA reads longer rows.
    consumers : int
        Which take tiles in turn.
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
    # One consumer, K whole.
    *(Tile(64, n) for n in (144, 112, 96, 80, 64, 48, 32, 16)),
    *(Tile(64, n, k_spans=2) for n in (64, 32, 16)),
    *(Tile(128, n) for n in (256, 224, 208)),
    *(Tile(192, n) for n in (160,)),
    *(Tile(256, n) for n in (144,)),
    # Consumers in turns.
    *(Tile(64, n, consumers=2) for n in (160, 128, 96, 32)),
    *(Tile(64, n, k_spans=2, consumers=2) for n in (48, 32, 16)),
    *(Tile(128, n, consumers=2) for n in (192, 176, 160, 144, 128, 112, 96, 80, 48, 32, 16)),
    *(Tile(192, n, consumers=2) for n in (128, 112, 96, 80)),
    # K in parts.
    *(Tile(64, n, split_k=2) for n in (208, 192, 112, 96, 80, 48, 32, 16)),
    *(Tile(64, n, split_k=4) for n in (176, 80, 16)),
    *(Tile(64, n, split_k=8) for n in (112, 96, 80, 16)),
    *(Tile(64, n, k_spans=2, split_k=2) for n in (48, 32, 16)),
    *(Tile(64, n, k_spans=2, split_k=4) for n in (48, 16)),
    *(Tile(64, n, k_spans=2, split_k=8) for n in (48, 32, 16)),
    *(Tile(128, n, split_k=2) for n in (160, 144, 96, 80, 16)),
    *(Tile(128, n, split_k=4) for n in (160, 128, 48)),
    *(Tile(128, n, split_k=8) for n in (96,)),
)
"""What is chosen from: of 275 tiles tried on 415 problems, few enough whose best is within 0.3% of the best of all."""

MN_TILES = (
    *(tile for tile in TILES if tile.n % 64 == 0 or tile.n <= 32),
    *(Tile(64, n) for n in (256, 192, 128)),
    *(Tile(128, n) for n in (192, 128, 64)),
    *(Tile(64, n, consumers=2) for n in (192, 64)),
    *(Tile(64, n, split_k=2) for n in (128,)),
    *(Tile(64, n, split_k=8) for n in (128,)),
    *(Tile(64, 64, k_spans=2, split_k=split) for split in (2, 4, 8)),
    *(Tile(128, n, split_k=2) for n in (128,)),
    *(Tile(128, n, split_k=4) for n in (64,)),
)
"""What is chosen from where B is MN-major: 64 elements are the 128 bytes of the widest swizzle.

(On an H200, 2026-11-23, 1617x1080x4688 with such a B took 56 us by 128x112, whose swizzle has 32 bytes, and cuBLAS 34.)
"""

PROMOTED_TILES = (
    *(Tile(m, 128) for m in (256, 128)),
    *(Tile(128, n) for n in (192, 160, 112, 96, 64, 48, 32, 16)),
    *(Tile(64, n, k_spans=2) for n in (128, 96, 64, 48, 32, 16)),
    *(Tile(128, n, split_k=2) for n in (128, 96, 64)),
    *(Tile(64, n, k_spans=2, split_k=split) for n in (64, 48, 32, 16) for split in (2, 4, 8)),
)
"""What is chosen from where sums are promoted: while some are added up, others are multiplied, by another warpgroup or
in another block of the stage.
"""
