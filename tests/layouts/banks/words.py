"""The oracle: wavefronts counted word by word, with a dictionary of the words of each bank.

It knows nothing of units or of groups of banks, and spells every group of lanes out.
"""

WARP = [list(range(32))]
HALVES = [list(range(16)), list(range(16, 32))]
QUARTERS = [list(range(0, 8)), list(range(8, 16)), list(range(16, 24)), list(range(24, 32))]
GROUPS = {1: WARP, 2: WARP, 4: WARP, 8: HALVES, 16: QUARTERS}


def agrees(by_lane, partner_of):
    """Return True if each active lane's partner is off or reads the same address."""
    for lane, address in by_lane.items():
        partner = partner_of(lane)
        if partner in by_lane and by_lane[partner] != address:
            return False
    return True


def merges(by_lane):
    """Return True if lanes agree with a neighbour: 0 with 1, 2 with 3 ...; or 0 with 2, 1 with 3, 4 with 6 ..."""
    return agrees(by_lane, lambda lane: lane + 1 if lane % 2 == 0 else lane - 1) or agrees(
        by_lane, lambda lane: lane + 2 if lane % 4 in (0, 1) else lane - 2
    )


def words_of_bank(by_lane, group, size, *, apart):
    """Bank -> what it has to serve: words, or where lanes are served apart (word, lane)."""
    banks = {}
    for lane in group:
        if lane not in by_lane:
            continue
        for byte in range(by_lane[lane], by_lane[lane] + size):
            word = byte // 4
            banks.setdefault(word % 32, set()).add((word, lane) if apart else word)
    return banks


def wavefronts(kind, size, addresses):
    """Wavefronts of one instruction of one warp."""
    by_lane = {lane: address for lane, address in enumerate(addresses) if address is not None}
    if kind in ("ldmatrix", "stmatrix", "wgmma", "tma"):
        groups = QUARTERS
    else:
        groups = GROUPS[size]
        if kind == "ld" and size in (8, 16) and merges(by_lane):
            groups = [a + b for a, b in zip(groups[::2], groups[1::2], strict=True)]
    total = 0
    for group in groups:
        banks = words_of_bank(by_lane, group, size, apart=kind in ("atom", "cas"))
        total += max(map(len, banks.values()), default=0) * (2 if kind == "cas" else 1)
    return total
