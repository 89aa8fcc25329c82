"""Who arrives how often on the mbarriers of a ring, and of an exchange of sums."""

from cutepy.device.rules.clusters import MAX_CLUSTER_CTAS

MAX_TRANSACTION_BYTES = 2**20 - 16
"""What an mbarrier counts in one phase, in 16 bytes: its count has 20 bits."""


def check_ring(stages: int, stage_bytes: int, consumer_warps: int, cluster_mn: tuple[int, int]) -> None:
    """Check a ring of stages that TMA fills.

    Raises
    ------
    ValueError
        If its barriers could not count what it announces.

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
    """Check how many CTAs exchange partial sums, and how many of them a thread holds of a subtile.

    Raises
    ------
    ValueError
        If no cluster has so many CTAs, or the values can't be sent four at a time.

    Examples
    --------
    >>> check_exchange(4, 16)
    """
    if not 2 <= parts <= MAX_CLUSTER_CTAS:
        raise ValueError(f"2 to {MAX_CLUSTER_CTAS} CTAs of a cluster exchange sums, got {parts}")
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
    """Count the bytes in which a CTA takes the other parts' sums of the subtiles that it finishes.

    Examples
    --------
    >>> exchange_bytes(4, 2, 16, 128)
    24576
    """
    most = -(-subtiles // owners(parts, subtiles))
    return most * (parts - 1) * partial_bytes(registers, threads)
