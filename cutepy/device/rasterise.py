"""Order the output tiles so that those in flight at one time share operands in L2.

The functions do integer arithmetic only (`+ - * // %` and one `minimum`), so the same source computes with
Python integers on the host, where tests prove that it is a bijection, and with traced 32-bit integers on the
device.
"""

from collections.abc import Callable, Sequence


def tile_of(
    index: int, rows: int, columns: int, band_rows: int, minimum: Callable[[int, int], int] = min
) -> tuple[int, int]:
    """Map a linear tile index to (row, column), sweeping bands of `band_rows` rows column by column.

    A bijection [0, rows * columns) -> [0, rows) x [0, columns). Consecutive indices go down a band's column, then
    to the next column, so a wave of 132 tiles covers about band_rows x (132 / band_rows) tiles: its operands are
    a few row and column panels, which L2 serves to all of them. The last band may have fewer rows.

    Examples
    --------
    >>> [tile_of(i, 3, 2, 2) for i in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    tiles_per_band = columns * band_rows
    band = index // tiles_per_band
    within = index % tiles_per_band
    height = minimum(rows - band * band_rows, band_rows)
    return band * band_rows + within % height, within // height


def coordinates_of(index: int, extents: Sequence[int]) -> tuple[int, ...]:
    """Map a linear index to coordinates, the last one running fastest.

    A bijection from [0, the product of `extents`).

    Examples
    --------
    >>> [coordinates_of(i, (2, 3)) for i in range(6)]
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    """
    if len(extents) == 1:
        return (index,)
    return (*coordinates_of(index // extents[-1], extents[:-1]), index % extents[-1])
