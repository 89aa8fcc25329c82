"""Selected CTAs of a launch, run without the others: the tile that matters of a grid too large to run.

A cluster is the least that can run: its CTAs start together, synchronise, and reach each other's shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np
from numpy.typing import NDArray

Extents = tuple[int, int, int]
Coordinates = Sequence[int | Sequence[int]]


class ChosenCtaError(ValueError):
    """CTAs to run that a launch's grid does not have, or that are no coordinates."""


def in_whole_clusters(ctas: Coordinates, grid: Extents, cluster: Extents) -> NDArray[np.intp]:
    """Return the linear indices of CTAs and of the peers in their clusters, cluster by cluster, by rank within each.

    Parameters
    ----------
    ctas : sequence of int or of up to three of them
        Coordinates in the grid along x, y and z; negative ones count from the end. Those that are left out are 0.
    grid, cluster : (int, int, int)

    Raises
    ------
    ChosenCtaError, TypeError
        If that is no coordinate, or the grid has no such CTA.

    Examples
    --------
    >>> in_whole_clusters([(-1, -1), 0], grid=(4, 2, 1), cluster=(1, 1, 1))
    array([0, 7])
    >>> in_whole_clusters([(1, 1)], grid=(4, 2, 1), cluster=(2, 2, 1))
    array([0, 1, 4, 5])
    """
    chosen = {tuple(c // extent for c, extent in zip(_within(cta, grid), cluster, strict=True)) for cta in ctas}
    found: list[NDArray[np.intp]] = [np.zeros(0, np.intp)]
    # In the order in which a whole grid runs: z outermost.
    for z, y, x in sorted(place[::-1] for place in chosen):
        peers = np.indices(cluster[::-1]).reshape(3, -1)
        at_z, at_y, at_x = (
            first * extent + inside for first, extent, inside in zip((z, y, x), cluster[::-1], peers, strict=True)
        )
        found.append((at_z * grid[1] + at_y) * grid[0] + at_x)
    return np.concatenate(found)


def parse_ctas(text: str) -> list[tuple[int, ...]]:
    """Read coordinates of CTAs as the command line has them.

    Examples
    --------
    >>> parse_ctas("0 3,1 -1,-1,0")
    [(0,), (3, 1), (-1, -1, 0)]

    Raises
    ------
    ValueError
        If the text has no coordinates of CTAs.
    """
    try:
        found = [tuple(int(c) for c in cta.split(",")) for cta in text.split()]
    except ValueError:
        found = []
    if not found or any(len(cta) > 3 for cta in found):
        raise ValueError(f'CTAs are coordinates with spaces between, such as "0 3,1 -1,-1,0", got {text!r}')
    return found


def _within(cta: int | Sequence[int], grid: Extents) -> Extents:
    """Return a coordinate in full, checked."""
    try:
        given = [index(c) for c in cta] if isinstance(cta, Sequence) else [index(cta)]
    except TypeError:
        raise TypeError(f"ctas must have coordinates: an int or one to three of them each, got {cta!r}") from None
    if not 1 <= len(given) <= 3:
        raise ChosenCtaError(f"ctas must have coordinates: an int or one to three of them each, got {cta!r}")
    named = list(zip(given, grid, strict=False))
    if any(c < 0 and extent == 1 for c, extent in named) and any(c >= 0 for c in given):
        raise ChosenCtaError(
            f"ctas names CTA {cta}, and counts from the end along an axis along which the grid {grid} has one CTA: "
            'these are the coordinates of one CTA; several are a list, or have spaces between, as in "0 -1"'
        )
    full = [c + extent if c < 0 else c for c, extent in zip((*given, 0, 0), grid, strict=False)]
    if any(not 0 <= c < extent for c, extent in zip(full, grid, strict=True)):
        raise ChosenCtaError(f"ctas names CTA {cta}, which the grid {grid} does not have")
    return full[0], full[1], full[2]
