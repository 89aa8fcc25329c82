"""Hopper's layouts: GMMA atoms, matrix descriptors, wgmma fragments, TMA boxes, ldmatrix and stmatrix.

Everything here is a value computed without a GPU or a compiler.
"""

from .arch import Major as Major, SwizzleMode as SwizzleMode
from .canonical import make_gmma_desc as make_gmma_desc
from .descriptor import GmmaDescriptor as GmmaDescriptor
from .gmma import gmma_layout_atom as gmma_layout_atom
from .iterator import GmmaDescriptorIterator as GmmaDescriptorIterator
from .stmatrix import (
    MatrixCopyTraits as MatrixCopyTraits,
    accumulator_row_layout as accumulator_row_layout,
    ldmatrix_traits as ldmatrix_traits,
    stmatrix_traits as stmatrix_traits,
)
from .tensor_map import TensorMap as TensorMap
from .tiled_mma import TiledMMA as TiledMMA
from .tma import TmaBox as TmaBox, TmaCopy as TmaCopy, make_tma_copy as make_tma_copy
from .wgmma import (
    WgmmaTraits as WgmmaTraits,
    accumulator_layout as accumulator_layout,
    wgmma_names as wgmma_names,
    wgmma_traits as wgmma_traits,
)

__all__ = [
    "GmmaDescriptor",
    "GmmaDescriptorIterator",
    "Major",
    "MatrixCopyTraits",
    "SwizzleMode",
    "TensorMap",
    "TiledMMA",
    "TmaBox",
    "TmaCopy",
    "WgmmaTraits",
    "accumulator_layout",
    "accumulator_row_layout",
    "gmma_layout_atom",
    "ldmatrix_traits",
    "make_gmma_desc",
    "make_tma_copy",
    "stmatrix_traits",
    "wgmma_names",
    "wgmma_traits",
]
