"""Layouts of NVIDIA's CuTe as values: make, print, parse and compute with them, with no GPU and no compiler.

Standard library only. The names and argument orders are pycute's where pycute has the function, else CuTe C++'s; the
results are CuTe C++'s.

>>> from cutepy.layouts import Layout, parse, tile_to_shape
>>> print(tile_to_shape(Layout((64, 8)), (128, 64, 3)))
((64,2),(8,8),(1,3)):((1,512),(64,1024),(0,8192))
>>> parse("Sw<3,4,3> o 0 o (64,8):(1,64)")(1, 3)
209
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if __name__ != "cutepy.layouts":
    raise ImportError(
        f"this package is cutepy.layouts, but it was imported as {__name__!r}: the folder `layouts` is reached through "
        "the link cutepy/layouts; put the repository's root on the path and write `import cutepy.layouts`"
    )

from .algebra import (
    coalesce as coalesce,
    complement as complement,
    composition as composition,
    filter as filter,
    filter_zeros as filter_zeros,
    left_inverse as left_inverse,
    nullspace as nullspace,
    right_inverse as right_inverse,
    transform_layout as transform_layout,
)
from .basis import (
    E as E,
    ScaledBasis as ScaledBasis,
    add_coordinates as add_coordinates,
    basis_get as basis_get,
    basis_value as basis_value,
)
from .composed import (
    ComposedLayout as ComposedLayout,
    SmemPtr as SmemPtr,
    Swizzle as Swizzle,
    domain_offset as domain_offset,
    get_nonswizzle_portion as get_nonswizzle_portion,
    get_swizzle_portion as get_swizzle_portion,
    make_composed_layout as make_composed_layout,
    make_swizzle as make_swizzle,
    shiftl as shiftl,
    shiftr as shiftr,
)
from .coordinates import (
    compact_col_major as compact_col_major,
    compact_order as compact_order,
    compact_row_major as compact_row_major,
    crd2crd as crd2crd,
    crd2idx as crd2idx,
    idx2crd as idx2crd,
    make_basis_like as make_basis_like,
    prefix_product as prefix_product,
    suffix_product as suffix_product,
)
from .errors import InexactError as InexactError, LayoutError as LayoutError, ParseError as ParseError
from .int_tuple import (
    Integer as Integer,
    IntTuple as IntTuple,
    ceil_div as ceil_div,
    colex_geq as colex_geq,
    colex_gtr as colex_gtr,
    colex_leq as colex_leq,
    colex_less as colex_less,
    compatible as compatible,
    congruent as congruent,
    elem_geq as elem_geq,
    elem_gtr as elem_gtr,
    elem_leq as elem_leq,
    elem_less as elem_less,
    elem_scale as elem_scale,
    evenly_divides as evenly_divides,
    flatten_to_tuple as flatten_to_tuple,
    has_none as has_none,
    inner_product as inner_product,
    is_int as is_int,
    is_tuple as is_tuple,
    lex_geq as lex_geq,
    lex_gtr as lex_gtr,
    lex_leq as lex_leq,
    lex_less as lex_less,
    product as product,
    product_each as product_each,
    product_like as product_like,
    repeat_like as repeat_like,
    round_up as round_up,
    shape_div as shape_div,
    signum as signum,
    transform_leaf as transform_leaf,
    tuple_gcd as tuple_gcd,
    tuple_max as tuple_max,
    tuple_min as tuple_min,
    tuple_sum as tuple_sum,
    unwrap as unwrap,
    weakly_compatible as weakly_compatible,
    weakly_congruent as weakly_congruent,
    wrap as wrap,
)
from .layout import (
    Layout as Layout,
    get_1d_coord as get_1d_coord,
    get_flat_coord as get_flat_coord,
    get_hier_coord as get_hier_coord,
    is_layout as is_layout,
    make_identity_layout as make_identity_layout,
    make_layout as make_layout,
    make_layout_left as make_layout_left,
    make_layout_like as make_layout_like,
    make_layout_right as make_layout_right,
    make_ordered_layout as make_ordered_layout,
)
from .modes import (
    LayoutBase as LayoutBase,
    append as append,
    coprofile as coprofile,
    coshape as coshape,
    cosize as cosize,
    depth as depth,
    dice as dice,
    flatten as flatten,
    get as get,
    group as group,
    prepend as prepend,
    rank as rank,
    replace as replace,
    select as select,
    shape as shape,
    size as size,
    slice_ as slice_,
    slice_and_offset as slice_and_offset,
    stride as stride,
    take as take,
    unflatten as unflatten,
    zip_modes as zip_modes,
)
from .recast import downcast as downcast, recast_layout as recast_layout, upcast as upcast
from .tiling import (
    blocked_product as blocked_product,
    flat_divide as flat_divide,
    flat_product as flat_product,
    hier_unzip as hier_unzip,
    logical_divide as logical_divide,
    logical_product as logical_product,
    make_fragment_like as make_fragment_like,
    raked_product as raked_product,
    tile_to_shape as tile_to_shape,
    tile_unzip as tile_unzip,
    tiled_divide as tiled_divide,
    tiled_product as tiled_product,
    zipped_divide as zipped_divide,
    zipped_product as zipped_product,
)
from .vectorize import (
    domain_distribute as domain_distribute,
    max_alignment as max_alignment,
    max_common_layout as max_common_layout,
    max_common_vector as max_common_vector,
)
from .writer import to_text as to_text

if TYPE_CHECKING:
    from .banks import bank_conflicts as bank_conflicts, warp_access as warp_access
    from .linear import LinearLayout as LinearLayout, to_layout as to_layout, to_linear as to_linear
    from .linear.conversion import conversion as conversion
    from .notation import parse as parse
    from .notation.paste import parse_all as parse_all
    from .notation.printed import PrintedCopy as PrintedCopy, PrintedMMA as PrintedMMA
    from .render.comparison import compare as compare
    from .render.operations import steps as steps
    from .render.output import save as save, show as show

slice = slice_

# Modules that are loaded on first use: most users of layouts need none of them, and they take longer than the rest.
_ROOMS = ("banks", "linear", "notation", "render", "sm80", "sm90", "sm100")
_LAZY = {
    "LinearLayout": "linear",
    "PrintedCopy": "notation.printed",
    "PrintedMMA": "notation.printed",
    "bank_conflicts": "banks",
    "compare": "render",
    "conversion": "linear",
    "parse": "notation",
    "parse_all": "notation.paste",
    "save": "render",
    "show": "render",
    "steps": "render",
    "to_layout": "linear",
    "to_linear": "linear",
    "warp_access": "banks",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a room, or one of its names
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS, *_LAZY})


__all__ = [
    "ComposedLayout",
    "E",
    "InexactError",
    "IntTuple",
    "Integer",
    "Layout",
    "LayoutBase",
    "LayoutError",
    "LinearLayout",
    "ParseError",
    "PrintedCopy",
    "PrintedMMA",
    "ScaledBasis",
    "SmemPtr",
    "Swizzle",
    "add_coordinates",
    "append",
    "bank_conflicts",
    "basis_get",
    "basis_value",
    "blocked_product",
    "ceil_div",
    "coalesce",
    "colex_geq",
    "colex_gtr",
    "colex_leq",
    "colex_less",
    "compact_col_major",
    "compact_order",
    "compact_row_major",
    "compare",
    "compatible",
    "complement",
    "composition",
    "congruent",
    "conversion",
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
    "lex_geq",
    "lex_gtr",
    "lex_leq",
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
    "parse_all",
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
    "save",
    "select",
    "shape",
    "shape_div",
    "shiftl",
    "shiftr",
    "show",
    "signum",
    "size",
    "slice_",
    "slice_and_offset",
    "steps",
    "stride",
    "suffix_product",
    "take",
    "tile_to_shape",
    "tile_unzip",
    "tiled_divide",
    "tiled_product",
    "to_layout",
    "to_linear",
    "to_text",
    "transform_layout",
    "transform_leaf",
    "tuple_gcd",
    "tuple_max",
    "tuple_min",
    "tuple_sum",
    "unflatten",
    "unwrap",
    "upcast",
    "warp_access",
    "weakly_compatible",
    "weakly_congruent",
    "wrap",
    "zip_modes",
    "zipped_divide",
    "zipped_product",
]
