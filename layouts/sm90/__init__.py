"""Hopper's layouts: GMMA atoms, matrix descriptors, wgmma fragments, TMA boxes, ldmatrix and stmatrix.

Everything here is a value computed without a GPU or a compiler.
"""

from .accumulator import (
    AccumulatorCoordinates as AccumulatorCoordinates,
    OperandCoordinates as OperandCoordinates,
    operand_order as operand_order,
)
from .arch import Major as Major, SwizzleMode as SwizzleMode
from .canonical import make_gmma_desc as make_gmma_desc
from .copy_atom import CopyAtom as CopyAtom, make_copy_atom as make_copy_atom, universal_copy as universal_copy
from .descriptor import GmmaDescriptor as GmmaDescriptor
from .gmma import gmma_layout_atom as gmma_layout_atom
from .im2col_map import Im2colTensorMap as Im2colTensorMap
from .iterator import GmmaDescriptorIterator as GmmaDescriptorIterator
from .make_tiled_copy import (
    make_cotiled_copy as make_cotiled_copy,
    make_tiled_copy as make_tiled_copy,
    make_tiled_copy_A as make_tiled_copy_A,
    make_tiled_copy_B as make_tiled_copy_B,
    make_tiled_copy_C as make_tiled_copy_C,
    make_tiled_copy_C_atom as make_tiled_copy_C_atom,
    make_tiled_copy_D as make_tiled_copy_D,
    make_tiled_copy_S as make_tiled_copy_S,
    make_tiled_copy_tv as make_tiled_copy_tv,
)
from .smem_plan import SmemArray as SmemArray, SmemPlan as SmemPlan, SmemRegion as SmemRegion
from .staged import DenseTile as DenseTile, StagedTile as StagedTile, staged_subtile as staged_subtile
from .stmatrix import (
    MatrixCopyTraits as MatrixCopyTraits,
    accumulator_row_layout as accumulator_row_layout,
    ldmatrix_traits as ldmatrix_traits,
    stmatrix_traits as stmatrix_traits,
)
from .tensor_map import TensorMap as TensorMap
from .tiled_copy import TiledCopy as TiledCopy
from .tiled_mma import TiledMMA as TiledMMA
from .tma import TmaBox as TmaBox, TmaCopy as TmaCopy, make_tma_copy as make_tma_copy
from .traits import CopyTraits as CopyTraits, MmaTraits as MmaTraits
from .wgmma import (
    WgmmaTraits as WgmmaTraits,
    accumulator_layout as accumulator_layout,
    wgmma_names as wgmma_names,
    wgmma_traits as wgmma_traits,
)

__all__ = [
    "AccumulatorCoordinates",
    "CopyAtom",
    "CopyTraits",
    "DenseTile",
    "GmmaDescriptor",
    "GmmaDescriptorIterator",
    "Im2colTensorMap",
    "Major",
    "MatrixCopyTraits",
    "MmaTraits",
    "OperandCoordinates",
    "SmemArray",
    "SmemPlan",
    "SmemRegion",
    "StagedTile",
    "SwizzleMode",
    "TensorMap",
    "TiledCopy",
    "TiledMMA",
    "TmaBox",
    "TmaCopy",
    "WgmmaTraits",
    "accumulator_layout",
    "accumulator_row_layout",
    "gmma_layout_atom",
    "ldmatrix_traits",
    "make_copy_atom",
    "make_cotiled_copy",
    "make_gmma_desc",
    "make_tiled_copy",
    "make_tiled_copy_A",
    "make_tiled_copy_B",
    "make_tiled_copy_C",
    "make_tiled_copy_C_atom",
    "make_tiled_copy_D",
    "make_tiled_copy_S",
    "make_tiled_copy_tv",
    "make_tma_copy",
    "operand_order",
    "staged_subtile",
    "stmatrix_traits",
    "universal_copy",
    "wgmma_names",
    "wgmma_traits",
]
