"""Networks of comparators that sort and merge registers: pairs (i, j), of which i gets the larger one."""

from __future__ import annotations

Network = list[tuple[int, int]]


def sorting_network(count: int) -> Network:
    """List the comparators that sort so many registers, a power of 2, the largest first: Batcher's odd-even merges.

    Examples
    --------
    >>> sorting_network(4)
    [(0, 1), (2, 3), (0, 2), (1, 3), (1, 2)]
    >>> [len(sorting_network(count)) for count in (1, 8, 16, 32)]
    [0, 19, 63, 191]
    """
    pairs, run = [], 1
    while run < count:
        distance = run
        while distance:
            pairs += [
                (i, i + distance)
                for first in range(distance % run, count - distance, 2 * distance)
                for i in range(first, min(first + distance, count - distance))
                if i // (2 * run) == (i + distance) // (2 * run)
            ]
            distance //= 2
        run *= 2
    return pairs


def merging_network(count: int) -> Network:
    """List the comparators that sort so many registers of a bitonic sequence, a power of 2, the largest first.

    Examples
    --------
    >>> merging_network(4)
    [(0, 2), (1, 3), (0, 1), (2, 3)]
    """
    pairs, distance = [], count // 2
    while distance:
        pairs += [(i, i + distance) for i in range(count) if not i & distance]
        distance //= 2
    return pairs
