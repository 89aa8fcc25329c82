"""Explanation of the walk over an operand tile, in words and as a drawing.

References
----------
PTX ISA, "Strides" of the asynchronous warpgroup level matrix shared memory layout.
"""

from __future__ import annotations

from ..grids.grid import Grid, table
from ..grids.text import render_text
from ..hardware import SWIZZLES, UNIT_BITS, UNIT_BYTES, pattern_bytes, pattern_rows, span_bytes
from .walk import Walk

_ROWS_SHOWN = 10


def explain_walk(walk: Walk, shape_mn_k: tuple[int, int] | None, bits_known: bool, drawn: bool) -> list[str]:
    """Explain line by line the offsets and the swizzle; where `drawn`, with the grid of `core_matrix_grid`."""
    lines = [*(f"  {line}" for line in _words(walk, bits_known)), ""]
    if not drawn:
        return [*lines, "No drawing: the address walk is defined for base offset 0 only."]
    drawing = render_text(core_matrix_grid(walk, shape_mn_k, bits_known))
    return [*lines, "Address of the first 16 bytes of each core matrix:", drawing]


def core_matrix_grid(walk: Walk, shape_mn_k: tuple[int, int] | None, bits_known: bool = True) -> Grid:
    """Return the grid of the core matrices' addresses: M or N runs down, K across.

    Parameters
    ----------
    walk : Walk
    shape_mn_k : (int, int) or None
        Elements of the tile; without them, enough core matrices to see every step.
    bits_known : bool
        True if the element width is known; else the contiguous mode is labelled in bytes.
    """
    height, width = walk.core_matrix
    units = span_bytes(walk.swizzle) // UNIT_BYTES if walk.major == "MN" else 1
    if shape_mn_k is None:
        rows, columns = units + 2, 2
    else:
        rows, columns = -(-shape_mn_k[0] // height), -(-shape_mn_k[1] // width)
    shown = _shown(rows, units)
    labels, cells, notes = [], [], []
    for previous, i in zip([0, *shown], shown, strict=False):
        if i > previous + 1:
            labels.append("...")
            cells.append(("...",) * columns)
            notes.append("")
        labels.append(_extent(i, height, walk.major == "MN" and not bits_known))
        cells.append(tuple(f"{walk.address(i * height, j * width):#x}" for j in range(columns)))
        notes.append(_down(walk, i, units) if i else "")
    wide = [_extent(j, width, walk.major == "K" and not bits_known) for j in range(columns)]
    across = ["", *(_across(walk, j) for j in range(1, columns))]
    return table(cells, labels, wide, corner="MN\\K", row_notes=notes, column_notes=across)


def _words(walk: Walk, bits_known: bool) -> list[str]:
    span, rows = span_bytes(walk.swizzle), pattern_rows(walk.swizzle)
    unit = f"16 bytes ({UNIT_BITS // walk.bits} elements)" if bits_known else "16 bytes"
    core = f"{rows} rows of MN by {unit} of K" if walk.major == "K" else f"{unit} of MN by {rows} of K"
    row = "row" if walk.major == "K" else "k"
    return [
        f"A core matrix is {core}; from one {row} to the next are {span} bytes.",
        *_offset_words(walk, span, rows),
        *_swizzle_words(walk),
    ]


def _offset_words(walk: Walk, span: int, rows: int) -> list[str]:
    lbo, sbo = f"LBO, {walk.lbo} bytes,", f"SBO, {walk.sbo} bytes,"
    if walk.swizzle == "INTER":
        if walk.major == "K":
            return [
                f"{lbo} steps over 16 bytes of K: to the second core matrix of a row.",
                f"{sbo} steps over {rows} rows of MN.",
            ]
        return [
            f"{lbo} steps over {rows} of K.",
            f"{sbo} steps over 16 bytes of MN: to the next core matrix along MN.",
        ]
    if walk.major == "K":
        over = f"LBO, {walk.lbo:#x}, is the address of the atom in which a row goes on behind its {span}-byte span."
        unread = f"LBO is not read: within the {span}-byte span core matrices along K lie 16 bytes apart."
        return [f"{sbo} steps over {rows} rows of MN.", over if walk.lbo_is_address else unread]
    return [
        f"{lbo} steps over {span} bytes of MN: to the next span; within one, core matrices lie 16 bytes apart.",
        f"{sbo} steps over {rows} of K.",
    ]


def _swizzle_words(walk: Walk) -> list[str]:
    mode = walk.swizzle
    bits, base, shift = SWIZZLES[mode]
    if bits == 0:
        return ["No swizzle: the addresses are used as they are."]
    target, source = _bit_range(base, bits), _bit_range(base + shift, bits)
    into = walk.start_address % pattern_bytes(mode)
    return [
        f"The swizzle then exchanges {1 << base}-byte units within each {span_bytes(mode)} bytes:",
        f"{target} of the address ^= {source}, a pattern that repeats every {pattern_bytes(mode)} bytes.",
        *(
            [f"The start lies {into:#x} into the pattern: steps are before the swizzle, addresses after it."]
            if into
            else []
        ),
    ]


def _bit_range(first: int, count: int) -> str:
    return f"bit {first}" if count == 1 else f"bits {first}..{first + count - 1}"


def _down(walk: Walk, i: int, units: int) -> str:
    if walk.major == "K" or walk.swizzle == "INTER":
        return f"+SBO ({walk.sbo})"
    return f"+LBO ({walk.lbo}) from {_ordinal(i - units)}" if i % units == 0 else f"+{UNIT_BYTES}"


def _ordinal(i: int) -> str:
    return "the first" if i == 0 else f"row {i}"


def _across(walk: Walk, j: int) -> str:
    if walk.swizzle == "INTER":
        return f"+LBO ({walk.lbo})"
    if walk.lbo_is_address and (walk.start_address // UNIT_BYTES + j) * UNIT_BYTES % span_bytes(walk.swizzle) == 0:
        return f"LBO ({walk.lbo:#x})"
    return f"+{UNIT_BYTES}" if walk.major == "K" else f"+SBO ({walk.sbo})"


def _extent(index: int, extent: int, in_bytes: bool) -> str:
    return f"{index * extent}..{(index + 1) * extent - 1}" + (" B" if in_bytes else "")


def _shown(rows: int, units: int) -> list[int]:
    """Choose the rows to draw: all if few, else those at both ends of a span and the last."""
    if rows <= _ROWS_SHOWN:
        return list(range(rows))
    return sorted({0, 1, units, units + 1, rows - 1})
