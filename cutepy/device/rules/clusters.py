"""Clusters: sizes, multicast of tiles, and schedules of tiles."""

from dataclasses import is_dataclass

SMEM_ALIGNMENT_BYTES = 128
"""Alignment of TMA's destination in shared memory."""
MAX_CLUSTER_CTAS = 16
"""Largest cluster, with the non-portable cluster size allowed."""


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
    """Check that no ping-pong consumers share a CTA's tiles where the tiles have unlike parts of K.

    Raises
    ------
    ValueError
        If they take tiles in turn: a ring's stages of a tile that is another's couldn't be passed over.

    Examples
    --------
    >>> check_turns(1)
    """
    if turns != 1:
        raise ValueError(f"ping-pong consumers need one K for all tiles, got {turns} consumers; use one")


def check_schedule(cluster_mn: tuple[int, int], parts: int, band_rows: int) -> None:
    """Check the arguments of a persistent scheduler.

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
"""Largest cluster that any GPU of the architecture can launch."""


def check_multicast(lines: int, line_bytes: int, peers: int) -> None:
    """Check that CTAs of a cluster can share a tile by multicast: each loads the same number of lines, for all.

    Lines are contiguous in shared memory, and follow one another across the tile's contiguous mode: rows of a K-major
    tile, as wide as its swizzle. (24, 64) of 16 bits has 24 lines of 128 bytes.

    Raises
    ------
    ValueError
        If not, or a part would begin where TMA can't write.

    Examples
    --------
    >>> check_multicast(128, 128, 2), check_multicast(24, 128, 4)
    (None, None)
    """
    if peers > 1 and (lines % peers or lines // peers * line_bytes % SMEM_ALIGNMENT_BYTES):
        raise ValueError(
            f"a tile that {peers} CTAs share by multicast must have equal parts of whole {SMEM_ALIGNMENT_BYTES} bytes, "
            f"got {lines} lines of {line_bytes} bytes; use a larger tile or a smaller cluster"
        )


def check_sharing(multicasts: bool, peers: int) -> None:
    """Check that a copy multicasts if and only if peers share its tiles.

    Raises
    ------
    ValueError
        If not: CTAs would wait for parts of tiles that no CTA loads, or load parts that they don't share.

    Examples
    --------
    >>> check_sharing(True, 2)
    """
    if multicasts != (peers > 1):
        raise ValueError(
            f"make_load made the copy {'with' if multicasts else 'without'} multicast, and its tiles are shared by "
            f"{peers} CTA{'s' * (peers > 1)}; give it as many as the ring of loads(ring, along) has along that mode of "
            "its cluster"
        )


def check_rows_only(cluster_mn: tuple[int, int], parts: int) -> None:
    """Check that a schedule of single rows has neither clusters nor parts of K.

    Raises
    ------
    ValueError
        If it has.

    Examples
    --------
    >>> check_rows_only((1, 1), 1)
    """
    if (cluster_mn, parts) != ((1, 1), 1):
        raise ValueError(
            f"a schedule of the longest rows first has no cluster and one part of K, got a cluster of {cluster_mn} and "
            f"{parts} parts; use Persistent"
        )
