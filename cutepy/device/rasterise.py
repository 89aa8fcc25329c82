"""Rasterisation order of output tiles: tiles in flight at one time share operands in L2.

The functions do integer arithmetic only (`+ - * // %`, and a choice between two), so the same source computes with
Python integers on the host, where tests prove that it is a bijection, and with traced 32-bit integers on the device. On
the device a division by a variable takes some 40 dependent instructions, between the start of a kernel and its first
load, and again before its first store; so divisors may be objects that divide in another way.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Divisors(NamedTuple):
    """Divisors of tile indices: integers, or objects that divide as integers do, with the integer as `divisor`.

    Attributes
    ----------
    band : int
        Tiles of a whole band: its rows times the columns.
    last_rows : int
        Rows of the last band.
    product : int
        Tiles of a product in a batch.
    """

    band: Any
    last_rows: Any
    product: Any

    @classmethod
    def of(cls, rows: int, columns: int, band_rows: int) -> "Divisors":
        """Return the divisors for a product of a given number of rows and columns of tiles.

        Examples
        --------
        >>> Divisors.of(11, 3, 8)
        Divisors(band=24, last_rows=3, product=33)
        """
        return cls(columns * band_rows, (rows - 1) % band_rows + 1, rows * columns)


def _choose(condition: bool, x: int, y: int) -> int:
    return x if condition else y


def tile_of(
    index: int,
    rows: int,
    band_rows: int,
    divisors: Divisors,
    choose: Callable[[Any, Any, Any], Any] = _choose,
) -> tuple[int, int]:
    """Map a linear tile index to (row, column), sweeping bands of `band_rows` rows column by column.

    A bijection [0, rows * columns) -> [0, rows) x [0, columns). Consecutive indices go down a band's column, then
    to the next column, so a wave of 132 tiles covers about band_rows x (132 / band_rows) tiles: its operands are
    a few row and column panels, which L2 serves to all of them. The last band may have fewer rows.

    `divisors` are those of rows and columns; `choose` gives its second argument where the first holds, else the third.

    Examples
    --------
    >>> [tile_of(i, 3, 2, Divisors.of(3, 2, 2)) for i in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    band = index // divisors.band
    within, first = index - band * _number(divisors.band), band * band_rows
    is_whole = first + band_rows <= rows
    column = choose(is_whole, within // band_rows, within // divisors.last_rows)
    return first + within - column * choose(is_whole, band_rows, _number(divisors.last_rows)), column


def _number(divisor: Any) -> Any:
    return getattr(divisor, "divisor", divisor)


def coordinates_of(index: int, extents: Sequence[int]) -> tuple[int, ...]:
    """Map a linear index to coordinates, the last one fastest.

    A bijection from [0, the product of `extents`), which may be divisors, as those of `tile_of`.

    Examples
    --------
    >>> [coordinates_of(i, (2, 3)) for i in range(6)]
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    """
    if len(extents) == 1:
        return (index,)
    return (*coordinates_of(index // extents[-1], extents[:-1]), index % extents[-1])
