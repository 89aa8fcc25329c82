"""Arguments of a wrong type raise a TypeError that names the function and the parameter."""

from enum import IntEnum

import pytest

from cutepy.layouts import ComposedLayout, Layout, LayoutError, Swizzle, make_identity_layout, sm90, tile_to_shape
from cutepy.layouts.sm90 import arch, gmma
from tests.messages import refuses

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


CASES = [
    lambda: sm90.GmmaDescriptor("a", 0, 0),
    lambda: sm90.GmmaDescriptor(0, 16.0, 0),
    lambda: sm90.GmmaDescriptor(0, 0, None),
    lambda: sm90.GmmaDescriptor(0, 0, 0, base_offset=1.0),
    lambda: sm90.GmmaDescriptor(0, 0, 0, layout_type="SW128"),
    lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=64),
    lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=(64, 1.5)),
    lambda: sm90.GmmaDescriptor.decode("x"),
    lambda: DESCRIPTOR.advance(16.0),
    lambda: DESCRIPTOR.address("x", 0),
    lambda: DESCRIPTOR.address(0, 0.5),
    lambda: DESCRIPTOR.core_matrix_address(0, 0.5),
    lambda: DESCRIPTOR.core_matrix_address(None, 0),
    lambda: DESCRIPTOR.element_addresses((8.0, 2)),
    lambda: sm90.make_gmma_desc(TILE, major="K", bits=16, start_address="x"),
    lambda: iterator(base_address="x"),
    lambda: iterator(mma_shape=64),
    lambda: iterator(mma_shape=(None, 16)),
    lambda: iterator(partition="x"),
    lambda: sm90.wgmma_traits(None),
    lambda: sm90.accumulator_layout(16.0),
    lambda: sm90.TiledMMA("x"),
    lambda: sm90.TiledMMA(TRAITS, permutation_mnk=(None, "x", None)),
    lambda: sm90.TiledMMA(TRAITS, permutation_mnk=(None, None, [16])),
    lambda: sm90.TiledMMA(TRAITS, permutation_mnk=(64.0, None, None)),
    lambda: sm90.TiledMMA(TRAITS, permutation_mnk=((None, 64), None, None)),
    lambda: MMA.thrfrg_A("x"),
    lambda: MMA.thrfrg_C((64, 64)),
    lambda: MMA.partition_B(64, 0),
    lambda: MMA.partition_C(Layout((64, 64)), 1.5),
    lambda: MMA.partition_shape_C("x"),
    lambda: MMA.descriptors_A(SMEM, major="K", thread="0"),
    lambda: MMA.descriptors_B(SMEM, major="K", base_address=0.5),
    lambda: tma_copy(dtype=["f16"]),
    lambda: tma_copy(multicast=2.0),
    lambda: tma_copy(global_address="0"),
    lambda: COPY.check_smem_address("x"),
    lambda: sm90.ldmatrix_traits(1.0),
    lambda: sm90.stmatrix_traits("4"),
    lambda: sm90.accumulator_row_layout(True),
]


@pytest.mark.parametrize("make", CASES)
def test_other_types_are_errors_that_name_the_parameter(make):
    with refuses(TypeError):
        make()


class Stage(IntEnum):
    LAST = 2


def test_integers_of_other_types_are_ints():
    assert iterator()[0, 0, Stage.LAST] == iterator()[0, 0, 2]
    assert type(sm90.GmmaDescriptor(0, 0, 0, layout_type=Stage.LAST).layout_type) is int
    assert iterator(mma_shape=[64, 16]) == iterator()


@pytest.mark.parametrize(
    "call",
    [
        lambda: iterator(mma_shape=(64,)),
        lambda: iterator(mma_shape=(64, 0)),
        lambda: iterator(partition=Layout((64, 16))),
        lambda: sm90.accumulator_layout(12),
        lambda: sm90.accumulator_layout(264),
        lambda: sm90.accumulator_layout(0),
        lambda: sm90.GmmaDescriptor(0, 0, 0, major="M"),
        lambda: sm90.GmmaDescriptor(0, 0, 0, bits=12),
        lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=(64,)),
        lambda: sm90.GmmaDescriptor(0, 0, 0, shape_mn_k=(64, 0)),
        lambda: MMA.descriptors_A(make_identity_layout((64, 64)), major="K"),
        lambda: sm90.ldmatrix_traits(4).in_elements(12),
        lambda: DESCRIPTOR.address(0, 0, bits=0),
        lambda: DESCRIPTOR.address(0, 0, major=""),
        lambda: DESCRIPTOR.element_addresses((8,)),
        lambda: sm90.make_gmma_desc(make_identity_layout((64, 16)), major="K", bits=16, start_address=0),
    ],
)
def test_values_that_do_not_fit_are_errors_of_layouts(call):
    with refuses(LayoutError):
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
    with refuses(ValueError):
        gmma.byte_swizzle("SW16")
