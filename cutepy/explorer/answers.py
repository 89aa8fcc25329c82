"""Answers to the page's questions about layouts, by name: functions from parameters to values for ``json.dumps``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cutepy.explorer.coordinate_trace import follow
from cutepy.explorer.operands import operands
from cutepy.explorer.parameters import MAX_ELEMENTS, BadParameterError, Parameters, bounded
from cutepy.explorer.tensor_core import tensor_core
from cutepy.layouts import (
    Layout,
    Swizzle,
    blocked_product,
    coalesce,
    complement,
    composition,
    cosize,
    flat_divide,
    flat_product,
    left_inverse,
    logical_divide,
    logical_product,
    product,
    raked_product,
    right_inverse,
    sm90,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    to_text,
    zipped_divide,
    zipped_product,
)
from cutepy.layouts.errors import LayoutError
from cutepy.layouts.modes import LayoutBase
from cutepy.layouts.notation.atoms import canonical
from cutepy.layouts.render import Grid, compare, picture_of, render_raw, steps
from cutepy.layouts.render.reading import read

SHOWN = ("offsets", "banks", "units", "threads")

OPERATIONS: dict[str, Callable[..., Any]] = {
    operation.__name__: operation
    for operation in (
        composition,
        logical_divide,
        zipped_divide,
        tiled_divide,
        flat_divide,
        logical_product,
        zipped_product,
        tiled_product,
        flat_product,
        blocked_product,
        raked_product,
        tile_to_shape,
        complement,
        right_inverse,
        left_inverse,
        coalesce,
    )
}
"""Operations that the page offers beside partitions, by name."""

UNARY = ("right_inverse", "left_inverse", "coalesce")
PARTITIONS = ("partition_A", "partition_B", "partition_C")


def layout(asked: Parameters) -> dict[str, Any]:
    """Draw the value of an expression."""
    asked.known("expression", "bits", "show", "tile", "address")
    bits, shown = asked.width(), asked.choice("show", SHOWN, "offsets")
    value, remarks = _read(asked, "expression", bits)
    options: dict[str, Any] = {}
    if isinstance(value, LayoutBase | Swizzle):
        if shown == "threads":
            bounded("expression", value)
            options = {"tv": True}
            if asked.has("tile"):
                options["tile"] = asked.value("tile")
                if not isinstance(options["tile"], LayoutBase):
                    options["tile"] = asked.layout("tile").shape
                elif options["tile"].size() > MAX_ELEMENTS:
                    bounded("tile", options["tile"])
        else:
            options = {"bits": bits, "banks": shown == "banks", "units": shown == "units"}
            options["address"] = asked.number("address", 0, 1 << 18, 0)
    try:
        drawn = picture_of(value, **{name: x for name, x in options.items() if x is not None})
    except LayoutError as error:
        if bits is None and shown in ("banks", "units"):
            raise BadParameterError("bits", str(error)) from error
        raise
    if isinstance(drawn, Grid):
        drawn = drawn.but(caption=(*drawn.caption, *remarks))
    elif isinstance(value, sm90.WgmmaTraits | sm90.TiledMMA):
        *operands, accumulators = drawn.grids
        drawn = drawn._replace(grids=(accumulators, *operands))  # C is wanted most, and A may be long
    return {"expression": to_text_or_name(value), "facts": facts(value), "picture": render_raw(drawn)}


def _read(asked: Parameters, name: str, bits: int | None) -> tuple[Any, tuple[str, ...]]:
    """Read the value to draw, with remarks on how it was read; a shape stands for its compact layout."""
    value, remarks = asked.value(name, partial(read, bits=bits))
    return (asked.layout(name, None), remarks) if isinstance(value, int | tuple) else (value, remarks)


def facts(value: Any) -> list[list[str]]:  # noqa: ANN401 - what the notation writes
    """List the facts of a value beside its picture."""
    found = [["type", type(value).__name__]]
    if isinstance(value, LayoutBase):
        found += [["shape", to_text(value.shape)], ["size", str(product(value.shape))]]
        found += [["cosize", to_text(cosize(value))]] if product(value.shape) else []
    if isinstance(value, sm90.WgmmaTraits):
        found.append(["PTX", value.ptx])
    return found


def to_text_or_name(value: Any) -> str:  # noqa: ANN401 - what `read` returns
    """Write a value in the notation; atoms by their names."""
    return value.name if hasattr(value, "name") else to_text(value)


def following(asked: Parameters) -> dict[str, Any]:
    """Trace one coordinate of a layout to its offset, byte and bank."""
    asked.known("expression", "bits", "index", "address")
    bits = asked.width()
    value, _ = _read(asked, "expression", bits)
    return {"steps": follow(value, asked.number("index", 0, 1 << 48), bits, asked.number("address", 0, 1 << 18, 0))}


def operation(asked: Parameters) -> dict[str, Any]:
    """Draw an operation step by step."""
    asked.known("operation", "left", "right", "order", "atom", "atoms", "thread")
    name = asked.choice("operation", (*OPERATIONS, *PARTITIONS))
    left = asked.layout("left")
    if name in PARTITIONS:
        atom = asked.value("atom", lambda name: sm90.wgmma_traits(canonical(name)))
        atoms: Any = asked.layout("atoms", 8) if asked.has("atoms") else Layout((1, 1, 1))
        mma = asked.value("atom", lambda _: sm90.TiledMMA(atom, atoms))
        function, arguments = getattr(mma, name), [left, asked.number("thread", 0, mma.thr_size - 1, 0)]
    else:
        function, arguments = OPERATIONS[name], [left]
        if name not in UNARY:
            arguments.append(asked.value("right"))
            bounded("right", arguments[-1])
        if name == "tile_to_shape" and asked.has("order"):
            arguments.append(asked.value("order"))
    drawn = asked.value("left", lambda _: steps(function, *arguments))
    return {"picture": render_raw(drawn), "result": _result(drawn.grids[-1].title)}


def _result(title: str) -> str:
    return title.partition(" ")[2]


def comparison(asked: Parameters) -> dict[str, Any]:
    """Draw two layouts, with the differences marked."""
    asked.known("first", "second", "bits")
    bits = asked.width()
    values = []
    for name in ("first", "second"):
        value, _ = _read(asked, name, bits)
        if not isinstance(value, LayoutBase):
            raise BadParameterError(name, f"{name} must be a layout such as (4,8):(8,1), got {to_text_or_name(value)}")
        bounded(name, value)
        values.append(value)
    drawn = compare(*values, **({} if bits is None else {"bits": bits}))
    return {"picture": render_raw(drawn)}


ANSWERS: dict[str, Callable[[Parameters], dict[str, Any]]] = {
    "layout": layout,
    "follow": following,
    "steps": operation,
    "compare": comparison,
    "atom": operands,
    "umma": tensor_core,
}
"""Answer functions by name."""
