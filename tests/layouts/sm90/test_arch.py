"""Facts of sm_90, from the tables of the CUDA C++ Programming Guide, "Compute Capabilities", and the PTX ISA."""

import pytest

from cutepy.layouts import Swizzle, capacity, hardware
from cutepy.layouts.sm90 import arch


def test_limits_of_a_multiprocessor():
    assert arch.SMEM_BYTES_PER_SM == 233_472
    assert arch.SMEM_BYTES_PER_CTA == 232_448
    assert arch.REGISTERS_PER_SM == 65_536
    assert arch.MAX_REGISTERS_PER_THREAD == 255
    assert arch.SMEM_BANKS * arch.SMEM_BANK_BYTES == 128
    assert arch.SMEM_BANK_BYTES == 4
    assert (arch.MAX_THREADS_PER_CTA, arch.MAX_WARPS_PER_SM, arch.MAX_CTAS_PER_SM) == (1024, 64, 32)
    assert arch.RESERVED_SMEM_BYTES == 1024
    assert arch.SM_COUNT == 132
    assert capacity.SMEM_BYTES_PER_CTA_OF_SM120 == 101_376


def test_a_warpgroup_is_four_warps_and_multiplies_64_rows():
    assert (arch.WARP_THREADS, arch.WARPGROUP_THREADS, arch.WGMMA_M) == (32, 128, 64)
    assert (arch.UNIT_BYTES, arch.UNIT_BITS, arch.CORE_MATRIX_ROWS) == (16, 128, 8)
    assert arch.MAJORS == ("MN", "K")


def test_swizzle_modes_are_those_of_descriptors_and_of_tensor_maps():
    """PTX ISA, "Matrix Descriptor Format", bits 62-63; cuda.h, CUtensorMapSwizzle; CuTe's layout_type of each atom."""
    assert arch.SWIZZLE_MODES == ("INTER", "SW32", "SW64", "SW128")
    assert arch.GMMA_LAYOUT_TYPE == {"INTER": 0, "SW128": 1, "SW64": 2, "SW32": 3}
    assert arch.SWIZZLE_BITS == {"INTER": 0, "SW32": 1, "SW64": 2, "SW128": 3}
    assert (arch.SWIZZLE_BASE_BYTES, arch.SWIZZLE_SHIFT) == (4, 3)
    assert list(arch.TMA_SWIZZLE) == ["INTER", "SW32", "SW64", "SW128", "SW128_32B"]
    assert list(arch.TMA_SWIZZLE.values()) == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]
    assert list(arch.TMA_UNSETTLED) == [(3, 2), (3, 3)]
    for mode in hardware.SWIZZLES:
        swizzle = hardware.byte_swizzle(mode.lower())
        moved = {i // hardware.span_bytes(mode) - swizzle(i) // hardware.span_bytes(mode) for i in range(2048)}
        assert moved == {0}
    assert hardware.byte_swizzle("SW128_32B") == Swizzle(2, 5, 2)


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (8, "u8 s8 e4m3 e5m2"),
        (16, "u16 f16 bf16"),
        (32, "u32 s32 f32 f32.ftz tf32 tf32.ftz"),
        (64, "u64 s64 f64"),
    ],
)
def test_types_have_the_widths_in_their_names(bits, names):
    assert {name for name, width in arch.DTYPE_BITS.items() if width == bits} == set(names.split())


def test_types_of_tensor_maps_have_the_codes_of_tensormap_replace():
    """PTX ISA, "tensormap.replace", values of .elemtype; cuda.h has them in the same order in CUtensorMapDataType."""
    in_order = "u8 u16 u32 s32 u64 s64 f16 f32 f32.ftz f64 bf16 tf32 tf32.ftz".split()
    assert sorted(arch.TMA_CODES, key=arch.TMA_CODES.get) == in_order
    assert sorted(arch.TMA_CODES.values()) == list(range(13))
    assert {arch.DTYPE_BITS[alias] for alias in arch.TMA_ALIASES} == {8}
    assert set(arch.TMA_CODES) | set(arch.TMA_ALIASES) == set(arch.DTYPE_BITS)
