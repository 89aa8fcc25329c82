"""How whole tiles, and then even shares of the last ones, are dealt out to the clusters of a grid (stream-K).

The functions do integer arithmetic only, as those of `cutepy.device.rasterise`, so the same source computes with Python
integers on the host, where tests prove that everything is dealt out once, and with traced ones on the device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

LEAST_STEPS = 4
"""Tiles of K of the smallest part of a tile.

To read the sums of a part takes about as long as to multiply so many: 4 bytes of each element at 64 bytes a clock, and
4096 multiplications of 16 bits a clock.
"""
MOST_PARTS = 8
"""Shares that have a part of one tile, at most, unless shares begin within it."""


def choose(condition: Any, x: Any, y: Any) -> Any:
    """Give x where the condition holds, else y."""
    return x if condition else y


def parts_of(k_tiles: Any, minimum: Callable[..., Any] = min) -> Any:
    """Choose among how many clusters so many tiles of K are shared, at most.

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
    """What a cluster has of the tiles that are left: a part of one, and the beginning of the next.

    Attributes
    ----------
    number : int
        Which of the shares it is.
    tile : int
        Of those that are left.
    first, count : int
        Tiles of K of this one.
    following : int
        Tiles of K of the next.
    peers : int
        So many shares, those that follow, have the rest of the tile of which it has the beginning.
    """

    number: Any
    tile: Any
    first: Any
    count: Any
    following: Any
    peers: Any


class Unit(NamedTuple):
    """Tiles of K of one output tile that a cluster multiplies.

    Attributes
    ----------
    tile : int
        Of all tiles.
    first, count : int
        Tiles of K.
    peers : int
        So many shares have the rest of the tile, if this is its beginning.
    """

    tile: Any
    first: Any
    count: Any
    peers: Any


@dataclass(frozen=True)
class Shares:
    """Every cluster takes as many whole tiles as all others; the tiles of K of those that are left go in even shares.

    Shares follow one another through these tiles, each in a part of two tiles at most. Who has a tile's beginning
    finishes it, once the shares that follow have left their sums of it. That part is the last of its share, so that
    nobody waits before leaving what others wait for; and the shares that follow are those of clusters before it in the
    grid, which begin no later.

    Attributes
    ----------
    tiles : int
        Clusters' tiles, of the whole batch.
    k_tiles : int
        Tiles of K, at least 1.
    clusters : int
        Of the grid.
    minimum, choose : callable
        Of two integers; of a condition and two integers.

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
        """Whole tiles of each cluster."""
        return self.tiles // self.clusters

    @property
    def count(self) -> Any:
        """Clusters that have a share."""
        left = self.tiles - self.whole * self.clusters
        return self.minimum(self.clusters, left * parts_of(self.k_tiles, self.minimum))

    @property
    def steps(self) -> Any:
        """Tiles of K that a cluster multiplies, or takes as long to read, about as many as any of them."""
        each, more = self._even()
        share = each + self.minimum(more, 1)
        readers = self.choose(share > 0, (self.k_tiles - 1) // self.choose(share > 0, share, 1), 0)
        return self.whole * self.k_tiles + share + LEAST_STEPS * readers

    def _even(self) -> tuple[Any, Any]:
        """Give the tiles of K of an even share, and how many shares have one more."""
        total = (self.tiles - self.whole * self.clusters) * self.k_tiles
        count = self.choose(self.count > 0, self.count, 1)
        return total // count, total % count

    def begin(self, share: Any) -> Any:
        """Give the tile of K, of all tiles that are left, at which a share begins, and the one before it ends.

        Where an even share would begin a few tiles of K from where an output tile does, it begins there.
        """
        each, more = self._even()
        begin = share * each + self.minimum(share, more)
        behind = begin % self.k_tiles
        ahead = self.k_tiles - behind
        snapped = self.choose(ahead < LEAST_STEPS, begin + ahead, begin)
        return self.choose(behind < LEAST_STEPS, begin - behind, snapped)

    def share_of(self, k_tile: Any) -> Any:
        """Give the share that an output tile's last tile of K is of."""
        each, more = self._even()
        longer = more * (each + 1)
        behind = (k_tile - longer) // self.choose(each > 0, each, 1) + more
        even = self.choose(k_tile < longer, k_tile // (each + 1), behind)
        return self.choose(self.begin(even) > k_tile, even - 1, even)

    def share(self, cluster: Any) -> Share:
        """Give the share of a cluster: the last one is the first cluster's."""
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
        """Count the units of the cluster that has a share."""
        return self.whole + self.choose(share.count > 0, 1, 0) + self.choose(share.following > 0, 1, 0)

    def unit(self, cluster: Any, share: Share, index: Any) -> Unit:
        """Give one of the units of a cluster: whole tiles, then its share's first part, then the second."""
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
