"""Facts of sm_90, from the tables of the CUDA C++ Programming Guide, "Compute Capabilities", and the PTX ISA."""

from cutepy.layouts.sm90 import arch


def test_limits_of_a_multiprocessor():
    assert arch.SMEM_BYTES_PER_SM == 233_472
    assert arch.SMEM_BYTES_PER_CTA == 232_448
    assert arch.REGISTERS_PER_SM == 65_536
    assert arch.MAX_REGISTERS_PER_THREAD == 255
    assert arch.SMEM_BANKS * arch.SMEM_BANK_BYTES == 128
    assert arch.SMEM_BANK_BYTES == 4


def test_a_warpgroup_is_four_warps_and_multiplies_64_rows():
    assert (arch.WARP_THREADS, arch.WARPGROUP_THREADS, arch.WGMMA_M) == (32, 128, 64)
