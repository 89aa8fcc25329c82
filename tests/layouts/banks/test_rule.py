"""The one rule, against the oracle of words and against cases worked out by hand."""

import pytest
from hypothesis import given

from cutepy.layouts.banks import fewest_wavefronts, wavefronts
from cutepy.layouts.banks.rule import passes
from tests.layouts.banks import words
from tests.layouts.banks.patterns import accesses

LANES = range(32)


def check_the_rule_is_the_oracle_s(access):
    assert wavefronts(*access) == words.wavefronts(*access)


def check_the_fewest_are_never_more_and_passes_have_every_active_lane_once(access):
    kind, size, addresses = access
    assert len(passes(*access)) <= fewest_wavefronts(*access) <= wavefronts(*access)
    active = [lane for lane, address in enumerate(addresses) if address is not None]
    assert sorted(lane for lanes in passes(*access) for lane in lanes) == active
    # Numbered anew, with equal addresses equal: the layout that reaches the fewest.
    rank = {}
    anew = [None if a is None else rank.setdefault(a, len(rank)) * max(size, 4) for a in addresses]
    assert fewest_wavefronts(kind, size, anew) == fewest_wavefronts(*access) or size < 4


def check_turning_the_banks_changes_nothing(access):
    kind, size, addresses = access
    for step in (16, 128, 4096 + 64):
        turned = [None if address is None else address + step for address in addresses]
        assert wavefronts(kind, size, turned) == wavefronts(*access)


@given(accesses())
def test_any_access(access):
    check_the_rule_is_the_oracle_s(access)
    check_the_fewest_are_never_more_and_passes_have_every_active_lane_once(access)
    check_turning_the_banks_changes_nothing(access)


@pytest.mark.parametrize(
    ("kind", "size", "addresses", "expected"),
    [
        # One word a lane: the words of the busiest bank.
        ("ld", 4, [4 * lane for lane in LANES], 1),
        ("ld", 4, [8 * lane for lane in LANES], 2),
        ("st", 4, [128 * lane for lane in LANES], 32),
        ("ld", 4, [132 * lane for lane in LANES], 1),
        ("st", 4, [0] * 32, 1),
        ("ld", 2, [2 * lane for lane in LANES], 1),
        ("ld", 2, [128 * lane + 2 for lane in LANES], 32),
        ("ld", 1, [lane for lane in LANES], 1),
        # 8 bytes: halves, each conflict-free; they merge where pairs of lanes agree, in loads only.
        ("ld", 8, [8 * lane for lane in LANES], 2),
        ("ld", 8, [8 * (lane // 2) for lane in LANES], 1),
        ("st", 8, [8 * (lane // 2) for lane in LANES], 2),
        ("ld", 8, [8 * (lane & ~2) for lane in LANES], 2),  # merged, and two words in each busy bank
        ("ld", 8, [8 * (lane % 2 + lane // 4 * 2) for lane in LANES], 1),  # at distance 2
        ("ld", 8, [8 * (lane // 4 * 4 % 16) for lane in LANES], 1),
        ("ld", 8, [8 * (lane % 16) for lane in LANES], 2),  # equal halves do not merge
        ("ld", 8, [None if lane % 2 else 8 * lane for lane in LANES], 2),  # merged: neighbours are off
        ("ld", 8, [None if lane % 2 else 4 * lane for lane in LANES], 1),
        ("st", 8, [None if lane % 2 else 4 * lane for lane in LANES], 2),
        # 16 bytes: quarters; 0 with 1 and 2 with 3.
        ("ld", 16, [16 * lane for lane in LANES], 4),
        ("st", 16, [16 * lane for lane in LANES], 4),
        ("ld", 16, [16 * (lane // 2) for lane in LANES], 2),
        ("st", 16, [16 * (lane // 2) for lane in LANES], 4),
        ("ld", 16, [0] * 32, 2),
        ("ld", 16, [128 * lane for lane in LANES], 32),
        ("ld", 16, [128 * (lane // 2) for lane in LANES], 16),
        ("ld", 16, [16 * lane if lane < 8 else None for lane in LANES], 1),
        ("ld", 16, [16 * lane if lane in (0, 31) else None for lane in LANES], 2),
        ("ld", 16, [16 * lane if lane in (0, 15) else None for lane in LANES], 2 - 1),
        # Matrices by themselves: equal rows within one are one address, and merge no two of them.
        ("ldmatrix", 16, [16 * row for row in range(32)], 4),
        ("ldmatrix", 16, [128 * row for row in range(8)], 8),
        ("stmatrix", 16, [144 * row for row in range(16)], 2),
        ("ldmatrix", 16, [0] * 8, 1),
        ("ldmatrix", 16, [0] * 32, 4),
        ("stmatrix", 16, [16 * (row // 2) for row in range(32)], 4),
        ("ldmatrix", 16, [128 * (row // 2) for row in range(32)], 16),
        ("ldmatrix", 16, [16 * (row % 8) for row in range(32)], 4),
        # Atomics serve each lane by itself, and compare-and-swap takes two wavefronts for each.
        ("cas", 4, [4 * lane for lane in LANES], 2),
        ("cas", 8, [0] * 32, 64),
        ("atom", 4, [4 * lane for lane in LANES], 1),
        ("atom", 4, [0] * 32, 32),
    ],
)
def test_cases_by_hand(kind, size, addresses, expected):
    assert wavefronts(kind, size, addresses) == expected == words.wavefronts(kind, size, addresses)
    check_the_fewest_are_never_more_and_passes_have_every_active_lane_once((kind, size, addresses))
