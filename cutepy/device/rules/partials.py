"""Parted and reduced epilogue subtiles: narrowest columns, and shapes of partial reductions."""

from cutepy.device.rules.tiles import SUBTILE_COLUMNS
from cutepy.layouts.sm90 import arch

PARTIAL_ROWS = arch.WGMMA_M * arch.WARP_THREADS // arch.WARPGROUP_THREADS
"""Rows of an accumulator in one warp, which a warp reduces over by itself."""


def check_widths(columns: int, widest: int) -> None:
    """Check that the columns of a subtile can be split repeatedly, down to the least width of a tile store.

    Raises
    ------
    ValueError
        If parts would be narrower than 8 columns.

    Examples
    --------
    >>> check_widths(32, 2)
    """
    if columns % (SUBTILE_COLUMNS * widest):
        raise ValueError(
            f"an epilogue subtile whose columns are interleaved in {widest} parts must have a multiple of "
            f"{SUBTILE_COLUMNS * widest} columns, got {columns}"
        )


def partial_shape(dim: int | None, m: int, n: int, columns: int) -> tuple[int, int]:
    """Return the shape of a product's partial reductions: over the columns (1), rows (0), or all.

    Examples
    --------
    >>> partial_shape(1, 100, 64, 32), partial_shape(0, 100, 64, 32), partial_shape(None, 100, 64, 32)
    ((2, 100), (7, 64), (7, 2))
    """
    strips, warps = -(-n // columns), -(-m // PARTIAL_ROWS)
    return {1: (strips, m), 0: (warps, n), None: (warps, strips)}[dim]
