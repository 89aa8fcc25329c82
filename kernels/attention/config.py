"""Attention configurations: types, head dimensions, tiles and masks, checked before compiling."""

from dataclasses import dataclass
from functools import cached_property

from cutepy.device import rules
from cutepy.layouts import sm90

EPI_COLUMNS, EPI_STAGES = 32, 2


@dataclass(frozen=True, kw_only=True)
class ForwardConfig:
    """Configuration of a forward kernel.

    Attributes
    ----------
    dtype : str
        Of Q, K, V and O: "float16" or "bfloat16".
    head : int
        Extent of a row of Q, K.
    head_v : int
        Extent of a row of V, O.
    tile_m, tile_n : int
        Queries and keys of a tile.
    warpgroups : int
        Consumer warpgroups, each of 64 queries.
    stages : int
        Stages of K, and of V.
    left, right : bool
        True if keys before, or behind, a query's position are bounded.
    ordered : bool
        True if warpgroups issue their MMAs in turns, so that one's softmax overlaps another's products.
    """

    dtype: str
    head: int
    head_v: int
    tile_m: int
    tile_n: int
    warpgroups: int
    stages: int = 2
    left: bool = False
    right: bool = False
    ordered: bool = True

    @cached_property
    def qk(self) -> sm90.TiledMMA:
        """MMAs of S = Q K^T."""
        return rules.wgmma_tiling(self.dtype, self.dtype, self.tile_n, self.warpgroups)

    @cached_property
    def pv(self) -> sm90.TiledMMA:
        """MMAs of O = P V."""
        return rules.wgmma_tiling(self.dtype, self.dtype, self.head_v, self.warpgroups, a_in_registers=True)

    @property
    def consumers(self) -> int:
        """Consumer threads."""
        return 128 * self.warpgroups

    @cached_property
    def smem(self) -> sm90.SmemPlan:
        """Shared memory of a CTA."""
        return sm90.SmemPlan.of(
            sQ=sm90.StagedTile((self.tile_m, self.head), 1, bits=16),
            sK=sm90.StagedTile((self.tile_n, self.head), self.stages, bits=16),
            sV=sm90.StagedTile((self.head_v, self.tile_n), self.stages, bits=16, contiguous_mode=0),
            sO=sm90.StagedTile((64, EPI_COLUMNS), EPI_STAGES * self.warpgroups, bits=16),
            q_barriers=sm90.SmemArray(2, bits=64),
            k_barriers=sm90.SmemArray(2 * self.stages, bits=64),
            v_barriers=sm90.SmemArray(2 * self.stages, bits=64),
        )

    @property
    def name(self) -> str:
        """Name of the kernel, as profilers show it."""
        mask = ("_left" if self.left else "") + ("_right" if self.right else "")
        return f"cutepy_attention_{self.dtype}_{self.head}_{self.head_v}_{self.tile_m}x{self.tile_n}{mask}"
