"""Tensor memory as a layout space: 128 lanes of 512 columns of 32 bits, and where tcgen05.mma keeps its matrices.

References
----------
PTX ISA, "Tensor Memory", "Data Path Layout Organization" (layouts A to G), "Block Scaling". CuTe
``atom/mma_traits_sm100.hpp``: ``tmem_frg``, ``tmem_frg_ws``, ``tmem_sf_frg``, ``tmem_e_frg``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..arguments import integer
from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Grid
from ..int_tuple import flatten_to_tuple
from ..layout import Layout
from ..writer import to_text
from .arch import TMEM_COLUMN_BITS, TMEM_COLUMNS, TMEM_LANE_SHIFT, TMEM_LANES, TMEM_QUARTER_LANES
from .kinds import check_choice, check_cta_group

_COLUMN_MASK = (1 << TMEM_LANE_SHIFT) - 1


class TmemPlace(NamedTuple):
    """Place of an element in tensor memory.

    Attributes
    ----------
    lane, column : int
    bit : int
        First bit of the element within the 32 bits of its column.
    """

    lane: int
    column: int
    bit: int = 0

    @property
    def address(self) -> int:
        """The address as tcgen05 takes it: lane in bits 16 and on, column below.

        Examples
        --------
        >>> hex(TmemPlace(32, 5).address)
        '0x200005'
        """
        return self.lane << TMEM_LANE_SHIFT | self.column

    @classmethod
    def of_address(cls, address: int) -> TmemPlace:
        """Return the place of an address; bits 30 and 31, of an address of scale factors, name its byte.

        Examples
        --------
        >>> TmemPlace.of_address(0x80200005)
        TmemPlace(lane=32, column=5, bit=16)
        """
        lane = address >> TMEM_LANE_SHIFT & 0x3FFF
        return cls(lane, address & _COLUMN_MASK, (address >> 30 & 3) * 8)


def lane_stride(bits: int) -> int:
    """Return the stride from lane to lane in elements: CuTe's ``TMEM::DP<T>``.

    Examples
    --------
    >>> lane_stride(32), lane_stride(16), lane_stride(8)
    (65536, 131072, 262144)
    """
    return (TMEM_COLUMN_BITS << TMEM_LANE_SHIFT) // bits


@dataclass(frozen=True)
class TmemTensor(Drawable):
    """Tensor in one CTA's tensor memory: coordinate -> place of the element.

    Parameters
    ----------
    layout : Layout
        Coordinate -> offset in elements, as CuTe has it: lanes are `lane_stride` elements apart.
    bits : int
        Width of an element.
    name : str
        Title of pictures.
    modes : (str, str)
        Names of the layout's modes.

    Raises
    ------
    LayoutError
        If an element lies beyond the 128 lanes or the 512 columns.

    Examples
    --------
    >>> d = tmem_accumulator(64, 128)
    >>> print(d.layout, d.columns)
    ((16,4),128):((65536,2097152),1) 128
    >>> d.place((17, 5))
    TmemPlace(lane=33, column=5, bit=0)
    """

    layout: Layout
    bits: int
    name: str = field(default="tensor memory", kw_only=True, compare=False)
    modes: tuple[str, str] = field(default=("mode 0", "mode 1"), kw_only=True, compare=False)

    def __post_init__(self) -> None:
        stride = lane_stride(self.bits)
        mixed = [step for step in flatten_to_tuple(self.layout.stride) if step >= stride and step % stride]
        if mixed:
            raise self._error(f"a stride of {mixed[0]} is neither whole lanes, of {stride} each, nor within one")
        lanes = 1 + self._last(lambda step: step >= stride) // stride
        if lanes > TMEM_LANES:
            raise self._error(f"lanes end at {TMEM_LANES - 1}, but an element lies in lane {lanes - 1}")
        if self.columns > TMEM_COLUMNS:
            raise self._error(f"a lane has {TMEM_COLUMNS} columns, but the tensor takes {self.columns}")

    def _last(self, chosen: Callable[[int], bool]) -> int:
        """Return the offset of the last element, of those modes whose stride is chosen."""
        shape, stride = flatten_to_tuple(self.layout.shape), flatten_to_tuple(self.layout.stride)
        return sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True) if chosen(step))

    def _error(self, condition: str, hint: str = "") -> LayoutError:
        return LayoutError("TmemTensor", (self.layout, self.bits), condition, hint)

    def _place(self, offset: int) -> TmemPlace:
        lane, within = divmod(offset, lane_stride(self.bits))
        column, bit = divmod(within * self.bits, TMEM_COLUMN_BITS)
        return TmemPlace(lane, column, bit)

    def place(self, coordinate: Any) -> TmemPlace:  # noqa: ANN401 - IntTuple
        """Return the place of the element at a coordinate or an index."""
        return self._place(self.layout(coordinate))

    @property
    def columns(self) -> int:
        """Columns from 0 to the last that the tensor takes."""
        last = self._last(lambda step: step < lane_stride(self.bits))
        return 1 + last * self.bits // TMEM_COLUMN_BITS

    def _picture_(self) -> Grid:
        """Draw tensor memory, lanes down and columns across, with the coordinate of each element."""
        from .pictures import tmem_tensor_grid

        return tmem_tensor_grid(self)

    def __str__(self) -> str:
        return f"{self.name}: {to_text(self.layout)}, {self.bits} bits"


def tmem_accumulator(m: int, n: int, *, bits: int = 32, cta_group: int = 1, ws: bool = False) -> TmemTensor:
    """Return the place of a CTA's part of D: (m, n) -> lane and column, each element in a column of its own.

    Parameters
    ----------
    m, n : int
        Extents of D; of a pair of CTAs, of both: each keeps m/2 rows.
    bits : int
        Width of an element, 16 or 32: those of 16 bits lie in the low halves of their columns.
    cta_group : int
        1 or 2.
    ws : bool
        D of ``tcgen05.mma.ws``.

    Returns
    -------
    TmemTensor
        (rows of this CTA, N).

    Raises
    ------
    LayoutError
        If no MMA has these extents.

    Examples
    --------
    M = 128 takes a lane for each row; M = 64 half the lanes of each quarter; 64 rows of a pair's 128, and of
    ``.ws``, take half of the columns, and the other half of N lies 64 lanes on.

    >>> for said in ({"m": 128}, {"m": 64}, {"m": 128, "cta_group": 2}, {"m": 32, "ws": True}):
    ...     print(tmem_accumulator(n=64, **said).layout)
    (128,64):(65536,1)
    ((16,4),64):((65536,2097152),1)
    (64,(32,2)):(65536,(1,4194304))
    (32,(16,4)):(65536,(1,2097152))
    """
    operation, operands = "tmem_accumulator", (m, n)
    m, n = integer(operation, "m", m), integer(operation, "n", n)
    check_cta_group(operation, operands, cta_group)
    if bits not in (16, 32):
        raise LayoutError(operation, operands, f"bits must be 16 or 32, got {bits!r}")
    if ws and cta_group == 2:
        raise LayoutError(operation, operands, "tcgen05.mma.ws runs in one CTA, got cta_group 2")
    check_choice(operation, operands, "m", m, (32, 64, 128) if ws else (64, 128) if cta_group == 1 else (128, 256))
    step = 64 if ws else 8 * cta_group
    check_choice(operation, operands, "n", n, (64, 128, 256) if ws else range(step, 257, step))
    lane, column = lane_stride(bits), TMEM_COLUMN_BITS // bits
    rows = m // cta_group
    if rows == 64 and not ws and cta_group == 1:
        layout = Layout(((16, 4), n), ((lane, 32 * lane), column))
    elif rows == TMEM_LANES:
        layout = Layout((rows, n), (lane, column))
    else:
        parts = TMEM_LANES // rows
        layout = Layout((rows, (n // parts, parts)), (lane, (column, rows * lane)))
    pair = " of a pair's CTA" if cta_group == 2 else ""
    return TmemTensor(layout, bits, name=f"D{pair}, {m}x{n}{', ws' if ws else ''}", modes=("M", "N"))


def tmem_operand(m: int, k: int, *, bits: int, cta_group: int = 1) -> TmemTensor:
    """Return the place of a CTA's part of A in tensor memory: (m, k) -> lane, column and bit, packed along K.

    Elements of 4 and 6 bits of ``.kind::f8f6f4`` take 8 bits each: pass 8. Of a pair's 128 rows each CTA has 64, twice,
    for the two halves of N: rows 64 to 127 of the layout repeat rows 0 to 63.

    Parameters
    ----------
    m, k : int
        Extents of A; of a pair of CTAs, of both.
    bits : int
        Bits between elements: 4, 8, 16 or 32.
    cta_group : int
        1 or 2.

    Raises
    ------
    LayoutError
        If no MMA has these extents.

    Examples
    --------
    >>> print(tmem_operand(128, 16, bits=16).layout, tmem_operand(128, 16, bits=16).columns)
    (128,16):(131072,1) 8
    >>> print(tmem_operand(64, 16, bits=16).layout)
    ((16,4),16):((131072,4194304),1)
    """
    operation, operands = "tmem_operand", (m, k)
    m, k = integer(operation, "m", m), integer(operation, "k", k)
    check_cta_group(operation, operands, cta_group)
    check_choice(operation, operands, "m", m, (64, 128) if cta_group == 1 else (128, 256))
    check_choice(operation, operands, "bits", integer(operation, "bits", bits), (4, 8, 16, 32))
    if k < 1 or k * bits % TMEM_COLUMN_BITS:
        raise LayoutError(operation, operands, f"k elements of {bits} bits must fill whole columns of 32, got {k}")
    lane = lane_stride(bits)
    rows = m // cta_group
    if rows == TMEM_LANES or cta_group == 2:
        layout = Layout((TMEM_LANES, k), (lane, 1))
    else:
        layout = Layout(((16, 4), k), ((lane, 32 * lane), 1))
    return TmemTensor(layout, bits, name=f"A, {m}x{k}", modes=("M", "K"))


def tmem_scale_factors(rows: int, count: int, *, vector: int = 32, halves: bool = False) -> TmemTensor:
    """Return the place of scale factors: (row, k) -> lane, column and bit.

    Row r lies in lane r % 32 of each quarter and in column r // 32; the factors along K are the bytes of the column,
    and beyond four of them of the columns behind. The modes are CuTe's: row and quarter; elements that share a factor,
    and factors.

    Parameters
    ----------
    rows : int
        Rows of A, or of B (N, of both CTAs of a pair); taken up to a multiple of 32.
    count : int
        Factors of a row: 1, 2, 3, or a multiple of 4.
    vector : int
        Elements along K that share a factor, of which the layout's mode has stride 0.
    halves : bool
        The scale factors of B where a CTA of a pair has 64 rows of D: half of the rows in lanes 0 to 63, half in 64 to
        127.

    Raises
    ------
    LayoutError
        If an argument is none of these.

    Examples
    --------
    >>> print(tmem_scale_factors(128, 4, vector=16).layout)
    (((32,4),4),(16,4)):(((262144,4),8388608),(0,1))
    >>> tmem_scale_factors(128, 4).place((70, 32 * 3))
    TmemPlace(lane=6, column=2, bit=24)
    """
    operation, operands = "tmem_scale_factors", (rows, count)
    rows, count = integer(operation, "rows", rows), integer(operation, "count", count)
    check_choice(operation, operands, "vector", integer(operation, "vector", vector), (16, 32, 64))
    if not 1 <= rows <= 256:
        raise LayoutError(operation, operands, f"rows must be 1 to 256, got {rows}")
    if count not in (1, 2, 3) and (count < 4 or count % 4):
        raise LayoutError(
            operation,
            operands,
            f"count must be 1, 2, 3 or a multiple of 4, got {count}",
            "an MMA of K = 96 takes part of whole columns: ask for those",
        )
    lane = lane_stride(8)
    blocks = -(-rows // TMEM_QUARTER_LANES)
    if halves and blocks % 2:
        raise LayoutError(operation, operands, f"rows must be a multiple of 64 to lie in halves, got {rows}")
    within: Any = count if count < 4 else (4, count // 4) if count > 4 else 4
    each = blocks // 2 if halves else blocks
    steps: Any = (1, 4 * each) if isinstance(within, tuple) else 1
    if halves:
        row = Layout(((32, each), 2, 2), ((lane, 4), 64 * lane, 32 * lane))
    else:
        row = Layout(((32, each), 4), ((lane, 4), 32 * lane))
    layout = Layout((row.shape, (vector, within)), (row.stride, (0, steps)))
    return TmemTensor(layout, 8, name=f"scale factors, {rows} rows of {count}", modes=("row", "K"))


def tmem_metadata(a_bits: int, *, m: int = TMEM_LANES) -> TmemTensor:
    """Return the place of a sparse A's metadata, the rows of one MMA in a CTA: (m, k) -> lane, column and bit.

    An element of A has 2 bits where A is tf32, 1 bit of 16 or 8 bits, and half a bit where A is fp4, of which two
    neighbours share one: the metadata of a chunk of elements are the bits of all its elements together.

    Parameters
    ----------
    a_bits : int
        Bits between elements of A: 4, 8, 16 or 32.
    m : int
        Rows of this CTA, 128 or 64: 64 take half of the lanes of each quarter, as in D.

    Raises
    ------
    LayoutError
        If there is no such A.

    Examples
    --------
    Two rows share a lane where A has 16 or 32 bits: 8 lanes for half of K, and the next 8 for the other half.

    >>> print(tmem_metadata(16).layout)
    ((8,2,8),(16,2)):((2097152,16,33554432),(1,16777216))
    >>> tmem_metadata(16).place((8, 16)), tmem_metadata(8).place((8, 16))
    (TmemPlace(lane=8, column=0, bit=16), TmemPlace(lane=8, column=0, bit=16))
    >>> tmem_metadata(8, m=64).place((17, 0))
    TmemPlace(lane=33, column=0, bit=0)

    References
    ----------
    CuTe ``atom/mma_traits_sm100.hpp``, ``tmem_e_frg``. PTX ISA, "Sparse Matrices" of tcgen05, and its "Alignment
    restriction": the metadata of 64 rows lie in the lanes of D.
    """
    operation, operands = "tmem_metadata", (a_bits,)
    check_choice(operation, operands, "a_bits", integer(operation, "a_bits", a_bits), (4, 8, 16, 32))
    check_choice(operation, operands, "m", integer(operation, "m", m), (64, TMEM_LANES))
    k = 2 * 256 // a_bits
    bits = 2 if a_bits == 32 else 1
    lane = lane_stride(bits)
    blocks, block = m // 16, lane * (TMEM_LANES // (m // 16))
    along: Any = ((2, k // 2), (0, 1)) if a_bits == 4 else (k, 1)
    if a_bits >= 16:
        half = k // 2
        layout = Layout(((8, 2, blocks), (half, 2)), ((lane, half, block), (1, 8 * lane)))
    elif m == TMEM_LANES:
        layout = Layout((m, along[0]), (lane, along[1]))
    else:
        layout = Layout(((16, blocks), along[0]), ((lane, block), along[1]))
    return TmemTensor(layout, bits, name=f"metadata of a sparse A, {m}x{k}", modes=("M", "K"))
