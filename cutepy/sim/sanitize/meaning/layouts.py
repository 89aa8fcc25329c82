"""Bytes that a copy writes by a tensor map, and that MMAs or another copy read through another layout.

A tensor map and a matrix descriptor both name a swizzle, which is a function of the bits of an address. Who reads a
unit of 16 bytes through another one than it was written through gets it from another place of the tile, unless both
functions take its address to the same one, as they do in the first rows. What threads write may lie in any order.

A pattern is 8 rows of 32, 64 or 128 bytes, in which the elements along the major mode are neighbours. An MMA that
begins within a row and reads on beyond its end has some of the next row in the place of that. So it is where an
instruction names the other major than the tile has, and steps from one MMA to the next along the tile's own. Where it
begins with a row it reads the tile transposed, which is right of a matrix that is meant so, as V is in attention: that
can't be told. Strides go from pattern to pattern: if they are no multiples of its size, rows are read twice, or missed.

References
----------
PTX ISA, "Tensors: Swizzling Modes"; "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout".
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cutepy.layouts.sm90 import GmmaDescriptor, Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import SwizzleMode, span_bytes
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.sim.machine.lanes import Array
from cutepy.sim.translate.wgmma_shapes import SharedTile

_SIXTEEN_BITS = ("f16", "bf16")


class Through(NamedTuple):
    """How bytes are read or written.

    Attributes
    ----------
    swizzle : "INTER", "SW32", "SW64" or "SW128"
    element : str
        A type of PTX.
    fault : str
        What is wrong with a descriptor, whoever wrote what it reads; empty if nothing is.
    """

    swizzle: SwizzleMode
    element: str
    fault: str = ""


class Span(NamedTuple):
    """Which of the granules of a touch, (start, end) among those of a CTA, are read or written so."""

    start: int
    end: int
    through: Through


def of_map(tensor_map: TensorMap | Im2colTensorMap) -> Through | None:
    """Return how a copy orders a box; None where it interleaves channels."""
    if getattr(tensor_map, "interleave", "none") != "none":
        return None
    return Through(tensor_map.swizzle, tensor_map.dtype)


def of_descriptor(word: int, element: str, tile: SharedTile) -> Through:
    """Return how MMAs read an operand."""
    descriptor = GmmaDescriptor.decode(word)
    swizzle = descriptor.swizzle
    return Through(swizzle, element, "" if swizzle == "INTER" else _fault(descriptor, tile))


def _fault(descriptor: GmmaDescriptor, tile: SharedTile) -> str:
    """Say what a descriptor with a swizzle can't mean.

    Examples
    --------
    >>> steps = [GmmaDescriptor(start, 16, 1024, layout_type=1) for start in (0, 32, 64, 96)]
    >>> [bool(_fault(step, SharedTile("K", 64, 16, 16))) for step in steps]
    [False, False, False, False]
    >>> [bool(_fault(step, SharedTile("MN", 64, 16, 16))) for step in steps]
    [False, True, True, True]
    >>> _fault(GmmaDescriptor(0, 16, 512, layout_type=1), SharedTile("K", 64, 16, 16))
    'the descriptor strides by 512 bytes, no multiple of the 1024 of a pattern: it reads rows twice, or misses them'
    """
    row_bytes, is_k = span_bytes(descriptor.swizzle), tile.major == "K"
    pattern_bytes = 8 * row_bytes
    run_bytes = (tile.k if is_k else tile.extent) * tile.bits // 8
    into = descriptor.start_address % row_bytes
    if into + min(run_bytes, row_bytes) > row_bytes:
        return (
            f"the MMA begins {into} bytes into a row of {row_bytes}, and reads on into the next: the major that it "
            "names, or the step from one descriptor to the next, is not the tile's"
        )
    strides = [descriptor.sbo] if (tile.extent if is_k else tile.k) > 8 else []
    strides += [descriptor.lbo] if run_bytes > row_bytes else []
    for stride in strides:
        if stride % pattern_bytes:
            return (
                f"the descriptor strides by {stride} bytes, no multiple of the {pattern_bytes} of a pattern: it reads "
                "rows twice, or misses them"
            )
    return ""


def misread(written: Through, read: Through, addresses: Array) -> str | None:
    """Return what kind of mistake it is to read some bytes so that were written otherwise; None if it is none.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.arange(0, 1024, 16)
    >>> misread(Through("SW64", "f16"), Through("SW128", "f16"), rows)
    'layout-mismatch'
    >>> misread(Through("SW64", "f16"), Through("SW128", "f16"), rows[:8]) is None
    True
    >>> misread(Through("SW128", "bf16"), Through("SW128", "f16"), rows)
    'type-mismatch'
    """
    if written.swizzle != read.swizzle:
        by_writer: Any = byte_swizzle(written.swizzle)
        by_reader: Any = byte_swizzle(read.swizzle)
        if bool((by_writer(addresses) != by_reader(addresses)).any()):
            return "layout-mismatch"
    elif read.fault:
        return "layout-mismatch"
    if written.element != read.element and {written.element, read.element} <= set(_SIXTEEN_BITS):
        return "type-mismatch"
    return None


def described(written: Through, read: Through) -> str:
    """Say what differs."""
    if written.swizzle != read.swizzle:
        return (
            f"it was written through {written.swizzle}, and is read through {read.swizzle}: both must name one swizzle"
        )
    if read.fault:
        return read.fault
    return f"it was written as {written.element}, and is read as {read.element}"
