"""Bytes that a copy writes by a tensor map, and that MMAs or another copy read through another layout.

A tensor map and a matrix descriptor both name a swizzle, which is a function of the bits of an address. Who reads a
unit of 16 bytes through another one than it was written through gets it from another place of the tile, unless both
functions take its address to the same one, as they do in the first rows. What threads write may lie in any order.

References
----------
PTX ISA, "Tensors: Swizzling Modes"; "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout".
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cutepy.layouts.sm90 import GmmaDescriptor, Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import SwizzleMode
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.sim.machine.lanes import Array

_SIXTEEN_BITS = ("f16", "bf16")


class Through(NamedTuple):
    """How bytes are read or written.

    Attributes
    ----------
    swizzle : "INTER", "SW32", "SW64" or "SW128"
    element : str
        A type of PTX.
    """

    swizzle: SwizzleMode
    element: str


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


def of_descriptor(word: int, element: str) -> Through:
    """Return how MMAs read an operand."""
    return Through(GmmaDescriptor.decode(word).swizzle, element)


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
    if written.element != read.element and {written.element, read.element} <= set(_SIXTEEN_BITS):
        return "type-mismatch"
    return None


def described(written: Through, read: Through) -> str:
    """Say what differs."""
    if written.swizzle != read.swizzle:
        return (
            f"it was written through {written.swizzle}, and is read through {read.swizzle}: both must name one swizzle"
        )
    return f"it was written as {written.element}, and is read as {read.element}"
