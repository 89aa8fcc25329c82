"""Layout mismatches: a copy writes bytes by a tensor map, and MMAs or another copy read them by another layout.

A tensor map and a matrix descriptor both assign a row, and a place in that row, to each byte. A copy writes the rows of
its box one after the other; a row has the inner extent of the box. An MMA reads patterns of 8 rows, or of 4 rows with
atoms of 32 bytes; a row has the width of the swizzle, or 16 bytes without one. Both then permute the units of 16 bytes
by a function of their address bits. The two agree if each unit of a pattern is read at the row and place at which it
was written, up to one shift of the whole pattern. So all tiles, and all steps within them, agree, and any two that
differ in the length of a row or in the swizzle do not. Three cases are exempt. Bytes that threads write may lie in any
order. A box of one row without a swizzle has no rows to compare. If a copy reads bytes of another copy, which may
divide rows otherwise, only the swizzles are compared.

A pattern is 8 rows of 32, 64 or 128 bytes, or 4 rows of 128 bytes, in which elements along the major mode are
neighbours. An MMA that begins within a row and reads beyond its end gets elements of the next row instead. That happens
if an instruction names another major than the tile has, and steps from MMA to MMA along the major of the tile. If the
MMA begins at the start of a row, it reads the tile transposed. That may be meant, as for V in attention, so it is not
reported. Strides lead from pattern to pattern: with a stride that is no multiple of the pattern, an MMA reads rows
twice or misses rows.

References
----------
PTX ISA, "Tensors: Swizzling Modes"; "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cutepy.layouts.hardware import pattern_rows
from cutepy.layouts.sm90 import GmmaDescriptor, Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import DTYPE_BITS, AnySwizzleMode, span_bytes
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.layouts.sm100 import SmemDescriptor
from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.lanes import Array
from cutepy.sim.translate.wgmma_shapes import SharedTile

_TF32 = ("f32", "f32.ftz", "tf32", "tf32.ftz")
_BITS_OF_ANY = ("u8", "u16", "u32", "u64")


class AccessLayout(NamedTuple):
    """Layout through which bytes are read or written.

    Attributes
    ----------
    swizzle : "INTER", "SW32", "SW64", "SW128" or "SW128_32B"
    element : str
        A type of PTX.
    start : int
        Start of the tile in shared memory.
    row_bytes : int
        From one row to the next.
    rows : int
        Of a box; 0 of an MMA's operand, whose patterns have 8 or 4 each.
    fault : Diagnosis or None
        Error of a descriptor, for any writer of the bytes; empty if there is none.
    tensor : int
        The address in global memory of a map's tensor; 0 of a descriptor.
    strides : (int, int)
        Of a descriptor, the leading one and the other, in bytes.
    has_gaps : bool
        True if a K-major operand with a swizzle leaves out bytes from one 8 rows to the next.
    is_matrix : bool
        True if a box has rows along one mode only.
    """

    swizzle: AnySwizzleMode
    element: str
    start: int
    row_bytes: int
    rows: int = 0
    fault: Diagnosis | None = None
    tensor: int = 0
    strides: tuple[int, int] = (0, 0)
    has_gaps: bool = False
    is_matrix: bool = False


class Span(NamedTuple):
    """Granules of an access, (start, end) among those of a CTA, with their layouts by CTA or for all."""

    start: int
    end: int
    through: tuple[AccessLayout, ...]


def of_map(tensor_map: TensorMap | Im2colTensorMap, start: int) -> AccessLayout | None:
    """Return how a copy orders a box at an address; None where it interleaves channels."""
    if getattr(tensor_map, "interleave", "none") != "none":
        return None
    row_bytes = tensor_map.box_elems[0] * tensor_map.bits // 8
    rows = tensor_map.box_bytes // row_bytes
    is_matrix = rows == max(tensor_map.box_elems[1:], default=0)
    tensor = tensor_map.global_address
    return AccessLayout(
        tensor_map.swizzle, tensor_map.dtype, start, row_bytes, rows, tensor=tensor, is_matrix=is_matrix
    )


def of_descriptor(word: int, element: str, tile: SharedTile) -> AccessLayout:
    """Return how wgmma reads an operand."""
    descriptor = GmmaDescriptor.decode(word)
    return _through(descriptor, element, tile)


def of_umma(word: int, element: str, tile: SharedTile) -> AccessLayout | None:
    """Return how tcgen05.mma reads an operand; None of one with addresses as strides, or narrow."""
    descriptor = SmemDescriptor.decode(word)
    if descriptor.lbo_mode or element not in DTYPE_BITS or DTYPE_BITS[element] != tile.bits:
        return None
    return _through(descriptor, element, tile)


def _through(descriptor: GmmaDescriptor | SmemDescriptor, element: str, tile: SharedTile) -> AccessLayout:
    swizzle = descriptor.swizzle
    fault = None if swizzle == "INTER" else _fault(descriptor, tile)
    row_bytes, strides = span_bytes(swizzle), (descriptor.lbo, descriptor.sbo)
    is_sparse = swizzle != "INTER" and tile.major == "K" and tile.extent > 8 and descriptor.sbo > 8 * row_bytes
    return AccessLayout(
        swizzle, element, descriptor.start_address, row_bytes, fault=fault, strides=strides, has_gaps=is_sparse
    )


def _fault(descriptor: GmmaDescriptor | SmemDescriptor, tile: SharedTile) -> Diagnosis | None:
    """Describe the fault of a descriptor with a swizzle.

    Examples
    --------
    >>> steps = [GmmaDescriptor(start, 16, 1024, layout_type=1) for start in (0, 32, 64, 96)]
    >>> [bool(_fault(step, SharedTile("K", 64, 16, 16))) for step in steps]
    [False, False, False, False]
    >>> [bool(_fault(step, SharedTile("MN", 64, 16, 16))) for step in steps]
    [False, True, True, True]
    >>> print(_fault(GmmaDescriptor(0, 16, 512, layout_type=1), SharedTile("K", 64, 16, 16)))
    the descriptor strides by 512 bytes, no multiple of the 1024 of a pattern: it reads rows twice, or misses them
    """
    row_bytes, is_k = span_bytes(descriptor.swizzle), tile.major == "K"
    rows = pattern_rows(descriptor.swizzle)
    pattern_bytes = rows * row_bytes
    run_bytes = (tile.k if is_k else tile.extent) * tile.bits // 8
    into = descriptor.start_address % row_bytes
    if into + min(run_bytes, row_bytes) > row_bytes:
        return Diagnosis("mma-crosses-rows", offset=into, row=row_bytes)
    strides = [descriptor.sbo] if (tile.extent if is_k else tile.k) > rows else []
    strides += [descriptor.lbo] if run_bytes > row_bytes else []
    for stride in strides:
        if stride % pattern_bytes or not stride:
            return Diagnosis("stride-of-no-pattern", stride=stride, pattern=pattern_bytes)
    return None


def agree(written: AccessLayout, read: AccessLayout) -> bool:
    """Return whether bytes written through one layout can never be misread through another, at any address."""
    same_rows = written.row_bytes == read.row_bytes or bool(read.rows)
    return written.swizzle == read.swizzle and same_rows and not read.fault and _is_one_type(written, read)


def misread(written: AccessLayout, read: AccessLayout, addresses: Array) -> str | None:
    """Return the kind of mistake of reading bytes through another layout than they were written; None if it is none.

    Examples
    --------
    >>> units = np.arange(0, 1024, 16)
    >>> sw128, sw64, none = (of_map(TensorMap("f16", (64, 64), (128,), (n, 8), swizzle=s), 0) for n, s in
    ...                      ((64, "SW128"), (32, "SW64"), (64, "INTER")))
    >>> operand = AccessLayout("SW128", "f16", 0, 128)
    >>> [misread(box, operand, units) for box in (sw128, sw64, none)]
    [None, 'layout-mismatch', 'layout-mismatch']

    The first 64 bytes of rows of 128, as the strides of the wider swizzle reach them:

    >>> misread(sw128, AccessLayout("SW64", "f16", 0, 64), units[units // 64 % 2 == 0])
    'layout-mismatch'
    >>> misread(sw128, operand._replace(element="bf16"), units)
    'type-mismatch'
    >>> tf32 = operand._replace(element="tf32")
    >>> [misread(sw128._replace(element=one), tf32, units) for one in ("f32", "u32", "s32", "f16")]
    [None, None, 'type-mismatch', 'type-mismatch']
    """
    if read.rows:
        differs = written.swizzle != read.swizzle and _permute_otherwise(written.swizzle, read.swizzle, addresses)
    elif written.swizzle == read.swizzle == "INTER":  # bytes one after the other, whatever rows the map sees in them
        differs = False
    else:
        differs = bool(read.fault) or _lie_otherwise(written, read, addresses)
    if differs:
        return "layout-mismatch"
    return None if _is_one_type(written, read) else "type-mismatch"


def _permute_otherwise(first: AnySwizzleMode, second: AnySwizzleMode, addresses: Array) -> bool:
    by_first: Any = byte_swizzle(first)  # bit operations, which arrays have too
    by_second: Any = byte_swizzle(second)
    return bool((by_first(addresses) != by_second(addresses)).any())


def _lie_otherwise(written: AccessLayout, read: AccessLayout, addresses: Array) -> bool:
    """Tell whether rows, or places in them, are not those that were written, shifted, in some pattern that is read."""
    by_writer: Any = byte_swizzle(written.swizzle)
    by_reader: Any = byte_swizzle(read.swizzle)
    row, place = np.divmod(by_reader(addresses), read.row_bytes)
    written_row, written_place = np.divmod(by_writer(addresses) - written.start, written.row_bytes)
    pattern = (row - read.start // read.row_bytes) // pattern_rows(read.swizzle)
    _, first, of = np.unique(pattern, return_index=True, return_inverse=True)
    shifts = np.stack([written_row - row, written_place - place])
    return bool((shifts != shifts[:, first[of]]).any())


def _is_one_type(written: AccessLayout, read: AccessLayout) -> bool:
    """Return whether elements are read as they were written: unsigned ones of one size are bits of any type."""
    one, other = written.element, read.element
    if one == other or "b1" in (one, other) or (one in _TF32 and other in _TF32):
        return True
    unsigned = one in _BITS_OF_ANY or (bool(read.rows) and other in _BITS_OF_ANY)
    return unsigned and DTYPE_BITS[one] == DTYPE_BITS[other]


def described(written: AccessLayout, read: AccessLayout) -> Diagnosis:
    """Describe the difference."""
    if written.swizzle != read.swizzle:
        return Diagnosis("other-swizzle", written=written.swizzle, read=read.swizzle)
    if read.fault:
        return read.fault
    if written.row_bytes != read.row_bytes and not read.rows and (written.rows > 1 or read.swizzle != "INTER"):
        return Diagnosis("other-row-length", written=written.row_bytes, read=read.row_bytes)
    return Diagnosis("other-element-type", written=written.element, read=read.element)
