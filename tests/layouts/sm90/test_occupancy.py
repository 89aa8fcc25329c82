"""Occupancy on sm_90, against values that CUDA's occupancy calculator gives, and laws."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts.sm90.occupancy import occupancy
from tests.messages import refuses

# (registers, threads, shared memory) -> CTAs an SM, and what limits them; by the rules of cuda_occupancy.h.
KNOWN = {
    (32, 128, 0): (16, ("registers", "warps")),
    (33, 128, 0): (12, ("registers",)),
    (16, 32, 0): (32, ("CTAs",)),
    (32, 1024, 0): (2, ("registers", "warps")),
    (64, 1024, 0): (1, ("registers",)),
    (65, 1024, 0): (0, ("registers",)),
    (168, 384, 0): (1, ("registers",)),
    (255, 256, 0): (1, ("registers",)),
    (255, 32, 0): (8, ("registers",)),
    # 5 warps of 96 registers: a quarter of an SM holds 5 of them, so 20 in all.
    (96, 160, 0): (4, ("registers",)),
    # Warps of a quarter share its registers: 12 of 40 registers each, so 48 in all, where the SM's would do for 51.
    (40, 96, 0): (16, ("registers",)),
    (104, 192, 0): (2, ("registers",)),
    (88, 224, 0): (2, ("registers",)),
    (168, 416, 0): (0, ("registers",)),
    (32, 96, 0): (21, ("registers", "warps")),
    (16, 128, 232448): (1, ("shared memory",)),
    (16, 128, 232449): (0, ("shared memory",)),
    (16, 128, 115712): (2, ("shared memory",)),
    (16, 128, 115713): (1, ("shared memory",)),
    (16, 128, 13568): (16, ("shared memory", "warps")),
    (16, 1025, 0): (0, ("warps",)),
    (256, 128, 0): (0, ("registers",)),
}


@pytest.mark.parametrize(("kernel", "expected"), KNOWN.items(), ids=str)
def test_known_values(kernel, expected):
    found = occupancy(*kernel)
    assert (found.ctas_per_sm, found.limited_by) == expected
    assert found.warps_per_sm == found.ctas_per_sm * -(-kernel[1] // 32)


REGISTERS, THREADS, SMEM = st.integers(0, 255), st.integers(1, 1024), st.integers(0, 232448)


def check_what_fits_is_within_the_sm(registers, threads, smem_bytes):
    ctas = occupancy(registers, threads, smem_bytes).ctas_per_sm
    warps = -(-threads // 32)
    assert ctas <= 32
    assert ctas * warps <= 64
    assert ctas * warps * 32 * registers <= 65536
    assert ctas * (smem_bytes + 1024) <= 228 * 1024


@given(REGISTERS, THREADS)
def test_the_warps_of_each_quarter_have_its_registers(registers, threads):
    """CTAs are as many as find warps' places in quarters, whose registers are handed out in units of 256 a warp."""
    warps = -(-threads // 32)
    ctas = occupancy(registers, threads, 0).limits["registers"]
    places = 4 * (16384 // (-(-registers * 32 // 256) * 256)) if registers else 10**6
    assert ctas * warps <= places
    assert ctas == 32 or (ctas + 1) * warps > places


def check_less_never_fits_worse(registers, threads, smem_bytes):
    ctas = occupancy(registers, threads, smem_bytes).ctas_per_sm
    assert occupancy(max(registers - 8, 0), threads, smem_bytes).ctas_per_sm >= ctas
    assert occupancy(registers, threads, max(smem_bytes - 128, 0)).ctas_per_sm >= ctas


@given(REGISTERS, THREADS, SMEM)
def test_any_resources(registers, threads, smem_bytes):
    check_what_fits_is_within_the_sm(registers, threads, smem_bytes)
    check_less_never_fits_worse(registers, threads, smem_bytes)


def test_a_cta_has_threads():
    with refuses(ValueError):
        occupancy(32, 0, 0)
