"""ldmatrix and stmatrix: the thread that holds each bit of 8x8 matrices, and the lane that addresses each row.

References
----------
PTX ISA, "ldmatrix" and "stmatrix". CuTe ``atom/copy_traits_sm75.hpp`` and ``atom/copy_traits_sm90.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import integer
from ..basis import E
from ..errors import LayoutError
from ..grids.grid import Picture
from ..layout import Layout
from .arch import WARP_THREADS
from .traits import CopyTraits

MATRIX_BITS = 8 * 8 * 16
"""Bits of an 8x8 matrix of 16-bit elements."""

ROW_BITS = 8 * 16
"""Bits of a matrix row: the 16 bytes that one lane addresses."""


@dataclass(frozen=True)
class MatrixCopyTraits(CopyTraits):
    """CuTe's ``Copy_Traits`` of one ldmatrix or stmatrix instruction.

    The layouts map (thread, bit) to a bit of the matrices, stored one after another, row by row. A lane's bits on
    the shared-memory side are the row that it addresses; x1 and x2 use the addresses of the first 8 or 16 lanes, and
    the others repeat them.

    Parameters
    ----------
    name : str
        CuTe's name of the atom.
    thr_id : Layout
        Index within the warp -> thread.
    src_layout, dst_layout : Layout
        (thread, bit) -> bit, of the side that is read and the side that is written.
    ref_layout : Layout
        The register side, after which CuTe tiles the copy.
    num_matrices : int
        1, 2 or 4.
    transpose : bool
        True if registers hold columns in place of rows.

    Examples
    --------
    >>> print(ldmatrix_traits(4).in_elements(16).dst_layout)
    (32,(2,4)):(2,(1,64))
    """

    num_matrices: int
    transpose: bool

    def _picture_(self, *, bits: int = 16) -> Picture:
        """Draw the row that each lane addresses, and its registers' contents, in elements of `bits` bits."""
        from .pictures import matrix_copy_picture

        return matrix_copy_picture(self, bits)


def ldmatrix_traits(num_matrices: int, *, transpose: bool = False) -> MatrixCopyTraits:
    """Return the traits of ``ldmatrix.x1``, ``.x2`` or ``.x4``: shared memory to registers.

    Parameters
    ----------
    num_matrices : int
        1, 2 or 4.
    transpose : bool
        ``.trans``: a thread gets two neighbours of a column in place of two of a row.

    Raises
    ------
    LayoutError
        If the number of matrices is another.

    Examples
    --------
    >>> traits = ldmatrix_traits(4)
    >>> print(traits.name, traits.src_layout, traits.dst_layout)
    SM75_U32x4_LDSM_N (32,128):(128,1) (32,(32,4)):(32,(1,1024))
    """
    smem, registers = _sides("ldmatrix_traits", num_matrices, transpose)
    name = f"SM75_U16x{2 * num_matrices}_LDSM_T" if transpose else f"SM75_U32x{num_matrices}_LDSM_N"
    return MatrixCopyTraits(name, Layout(WARP_THREADS), smem, registers, registers, num_matrices, transpose)


def stmatrix_traits(num_matrices: int, *, transpose: bool = False) -> MatrixCopyTraits:
    """Return the traits of ``stmatrix.x1``, ``.x2`` or ``.x4``: registers to shared memory.

    Parameters
    ----------
    num_matrices : int
        1, 2 or 4.
    transpose : bool
        ``.trans``: a thread's two neighbours go to a column in place of a row.

    Raises
    ------
    LayoutError
        If the number of matrices is another.

    Examples
    --------
    >>> traits = stmatrix_traits(2, transpose=True)
    >>> print(traits.name, traits.src_layout)
    SM90_U16x4_STSM_T ((4,8),(16,2,2)):((256,16),(1,128,1024))
    """
    smem, registers = _sides("stmatrix_traits", num_matrices, transpose)
    name = f"SM90_U16x{2 * num_matrices}_STSM_T" if transpose else f"SM90_U32x{num_matrices}_STSM_N"
    return MatrixCopyTraits(name, Layout(WARP_THREADS), registers, smem, registers, num_matrices, transpose)


def accumulator_row_layout(num_matrices: int, *, transpose: bool = False) -> Layout:
    """Return the address of each lane when stmatrix stores a wgmma accumulator: lane -> coordinate (m, n).

    A warp's accumulator, converted to 16 bits, is 16 rows of 8x8 blocks; registers of the blocks down and then
    across are the matrices of one instruction, x2 a block column, x4 two. Lane ``l`` addresses row ``l % 8`` of
    matrix ``l // 8``: in a row-major tile of shared memory the 8 elements to the right of (m, n); with `transpose`,
    in a column-major one, the 8 elements below it.

    Parameters
    ----------
    num_matrices : int
        1, 2 or 4.
    transpose : bool
        True if ``.trans`` is used, for a column-major tile.

    Examples
    --------
    >>> print(accumulator_row_layout(4))
    (8,2,2):(1@0,8@0,8@1)
    >>> accumulator_row_layout(4)(17)
    (1, 8)
    >>> accumulator_row_layout(4, transpose=True)(17)
    (0, 9)
    """
    _check("accumulator_row_layout", num_matrices, transpose)
    row, column = E(0), E(1)
    matrices = {1: (1, 1), 2: (2, 1), 4: (2, 2)}[num_matrices]
    return Layout((8, *matrices), (column if transpose else row, 8 * row, 8 * column))


def _sides(operation: str, num_matrices: int, transpose: bool) -> tuple[Layout, Layout]:
    """Return (thread, bit) -> bit of the shared-memory side and of the register side."""
    _check(operation, num_matrices, transpose)
    lanes = 8 * num_matrices
    smem = Layout((lanes, ROW_BITS), (ROW_BITS, 1))
    if lanes < WARP_THREADS:
        smem = Layout(((lanes, WARP_THREADS // lanes), ROW_BITS), ((ROW_BITS, 0), 1))
    if transpose:
        values: tuple[int, ...] = (16, 2)
        strides: tuple[int, ...] = (1, ROW_BITS)
        threads, thread_strides = (4, 8), (2 * ROW_BITS, 16)
        if num_matrices > 1:
            values, strides = (*values, num_matrices), (*strides, MATRIX_BITS)
        return smem, Layout((threads, values), (thread_strides, strides))
    if num_matrices == 1:
        return smem, Layout((WARP_THREADS, 32), (32, 1))
    return smem, Layout((WARP_THREADS, (32, num_matrices)), (32, (1, MATRIX_BITS)))


def _check(operation: str, num_matrices: int, transpose: bool) -> None:
    num_matrices = integer(operation, "num_matrices", num_matrices)
    if num_matrices not in (1, 2, 4):
        raise LayoutError(operation, (num_matrices, transpose), f"1, 2 or 4 matrices a time, got {num_matrices}")
