"""Facts of sm_100, from the PTX ISA: "Tensor Memory", "tcgen05.alloc" and "Shared memory descriptor" of tcgen05."""

from cutepy.layouts.sm100 import arch


def test_tensor_memory_has_128_lanes_of_512_columns_of_32_bits():
    assert (arch.TMEM_LANES, arch.TMEM_COLUMNS, arch.TMEM_COLUMN_BITS) == (128, 512, 32)
    assert arch.TMEM_LANES * arch.TMEM_COLUMNS * arch.TMEM_COLUMN_BITS // 8 == 256 * 1024


def test_a_warp_reaches_a_quarter_of_the_lanes():
    assert (arch.TMEM_QUARTER_LANES, arch.TMEM_LANE_SHIFT) == (32, 16)
    assert 4 * arch.TMEM_QUARTER_LANES == arch.TMEM_LANES


def test_columns_are_allocated_from_32_on():
    assert arch.MIN_ALLOCATION_COLUMNS == 32


def test_one_cta_or_two_run_an_mma():
    assert arch.CTA_GROUPS == (1, 2)


def test_descriptors_name_swizzles_by_the_codes_of_the_isa():
    assert arch.SMEM_LAYOUT_TYPE == {"INTER": 0, "SW128_32B": 1, "SW128": 2, "SW64": 4, "SW32": 6}
    assert arch.SMEM_DESCRIPTOR_VERSION == 1
