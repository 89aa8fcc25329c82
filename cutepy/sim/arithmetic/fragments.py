"""Fragments of the matrices that warps multiply: which lane holds which elements, and matrices from registers.

The fragments of A and B, with M or N rows of K elements each, share one rule, and so do those of C and D: blocks of
8 x 8 accumulators, and of eight rows of four registers. The shapes of `mma.sync` differ in how many blocks there are.
Those of `wmma`, whose layouts the ISA leaves open, follow the same rules here.

References
----------
PTX ISA, "Warp Level Matrix Instructions: Matrix Fragments for mma.m8n8k4 with .f64" to "mma.m16n8k256".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.arithmetic import minifloat

Array = NDArray[Any]
WARP = 32

BITS = {"b1": 1, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16, "tf32": 32}
BITS |= {"f32": 32, "s32": 32, "f64": 64} | dict.fromkeys(minifloat.PLACES, 8)
"""Width of the elements of fragments, by PTX's names; those of 6 and 4 bits have a byte each."""
_PACKED = ("mxf4", "mxf4nvf4")
"""Kinds whose elements have 4 bits each."""

_HALF_REGISTERS = 8
"""Of A and B of wmma in f16, whatever the shape."""

_WORD = 32
_QUAD = 4


@cache
def operand_index(rows: int, k: int, bits: int) -> Array:
    """Return (lane, element) -> position in a row-major (rows, K) matrix: A, or B transposed."""
    lane = np.arange(WARP)[:, None]
    pack = max(1, _WORD // bits)
    halves = rows // 8
    register, part = np.divmod(np.arange(rows * k // WARP)[None, :], pack)
    row = lane // _QUAD + 8 * (register % halves)
    column = lane % _QUAD * pack + part + _QUAD * pack * (register // halves)
    position: Array = row * k + column
    return position


@cache
def accumulator_index(rows: int = 16, columns: int = 8) -> Array:
    """Return (lane, element) -> position in a row-major (rows, columns) matrix."""
    lane, element = np.arange(WARP)[:, None], np.arange(rows * columns // WARP)[None, :]
    block, element = np.divmod(element, rows // 4)
    row, column = lane // _QUAD + 8 * (element // 2), lane % _QUAD * 2 + element % 2
    position: Array = row * columns + column + 8 * block
    return position


@cache
def quad_pair_index(operand: str, kind: str, major: str) -> Array:
    """Return (lane, element) -> position in the matrices of mma.m8n8k4 with f16, of which a warp multiplies four.

    Lanes 4q to 4q + 3 and 16 + 4q to 16 + 4q + 3 hold the q-th: A is (8, 4), B transposed (8, 4), C (8, 8).
    """
    lane, element = np.arange(WARP)[:, None], np.arange(8 if operand == "c" else 4)[None, :]
    upper, inner, number = lane // 16 * 4, lane % 4, lane % 16 // 4
    if operand == "c" and kind == "f32":
        row = (lane & 1) + (element & 2) + upper
        return np.asarray(number * 64 + row * 8 + (element & 4) + (lane & 2) + (element & 1))
    if operand == "c":
        return np.asarray(number * 64 + (inner + upper) * 8 + element)
    # Along K are the elements of a lane where A is row-major or B column-major; if not, its lanes are.
    along_k = (major == "row") == (operand == "a")
    outer, k = (inner + upper + 0 * element, element) if along_k else (element + upper, inner + 0 * element)
    return np.asarray(number * 32 + outer * 4 + k)


def elements(words: Array, bits: int) -> Array:
    """Return the elements that 32-bit registers, along the last axis, hold."""
    words = np.ascontiguousarray(words)
    if bits >= 8:
        return words.view(f"u{bits // 8}")
    octets = words.view(np.uint8)
    if bits == 1:
        return np.unpackbits(octets, axis=-1, bitorder="little")
    nibbles = np.stack([octets & 15, octets >> 4], axis=-1)
    return nibbles.reshape(*octets.shape[:-1], -1)


def numbers(codes: Array, kind: str) -> Array:
    """Return the values of elements given as bits: float32, or float64 of that.

    Examples
    --------
    >>> numbers(np.array([0x3C00, 0xC000], np.uint16), "f16"), numbers(np.array([7, 8], np.uint8), "s4")
    (array([ 1., -2.], dtype=float32), array([ 7., -8.], dtype=float32))
    """
    if kind == "f16":
        return minifloat.f16_to_f32(codes)
    if kind == "bf16":
        return minifloat.bf16_to_f32(codes)
    if kind == "tf32":
        return np.asarray((codes & np.uint32(0xFFFFE000)).view(np.float32))
    if kind in ("e4m3", "e5m2"):
        return minifloat.table(kind)[codes]
    if kind in minifloat.PLACES:
        return minifloat.from_bytes(codes, kind)
    if kind in ("f32", "f64"):
        return np.asarray(codes.view(f"f{codes.itemsize}"))
    if kind[0] == "s":
        sign = 1 << BITS[kind] - 1
        codes = (codes.astype(np.int64) ^ sign) - sign
    return np.asarray(codes.astype(np.float32))


def placed(codes: Array, index: Array) -> Array:
    """Scatter elements of fragments, (..., lane, element), to their positions in a matrix; positions may repeat."""
    matrix = np.empty((*codes.shape[:-2], int(index.max()) + 1), codes.dtype)
    matrix[..., index] = codes[..., : index.shape[1]]
    return matrix


def packed(codes: Array) -> Array:
    """Return 32-bit registers that hold elements of whole bytes: the inverse of `elements`."""
    return np.ascontiguousarray(codes).view(np.uint32)


@dataclass(frozen=True)
class Product:
    """Shape, types and layouts of a warp's matrix multiply-accumulate.

    Attributes
    ----------
    m, n, k : int
    d, a, b, c : str
        Element types by PTX's names.
    saturate : bool
    bits : str
        "xor" or "and" for single bits, whose products are counted; empty for numbers.
    majors : (str, str)
        "row" or "col" of A and B, which is told only by mma.m8n8k4 of f16.
    selector : int or None
        Of a sparse A, which lanes give the metadata.
    kind : str
        PTX's ``.kind`` of products of sm_120; empty for others.
    scales : int
        Scale factors of a row of A, and of a column of B; 0 of products without.
    scale_type : str
        Their type, "ue8m0" or "ue4m3".
    """

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    c: str
    saturate: bool = False
    bits: str = ""
    majors: tuple[str, str] = ("row", "col")
    selector: int | None = None
    kind: str = ""
    scales: int = 0
    scale_type: str = ""

    @property
    def is_packed(self) -> bool:
        """True if elements have 4 bits each, two a byte."""
        return self.kind in _PACKED

    def element_bits(self, dtype: str) -> int:
        """Return the bits from one element of a type to the next."""
        return 4 if self.is_packed and dtype == "e2m1" else BITS[dtype]

    @property
    def in_quads(self) -> bool:
        """True if a warp multiplies four small matrices."""
        return (self.m, self.n, self.k, self.a) == (8, 8, 4, "f16")


@dataclass(frozen=True)
class Fragment:
    """A fragment in memory.

    Attributes
    ----------
    operand : str
        "a", "b", "c" or "d".
    m, n, k : int
        The shape of the product.
    kind : str
        PTX type of the elements.
    major : "row" or "col"
        Major in memory.
    """

    operand: str
    m: int
    n: int
    k: int
    kind: str
    major: str

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns; B is taken transposed, (N, K)."""
        return {"a": (self.m, self.k), "b": (self.n, self.k)}.get(self.operand, (self.m, self.n))

    @property
    def index(self) -> Array:
        """(lane, element) -> position in the row-major matrix."""
        rows, columns = self.extents
        if self.operand in "cd":
            return accumulator_index(rows, columns)
        index = operand_index(rows, columns, BITS[self.kind])
        if self.kind == "f16":
            index = np.tile(index, (1, 2 * _HALF_REGISTERS // index.shape[1]))
        return index

    @property
    def is_along_columns(self) -> bool:
        """True if elements that follow each other in memory are of one row of the matrix as it is taken here."""
        return (self.major == "row") != (self.operand == "b")

    def offsets(self, lanes: Array, stride: Array | None) -> Array:
        """Return where the elements of lanes are in memory, in elements: (CTAs, threads, element)."""
        rows, columns = self.extents
        row, column = np.divmod(self.index[lanes], columns)
        outer, inner = (row, column) if self.is_along_columns else (column, row)
        step = np.array([[columns if self.is_along_columns else rows]]) if stride is None else stride
        return np.asarray(outer * step.astype(np.int64)[..., None] + inner)
