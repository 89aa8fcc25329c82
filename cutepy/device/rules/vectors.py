"""Widths of a thread's vector copies in global memory."""

from math import gcd

from cutepy.layouts.sm90 import arch


def vector_elems(bits: int, alignment_bytes: int, row_stride: int, most: int = 0) -> int:
    """Return the elements of the widest vectors that the alignment of a tensor's address and rows allows.

    Parameters
    ----------
    bits : int
        Width of an element, whole bytes.
    alignment_bytes : int
        Known alignment of the tensor's address.
    row_stride : int
        Known divisor of the elements from row to row; 0 if there is one row.
    most : int
        No more elements than these, if not 0.

    Raises
    ------
    ValueError
        If elements are no 1, 2, 4, 8 or 16 bytes, or the address is not a multiple of theirs.

    Examples
    --------
    >>> vector_elems(16, 16, 8), vector_elems(16, 16, 2), vector_elems(8, 4, 0), vector_elems(32, 16, 0, 2)
    (8, 2, 4, 2)
    """
    if bits not in (8, 16, 32, 64, 128):
        raise ValueError(f"threads copy elements of 1, 2, 4, 8 or 16 bytes, got {bits} bits; see them as bytes")
    if alignment_bytes % (bits // 8):
        raise ValueError(
            f"a tensor of {bits}-bit elements must be at a multiple of {bits // 8} bytes, got {alignment_bytes}; "
            "declare its alignment"
        )
    elems = gcd(arch.UNIT_BITS // 8, alignment_bytes, row_stride * bits // 8) * 8 // bits
    while most and elems > most:
        elems //= 2
    return elems


def check_rows(rank: int, is_contiguous: bool) -> None:
    """Check a tensor whose rows are copied in vectors.

    Raises
    ------
    ValueError
        If the tensor is neither (columns,) nor (rows, columns), or a row is not contiguous.

    Examples
    --------
    >>> check_rows(2, True)
    """
    if rank not in (1, 2):
        raise ValueError(f"vectors are of a tensor (columns,) or (rows, columns), got rank {rank}; take one of a batch")
    if not is_contiguous:
        raise ValueError("vectors run along the contiguous mode, which must be the last, of stride 1; select the modes")


def check_vector(held: int, elems: int) -> None:
    """Check the number of values that are stored as a vector.

    Raises
    ------
    ValueError
        If they are not those of one vector.

    Examples
    --------
    >>> check_vector(8, 8)
    """
    if held != elems:
        raise ValueError(f"a vector has {elems} elements, got {held} values; store them vector by vector")


def check_row_stores(lanes: int, columns: int) -> None:
    """Check that so many lanes exchange their pairs of columns of accumulators, to store rows.

    Raises
    ------
    ValueError
        If they are not 1, 2 or 4 of the four that share a row, or the columns are no whole groups of eight for each.

    Examples
    --------
    >>> check_row_stores(2, 256)
    """
    if lanes not in (1, 2, 4):
        raise ValueError(f"1, 2 or 4 of the lanes that share a row exchange their columns, got {lanes}")
    if columns % (8 * lanes):
        raise ValueError(
            f"the columns must be a multiple of {8 * lanes} where {lanes} lanes exchange theirs, got {columns}; let "
            "fewer lanes exchange"
        )
