"""TiledMMA: who holds which element."""

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    SmemPtr,
    cosize,
    make_identity_layout,
    make_layout_right,
    rank,
    size,
    sm90,
    tile_to_shape,
)
from tests.layouts import brute_force as bf
from tests.messages import refuses

SS, RS, FP8 = "SM90_64x16x16_F32F16F16_SS", "SM90_64x16x16_F32F16F16_RS", "SM90_64x8x32_F32E4M3E4M3_RS_TN"


@st.composite
def tiled_mmas(draw):
    """Draw one to four warpgroups side by side, in either order."""
    m, n = draw(st.sampled_from(((1, 1), (2, 1), (1, 2), (2, 2), (3, 1))))
    atoms = make_layout_right((m, n, 1)) if draw(st.booleans()) else Layout((m, n, 1))
    return sm90.TiledMMA(sm90.wgmma_traits(draw(st.sampled_from((SS, RS, FP8)))), atoms)


@given(tiled_mmas())
def test_the_tv_layout_of_c_holds_each_element_once(mma):
    m, n, _ = mma.tile_shape
    layout = mma.get_layoutC_TV()
    assert (size(layout, 0), cosize(layout)) == (mma.thr_size, m * n)
    assert sorted(bf.table(layout)) == list(range(m * n))


@pytest.mark.parametrize(
    ("traits", "atoms", "times_m", "times_n", "row_major"),
    [(SS, (1, 1, 1), 2, 1, False), (RS, (2, 1, 1), 1, 2, True), (FP8, (1, 2, 1), 2, 2, True)],
)
def test_partitions_of_c_cover_it_once(traits, atoms, times_m, times_n, row_major):
    mma = sm90.TiledMMA(sm90.wgmma_traits(traits), Layout(atoms))
    m, n = mma.tile_shape[0] * times_m, mma.tile_shape[1] * times_n
    c = Layout((m, n), (n, 1)) if row_major else Layout((m, n))
    covered = []
    for thread in range(mma.thr_size):
        part, offset = mma.partition_C(c, thread)
        covered += [offset + i for i in bf.table(part)]
    assert sorted(covered) == list(range(m * n))


def check_partition_and_tv_layout_agree(mma, data):
    thread = data.draw(st.integers(0, mma.thr_size - 1))
    m, n, k = mma.tile_shape
    for operand, shape in (("A", (m, k)), ("B", (n, k)), ("C", (m, n))):
        part, offset = getattr(mma, f"partition_{operand}")(Layout(shape), thread)
        layout = getattr(mma, f"get_layout{operand}_TV")()
        assert [offset + part(i) for i in range(size(part))] == [layout(thread, v) for v in range(size(layout, 1))]
        assert part.shape == getattr(mma, f"partition_shape_{operand}")(shape)


def check_operands_in_shared_memory_are_one_for_a_warpgroup(mma, data):
    thread = data.draw(st.integers(0, mma.thr_size - 1))
    b = Layout((2 * mma.tile_shape[1], 2 * mma.tile_shape[2]))
    assert mma.partition_B(b, thread) == mma.partition_B(b, thread // 128 * 128)
    if mma.traits.a_source == "smem":
        a = Layout((2 * mma.tile_shape[0], 2 * mma.tile_shape[2]))
        assert mma.partition_A(a, thread) == mma.partition_A(a, thread // 128 * 128)


def check_a_partition_of_coordinates_says_where_the_values_are(mma, data):
    m, n, _ = mma.tile_shape
    thread = data.draw(st.integers(0, mma.thr_size - 1))
    c = Layout((m, n), (n, 1))
    part, offset = mma.partition_C(c, thread)
    coordinates, origin = mma.partition_C(make_identity_layout((m, n)), thread)
    for i in range(size(part)):
        where = tuple(a + b for a, b in zip(origin, coordinates(i), strict=True))
        assert c(*where) == offset + part(i)


@given(tiled_mmas(), st.data())
def test_partitions_of_any_mma(mma, data):
    check_partition_and_tv_layout_agree(mma, data)
    check_operands_in_shared_memory_are_one_for_a_warpgroup(mma, data)
    check_a_partition_of_coordinates_says_where_the_values_are(mma, data)


def test_fragments_are_compact():
    mma = sm90.TiledMMA(sm90.wgmma_traits(RS))
    assert mma.fragment_C((128, 32)) == Layout(((2, 2, 2), 2, 2))
    fragment = mma.fragment_A(Layout((128, 64), (64, 1)))
    assert fragment.shape == mma.partition_shape_A((128, 64))
    assert sorted(fragment(i) for i in range(size(fragment))) == list(range(size(fragment)))
    with refuses(LayoutError):
        sm90.TiledMMA(sm90.wgmma_traits(SS)).fragment_A(Layout((128, 64)))


@pytest.mark.parametrize("major", ["MN", "K"])
def test_a_swizzled_operand_is_partitioned_under_its_swizzle(major):
    mma = sm90.TiledMMA(sm90.wgmma_traits(SS))
    elements = tile_to_shape(sm90.gmma_layout_atom(major, "SW64", 16), (128, 64))
    pointer = tile_to_shape(sm90.gmma_layout_atom(major, "SW64", 16, pointer_swizzle=True), (128, 64))
    plain, _ = mma.partition_A(elements.layoutA, 0)
    assert mma.partition_A(pointer, 0) == (ComposedLayout(pointer.layoutB, SmemPtr(16), plain), 0)
    part, offset = mma.partition_A(elements, 0)
    assert [offset + part(i) for i in range(size(part))] == [elements.layoutB(plain(i)) for i in range(size(plain))]
    assert mma.thrfrg_A(pointer).layoutA == mma.thrfrg_A(elements.layoutA)


def test_a_permutation_reorders_before_tiling():
    atoms = Layout((1, 2, 1))
    permuted = sm90.TiledMMA(sm90.wgmma_traits(SS), atoms, (None, Layout((8, 2, 2), (1, 16, 8)), None))
    assert permuted.tile_shape == (64, 32, 16)
    layout = permuted.get_layoutC_TV()
    assert sorted(layout(i) for i in range(size(layout))) == list(range(64 * 32))
    # The first atom's second block of 8 columns is the tile's third.
    assert [layout(0, 4) // 64, layout(128, 0) // 64] == [16, 8]
    assert sm90.TiledMMA(sm90.wgmma_traits(SS), atoms, (None, 64, None)).tile_shape == (64, 64, 16)


def test_descriptors_of_the_operands():
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x32x16_F32F16F16_SS"))
    smem = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (128, 64, 2))
    assert size(mma.descriptors_A(smem, major="K", base_address=0x400).layout, 1) == 2
    assert size(mma.descriptors_B(smem, major="K").layout, 1) == 4
    assert mma.descriptors_A(smem, major="K", base_address=0x400)[0, 0, 0].start_address == 0x400


@pytest.mark.parametrize("major", ["K", "MN"])
def test_each_warpgroup_walks_the_descriptors_of_its_own_rows(major):
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x32x16_F32F16F16_SS"), Layout((2, 1, 1)))
    smem = tile_to_shape(sm90.gmma_layout_atom(major, "SW128", 16), (256, 64, 2))
    both = sm90.GmmaDescriptorIterator(smem, major=major, bits=16, mma_shape=(64, 16))
    for warpgroup in (0, 1):
        own = mma.descriptors_A(smem, major=major, thread=128 * warpgroup)
        assert own.layout[1].size() == 2
        assert all(own[i, k, 1] == both[2 * i + warpgroup, k, 1] for i in range(2) for k in range(4))
        assert mma.descriptors_B(smem, major=major, thread=128 * warpgroup)[3, 1, 0].start_address < 2**18


@pytest.mark.parametrize(
    ("name", "operand"),
    [
        ("SM90_64x32x32_F32E4M3E4M3_SS_TN", "A"),
        ("SM90_64x32x8_F32TF32TF32_SS_TN", "B"),
        (RS, "A"),
    ],
)
def test_the_hardwares_majors_are_enforced(name, operand):
    mma = sm90.TiledMMA(sm90.wgmma_traits(name))
    with refuses(LayoutError):
        getattr(mma, f"descriptors_{operand}")(Layout((64, 64)), major="MN")


@pytest.mark.parametrize(
    "arguments",
    [
        (Layout((2, 1)),),
        ((2, 1, 1),),
        (Layout((1, 1, 1)), (None, None)),
    ],
)
def test_bad_tilings_are_errors(arguments):
    with refuses(LayoutError):
        sm90.TiledMMA(sm90.wgmma_traits(SS), *arguments)


def test_bad_partitions_are_errors():
    mma = sm90.TiledMMA(sm90.wgmma_traits(SS))
    with refuses(LayoutError):
        mma.partition_C(Layout((64, 16)), 128)
    with refuses(LayoutError):
        mma.thrfrg_C(Layout(64))
    assert rank(mma.thrfrg_C(Layout((64, 16, 5)))) == 2


def test_a_tiling_is_a_value():
    mma = sm90.TiledMMA(sm90.wgmma_traits(SS))
    assert str(mma) == f"TiledMMA({SS}, (1,1,1):(0,0,0), <_,_,_>)"
    assert mma == sm90.TiledMMA(sm90.wgmma_traits(SS), Layout((1, 1, 1)))
    assert hash(mma) == hash(sm90.TiledMMA(sm90.wgmma_traits(SS)))
    assert mma != sm90.TiledMMA(sm90.wgmma_traits(SS), Layout((2, 1, 1)))


def test_b_may_be_mn_major_where_a_comes_from_registers():
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x64x16_F32F16F16_RS"))
    smem = tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (64, 64))
    assert mma.descriptors_B(smem, major="MN").major == "MN"


@pytest.mark.parametrize("thr_id", [Layout(1, 0), Layout(128), Layout((4, 2), (1, 16))])
@pytest.mark.parametrize("atoms", [(1, 1, 1), (2, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_layout_of_threads_tells_its_atoms(thr_id, atoms, order):
    strides = [0, 0, 0]
    for place, mode in enumerate(order):
        strides[mode] = math.prod(atoms[before] for before in order[:place])
    traits = sm90.MmaTraits("", (1, 1, 1), thr_id, *3 * [Layout((thr_id.size(), 1), (0, 0))], *3 * [""])
    ours = sm90.TiledMMA(traits, Layout(atoms, tuple(strides)))
    assert sm90.TiledMMA.of_threads(traits, ours.thr_layout_vmnk).thr_layout_vmnk == ours.thr_layout_vmnk
