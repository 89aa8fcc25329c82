"""Rings and exchanges of sums: arrival counts of their mbarriers, and limits."""

from math import gcd

from cutepy.device.rules.clusters import MAX_CLUSTER_CTAS
from cutepy.layouts.sm90 import arch

MAX_TRANSACTION_BYTES = 2**20 - 16
"""Largest transaction count of an mbarrier phase: 20 bits of 16-byte units."""
TMA_BYTES = 16
"""Unit of TMA's addresses and strides."""
CP_ASYNC_BYTES = (4, 8, 16)
"""Sizes and alignments of one cp.async."""


def check_ring(stages: int, stage_bytes: int, consumer_warps: int, cluster_mn: tuple[int, int]) -> None:
    """Check a ring of stages that TMA fills.

    Raises
    ------
    ValueError
        If its barriers could not count the announced bytes.

    Examples
    --------
    >>> check_ring(4, 32768, 8, (2, 1))
    """
    if stages < 1:
        raise ValueError(f"a ring needs at least 1 stage, got {stages}")
    if not 0 < stage_bytes <= MAX_TRANSACTION_BYTES or stage_bytes % 16:
        raise ValueError(
            f"a stage must be filled by 16 to {MAX_TRANSACTION_BYTES} bytes, a multiple of 16, got {stage_bytes}"
        )
    if consumer_warps < 1:
        raise ValueError(f"a ring needs at least 1 consumer warp, got {consumer_warps}: nobody would free its stages")
    cluster_m, cluster_n = cluster_mn
    if cluster_m < 1 or cluster_n < 1 or cluster_m * cluster_n > MAX_CLUSTER_CTAS:
        raise ValueError(f"a cluster has 1 to {MAX_CLUSTER_CTAS} CTAs, got {cluster_mn}")


def check_overlap(stages: int) -> None:
    """Check the ring of a consumer that releases a stage after it has begun the next.

    Raises
    ------
    ValueError
        If there is no next stage: it would wait for the producer, and the producer for it.

    Examples
    --------
    >>> check_overlap(2)
    """
    if stages < 2:
        raise ValueError(
            f"a main loop needs at least 2 stages, one to load while one is multiplied, got {stages}, which deadlocks; "
            "use 2, of half the K if there is no room"
        )


def check_mixed_ring(
    stages: int, stage_bytes: int, threads: int, consumer_warps: int, cluster_mn: tuple[int, int]
) -> None:
    """Check a ring of stages that threads fill, and TMA with them if it delivers bytes.

    Raises
    ------
    ValueError
        If its barriers could not count the announced bytes, or the threads are no whole warps.

    Examples
    --------
    >>> check_mixed_ring(4, 0, 128, 8, (1, 1))
    """
    check_ring(stages, stage_bytes or 16, consumer_warps, cluster_mn)
    if threads < 1 or threads % arch.WARP_THREADS:
        raise ValueError(
            f"the threads that fill a stage must be whole warps, got {threads}; without threads use a TmaRing"
        )


def check_stored_ring(stages: int, warps: int, consumer_warps: int) -> None:
    """Check a ring of stages that warps fill by stores.

    Raises
    ------
    ValueError
        If its barriers could not count them.

    Examples
    --------
    >>> check_stored_ring(2, 3, 8)
    """
    check_ring(stages, 16, consumer_warps, (1, 1))
    if warps < 1:
        raise ValueError(f"a ring needs at least 1 warp that fills its stages, got {warps}; with TMA use a TmaRing")


def full_barrier_arrivals(threads: int, stage_bytes: int) -> int:
    """Count the arrivals that fill one stage: one of each thread that copies, and one that announces TMA's bytes.

    Too high a count deadlocks (consumers wait for arrivals that never come); too low a count races (they read a tile
    that is still being written).

    Examples
    --------
    >>> full_barrier_arrivals(128, 0), full_barrier_arrivals(64, 16384)
    (128, 65)
    """
    return threads + (stage_bytes > 0)


def check_pieces(tile: tuple[int, int], contiguous_mode: int, bits: int, piece_bytes: int, threads: int) -> None:
    """Check that threads can copy a tile in pieces, each by one cp.async.

    Raises
    ------
    ValueError
        If no cp.async copies so many bytes, pieces don't fill the contiguous extent, or the threads don't share them.

    Examples
    --------
    >>> check_pieces((128, 64), 1, 16, 8, 128)
    """
    if piece_bytes not in CP_ASYNC_BYTES:
        raise ValueError(
            f"cp.async copies {', '.join(map(str, CP_ASYNC_BYTES))} bytes, got {piece_bytes}; copy the tensor to one "
            "whose rows begin at multiples of these"
        )
    if tile[contiguous_mode] * bits % (8 * piece_bytes):
        raise ValueError(
            f"pieces of {piece_bytes} bytes must fill a tile's contiguous extent, got {tile[contiguous_mode]} elements "
            f"of {bits} bits; use a larger tile"
        )
    across, lines = tile[contiguous_mode] * bits // (8 * piece_bytes), tile[1 - contiguous_mode]
    _, beside = piece_threads(across, threads)
    if lines % beside:
        raise ValueError(
            f"the lines of a tile must be a multiple of the {beside} that {threads} threads copy at once, {across} "
            f"pieces of {piece_bytes} bytes each, got {lines}; use a larger tile, or fewer threads"
        )


def piece_threads(across: int, threads: int) -> tuple[int, int]:
    """Arrange threads over the pieces of a tile: side by side within a line of so many pieces, and over lines.

    Neighbours in a line read neighbouring bytes.

    Examples
    --------
    >>> piece_threads(16, 128), piece_threads(6, 128)
    ((16, 8), (2, 64))
    """
    along = gcd(across, threads)
    return along, threads // along


def empty_barrier_arrivals(consumer_warps: int, cluster_mn: tuple[int, int]) -> int:
    """Count the arrivals that free one stage of a TMA pipeline: one per consumer warp of every CTA that reads it.

    A CTA's stage is filled by the CTAs in its row and column of the cluster (they multicast A along N and B
    along M), so each consumer warp tells each of those `cm + cn - 1` CTAs. Too high a count deadlocks (the
    producer waits for arrivals that never come); too low a count races (TMA overwrites a tile still being read).

    Examples
    --------
    >>> empty_barrier_arrivals(8, (1, 1)), empty_barrier_arrivals(8, (2, 1)), empty_barrier_arrivals(8, (2, 2))
    (8, 16, 24)
    """
    return consumer_warps * (cluster_mn[0] + cluster_mn[1] - 1)


def check_exchange(parts: int, registers: int) -> None:
    """Check the number of CTAs that exchange partial sums, and of a thread's values of a subtile.

    Raises
    ------
    ValueError
        If no cluster has so many CTAs, or the values can't be sent four at a time.

    Examples
    --------
    >>> check_exchange(4, 16)
    """
    if not 2 <= parts <= MAX_CLUSTER_CTAS:
        raise ValueError(f"an exchange must have 2 to {MAX_CLUSTER_CTAS} CTAs of a cluster, got {parts}")
    if registers < 4 or registers % 4:
        raise ValueError(
            f"sums are sent four at a time, so a thread must hold a multiple of 4 of a subtile, got {registers}; use "
            "subtiles of more columns"
        )


def owners(parts: int, subtiles: int) -> int:
    """Count the CTAs that finish subtiles of a tile whose K is shared by `parts` CTAs.

    Examples
    --------
    >>> owners(8, 4), owners(2, 4)
    (4, 2)
    """
    return min(parts, subtiles)


def partial_bytes(registers: int, threads: int) -> int:
    """Count the bytes of one CTA's fp32 sums of a subtile.

    Examples
    --------
    >>> partial_bytes(16, 128)
    8192
    """
    return 4 * registers * threads


def exchange_bytes(parts: int, subtiles: int, registers: int, threads: int) -> int:
    """Count the bytes of a CTA's buffer for the other parts' sums of the subtiles that it finishes.

    Examples
    --------
    >>> exchange_bytes(4, 2, 16, 128)
    24576
    """
    most = -(-subtiles // owners(parts, subtiles))
    return most * (parts - 1) * partial_bytes(registers, threads)
