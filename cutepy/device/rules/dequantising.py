"""Dequantisation in shared memory: limits."""

from cutepy.layouts import sm90

SCALED_COLUMNS = 128
"""Adjoining elements of a row that share a scale."""


def quantised_tile(staged: sm90.StagedTile, warps: int) -> sm90.StagedTile:
    """Return the tile of 8-bit elements that is dequantised to one of 16 bits (rows, columns), by so many warps.

    Raises
    ------
    ValueError
        If elements are not of 16 bits, contiguous along columns in lines of 128 bytes, columns are not 1, 2 or 4
        blocks of `SCALED_COLUMNS`, or nobody is to dequantise them.

    Examples
    --------
    >>> quantised_tile(sm90.StagedTile((64, 256), 2, bits=16), 3)
    StagedTile(tile=(64, 256), stages=4, bits=8, contiguous_mode=1, swizzle='SW128')
    """
    if (staged.bits, staged.contiguous_mode, staged.swizzle) != (16, 1, "SW128"):
        raise ValueError(
            f"dequantised tiles must be of 16 bits, contiguous mode 1 and swizzle SW128, got {staged.bits} bits, mode "
            f"{staged.contiguous_mode} and {staged.swizzle}"
        )
    if staged.tile[1] not in (SCALED_COLUMNS, 2 * SCALED_COLUMNS, 4 * SCALED_COLUMNS):
        raise ValueError(
            f"dequantised tiles must have 1, 2 or 4 blocks of {SCALED_COLUMNS} columns, whose scales are read at once, "
            f"got {staged.tile[1]} columns"
        )
    if warps < 1:
        raise ValueError(f"1 warp or more must dequantise, got {warps}")
    return sm90.StagedTile(staged.tile, 2 * staged.stages, bits=8)
