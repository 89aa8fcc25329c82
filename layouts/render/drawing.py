"""picture_of: the grids of a value."""

from __future__ import annotations

import sys
from typing import Any

from ..composed import ComposedLayout, Swizzle
from ..grids.grid import Grid, Picture
from ..grids.of_data import is_tensor, tensor_grid
from ..grids.of_layouts import layout_grid
from ..grids.of_threads import tv_grid
from ..layout import Layout
from ..modes import LayoutBase
from ..notation import parse
from .reading import read

_OF_A_TRACE = ("cutlass.cute.core", "cutlass.cute.atom")
"""Modules of the DSL whose values are valid only during their trace."""


def picture_of(x: Any, *, tv: bool = False, **options: Any) -> Grid | Picture:  # noqa: ANN401 - the builders' options
    """Return the picture of a value: grids that every renderer draws.

    Parameters
    ----------
    x : object
        A Layout, ComposedLayout or Swizzle; what says itself how it looks by a method ``_picture_``, as the objects of
        `cutepy.layouts.sm90` do; a Grid or a Picture; a tensor, anything with ``shape`` and elements; a text of the
        notation, or what prints itself as one, as the layouts of pycute and of the CuTe DSL do, and the DSL's MMAs and
        copies, while it traces; or the name of an atom: of wgmma, mma, ldmatrix, stmatrix, cp.async or a plain copy.
    tv : bool
        Read a layout of rank 2 as (thread, value) -> index, and draw the holder of each element; see `tv_grid`.
    **options
        Of a layout: ``bits``, ``banks``, ``units``, ``address``, ``title``; with `tv`, ``tile``, ``names``, ``title``;
        of a tensor: ``layout``, ``bits``, ``title``; of an atom or a printed MMA: ``operand``; of a text: ``given``,
        values for what it leaves open, and ``shape``, extents of the tensor whose encoding it holds.

    Raises
    ------
    TypeError
        If the value has no picture, or an option is not one of its.
    LayoutError
        If an option does not fit the value.
    RuntimeError
        If it is a value of a trace of the DSL that has ended: to print it would end the process.

    Examples
    --------
    >>> picture_of(Layout((2, 3))).rows.size
    2
    >>> picture_of("Sw<1,0,1> o 0 o (2,2):(2,1)").caption[1]
    'Sw<1,0,1> acts on offsets of elements'
    >>> picture_of(3.5)
    Traceback (most recent call last):
        ...
    TypeError: cannot draw 3.5 of type float: layouts, their texts, swizzles, the objects of cutepy.layouts.sm90, and \
tensors have pictures
    """
    if isinstance(x, str):
        value, remarks = read(x, options.get("bits"), options.pop("given", ()), options.pop("shape", None))
        drawn = picture_of(value, tv=tv, **options)
        return drawn.but(caption=(*drawn.caption, *remarks)) if isinstance(drawn, Grid) else drawn
    if isinstance(x, Swizzle):
        x = ComposedLayout(x, 0, Layout((1 << x.bits, 1 << x.base + abs(x.shift)), (1 << x.base + abs(x.shift), 1)))
    if isinstance(x, LayoutBase):
        return tv_grid(x, **options) if tv else layout_grid(x, **options)
    if isinstance(x, Grid | Picture):
        if options:
            raise TypeError(f"a {type(x).__name__} is drawn as it is; got {', '.join(options)}")
        return x
    if hasattr(type(x), "_picture_"):
        if tv:
            raise TypeError(f"tv reads a layout as (thread, value); {type(x).__name__} is none")
        return x._picture_(**options)  # type: ignore[no-any-return]
    if "layout" in options or hasattr(x, "tolist"):
        return tensor_grid(x, **options)
    printed = _printed(x)
    if printed is not None:
        return picture_of(printed, tv=tv, **options)
    if is_tensor(x):
        return tensor_grid(x, **options)
    raise TypeError(
        f"cannot draw {x!r} of type {type(x).__name__}: layouts, their texts, swizzles, the objects of "
        "cutepy.layouts.sm90, and tensors have pictures"
    )


def _printed(x: object) -> str | None:
    """Return the text that a foreign value prints, if it is a layout, an MMA or a copy."""
    if type(x).__module__ == "builtins" or type(x).__str__ is object.__str__:
        return None
    if type(x).__module__ in _OF_A_TRACE and not _tracing():
        raise RuntimeError(
            f"cannot draw {type(x).__name__}: the DSL's values end with the function being compiled; "
            "draw it inside, or keep cutepy.dsl.from_cute of it"
        )
    text = str(x)
    try:
        value = parse(text)
    except ValueError:
        return None
    return text if isinstance(value, LayoutBase) or hasattr(type(value), "_picture_") else None


def _tracing() -> bool:
    """Return whether the DSL is tracing a function, so that it can emit code."""
    try:
        return sys.modules["cutlass._mlir.ir"].InsertionPoint.current is not None
    except (KeyError, ValueError):
        return False
