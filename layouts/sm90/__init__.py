"""Hopper's layouts: GMMA atoms, matrix descriptors, wgmma fragments, TMA boxes, ldmatrix and stmatrix.

Everything here is a value computed without a GPU or a compiler.
"""

from .arch import Major as Major
from .arch import SwizzleMode as SwizzleMode
from .canonical import make_gmma_desc as make_gmma_desc
from .descriptor import GmmaDescriptor as GmmaDescriptor
from .gmma import gmma_layout_atom as gmma_layout_atom
from .iterator import GmmaDescriptorIterator as GmmaDescriptorIterator
from .tiled_mma import TiledMMA as TiledMMA
from .wgmma import WgmmaTraits as WgmmaTraits
from .wgmma import accumulator_layout as accumulator_layout
from .wgmma import wgmma_names as wgmma_names
from .wgmma import wgmma_traits as wgmma_traits

__all__ = [
    "GmmaDescriptor",
    "GmmaDescriptorIterator",
    "Major",
    "SwizzleMode",
    "TiledMMA",
    "WgmmaTraits",
    "accumulator_layout",
    "gmma_layout_atom",
    "make_gmma_desc",
    "wgmma_names",
    "wgmma_traits",
]
