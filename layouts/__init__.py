"""Layouts of NVIDIA's CuTe as values: make, print, parse and compute with them, with no GPU and no compiler.

Standard library only. The names and argument orders are pycute's where pycute has the function, else CuTe C++'s; the
results are CuTe C++'s.

>>> from cutepy.layouts import Layout, parse, tile_to_shape
>>> print(tile_to_shape(Layout((64, 8)), (128, 64, 3)))
((64,2),(8,8),(1,3)):((1,512),(64,1024),(0,8192))
>>> parse("Sw<3,4,3> o 0 o (64,8):(1,64)")(1, 3)
217
"""

from __future__ import annotations

import importlib
from types import ModuleType

if __name__ != "cutepy.layouts":
    raise ImportError(
        f"this package is cutepy.layouts, but it was imported as {__name__!r}: the folder `layouts` is reached through "
        "the link cutepy/layouts; put the repository's root on the path and write `import cutepy.layouts`"
    )

from .algebra import (
    coalesce as coalesce,
)
from .algebra import (
    complement as complement,
)
from .algebra import (
    composition as composition,
)
from .algebra import (
    filter as filter,
)
from .algebra import (
    left_inverse as left_inverse,
)
from .algebra import (
    nullspace as nullspace,
)
from .algebra import (
    right_inverse as right_inverse,
)
from .basis import (
    E as E,
)
from .basis import (
    ScaledBasis as ScaledBasis,
)
from .basis import (
    add_coordinates as add_coordinates,
)
from .basis import (
    basis_get as basis_get,
)
from .basis import (
    basis_value as basis_value,
)
from .composed import (
    ComposedLayout as ComposedLayout,
)
from .composed import (
    SmemPtr as SmemPtr,
)
from .composed import (
    domain_offset as domain_offset,
)
from .composed import (
    get_nonswizzle_portion as get_nonswizzle_portion,
)
from .composed import (
    get_swizzle_portion as get_swizzle_portion,
)
from .composed import (
    make_composed_layout as make_composed_layout,
)
from .coordinates import (
    compact_col_major as compact_col_major,
)
from .coordinates import (
    compact_order as compact_order,
)
from .coordinates import (
    compact_row_major as compact_row_major,
)
from .coordinates import (
    crd2crd as crd2crd,
)
from .coordinates import (
    crd2idx as crd2idx,
)
from .coordinates import (
    idx2crd as idx2crd,
)
from .coordinates import (
    make_basis_like as make_basis_like,
)
from .coordinates import (
    prefix_product as prefix_product,
)
from .coordinates import (
    suffix_product as suffix_product,
)
from .errors import LayoutError as LayoutError
from .errors import ParseError as ParseError
from .int_tuple import (
    Integer as Integer,
)
from .int_tuple import (
    IntTuple as IntTuple,
)
from .int_tuple import (
    ceil_div as ceil_div,
)
from .int_tuple import (
    colex_less as colex_less,
)
from .int_tuple import (
    compatible as compatible,
)
from .int_tuple import (
    congruent as congruent,
)
from .int_tuple import (
    elem_geq as elem_geq,
)
from .int_tuple import (
    elem_gtr as elem_gtr,
)
from .int_tuple import (
    elem_leq as elem_leq,
)
from .int_tuple import (
    elem_less as elem_less,
)
from .int_tuple import (
    elem_scale as elem_scale,
)
from .int_tuple import (
    evenly_divides as evenly_divides,
)
from .int_tuple import (
    flatten_to_tuple as flatten_to_tuple,
)
from .int_tuple import (
    has_none as has_none,
)
from .int_tuple import (
    inner_product as inner_product,
)
from .int_tuple import (
    is_int as is_int,
)
from .int_tuple import (
    is_tuple as is_tuple,
)
from .int_tuple import (
    lex_less as lex_less,
)
from .int_tuple import (
    product as product,
)
from .int_tuple import (
    product_each as product_each,
)
from .int_tuple import (
    product_like as product_like,
)
from .int_tuple import (
    repeat_like as repeat_like,
)
from .int_tuple import (
    round_up as round_up,
)
from .int_tuple import (
    shape_div as shape_div,
)
from .int_tuple import (
    signum as signum,
)
from .int_tuple import (
    transform_leaf as transform_leaf,
)
from .int_tuple import (
    tuple_max as tuple_max,
)
from .int_tuple import (
    unwrap as unwrap,
)
from .int_tuple import (
    weakly_compatible as weakly_compatible,
)
from .int_tuple import (
    weakly_congruent as weakly_congruent,
)
from .int_tuple import (
    wrap as wrap,
)
from .layout import (
    Layout as Layout,
)
from .layout import (
    LayoutBase as LayoutBase,
)
from .layout import (
    get_1d_coord as get_1d_coord,
)
from .layout import (
    get_flat_coord as get_flat_coord,
)
from .layout import (
    get_hier_coord as get_hier_coord,
)
from .layout import (
    is_layout as is_layout,
)
from .layout import (
    make_fragment_like as make_fragment_like,
)
from .layout import (
    make_identity_layout as make_identity_layout,
)
from .layout import (
    make_layout as make_layout,
)
from .layout import (
    make_layout_left as make_layout_left,
)
from .layout import (
    make_layout_like as make_layout_like,
)
from .layout import (
    make_layout_right as make_layout_right,
)
from .layout import (
    make_ordered_layout as make_ordered_layout,
)
from .modes import (
    append as append,
)
from .modes import (
    coprofile as coprofile,
)
from .modes import (
    coshape as coshape,
)
from .modes import (
    cosize as cosize,
)
from .modes import (
    depth as depth,
)
from .modes import (
    dice as dice,
)
from .modes import (
    filter_zeros as filter_zeros,
)
from .modes import (
    flatten as flatten,
)
from .modes import (
    get as get,
)
from .modes import (
    group as group,
)
from .modes import (
    prepend as prepend,
)
from .modes import (
    rank as rank,
)
from .modes import (
    replace as replace,
)
from .modes import (
    select as select,
)
from .modes import (
    shape as shape,
)
from .modes import (
    size as size,
)
from .modes import (
    slice_ as slice_,
)
from .modes import (
    slice_and_offset as slice_and_offset,
)
from .modes import (
    stride as stride,
)
from .modes import (
    take as take,
)
from .modes import (
    unflatten as unflatten,
)
from .modes import (
    zip_modes as zip_modes,
)
from .notation import parse as parse
from .notation import to_text as to_text
from .recast import downcast as downcast
from .recast import recast_layout as recast_layout
from .recast import upcast as upcast
from .swizzle import Swizzle as Swizzle
from .swizzle import make_swizzle as make_swizzle
from .swizzle import shiftl as shiftl
from .swizzle import shiftr as shiftr
from .tiling import (
    blocked_product as blocked_product,
)
from .tiling import (
    flat_divide as flat_divide,
)
from .tiling import (
    flat_product as flat_product,
)
from .tiling import (
    hier_unzip as hier_unzip,
)
from .tiling import (
    logical_divide as logical_divide,
)
from .tiling import (
    logical_product as logical_product,
)
from .tiling import (
    raked_product as raked_product,
)
from .tiling import (
    tile_to_shape as tile_to_shape,
)
from .tiling import (
    tile_unzip as tile_unzip,
)
from .tiling import (
    tiled_divide as tiled_divide,
)
from .tiling import (
    tiled_product as tiled_product,
)
from .tiling import (
    zipped_divide as zipped_divide,
)
from .tiling import (
    zipped_product as zipped_product,
)
from .vectorize import (
    domain_distribute as domain_distribute,
)
from .vectorize import (
    max_alignment as max_alignment,
)
from .vectorize import (
    max_common_layout as max_common_layout,
)
from .vectorize import (
    max_common_vector as max_common_vector,
)

slice = slice_


def __getattr__(name: str) -> ModuleType:
    if name in ("sm90", "render"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ComposedLayout",
    "E",
    "IntTuple",
    "Integer",
    "Layout",
    "LayoutBase",
    "LayoutError",
    "ParseError",
    "ScaledBasis",
    "SmemPtr",
    "Swizzle",
    "add_coordinates",
    "append",
    "basis_get",
    "basis_value",
    "blocked_product",
    "ceil_div",
    "coalesce",
    "colex_less",
    "compact_col_major",
    "compact_order",
    "compact_row_major",
    "compatible",
    "complement",
    "composition",
    "congruent",
    "coprofile",
    "coshape",
    "cosize",
    "crd2crd",
    "crd2idx",
    "depth",
    "dice",
    "domain_distribute",
    "domain_offset",
    "downcast",
    "elem_geq",
    "elem_gtr",
    "elem_leq",
    "elem_less",
    "elem_scale",
    "evenly_divides",
    "filter_zeros",
    "flat_divide",
    "flat_product",
    "flatten",
    "flatten_to_tuple",
    "get",
    "get_1d_coord",
    "get_flat_coord",
    "get_hier_coord",
    "get_nonswizzle_portion",
    "get_swizzle_portion",
    "group",
    "has_none",
    "hier_unzip",
    "idx2crd",
    "inner_product",
    "is_int",
    "is_layout",
    "is_tuple",
    "left_inverse",
    "lex_less",
    "logical_divide",
    "logical_product",
    "make_basis_like",
    "make_composed_layout",
    "make_fragment_like",
    "make_identity_layout",
    "make_layout",
    "make_layout_left",
    "make_layout_like",
    "make_layout_right",
    "make_ordered_layout",
    "make_swizzle",
    "max_alignment",
    "max_common_layout",
    "max_common_vector",
    "nullspace",
    "parse",
    "prefix_product",
    "prepend",
    "product",
    "product_each",
    "product_like",
    "raked_product",
    "rank",
    "recast_layout",
    "repeat_like",
    "replace",
    "right_inverse",
    "round_up",
    "select",
    "shape",
    "shape_div",
    "shiftl",
    "shiftr",
    "signum",
    "size",
    "slice_",
    "slice_and_offset",
    "stride",
    "suffix_product",
    "take",
    "tile_to_shape",
    "tile_unzip",
    "tiled_divide",
    "tiled_product",
    "to_text",
    "transform_leaf",
    "tuple_max",
    "unflatten",
    "unwrap",
    "upcast",
    "values",
    "weakly_compatible",
    "weakly_congruent",
    "wrap",
    "zip_modes",
    "zipped_divide",
    "zipped_product",
]
