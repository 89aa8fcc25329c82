"""Layouts of Ampere and Ada instructions that Hopper still has: a warp's ``mma``, and ``cp.async``.

Everything here is a value computed without a GPU or a compiler. `cutepy.layouts.sm90.TiledMMA` tiles these atoms too,
and `cutepy.layouts.sm90.make_tiled_copy_A` and the like copy for them.
"""

from .cp_async import cp_async as cp_async
from .mma import WarpMmaTraits as WarpMmaTraits, mma_names as mma_names, mma_traits as mma_traits

__all__ = ["WarpMmaTraits", "cp_async", "mma_names", "mma_traits"]
