"""The host rules of TMA -> WGMMA kernels."""

import pytest
from hypothesis import given, strategies as st

from cutepy.device import rules
from cutepy.layouts import size, sm90


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(("swizzle", "span_bytes"), [("SW128", 128), ("SW64", 64), ("SW32", 32), ("INTER", 16)])
def test_the_widest_swizzle_is_the_one_whose_atom_fits(bits, swizzle, span_bytes):
    elems = span_bytes * 8 // bits
    assert rules.widest_swizzle(elems, bits) == swizzle
    assert rules.widest_swizzle(3 * elems, bits) == swizzle
    for major in ("K", "MN"):
        atom = sm90.gmma_layout_atom(major, swizzle, bits)
        assert size(atom) * bits // 8 == 8 * span_bytes, "an atom is 8 rows of one span"


@pytest.mark.parametrize("elems", [0, 4, 12])
def test_extents_that_no_atom_divides_are_refused(elems):
    with pytest.raises(ValueError, match="multiple of 16 bytes"):
        rules.widest_swizzle(elems, 16)


@given(st.integers(1, 16), st.integers(1, 4), st.integers(1, 4))
def test_every_warp_that_reads_a_stage_arrives_once_on_each_cta_that_fills_it(warps, cluster_m, cluster_n):
    """Play the releases of a whole cluster: every empty barrier receives just the arrivals it was set to."""
    arrivals = dict.fromkeys(((m, n) for m in range(cluster_m) for n in range(cluster_n)), 0)
    for m, n in arrivals:
        for peer in arrivals:
            if peer[0] == m or peer[1] == n:  # the peer multicasts A to this row or B to this column
                arrivals[peer] += warps
    assert set(arrivals.values()) == {rules.empty_barrier_arrivals(warps, (cluster_m, cluster_n))}


def test_sizes():
    assert rules.tile_bytes(128, 64, 16) == 16384
    assert rules.accumulator_registers(64, 256, 1) == 128
    assert rules.SWIZZLE_ALIGNMENT_BYTES == 1024
