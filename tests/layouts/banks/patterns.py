"""Strategies: what a warp may do with shared memory."""

from hypothesis import strategies as st

from cutepy.layouts.banks.rule import KINDS, ROW_KINDS


@st.composite
def addresses(draw, size, count=32):
    """Addresses of lanes: few or many, equal in pairs, along strides, or anywhere; some off."""
    limit = draw(st.sampled_from([1, 2, 8, 64, 1024]))
    step, fold = draw(st.integers(0, 40)), draw(st.sampled_from([1, 1, 2, 4, 8]))
    flip = draw(st.sampled_from([0, 0, 1, 2, 3]))
    noise = draw(st.lists(st.integers(0, limit - 1), min_size=count, max_size=count))
    is_noisy = draw(st.booleans())
    units = [noise[lane] if is_noisy else (lane ^ flip) // fold * step for lane in range(count)]
    if draw(st.booleans()):  # neighbours at distance 2 agree
        units = [units[lane & ~2] for lane in range(count)]
    off = draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    if draw(st.booleans()):
        off = set()
    return [None if lane in off else units[lane] * size for lane in range(count)]


@st.composite
def accesses(draw, kinds=KINDS):
    """(kind, bytes of a lane, addresses)."""
    kind = draw(st.sampled_from(kinds))
    if kind in ROW_KINDS:
        rows = draw(st.sampled_from([8, 16, 32] if "matrix" in kind else [8]))
        return kind, 16, [address for address in draw(addresses(16, rows)) if address is not None] or [0]
    size = draw(st.sampled_from([4, 8] if kind == "atom" else [1, 2, 4, 8, 16]))
    return kind, size, draw(addresses(size))
