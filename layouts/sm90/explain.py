"""A matrix descriptor in words and as a drawing.

References
----------
PTX ISA, "Strides" of the asynchronous warpgroup level matrix shared memory layout.
"""

from __future__ import annotations

from ..render.grid import Grid
from ..render.text import render_text
from .arch import (
    CORE_MATRIX_ROWS,
    MAJORS,
    SWIZZLE_BASE_BYTES,
    SWIZZLE_BITS,
    SWIZZLE_SHIFT,
    UNIT_BITS,
    UNIT_BYTES,
    Major,
    pattern_bytes,
    span_bytes,
)
from .descriptor import GmmaDescriptor

_ROWS_SHOWN = 10
_BYTE = 8


def explain_descriptor(descriptor: GmmaDescriptor) -> str:
    """Return what `GmmaDescriptor.explain` says."""
    lines = [
        f"GMMA descriptor {int(descriptor):#018x}",
        f"  start address        {descriptor.start_address:#x}",
        f"  leading byte offset  {descriptor.lbo} (LBO)",
        f"  stride byte offset   {descriptor.sbo} (SBO)",
        f"  base offset          {descriptor.base_offset}",
        f"  swizzle              {descriptor.swizzle} (layout type {descriptor.layout_type})",
    ]
    for major in MAJORS if descriptor.major is None else (descriptor.major,):
        lines += ["", _heading(descriptor, major), *(f"  {line}" for line in _words(descriptor, major)), ""]
        if descriptor.base_offset:
            lines.append("No drawing: the address walk is defined for base offset 0 only.")
        else:
            lines += [
                "Address of the first 16 bytes of each core matrix:",
                render_text(core_matrix_grid(descriptor, major)),
            ]
    return "\n".join(lines)


def core_matrix_grid(descriptor: GmmaDescriptor, major: Major) -> Grid:
    """Return the grid of the core matrices' addresses: M or N runs down, K across.

    Parameters
    ----------
    descriptor : GmmaDescriptor
        With base offset 0. Where it does not know its tile, enough core matrices to see every step.
    major : "MN" or "K"
        How the operand is read.
    """
    bits = descriptor.bits or _BYTE
    per_unit = UNIT_BITS // bits
    height, width = (CORE_MATRIX_ROWS, per_unit) if major == "K" else (per_unit, CORE_MATRIX_ROWS)
    units = span_bytes(descriptor.swizzle) // UNIT_BYTES if major == "MN" else 1
    if descriptor.shape_mn_k is None:
        rows, columns = units + 2, 2
    else:
        mn, k = descriptor.shape_mn_k
        rows, columns = -(-mn // height), -(-k // width)
    shown = _shown(rows, units)
    labels, cells, notes = [], [], []
    for previous, i in zip([0, *shown], shown, strict=False):
        if i > previous + 1:
            labels.append("...")
            cells.append(("...",) * columns)
            notes.append("")
        labels.append(_extent(i, height, major == "MN" and descriptor.bits is None))
        cells.append(
            tuple(f"{descriptor.core_matrix_address(i, j, major=major, bits=bits):#x}" for j in range(columns))
        )
        notes.append(_down(descriptor, major, i, units) if i else "")
    wide = [_extent(j, width, major == "K" and descriptor.bits is None) for j in range(columns)]
    across = ["", *(_across(descriptor, major) for _ in range(columns - 1))]
    return Grid(
        tuple(cells), tuple(labels), tuple(wide), corner="MN\\K", row_notes=tuple(notes), column_notes=tuple(across)
    )


def _heading(descriptor: GmmaDescriptor, major: Major) -> str:
    text = f"{major}-major" if descriptor.major else f"Read as {major}-major"
    if descriptor.bits:
        text += f", {descriptor.bits}-bit elements"
    if descriptor.shape_mn_k:
        mn, k = descriptor.shape_mn_k
        text += f", tile of {mn} x {k} (MN x K)"
    return text + ":"


def _words(descriptor: GmmaDescriptor, major: Major) -> list[str]:
    span = span_bytes(descriptor.swizzle)
    unit = f"16 bytes ({UNIT_BITS // descriptor.bits} elements)" if descriptor.bits else "16 bytes"
    core = f"8 rows of MN by {unit} of K" if major == "K" else f"{unit} of MN by 8 of K"
    row = "row" if major == "K" else "k"
    return [
        f"A core matrix is {core}; from one {row} to the next are {span} bytes.",
        *_offset_words(descriptor, major, span),
        *_swizzle_words(descriptor),
    ]


def _offset_words(descriptor: GmmaDescriptor, major: Major, span: int) -> list[str]:
    lbo, sbo = f"LBO, {descriptor.lbo} bytes,", f"SBO, {descriptor.sbo} bytes,"
    if descriptor.swizzle == "INTER":
        if major == "K":
            return [
                f"{lbo} steps over 16 bytes of K: to the second core matrix of a row.",
                f"{sbo} steps over 8 rows of MN.",
            ]
        return [f"{lbo} steps over 8 of K.", f"{sbo} steps over 16 bytes of MN: to the next core matrix along MN."]
    if major == "K":
        return [
            f"{sbo} steps over 8 rows of MN.",
            f"LBO is not read: within the {span}-byte span core matrices along K lie 16 bytes apart.",
        ]
    return [
        f"{lbo} steps over {span} bytes of MN: to the next span; within one, core matrices lie 16 bytes apart.",
        f"{sbo} steps over 8 of K.",
    ]


def _swizzle_words(descriptor: GmmaDescriptor) -> list[str]:
    mode = descriptor.swizzle
    if mode == "INTER":
        return ["No swizzle: the addresses are used as they are."]
    last = SWIZZLE_BITS[mode] - 1
    low, high = SWIZZLE_BASE_BYTES, SWIZZLE_BASE_BYTES + SWIZZLE_SHIFT
    target, source = f"bits {low}..{low + last}", f"bits {high}..{high + last}"
    if last == 0:
        target, source = f"bit {low}", f"bit {high}"
    into = descriptor.start_address % pattern_bytes(mode)
    return [
        f"The swizzle then exchanges 16-byte units within each {span_bytes(mode)} bytes:",
        f"{target} of the address ^= {source}, a pattern that repeats every {pattern_bytes(mode)} bytes.",
        *(
            [f"The start lies {into:#x} into the pattern: steps are before the swizzle, addresses after it."]
            if into
            else []
        ),
    ]


def _down(descriptor: GmmaDescriptor, major: Major, i: int, units: int) -> str:
    if major == "K" or descriptor.swizzle == "INTER":
        return f"+SBO ({descriptor.sbo})"
    return f"+LBO ({descriptor.lbo}) from {_ordinal(i - units)}" if i % units == 0 else f"+{UNIT_BYTES}"


def _ordinal(i: int) -> str:
    return "the first" if i == 0 else f"row {i}"


def _across(descriptor: GmmaDescriptor, major: Major) -> str:
    if descriptor.swizzle == "INTER":
        return f"+LBO ({descriptor.lbo})"
    return f"+{UNIT_BYTES}" if major == "K" else f"+SBO ({descriptor.sbo})"


def _extent(index: int, extent: int, in_bytes: bool) -> str:
    return f"{index * extent}..{(index + 1) * extent - 1}" + (" B" if in_bytes else "")


def _shown(rows: int, units: int) -> list[int]:
    """Choose the rows to draw: all if few, else those at both ends of a span and the last."""
    if rows <= _ROWS_SHOWN:
        return list(range(rows))
    return sorted({0, 1, units, units + 1, rows - 1})
