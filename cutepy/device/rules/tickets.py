"""Ring of tickets of the dynamic scheduler: checks, and the number of slots."""

from cutepy.device.rules.clusters import MAX_CLUSTER_CTAS


def check_tickets(slots: int, readers: int, ctas: int) -> None:
    """Check the slots of a ring, and the number of warps of each CTA of a cluster that read it.

    Raises
    ------
    ValueError
        If a ticket has no slot or no reader, or there is no such cluster.

    Examples
    --------
    >>> check_tickets(1, 9, 2)
    """
    if slots < 1:
        raise ValueError(f"a ring of tickets needs at least 1 slot, got {slots}")
    if readers < 1:
        raise ValueError(f"a ring of tickets needs at least 1 reader warp, got {readers}: nobody would free its slots")
    if not 1 <= ctas <= MAX_CLUSTER_CTAS:
        raise ValueError(f"a cluster has 1 to {MAX_CLUSTER_CTAS} CTAs, got {ctas}")


def check_working_dealer(ctas: int) -> None:
    """Check the CTAs of a cluster whose dealer has tiles of its own to work on.

    Raises
    ------
    ValueError
        If there are several: of the others no warp would know the tiles.

    Examples
    --------
    >>> check_working_dealer(1)
    """
    if ctas != 1:
        raise ValueError(f"a dealer that works needs CTAs without a cluster, got a cluster of {ctas}; use deal()")


def ticket_slots(turns: int) -> int:
    """Return the number of slots where so many consumers take a CTA's tiles in turn.

    One for each: a consumer that asks for its next tile finds that the others, which still work on the tiles before,
    have freed a slot for it. Each further slot is a tile more that a cluster has taken and not begun while others wait
    for work.

    Examples
    --------
    >>> ticket_slots(1), ticket_slots(2)
    (1, 2)
    """
    return turns
