"""Named barriers and reductions: allocation by name, and checks of thread counts and slots."""

from cutepy.layouts.sm90 import arch

NAMED_BARRIERS = 16
"""Number of named barriers of a CTA; number 0 is that of `sync_threads`."""


def named_barriers(**counts: int) -> dict[str, int]:
    """Allocate named barriers: the count of each use -> the number of its first; the rest follow.

    Raises
    ------
    ValueError
        If there are not so many: two uses of one barrier would let threads through too early, or never.

    Examples
    --------
    >>> named_barriers(store=2, turns=2)
    {'store': 1, 'turns': 3}
    """
    first, given = 1, {}
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"a use must take 0 named barriers or more, got {count} for {name}")
        given[name] = first
        first += count
    if first > NAMED_BARRIERS:
        asked = ", ".join(f"{count} for {name}" for name, count in counts.items())
        raise ValueError(
            f"a CTA has {NAMED_BARRIERS - 1} named barriers beside that of sync_threads, got {first - 1}: {asked}; use "
            "mbarriers for some"
        )
    return given


def check_barrier(number: int) -> None:
    """Check the number of a named barrier.

    Raises
    ------
    ValueError
        If a CTA has none of it, or it is 0, that of `sync_threads`: threads that meet there would let others through.

    Examples
    --------
    >>> check_barrier(1)
    """
    if not 1 <= number < NAMED_BARRIERS:
        raise ValueError(
            f"a named barrier must be 1 to {NAMED_BARRIERS - 1}, 0 being that of sync_threads, got {number}; "
            "rules.named_barriers deals them out"
        )


def check_turn_threads(threads: int) -> None:
    """Check the thread count of ping-pong consumers, which wait for each other at a named barrier.

    Raises
    ------
    ValueError
        If they are no whole warps, or no CTA has those of both.

    Examples
    --------
    >>> check_turn_threads(128)
    """
    most = arch.MAX_THREADS_PER_CTA // 2
    if not 0 < threads <= most or threads % arch.WARP_THREADS:
        raise ValueError(
            f"a ping-pong consumer must have whole warps, at most {most} threads, got {threads}; pass its warpgroups'"
        )


def check_reduction(threads: int) -> None:
    """Check the threads that reduce a value together.

    Raises
    ------
    ValueError
        If they are no whole warps of one CTA: a shuffle would wait for lanes that never come.

    Examples
    --------
    >>> check_reduction(256)
    """
    if threads % 32 or not 32 <= threads <= 1024:
        near = min(max(-(-threads // 32), 1), 32) * 32
        raise ValueError(f"a reduction must have whole warps of a CTA, 32 to 1024 threads, got {threads}; use {near}")


def check_scattered(values: int) -> None:
    """Check the number of values of a scatter reduction over a warp's lanes.

    Raises
    ------
    ValueError
        If the number is no power of two, or above the number of lanes.

    Examples
    --------
    >>> check_scattered(8)
    """
    if values not in (1, 2, 4, 8, 16, arch.WARP_THREADS):
        raise ValueError(
            f"a scatter reduction must have 1, 2, 4, 8, 16 or 32 values, got {values}; pad to one of these"
        )


def check_butterfly(warps: int) -> None:
    """Check that warps, of a CTA or a cluster, can be reduced by shuffles of their values.

    Raises
    ------
    ValueError
        If their number is no power of 2.

    Examples
    --------
    >>> check_butterfly(16)
    """
    if warps & (warps - 1):
        raise ValueError(f"warps that shuffles reduce must be a power of 2, got {warps}; launch more threads")


def reduction_slots(count: int) -> int:
    """Count the fp32 values to reserve for a reduction of `count`: whole 16 bytes.

    The compiler reads three neighbours as four, so what follows them would be read while others write it.

    Examples
    --------
    >>> reduction_slots(3)
    4
    """
    return -(-count // 4) * 4


def check_slots(slots: int, count: int) -> None:
    """Check that a region of a given number of fp32 slots has one for each of `count` values, and is whole 16 bytes.

    Raises
    ------
    ValueError
        If it is smaller: values would be written to the region after it.

    Examples
    --------
    >>> check_slots(4, 3)
    """
    if slots < reduction_slots(count):
        raise ValueError(
            f"a reduction of {count} values needs {reduction_slots(count)} fp32 slots of shared memory, got {slots}; "
            "rules.reduction_slots tells how many to plan"
        )
