"""Configuration of latent attention: types, the tile of queries and keys, and shared memory."""

import math
from dataclasses import dataclass
from functools import cached_property

from cutepy.device import rules
from cutepy.layouts import sm90

LATENT, ROPE = 512, 64
"""Columns of a latent row, which are its values too, and the columns after them that carry the position."""
HEAD = LATENT + ROPE
ROWS = 64
"""Rows of queries of a tile: those of one warpgroup's MMA."""
BLOCK = 64
"""Keys of a block: each warpgroup scores one of the two blocks of a tile."""
KEYS = 2 * BLOCK
"""Keys of a tile."""
HALF = LATENT // 2
"""Columns of O that a warpgroup sums: 128 registers of a thread."""
SCALE_LINE_BYTES = 128
"""Bytes of a quantised row, from its scales on, that TMA brings beside each half of it: a line of the swizzle."""
LEAST_TILES = 3
"""Tiles of keys of a part, at least: fewer take less time than another partial result."""
CONSUMERS = 256
"""Consumer threads: two warpgroups."""
QUANTISED_BYTES = LATENT + 4 * (LATENT // rules.SCALED_COLUMNS) + 2 * ROPE
"""Bytes of a row whose latent columns are 8-bit floats: these, their float32 scales, and the other columns, bfloat16
(FlashMLA, "FP8 with scale")."""
COMBINING_WARPS = 8
"""Warps of a CTA that combines partial results: each has a row, or all have one."""
PRODUCERS = 128
"""Threads of the producer's warpgroup, of which a warp loads each block."""


@dataclass(frozen=True, kw_only=True)
class MlaConfig:
    """Configuration of a kernel.

    Attributes
    ----------
    dtype : str
        Of Q, the cache and O: "float16" or "bfloat16".
    causal : bool
        True if a query sees no key after its position.
    page : int
        Keys of a page; 0 if keys are not in pages.
    quantised : bool
        True if rows of the cache are `QUANTISED_BYTES`, and warps dequantise them in shared memory.
    is_split : bool
        True if the keys of all sequences are dealt out in equal parts, and there are partial results; False if a CTA
        has all keys of a sequence, whatever else is in the batch.
    cluster : int
        CTAs of adjoining tiles of rows that load the keys together, each a part of them for all: 1 or 2.
    """

    dtype: str
    causal: bool = False
    page: int = 0
    quantised: bool = False
    is_split: bool = True
    cluster: int = 1

    @cached_property
    def block_copy(self) -> sm90.StagedTile:
        """Shared memory of a copy of half a latent block: of one block, and of one page."""
        return sm90.StagedTile((self.rows_of_copy, HALF), 1, bits=8 if self.quantised else 16)

    @cached_property
    def rope_copy(self) -> sm90.StagedTile:
        """Shared memory of a copy of the other columns."""
        return sm90.StagedTile((self.rows_of_copy, ROPE), 1, bits=16)

    @cached_property
    def scales_copy(self) -> sm90.StagedTile:
        """Shared memory of a copy of lines of quantised rows that begin with their scales."""
        return sm90.StagedTile((self.rows_of_copy, SCALE_LINE_BYTES), 1, bits=8)

    @property
    def loading(self) -> tuple[tuple[int, ...], ...]:
        """Blocks that each warp loads, of those that load."""
        return ((0, 1),) if self.quantised else ((0,), (1,))

    @property
    def dequantising_warps(self) -> int:
        """Warps of the producers that dequantise: all others, if any do."""
        return PRODUCERS // 32 - len(self.loading) if self.quantised else 0

    @property
    def producer_registers(self) -> int:
        """Registers of a producer thread."""
        return 40 if self.quantised else 24

    @property
    def latent_bytes(self) -> int:
        """Bytes that TMA brings of half a latent block: of quantised rows their halves, and the lines with scales."""
        return BLOCK * (HALF + SCALE_LINE_BYTES if self.quantised else 2 * HALF)

    def last_row(self, tile: int) -> int:
        """Return the last of the rows whose CTAs have the keys of a tile of rows."""
        return (tile // self.cluster + 1) * (self.cluster * ROWS) - 1

    @property
    def rows_of_copy(self) -> int:
        """Keys that one copy moves."""
        return math.gcd(self.page, BLOCK) if self.page else BLOCK

    @cached_property
    def qk(self) -> sm90.TiledMMA:
        """MMAs of a block's scores with the latent columns."""
        return rules.wgmma_tiling(self.dtype, self.dtype, BLOCK, 1)

    @cached_property
    def qk_rope(self) -> sm90.TiledMMA:
        """MMAs of a block's scores with the other columns, whose Q is in registers."""
        return rules.wgmma_tiling(self.dtype, self.dtype, BLOCK, 1, a_in_registers=True)

    @cached_property
    def pv(self) -> sm90.TiledMMA:
        """MMAs of half of O with the probabilities of the own block, in registers."""
        return rules.wgmma_tiling(self.dtype, self.dtype, HALF, 1, a_in_registers=True)

    @cached_property
    def pv_far(self) -> sm90.TiledMMA:
        """MMAs of half of O with the probabilities of the other block, in shared memory."""
        return rules.wgmma_tiling(self.dtype, self.dtype, HALF, 1)

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA.

        Both halves of Q's latent columns are stages; so are both halves of both blocks of a tile of keys. The
        probabilities of the second block take the place of Q's other columns, which registers hold by then.
        """
        contents: dict[str, sm90.StagedTile | sm90.SmemArray] = {
            "sQ": sm90.StagedTile((ROWS, HALF), 2, bits=16),
            "sQRope": sm90.StagedTile((ROWS, ROPE), 1, bits=16),
            "sK": sm90.StagedTile((BLOCK, HALF), 4, bits=16),
            "sKRope": sm90.StagedTile((BLOCK, ROPE), 2, bits=16),
            "sP0": sm90.StagedTile((ROWS, BLOCK), 1, bits=16),
            "sP1": sm90.StagedTile((ROWS, BLOCK), 1, bits=16),
            "sRows": sm90.SmemArray(2 * CONSUMERS, bits=32, alignment_bytes=16),
        }
        for name in ("q", *BLOCKS):
            is_rewritten = self.quantised and name.startswith(("near", "far"))
            contents[f"{name}_barriers"] = sm90.SmemArray(3 if is_rewritten else 2, bits=64)
        return sm90.SmemPlan.of(contents, overlays={"sP1": "sQRope"})

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        kind = ("_e4m3" if self.quantised else "") + ("_causal" if self.causal else "")
        kind += f"_page{self.page}" if self.page else ""
        kind += ("_split" if self.is_split else "") + (f"_cluster{self.cluster}" if self.cluster > 1 else "")
        return f"cutepy_mla_{self.dtype}{kind}"


BLOCKS = ("near0", "far0", "rope0", "near1", "far1", "rope1")
"""Parts of a tile of keys, each a ring of one stage.

Of block b, half b of the columns is near: warpgroup b scores the block, and sums this half of its values itself. The
far half is the other warpgroup's to sum.
"""
