"""TiledCopy: who reads and who writes each element of a tile."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import ComposedLayout, Layout, LayoutError, SmemPtr, make_identity_layout, size, sm80, sm90
from cutepy.layouts.sm90 import (
    TiledCopy,
    TiledMMA,
    ldmatrix_traits,
    make_copy_atom,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
    make_tiled_copy_C,
    make_tiled_copy_C_atom,
    make_tiled_copy_D,
    make_tiled_copy_S,
    stmatrix_traits,
    universal_copy,
)
from tests.layouts import brute_force as bf
from tests.messages import refuses

MMA = TiledMMA(sm80.mma_traits("SM80_16x8x16_F32F16F16F32_TN"), Layout((2, 2, 1)), (32, 32, 16))
LDSM, STSM = make_copy_atom(ldmatrix_traits(4), 16), make_copy_atom(stmatrix_traits(4), 16)
PLAIN = make_copy_atom(universal_copy(16), 16)


def compact(draw, extents):
    """Draw a compact layout of a shape, its modes in any order."""
    order = draw(st.permutations(range(len(extents))))
    strides, reached = [0] * len(extents), 1
    for mode in order:
        strides[mode], reached = reached, reached * extents[mode]
    return Layout(tuple(extents), tuple(strides))


@st.composite
def tilings(draw, warps=True):
    """Draw an atom, of one thread or of a warp, and compact layouts of threads and values."""
    rank = draw(st.integers(1, 3))
    threads = [draw(st.sampled_from((1, 2, 4))) for _ in range(rank)]
    values = [draw(st.sampled_from((1, 2))) for _ in range(rank)]
    if not warps or draw(st.booleans()):
        atom = make_copy_atom(universal_copy(draw(st.sampled_from((16, 32, 64)))), 16)
        values[-1] *= atom.num_val_src
    else:
        number, transpose = draw(st.sampled_from((1, 2, 4))), draw(st.booleans())
        make = draw(st.sampled_from((ldmatrix_traits, stmatrix_traits)))
        atom = make_copy_atom(make(number, transpose=transpose), 16)
        threads[0] *= 32
        values[-1] *= 2 * number
    return atom, compact(draw, threads), compact(draw, values)


def index_in(tile, coordinate):
    """Colexicographic index of a coordinate."""
    index, reached = 0, 1
    for extent, part in zip(tile, coordinate, strict=True):
        index, reached = index + part * reached, reached * extent
    return index


def check_threads_and_values_lie_as_the_layouts_say(tiling):
    """An element is thread thr(m, n) at the block's place, and value val(m, n) at the place within it."""
    atom, thr, val = tiling
    copy = make_tiled_copy(atom, thr, val)
    blocks, within = thr.shape, val.shape
    assert copy.tile_shape == tuple(b * w for b, w in zip(blocks, within, strict=True))
    to_index = bf.table(copy.layout_tv)
    threads, values = bf.table(thr), bf.table(val)
    for block, thread in zip(bf.coordinates(blocks), threads, strict=True):
        for inner, value in zip(bf.coordinates(within), values, strict=True):
            coordinate = [b * w + i for b, w, i in zip(block, within, inner, strict=True)]
            assert to_index[thread + len(threads) * value] == index_in(copy.tile_shape, coordinate)


@given(tilings(), st.data())
def test_partitions_are_what_the_layouts_of_both_sides_say(tiling, data):
    copy = make_tiled_copy(*tiling)
    thread = data.draw(st.integers(0, copy.thr_size - 1))
    for partition, layout in ((copy.partition_S, copy.get_layoutS_TV()), (copy.partition_D, copy.get_layoutD_TV())):
        part, offset = partition(Layout(copy.tile_shape), thread)
        table = bf.table(layout)
        values = len(table) // copy.thr_size
        assert [offset + i for i in bf.table(part)] == [table[thread + copy.thr_size * v] for v in range(values)]


def check_the_registers_side_holds_each_element_once(tiling):
    atom, thr, val = tiling
    copy = make_tiled_copy(atom, thr, val)
    registers = copy.get_layoutD_TV() if "LDSM" in atom.name else copy.get_layoutS_TV()
    assert bf.table(registers) == bf.table(copy.layout_tv)
    other = copy.get_layoutS_TV() if "LDSM" in atom.name else copy.get_layoutD_TV()
    assert set(bf.table(other)) == set(range(size(copy.layout_tv)))


@given(tilings(), st.data())
def test_both_sides_of_an_instruction_move_the_same_elements(tiling, data):
    """The threads of one atom write the elements of the tile that they read."""
    atom, thr, val = tiling
    copy = make_tiled_copy(atom, thr, val)
    threads, values = size(atom.ref_layout, 0), size(atom.ref_layout, 1)
    group = data.draw(st.integers(0, copy.thr_size // threads - 1))
    number = data.draw(st.integers(0, size(copy.layout_tv, 1) // values - 1))

    def moved(layout, held):
        table = bf.table(layout)
        some = range(group * threads, (group + 1) * threads)
        return {table[t + copy.thr_size * v] for t in some for v in range(number * held, (number + 1) * held)}

    assert moved(copy.get_layoutS_TV(), atom.num_val_src) == moved(copy.get_layoutD_TV(), atom.num_val_dst)


@given(tilings(), st.data())
def test_larger_tensors_are_tiled(tiling, data):
    copy = make_tiled_copy(*tiling)
    thread = data.draw(st.integers(0, copy.thr_size - 1))
    times = [data.draw(st.integers(1, 2)) for _ in copy.tile_shape]
    whole = tuple(extent * t for extent, t in zip(copy.tile_shape, times, strict=True))
    part, offset = copy.partition_S(Layout(whole), thread)
    assert part.rank() == 1 + len(whole)
    table = bf.table(copy.get_layoutS_TV())
    tile, tensor = bf.coordinates(copy.tile_shape), bf.coordinates(whole)
    own = {tile[index] for index in table[thread :: copy.thr_size]}
    found = {tuple(c % e for c, e in zip(tensor[offset + i], copy.tile_shape, strict=True)) for i in bf.table(part)}
    assert found == own


def test_each_operand_of_a_warps_mma():
    """Loaded by ldmatrix for A, each thread has what the MMA takes from it."""
    for make, operand in ((make_tiled_copy_A, "A"), (make_tiled_copy_B, "B"), (make_tiled_copy_C, "C")):
        copy = make(LDSM if operand == "A" else PLAIN, MMA)
        m, n, k = MMA.tile_shape
        assert copy.tile_shape == {"A": (m, k), "B": (n, k), "C": (m, n)}[operand]
        held = getattr(MMA, f"get_layout{operand}_TV")()
        assert bf.table(copy.get_layoutD_TV()) == bf.table(held)


def test_ldmatrix_for_a_reads_rows_of_16_bytes():
    """Lane l addresses row l % 16, columns 8 * (l // 16), of its warp's 16x16 tile: PTX's ldmatrix.x4 for m16n8k16."""
    copy = make_tiled_copy_A(LDSM, MMA)
    table = bf.table(copy.get_layoutS_TV())
    for thread in range(128):
        lane, warp = thread % 32, thread // 32
        for value in range(8):
            row, column = lane % 16 + 16 * (warp % 2), 8 * (lane // 16) + value
            assert table[thread + 128 * value] == row + 32 * column


def test_a_fragment_of_c_is_retiled_for_the_copy():
    copy = make_tiled_copy_C(STSM, mma := TiledMMA(sm90.wgmma_traits("SM90_64x32x16_F32F16F16_SS")))
    fragment = mma.fragment_C((128, 64))
    retiled = copy.retile(fragment)
    assert retiled.rank() == 3
    assert sorted(bf.table(retiled)) == sorted(bf.table(fragment))
    # Value by value, the registers that are retiled stand for the elements of the copy's own partition.
    of_c, _ = mma.partition_C(make_identity_layout((128, 64)), 5)
    by_copy, _ = copy.partition_S(make_identity_layout((128, 64)), 5)
    place = {register: of_c(i) for i, register in enumerate(bf.table(fragment))}
    assert [place[register] for register in bf.table(retiled)] == [by_copy(i) for i in range(by_copy.size())]


def test_the_smallest_copy_of_c():
    mma = TiledMMA(sm90.wgmma_traits("SM90_64x64x16_F32F16F16_SS"), Layout((2, 1, 1)))
    copy = make_tiled_copy_C_atom(STSM, mma)
    assert copy.tile_shape == (128, 16)
    assert size(copy.layout_tv, 1) == 8
    rows, columns = (bf.table(tiler) for tiler in copy.tiler_mn)
    whole = bf.table(mma.get_layoutC_TV())
    for i, index in enumerate(bf.table(copy.layout_tv)):
        assert rows[index % 128] + 128 * columns[index // 128] == whole[i]
    with refuses(LayoutError):
        make_tiled_copy_C_atom(STSM, TiledMMA(sm90.wgmma_traits("SM90_64x8x16_F32F16F16_SS")))


def check_copies_after_copies(tiling):
    base = make_tiled_copy(*tiling)
    for make, layout in ((make_tiled_copy_S, base.get_layoutS_TV()), (make_tiled_copy_D, base.get_layoutD_TV())):
        assert make(PLAIN, base).layout_tv == layout


@given(tilings())
def test_any_tiling(tiling):
    check_threads_and_values_lie_as_the_layouts_say(tiling)
    check_the_registers_side_holds_each_element_once(tiling)
    check_copies_after_copies(tiling)


def test_a_swizzled_tile_is_partitioned_under_its_swizzle():
    copy = make_tiled_copy_A(LDSM, MMA)
    pointer = sm90.gmma_layout_atom("K", "SW64", 16, pointer_swizzle=True)
    tile = ComposedLayout(pointer.layoutB, SmemPtr(16), Layout((32, 32), (32, 1)))
    plain, offset = copy.partition_S(tile.layoutA, 37)
    assert copy.partition_S(tile, 37) == (ComposedLayout(tile.layoutB, SmemPtr(16), plain), offset)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: TiledCopy(ldmatrix_traits(4), Layout((32, 8)), (32, 8)), TypeError),
        (lambda: TiledCopy(LDSM, Layout((16, 8)), (16, 8)), LayoutError),
        (lambda: TiledCopy(LDSM, Layout((32, 4)), (32, 4)), LayoutError),
        (lambda: TiledCopy(LDSM, Layout(32), (32, 4)), LayoutError),
        (lambda: TiledCopy(LDSM, Layout((32, 8)), 32), TypeError),
        (lambda: TiledCopy(LDSM, Layout((32, 8)), (32, "8")), TypeError),
        (lambda: make_tiled_copy(PLAIN, Layout((4, 2)), (4, 2)), TypeError),
        (lambda: make_tiled_copy(PLAIN, Layout(4, 2)), LayoutError),
        (lambda: make_tiled_copy_A(PLAIN, MMA.traits), TypeError),
        (lambda: make_tiled_copy_S(PLAIN, MMA), TypeError),
        (lambda: make_copy_atom("UniversalCopy<uint16_t>", 16), TypeError),
        (lambda: make_copy_atom(universal_copy(64), 24), LayoutError),
        (lambda: make_copy_atom(universal_copy(8), 16), LayoutError),
        (lambda: universal_copy(24), LayoutError),
        (lambda: make_tiled_copy_A(LDSM, MMA).partition_S(Layout((32, 16)), 128), LayoutError),
        (lambda: make_tiled_copy_A(LDSM, MMA).tidfrg_D(Layout(512)), LayoutError),
        (lambda: make_tiled_copy_A(LDSM, MMA).retile(Layout((8, 2))), LayoutError),
    ],
)
def test_wrong_arguments_are_told(call, error):
    with refuses(error):
        call()


def test_a_warps_mma_has_fragments_and_no_descriptors():
    assert MMA.fragment_A(Layout((32, 32))).shape == ((2, 2, 2), 1, 2)
    assert MMA.fragment_B(Layout((32, 32))).shape == ((2, 2), 2, 2)
    tile = sm90.gmma_layout_atom("K", "SW64", 16)
    for operand in "AB":
        with refuses(LayoutError):
            getattr(MMA, f"descriptors_{operand}")(tile, major="K")
    with refuses(LayoutError):
        TiledMMA(sm90.wgmma_traits("SM90_64x64x16_F32F16F16_RS")).fragment_B(Layout((64, 64)))
