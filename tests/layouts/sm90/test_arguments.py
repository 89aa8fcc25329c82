"""What is of another type than it must be is a TypeError that names the function and the parameter."""

from enum import IntEnum

import pytest

from cutepy.layouts import ComposedLayout, Layout, LayoutError, Swizzle, make_identity_layout, sm90, tile_to_shape
from cutepy.layouts.sm90 import arch, gmma

TILE = ComposedLayout(Swizzle(3, 4, 3), 0, Layout((64, 16), (64, 1)))
SMEM = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (128, 64, 3))
TRAITS = sm90.wgmma_traits("SM90_64x64x16_F16F16F16_SS")
MMA = sm90.TiledMMA(TRAITS)
DESCRIPTOR = sm90.GmmaDescriptor(0, 16, 1024, layout_type=1, major="K", bits=16)
GMEM = Layout((512, 512), (512, 1))
COPY = sm90.make_tma_copy(GMEM, Layout((64, 64), (64, 1)), dtype="f16")


def iterator(**changes):
    return sm90.GmmaDescriptorIterator(SMEM, **{"major": "K", "bits": 16, "mma_shape": (64, 16), **changes})


def tma_copy(**changes):
    return sm90.make_tma_copy(GMEM, Layout((64, 64), (64, 1)), **{"dtype": "f16", **changes})


CASES = {
    r"GmmaDescriptor: start_address must be an int, got 'a' of type str": lambda: sm90.GmmaDescriptor("a", 0, 0),
    r"GmmaDescriptor: leading_byte_offset must be an int, got 16.0 of type float": lambda: sm90.GmmaDescriptor(
        0, 16.0, 0
    ),
    r"GmmaDescriptor: stride_byte_offset must be an int, got None": lambda: sm90.GmmaDescriptor(0, 0, None),
    r"GmmaDescriptor: base_offset must be an int": lambda: sm90.GmmaDescriptor(0, 0, 0, base_offset=1.0),
    r"GmmaDescriptor: layout_type must be an int": lambda: sm90.GmmaDescriptor(0, 0, 0, layout_type="SW128"),
    r"GmmaDescriptor: shape_mn_k must be a tuple of ints": lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=64),
    r"GmmaDescriptor: shape_mn_k\[1\] must be an int": lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=(64, 1.5)),
    r"GmmaDescriptor.decode: word must be an int, got 'x'": lambda: sm90.GmmaDescriptor.decode("x"),
    r"advance: offset_bytes must be an int, got 16.0": lambda: DESCRIPTOR.advance(16.0),
    r"address: mn must be an int, got 'x'": lambda: DESCRIPTOR.address("x", 0),
    r"address: k must be an int, got 0.5": lambda: DESCRIPTOR.address(0, 0.5),
    r"core_matrix_address: j must be an int": lambda: DESCRIPTOR.core_matrix_address(0, 0.5),
    r"core_matrix_address: i must be an int": lambda: DESCRIPTOR.core_matrix_address(None, 0),
    r"element_addresses: shape_mn_k\[0\] must be an int": lambda: DESCRIPTOR.element_addresses((8.0, 2)),
    r"make_gmma_desc: start_address must be an int, got 'x'": lambda: sm90.make_gmma_desc(
        TILE, major="K", bits=16, start_address="x"
    ),
    r"GmmaDescriptorIterator: base_address must be an int": lambda: iterator(base_address="x"),
    r"GmmaDescriptorIterator: mma_shape must be a tuple of ints, got 64": lambda: iterator(mma_shape=64),
    r"GmmaDescriptorIterator: mma_shape\[0\] must be an int, got None": lambda: iterator(mma_shape=(None, 16)),
    r"GmmaDescriptorIterator: partition must be a Layout, got 'x'": lambda: iterator(partition="x"),
    r"wgmma_traits: name must be a str, got None of type NoneType": lambda: sm90.wgmma_traits(None),
    r"accumulator_layout: n must be an int, got 16.0": lambda: sm90.accumulator_layout(16.0),
    r"TiledMMA: traits must be an MmaTraits, got 'x' of type str; take them from wgmma_traits": lambda: sm90.TiledMMA(
        "x"
    ),
    r"TiledMMA: permutation_mnk\[1\] must be an int, a shape, a Layout or None, got 'x'": lambda: sm90.TiledMMA(
        TRAITS, permutation_mnk=(None, "x", None)
    ),
    r"TiledMMA: permutation_mnk\[2\] must be": lambda: sm90.TiledMMA(TRAITS, permutation_mnk=(None, None, [16])),
    r"TiledMMA: permutation_mnk\[0\] must be": lambda: sm90.TiledMMA(TRAITS, permutation_mnk=(64.0, None, None)),
    r"TiledMMA: permutation_mnk\[0\] must be an int, a shape": lambda: sm90.TiledMMA(
        TRAITS, permutation_mnk=((None, 64), None, None)
    ),
    r"thrfrg_A: layout must be a Layout or a ComposedLayout, got 'x'": lambda: MMA.thrfrg_A("x"),
    r"thrfrg_C: layout must be a Layout or a ComposedLayout, got \(64, 64\)": lambda: MMA.thrfrg_C((64, 64)),
    r"partition_B: layout must be a Layout or a ComposedLayout": lambda: MMA.partition_B(64, 0),
    r"partition_C: thread must be an int, got 1.5": lambda: MMA.partition_C(Layout((64, 64)), 1.5),
    r"partition_shape_C: layout must be a layout or a shape, got 'x'": lambda: MMA.partition_shape_C("x"),
    r"descriptors_A: thread must be an int": lambda: MMA.descriptors_A(SMEM, major="K", thread="0"),
    r"descriptors_B: base_address must be an int": lambda: MMA.descriptors_B(SMEM, major="K", base_address=0.5),
    r"make_tma_copy: dtype must be a str, got \['f16'\]": lambda: tma_copy(dtype=["f16"]),
    r"make_tma_copy: multicast must be an int, got 2.0": lambda: tma_copy(multicast=2.0),
    r"make_tma_copy: global_address must be an int, got '0'": lambda: tma_copy(global_address="0"),
    r"check_smem_address: address must be an int, got 'x'": lambda: COPY.check_smem_address("x"),
    r"ldmatrix_traits: num_matrices must be an int, got 1.0": lambda: sm90.ldmatrix_traits(1.0),
    r"stmatrix_traits: num_matrices must be an int, got '4'": lambda: sm90.stmatrix_traits("4"),
    r"accumulator_row_layout: num_matrices must be an int, got True": lambda: sm90.accumulator_row_layout(True),
}


@pytest.mark.parametrize("message", CASES)
def test_other_types_are_errors_that_name_the_parameter(message):
    with pytest.raises(TypeError, match=f"^{message}"):
        CASES[message]()


class Stage(IntEnum):
    LAST = 2


def test_integers_of_other_types_are_ints():
    assert iterator()[0, 0, Stage.LAST] == iterator()[0, 0, 2]
    assert type(sm90.GmmaDescriptor(0, 0, 0, layout_type=Stage.LAST).layout_type) is int
    assert iterator(mma_shape=[64, 16]) == iterator()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iterator(mma_shape=(64,)), r"^GmmaDescriptorIterator.*mma_shape must be two extents >= 1, MN and K"),
        (lambda: iterator(mma_shape=(64, 0)), r"mma_shape must be two extents >= 1, MN and K, got \(64, 0\)"),
        (lambda: iterator(partition=Layout((64, 16))), "partition must have a mode of MMA tiles and one for each mode"),
        (lambda: sm90.accumulator_layout(12), r"accumulator_layout\(12\): n must be a multiple of 8 from 8 to 256"),
        (lambda: sm90.accumulator_layout(264), "n must be a multiple of 8 from 8 to 256"),
        (lambda: sm90.accumulator_layout(0), "n must be a multiple of 8 from 8 to 256"),
        (lambda: sm90.GmmaDescriptor(0, 0, 0, major="M"), "major must be one of MN, K, got 'M'"),
        (lambda: sm90.GmmaDescriptor(0, 0, 0, bits=12), "bits must divide the 128 bits"),
        (
            lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=(64,)),
            r"shape_mn_k must be two extents >= 1, MN and K, got \(64,\)",
        ),
        (lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=(64, 0)), r"shape_mn_k must be two extents >= 1"),
        (
            lambda: MMA.descriptors_A(make_identity_layout((64, 64)), major="K"),
            r"descriptors_A\(.*\): a layout in shared memory must have integer strides, got \(1@0,1@1\)",
        ),
        (lambda: sm90.ldmatrix_traits(4).in_elements(12), r"in_elements\(12\): bits must divide the 128 bits"),
        (lambda: DESCRIPTOR.address(0, 0, bits=0), "bits must divide"),
        (lambda: DESCRIPTOR.address(0, 0, major=""), "major must be one of MN, K, got ''"),
        (lambda: DESCRIPTOR.element_addresses((8,)), "shape_mn_k must be two extents >= 1"),
        (
            lambda: sm90.make_gmma_desc(make_identity_layout((64, 16)), major="K", bits=16, start_address=0),
            "must have integer strides",
        ),
    ],
)
def test_values_that_do_not_fit_are_errors_of_layouts(call, message):
    with pytest.raises(LayoutError, match=message):
        call()


SS = sm90.wgmma_traits("SM90_64x128x16_F32F16F16_SS")
TENSOR = (64, 64), (128,), (64, 8)
IN_ANY_CASE = {
    "gmma_layout_atom": lambda n: sm90.gmma_layout_atom(n("K"), n("SW64"), 16),
    "byte_swizzle": lambda n: gmma.byte_swizzle(n("SW128")),
    "element_swizzle": lambda n: gmma.element_swizzle(n("SW32"), 16),
    "span_bytes": lambda n: arch.span_bytes(n("SW64")),
    "pattern_bytes": lambda n: arch.pattern_bytes(n("INTER")),
    "GmmaDescriptor": lambda n: sm90.GmmaDescriptor(0, 0, 0, major=n("MN")).major,
    "decode": lambda n: sm90.GmmaDescriptor.decode(0, major=n("MN"), bits=16).explain(),
    "address": lambda n: DESCRIPTOR.address(1, 0, major=n("MN"), bits=16),
    "make_gmma_desc": lambda n: sm90.make_gmma_desc(TILE, major=n("K"), bits=16, start_address=0).explain(),
    "GmmaDescriptorIterator": lambda n: iterator(major=n("K")).major,
    "descriptors_A": lambda n: sm90.TiledMMA(SS).descriptors_A(TILE, major=n("K")),
    "make_tma_copy": lambda n: tma_copy(dtype=n("bf16")),
    "TensorMap": lambda n: sm90.TensorMap(
        n("f16"), *TENSOR, swizzle=n("SW128"), l2_promotion=n("256B"), oob_fill=n("nan")
    ),
    "TensorMap's aliases": lambda n: sm90.TensorMap(n("e4m3"), *TENSOR),
}


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase])
@pytest.mark.parametrize("call", IN_ANY_CASE.values(), ids=IN_ANY_CASE)
def test_names_are_taken_in_any_case(call, change):
    assert call(change) == call(str)


def test_a_swizzle_that_is_none_is_named():
    with pytest.raises(ValueError, match="swizzle must be one of INTER, SW32, SW64, SW128, got 'SW16'"):
        gmma.byte_swizzle("SW16")
