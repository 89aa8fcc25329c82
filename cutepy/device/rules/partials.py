"""How far an epilogue subtile is parted, and reduced by one warp."""

from cutepy.device.rules.tiles import SUBTILE_COLUMNS, wgmma_tiling
from cutepy.layouts import sm90
from cutepy.layouts.sm90 import arch


def _warp_rows() -> int:
    """Count the rows of an MMA's accumulators that one warp holds, which follow one another."""
    tiling = wgmma_tiling("float16", "float16", SUBTILE_COLUMNS, 1)
    places = sm90.AccumulatorCoordinates(tiling, (arch.WGMMA_M, SUBTILE_COLUMNS))
    of_lanes = [places.of_thread(0)(lane) for lane in range(arch.WARP_THREADS)]
    rows = {first + row for first in of_lanes for row, _ in places.registers}
    assert rows == set(range(len(rows)))
    return len(rows)


PARTIAL_ROWS = _warp_rows()
"""Rows of an accumulator that one warp holds, so that it can reduce over them by itself."""


def check_widths(columns: int, widest: int) -> None:
    """Check that the columns of an accumulator subtile can be parted in turn, down to what a tile store takes.

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
    """Give the shape of what a product's partial reductions are written to: over the columns (1), rows (0), or all.

    Examples
    --------
    >>> partial_shape(1, 100, 64, 32), partial_shape(0, 100, 64, 32), partial_shape(None, 100, 64, 32)
    ((2, 100), (7, 64), (7, 2))
    """
    strips, warps = -(-n // columns), -(-m // PARTIAL_ROWS)
    return {1: (strips, m), 0: (warps, n), None: (warps, strips)}[dim]
