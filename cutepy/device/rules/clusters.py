"""How many CTAs a cluster may have, what they may share, and how tiles are dealt out among them."""

from dataclasses import is_dataclass

MAX_CLUSTER_CTAS = 16
"""With the non-portable cluster size allowed."""


def check_worker(worker: object) -> None:
    """Check that a scheduler can call an object in its loop.

    Raises
    ------
    TypeError
        If it is no frozen dataclass: the DSL would carry it from one turn of the loop to the next.

    Examples
    --------
    >>> check_worker(object())
    Traceback (most recent call last):
    ...
    TypeError: a worker must be a frozen dataclass, which a loop reads only, got object; write @dataclass(frozen=True) above it
    """  # noqa: E501
    if not is_dataclass(worker) or not getattr(worker, "__dataclass_params__").frozen:  # noqa: B009 - not typed
        raise TypeError(
            f"a worker must be a frozen dataclass, which a loop reads only, got {type(worker).__name__}; "
            "write @dataclass(frozen=True) above it"
        )


def check_turns(turns: int) -> None:
    """Check that the consumers of a CTA share all its tiles, where these have unlike parts of K.

    Raises
    ------
    ValueError
        If they take tiles in turn: a ring's stages of a tile that is another's couldn't be passed over.

    Examples
    --------
    >>> check_turns(1)
    """
    if turns != 1:
        raise ValueError(f"consumers can't take tiles in turn where parts of K differ, got {turns}; use one consumer")


def check_schedule(cluster_mn: tuple[int, int], parts: int, band_rows: int) -> None:
    """Check how a persistent scheduler deals out tiles.

    Raises
    ------
    ValueError
        If there is no such cluster, or a band without rows.

    Examples
    --------
    >>> check_schedule((2, 1), 4, 8)
    """
    if min(*cluster_mn, parts) < 1 or cluster_mn[0] * cluster_mn[1] * parts > MAX_CLUSTER_CTAS:
        raise ValueError(f"a cluster has 1 to {MAX_CLUSTER_CTAS} CTAs, got {cluster_mn} and {parts} parts of K")
    if band_rows < 1:
        raise ValueError(f"a band must have at least 1 row, got {band_rows}")


PORTABLE_CLUSTER_CTAS = 8
"""CTAs of a cluster that any GPU of the architecture can launch."""


def check_multicast(tile_mn: tuple[int, int], cluster_mn: tuple[int, int]) -> None:
    """Check that the CTAs of a cluster can share tiles of A (M, K) along N, and of B (N, K) along M, by multicast.

    Each loads a slice of the tile that it shares, in whole groups of 8 rows: a core matrix is not cut.

    Raises
    ------
    ValueError
        If the slices would cut one.

    Examples
    --------
    >>> check_multicast((128, 256), (2, 1))
    """
    (tile_m, tile_n), (cluster_m, cluster_n) = tile_mn, cluster_mn
    if tile_m % (8 * cluster_n) or tile_n % (8 * cluster_m):
        raise ValueError(
            f"a multicast must split a tile into whole 8-row groups, got tile {tile_m} x {tile_n} over "
            f"cluster {cluster_m} x {cluster_n}; use a larger tile or a smaller cluster"
        )
