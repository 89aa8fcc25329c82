"""Tiles of operands and copies: as layouts of shared memory, and as pictures.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout": "Strides"; "Tensors": "Swizzling Modes".
"""

from __future__ import annotations

from typing import Any

from cutepy.anatomy.model import Copy, Operand
from cutepy.layouts import ComposedLayout, Layout, LayoutError, SmemPtr
from cutepy.layouts.grids.grid import Axis
from cutepy.layouts.hardware import byte_swizzle, pattern_rows
from cutepy.layouts.render import Cell, Grid, Picture, layout_grid
from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import (
    DTYPE_BITS,
    UNIT_BITS,
    AnySwizzleMode,
    span_bytes,
)
from cutepy.layouts.sm90.explain import core_matrix_grid
from cutepy.layouts.sm90.pictures import walk_grid

_MOST_BOXES = 256


def tile_layout(operand: Operand) -> Layout | ComposedLayout | None:
    """Return (mn, k) -> address of an operand's tile in shared memory, in elements; None if unknown.

    Strides are those of the descriptor, and the swizzle acts on byte addresses.
    """
    d = operand.descriptor
    if d is None or d.base_offset:
        return None
    bits = operand.bits
    extent, k = operand.shape_mn_k
    unit, lbo, sbo = UNIT_BITS // bits, d.lbo * 8 // bits, d.sbo * 8 // bits
    span = span_bytes(d.swizzle) * 8 // bits
    rows = pattern_rows(d.swizzle)
    if operand.major == "K" and d.swizzle == "INTER":
        tile = _by_blocks((extent, rows, unit, sbo), (k, unit, 1, lbo))
    elif operand.major == "K":
        tile = _by_blocks((extent, rows, span, sbo), (k, span, 1, span))
    elif d.swizzle == "INTER":
        tile = _by_blocks((extent, unit, 1, sbo), (k, rows, unit, lbo))
    else:
        tile = _by_blocks((extent, span, 1, lbo), (k, rows, span, sbo))
    return _swizzled(tile, d.swizzle, bits, d.start_address if operand.descriptors else None)


def _by_blocks(*modes: tuple[int, int, int, int]) -> Layout:
    """Make a layout of modes, each by extent, block size, stride in a block, and stride of blocks."""
    shape: list[Any] = []
    stride: list[Any] = []
    for extent, block, within, between in modes:
        if extent <= block:
            shape.append(extent)
            stride.append(within)
        else:
            shape.append((block, -(-extent // block)))
            stride.append((within, between))
    return Layout(tuple(shape), tuple(stride))


def _swizzled(tile: Layout, mode: AnySwizzleMode, bits: int, address: int | None) -> ComposedLayout:
    return ComposedLayout(byte_swizzle(mode), SmemPtr(bits, address), tile)


def box_layout(tensor_map: TensorMap | Im2colTensorMap, address: int = 0) -> ComposedLayout:
    """Return (outer modes, contiguous mode) -> address of a box in shared memory, in elements."""
    inner, *outer = tensor_map.box_elems
    shape, stride, step = [], [], inner
    for extent in outer:
        shape.append(extent)
        stride.append(step)
        step *= extent
    rows = (shape[0], stride[0]) if len(outer) == 1 else (tuple(shape), tuple(stride)) if outer else (1, 0)
    tile = Layout((rows[0], inner), (rows[1], 1))
    return _swizzled(tile, tensor_map.swizzle, DTYPE_BITS[tensor_map.dtype], address)


def operand_pictures(operand: Operand, name: str) -> tuple[Grid, Grid] | None:
    """Draw the tile of an operand: its core matrices, and all its units of 16 bytes."""
    d = operand.descriptor
    if d is None or d.base_offset:
        return None
    walk = d.walk()
    extent, k = operand.shape_mn_k
    title = f"{name}, {extent}x{k}, {operand.dtype}"
    small = core_matrix_grid(walk, (extent, k))
    small = small.but(title=f"{title}: address of the first 16 bytes of each core matrix")
    return small, walk_grid(walk, (extent, k), title)


def box_picture(copy: Copy) -> Grid | None:
    """Draw the places of a box's 16-byte units in shared memory."""
    if copy.tensor_map is None or copy.tensor_map.interleave != "none":
        return None
    address = copy.shared_addresses[0] if copy.shared_addresses else 0
    tensor_map = copy.tensor_map
    layout = box_layout(tensor_map, address)
    shape = "x".join(map(str, tensor_map.box[::-1]))
    bits = DTYPE_BITS[tensor_map.dtype]
    try:
        drawn = layout_grid(
            layout,
            bits=bits,
            units=True,
            title=f"A box of {shape} {tensor_map.dtype}, {tensor_map.swizzle}, in shared memory at {address:#x}",
        )
    except LayoutError:  # rows that are no whole units of 16 bytes
        return None
    return drawn.but(
        caption=(
            f"rows of the box down, units of 16 bytes ({UNIT_BITS // bits} elements) across: which unit of shared "
            "memory each goes to",
        )
    )


def first_rows(grid: Grid, count: int = 8) -> Grid:
    """Return the first rows of a picture: those in which a swizzle differs."""
    rows = grid.rows
    if rows.size <= count:
        return grid
    axis = Axis(count, label=rows.label, names=rows.names)
    return grid.but(rows=axis, coarser=None, caption=(*grid.caption, f"the first {count} of {rows.size} rows"))


def tensor_picture(copy: Copy) -> Grid | None:
    """Draw a tensor of rank 2 in boxes, with the copied ones marked."""
    tensor_map = copy.tensor_map
    if tensor_map is None or len(copy.tensor_maps) > 1 or tensor_map.rank < 2 or not copy.coordinates:
        return None
    if len(tensor_map.box_elems) != tensor_map.rank:  # a column of pixels
        return None
    places = {c[:2] for c in copy.coordinates}
    inner, outer = tensor_map.box[:2]
    if any(x % inner or y % outer for x, y in places):
        return None
    columns, rows = (-(-extent // box) for extent, box in zip(tensor_map.dims[:2], (inner, outer), strict=True))
    if rows * columns > _MOST_BOXES or rows * columns < 2:
        return None

    def cell(i: int, j: int) -> Cell:
        copied = (j * inner, i * outer) in places
        at = ("coordinates", f"({j * inner},{i * outer})")
        return Cell("x" if copied else ".", colour=0 if copied else None, notes=(at,))

    return Grid(
        Axis(rows, label=lambda i: str(i * outer), names="mode 1"),
        Axis(columns, label=lambda j: str(j * inner), names="mode 0"),
        cell,
        title=f"The tensor, {'x'.join(map(str, tensor_map.dims[:2][::-1]))}, in boxes of {outer}x{inner}",
        caption=("x: copied in the launches seen; mode 1 down, mode 0, the contiguous one, across",),
    )


def pictured(*grids: Grid | None) -> Picture | None:
    """Put the existing ones of some pictures side by side."""
    there = tuple(grid for grid in grids if grid is not None)
    return Picture(there) if there else None
