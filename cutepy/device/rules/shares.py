"""Stream-K shares: whole tiles for each cluster of a grid, then even shares of the last tiles' K.

The functions do integer arithmetic only, as those of `cutepy.device.rasterise`, so the same source computes with Python
integers on the host, where tests prove that everything is dealt out once, and with traced ones on the device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

LEAST_STEPS = 4
"""Fewest K tiles of a part of a tile. Reading the sums of a part takes about as long as multiplying so many: 4 bytes of
each element at 64 bytes a clock, and 4096 multiplications of 16 bits a clock.
"""
MOST_PARTS = 8
"""Largest number of shares with a part of one tile, unless shares begin within it."""


def choose(condition: Any, x: Any, y: Any) -> Any:
    """Return x where the condition holds, else y."""
    return x if condition else y


def parts_of(k_tiles: Any, minimum: Callable[..., Any] = min) -> Any:
    """Choose the largest number of clusters that share so many K tiles.

    One that multiplies ``k_tiles / parts`` and reads what each of the others has left, which takes as long as
    `LEAST_STEPS`, is quickest where the two are alike.

    Examples
    --------
    >>> [parts_of(k_tiles) for k_tiles in (1, 15, 16, 36, 64, 1000)]
    [1, 1, 2, 3, 4, 8]
    """
    parts = 1
    for more in range(2, MOST_PARTS + 1):
        parts = parts + minimum(k_tiles // (LEAST_STEPS * more * more), 1)
    return parts


class Share(NamedTuple):
    """Share of a cluster in the remaining tiles: a part of one, and the beginning of the next.

    Attributes
    ----------
    number : int
        Index of the share.
    tile : int
        Index among the remaining tiles.
    first, count : int
        Tiles of K of this one.
    following : int
        Tiles of K of the next.
    peers : int
        Number of following shares with the rest of the tile whose beginning this share has.
    """

    number: Any
    tile: Any
    first: Any
    count: Any
    following: Any
    peers: Any


class Unit(NamedTuple):
    """Unit of work of a cluster: K tiles of one output tile.

    Attributes
    ----------
    tile : int
        Index among all tiles.
    first, count : int
        Tiles of K.
    peers : int
        Number of shares with the rest of the tile, if this is its beginning.
    """

    tile: Any
    first: Any
    count: Any
    peers: Any


@dataclass(frozen=True)
class Shares:
    """Division of a product's tiles: the same number of whole tiles for every cluster, then even shares of K.

    Shares follow one another through the remaining tiles, and each share has parts of two tiles at most. The cluster
    with the beginning of a tile finishes the tile, after the clusters of the following shares have left their sums.
    That part is the last of its share, so no cluster waits before it has left the sums that others wait for. The
    following shares belong to clusters with lower indices, which begin no later.

    Attributes
    ----------
    tiles : int
        Clusters' tiles, of the whole batch.
    k_tiles : int
        Tiles of K, at least 1.
    clusters : int
        Clusters of the grid.
    minimum, choose : callable
        Functions of two integers; of a condition and two integers.

    Examples
    --------
    Five tiles on four clusters: each takes one, and the fifth has tiles of K enough for two of them.

    >>> plan = Shares(5, 20, 4)
    >>> for cluster in range(4):
    ...     share = plan.share(cluster)
    ...     print([tuple(plan.unit(cluster, share, index)) for index in range(plan.units(share))])
    [(0, 0, 20, 0), (4, 10, 10, 0)]
    [(1, 0, 20, 0), (4, 0, 10, 1)]
    [(2, 0, 20, 0)]
    [(3, 0, 20, 0)]
    """

    tiles: Any
    k_tiles: Any
    clusters: Any
    minimum: Callable[..., Any] = min
    choose: Callable[..., Any] = choose

    @property
    def whole(self) -> Any:
        """Number of whole tiles of each cluster."""
        return self.tiles // self.clusters

    @property
    def count(self) -> Any:
        """Number of clusters with a share."""
        left = self.tiles - self.whole * self.clusters
        return self.minimum(self.clusters, left * parts_of(self.k_tiles, self.minimum))

    @property
    def steps(self) -> Any:
        """Largest number of K tiles that a cluster multiplies, the reading of sums counted as K tiles."""
        each, more = self._even()
        share = each + self.minimum(more, 1)
        readers = self.choose(share > 0, (self.k_tiles - 1) // self.choose(share > 0, share, 1), 0)
        return self.whole * self.k_tiles + share + LEAST_STEPS * readers

    def _even(self) -> tuple[Any, Any]:
        """Return the tiles of K of an even share, and how many shares have one more."""
        total = (self.tiles - self.whole * self.clusters) * self.k_tiles
        count = self.choose(self.count > 0, self.count, 1)
        return total // count, total % count

    def begin(self, share: Any) -> Any:
        """Return the first K tile of a share among those of all remaining tiles: the end of the share before.

        Where an even share would begin a few tiles of K from where an output tile does, it begins there.
        """
        each, more = self._even()
        begin = share * each + self.minimum(share, more)
        behind = begin % self.k_tiles
        ahead = self.k_tiles - behind
        snapped = self.choose(ahead < LEAST_STEPS, begin + ahead, begin)
        return self.choose(behind < LEAST_STEPS, begin - behind, snapped)

    def share_of(self, k_tile: Any) -> Any:
        """Return the share that contains an output tile's last K tile."""
        each, more = self._even()
        longer = more * (each + 1)
        behind = (k_tile - longer) // self.choose(each > 0, each, 1) + more
        even = self.choose(k_tile < longer, k_tile // (each + 1), behind)
        return self.choose(self.begin(even) > k_tile, even - 1, even)

    def share(self, cluster: Any) -> Share:
        """Return the share of a cluster: the last share is the first cluster's."""
        has = cluster < self.count
        number = self.choose(has, self.count - 1 - cluster, 0)
        begin = self.begin(number)
        steps = self.choose(has, self.begin(number + 1) - begin, 0)
        tile, first = begin // self.k_tiles, begin % self.k_tiles
        count = self.minimum(steps, self.k_tiles - first)
        finished = self.choose(first > 0, tile + 1, tile)
        peers = self.share_of((finished + 1) * self.k_tiles - 1) - number
        return Share(number, tile, first, count, steps - count, peers)

    def units(self, share: Share) -> Any:
        """Count the units of work of a cluster."""
        return self.whole + self.choose(share.count > 0, 1, 0) + self.choose(share.following > 0, 1, 0)

    def unit(self, cluster: Any, share: Share, index: Any) -> Unit:
        """Return a unit of work of a cluster: whole tiles, then its share's first part, then the second."""
        is_whole, is_second = index < self.whole, index > self.whole
        tile = self.whole * self.clusters + share.tile + self.choose(is_second, 1, 0)
        first = self.choose(is_whole, 0, self.choose(is_second, 0, share.first))
        count = self.choose(is_second, share.following, share.count)
        return Unit(
            self.choose(is_whole, cluster + index * self.clusters, tile),
            first,
            self.choose(is_whole, self.k_tiles, count),
            self.choose(is_whole, 0, self.choose(first > 0, 0, share.peers)),
        )
