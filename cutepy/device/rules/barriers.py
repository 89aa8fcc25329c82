"""Named barriers, dealt out by name."""

NAMED_BARRIERS = 16
"""Of a CTA; number 0 is that of `sync_threads`."""


def named_barriers(**counts: int) -> dict[str, int]:
    """Deal named barriers out: how many each use needs -> the number of its first, the others following.

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
