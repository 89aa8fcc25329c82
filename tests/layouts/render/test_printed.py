"""Pictures of printed MMAs and copies, held to the PTX ISA's formulas for who holds, reads and writes each element."""

import pytest

from cutepy.layouts import LayoutError, PrintedCopy, PrintedMMA, parse, sm90
from cutepy.layouts.render import picture_of, render_text
from tests.layouts.notation import prints
from tests.layouts.render.readers import read_text
from tests.messages import pins, refuses


def owners(grid):
    """{(row, column): {(thread, value)}} of a grid."""
    return {
        (i, j): {(thread, value) for threads, value in grid.cell(i, j).owners for thread in threads}
        for i in range(grid.rows.size)
        for j in range(grid.columns.size)
    }


def inverse(places):
    """The same of {(thread, value): (row, column)}."""
    held = {}
    for holder, place in places.items():
        held.setdefault(place, set()).add(holder)
    return held


def wgmma_c(n):
    """PTX ISA, wgmma's accumulator D of m64nNk16: (thread, value) -> (row, column)."""
    return {
        (t, v): (16 * (t // 32) + t % 32 // 4 + 8 * (v // 2 % 2), 8 * (v // 4) + 2 * (t % 4) + v % 2)
        for t in range(128)
        for v in range(n // 2)
    }


def mma_16816(operand):
    """PTX ISA, fragments of mma.m16n8k16 with 16-bit operands: (lane, value) -> (row, column); B as (n, k)."""
    group, place = (lambda lane: lane // 4), (lambda lane: 2 * (lane % 4))
    at = {
        "A": lambda lane, v: (group(lane) + 8 * (v // 2 % 2), place(lane) + v % 2 + 8 * (v // 4)),
        "B": lambda lane, v: (group(lane), place(lane) + v % 2 + 8 * (v // 2)),
        "C": lambda lane, v: (group(lane) + 8 * (v // 2), place(lane) + v % 2),
    }[operand]
    return {(lane, v): at(lane, v) for lane in range(32) for v in range({"A": 8, "B": 4, "C": 4}[operand])}


def warps_of_2x2(operand):
    """Four warps, 2 x 2, of that mma over a tile of 32x32x16 whose N is (8,2,2):(1,16,8)."""
    places = {}
    for warp in range(4):
        m, n = warp % 2, warp // 2
        for (lane, v), (row, column) in mma_16816(operand).items():
            thread = 32 * warp + lane
            if operand == "A":
                places[thread, v] = (16 * m + row, column)
            for again in range(2):  # the atom's 8 columns lie 16 apart for the two warps, 8 apart in a warp
                if operand == "B":
                    places[thread, v + 4 * again] = (16 * n + 8 * again + row, column)
                if operand == "C":
                    places[thread, v + 4 * again] = (16 * m + row, 16 * n + 8 * again + column)
    return places


@pytest.mark.parametrize("text", [prints.CPP_SS, prints.DSL_SS], ids=["C++", "DSL"])
def test_wgmma_from_shared_memory(text):
    mma = parse(text)
    assert isinstance(mma, PrintedMMA)
    a, b, c = picture_of(mma).grids
    for (row, column), held in owners(a).items():
        first = 128 * (row // 64)  # each warpgroup sees its own 64 rows
        assert held == {(thread, row % 64 + 64 * column) for thread in range(first, first + 128)}
    for (row, column), held in owners(b).items():
        assert held == {(thread, row + 64 * column) for thread in range(256)}
    expected = {}
    for group in range(2):
        expected |= {(128 * group + t, v): (64 * group + m, n) for (t, v), (m, n) in wgmma_c(64).items()}
    assert owners(c) == inverse(expected)
    pins(a.title)
    pins(b.title)
    assert "shared memory" not in c.title
    assert b.cell(0, 0).text == "T*\nV0"
    pins("\n".join(b.caption))


@pytest.mark.parametrize("text", [prints.CPP_RS, prints.DSL_RS], ids=["C++", "DSL"])
def test_wgmma_from_registers(text):
    a, b, c = picture_of(text).grids
    assert owners(a) == inverse(wgmma_c(16))
    assert owners(c) == inverse(wgmma_c(64))
    assert "shared memory" not in a.title
    assert {cell.text[:2] for row in b.cells for cell in row} == {"T*"}


@pytest.mark.parametrize("operand", ["A", "B", "C"])
@pytest.mark.parametrize("text", [prints.CPP_WARP, prints.DSL_WARP], ids=["C++", "DSL"])
def test_a_warps_mma_tiled_and_permuted(text, operand):
    assert owners(picture_of(text, operand=operand)) == inverse(warps_of_2x2(operand))


@pytest.mark.parametrize("text", [prints.CPP_LDMATRIX_A, prints.DSL_LDMATRIX_A], ids=["C++", "DSL"])
def test_ldmatrix_tiled_after_operand_a(text):
    source, destination = picture_of(text).grids
    assert owners(destination) == inverse(warps_of_2x2("A"))
    rows = {}
    for thread in range(128):
        matrix, row = thread % 32 // 8, thread % 8
        for v in range(8):
            rows[thread, v] = (16 * (thread // 32 % 2) + 8 * (matrix % 2) + row, 8 * (matrix // 2) + v)
    assert owners(source) == inverse(rows)
    assert destination.title == "destination: registers"


def test_stmatrix_tiled_after_the_accumulator():
    source, destination = picture_of(prints.CPP_STMATRIX_C).grids
    assert owners(source) == inverse(wgmma_c(64))
    rows = {}
    for thread in range(128):
        warp, row = thread // 32, thread % 16  # lanes 16 to 31 repeat the addresses of 0 to 15
        for v in range(64):
            rows[thread, v] = (16 * warp + row, 8 * (v // 8) + v % 8)
    assert owners(destination) == inverse(rows)


def test_a_tiler_of_layouts_is_drawn_where_the_elements_are():
    source, destination = picture_of(prints.CPP_STMATRIX_C_ATOM).grids
    assert owners(source) == inverse(wgmma_c(16))
    rows = {}
    for thread in range(128):
        warp, matrix, row = thread // 32, thread % 32 // 8, thread % 8
        for v in range(8):
            rows[thread, v] = (16 * warp + 8 * (matrix % 2) + row, 8 * (matrix // 2) + v)
    assert owners(destination) == inverse(rows)


@pytest.mark.parametrize("text", [prints.CPP_LDMATRIX, prints.DSL_LDMATRIX], ids=["C++", "DSL"])
def test_ldmatrix_alone(text):
    source, destination = picture_of(text).grids
    # The matrices stand one below the other.
    assert owners(source) == inverse({(t, v): (t, v) for t in range(32) for v in range(8)})
    assert owners(destination) == inverse(
        {(t, v): (t // 4 + 8 * (v // 2), 2 * (t % 4) + v % 2) for t in range(32) for v in range(8)}
    )


def test_a_thread_of_a_copy_is_marked():
    grid = picture_of(prints.CPP_CP_ASYNC)
    for (row, column), held in owners(grid).items():
        thread = column // 8 + 8 * row
        assert held == {(thread, column % 8)}
        assert grid.cell(row, column).marks == (("thread 3",) if thread == 3 else ())


def test_a_thread_of_an_mma_is_marked():
    grid = picture_of(prints.CPP_THR_MMA, operand="C")
    marked = {place for place in owners(grid) if grid.cell(*place).marks}
    assert marked == {place for (thread, _), place in warps_of_2x2("C").items() if thread == 32 + 3}


@pytest.mark.parametrize(
    ("name", "atoms"),
    [
        ("SM90_64x8x16_F32F16F16_SS", (2, 1, 1)),
        ("SM90_64x8x16_F32F16F16_SS", (1, 1, 2)),
        ("SM90_64x16x32_F32E4M3E4M3_RS_TN", (1, 2, 1)),
    ],
)
def test_as_our_own_tiling_of_the_same_atom(name, atoms):
    from cutepy.layouts import Layout

    ours = sm90.TiledMMA(sm90.wgmma_traits(name), Layout(atoms))
    traits = ours.traits
    printed = PrintedMMA(
        traits.shape_mnk,
        traits.thr_id,
        traits.a_layout,
        traits.b_layout,
        traits.c_layout,
        ours.thr_layout_vmnk,
        (None, None, None),
    )
    assert parse(str(printed)) == printed
    for grid, drawn in zip(picture_of(ours).grids, picture_of(printed).grids, strict=True):
        assert owners(grid) == owners(drawn)


@pytest.mark.parametrize("name", sorted(prints.ALL))
def test_every_print_is_legible(name):
    width = 80
    value = parse(prints.ALL[name])
    assert parse(str(value)) == value
    picture = picture_of(value)
    for grid in getattr(picture, "grids", (picture,)):
        text = render_text(grid, width=width, height=60)
        assert max(map(len, text.splitlines())) <= width
        rows, columns = ({axis.label(i): i for i in range(axis.size)} for axis in (grid.rows, grid.columns))
        for (row, column), cell in read_text(text).items():
            if "..." not in (row, column, cell):
                assert cell.lstrip("*") == grid.cell(rows[row], columns[column]).text.replace("\n", "").lstrip("*")


def test_a_tiler_that_leaves_rows_out():
    # make_tiled_copy_C_atom of stmatrix.x1: of each warp's 16 rows the first 8.
    text = """TiledCopy
  Tiler_MN:       ((_8,_4):(_1,_16),(_4,_2):(_2,_1))
  TiledLayout_TV: ((_4,_8,_4),_2):((_32,_1,_8),_128)"""
    grid = picture_of(text)
    rows = [16 * warp + row for warp in range(4) for row in range(8)]
    assert [grid.rows.label(i) for i in range(grid.rows.size)] == [*map(str, rows)]
    expected = {place: held for place, held in inverse(wgmma_c(8)).items() if place[0] in rows}
    assert {(rows[i], j): held for (i, j), held in owners(grid).items()} == expected
    assert grid.cell(8, 3).coordinate == (16, 3)
    pins("\n".join(grid.caption))


def test_threads_of_several_atoms_along_k():
    # make_tiled_copy_C of two atoms along K: the layout of C's threads and values goes beyond the tile.
    text = "TiledCopy\n  Tiler_MN: (_64,_8)\n"
    text += "  TiledLayout_TV: ((_4,_8,_4,_2),(_2,_2)):((_128,_1,_16,_512),(_64,_8))"
    grid = picture_of(text)
    assert owners(grid) == inverse(wgmma_c(8))
    pins("\n".join(grid.caption))


def test_half_a_copy_is_drawn_from_its_tile():
    text = "TiledCopy\n  Tiler_MN: (_4,_8)\n  TiledLayout_TV: (_4,_8):(_1,_4)\n"
    copy = parse(text)
    assert (copy.bits, copy.reference) == (None, None)
    assert owners(picture_of(copy)) == inverse({(t, v): (t, v) for t in range(4) for v in range(8)})


@pytest.mark.parametrize(
    "make",
    [
        lambda: parse(prints.CPP_RS.replace("(_64,_64,_16)", "(_64,_64)")),
        lambda: parse(prints.CPP_RS.replace("_128:_1\n", "_128\n")),
        lambda: parse(prints.CPP_SS.replace("(_,_,_)", "(_,_)")),
        lambda: parse(prints.CPP_LDMATRIX.replace("(_32,_8):(_8,_1)", "_32:_8")),
        lambda: PrintedCopy(),
        lambda: picture_of(prints.CPP_SS.replace("(_,_,_)", "(_,Sw<1,2,3>,_)")),
        lambda: picture_of(prints.CPP_CP_ASYNC.replace("(_16,", "(_,")),
        lambda: picture_of(prints.CPP_RS, operand="D"),
    ],
)
def test_what_does_not_fit_together_is_told(make):
    with refuses(LayoutError):
        make()


def test_threads_bear_their_own_numbers():
    # C++ CuTe's SM70_8x8x4 works on a quad pair: lanes 0 to 3 and 16 to 19 of a warp.
    text = """MMA_Atom
  ThrID:      (_4,_2):(_1,_16)
  Shape_MNK:  (_8,_8,_4)
  LayoutA_TV: (_8,_4):(_1,_8)
  LayoutB_TV: (_8,_4):(_1,_8)
  LayoutC_TV: (_8,_8):(_1,_8)"""
    lanes = [0, 1, 2, 3, 16, 17, 18, 19]
    rows = {(lane, v): (row, v) for row, lane in enumerate(lanes) for v in range(8)}
    assert owners(picture_of(text, operand="C")) == inverse(rows)
    tiled = "TiledMMA\n  ThrLayoutVMNK: ((_4,_2),_2,_1,_1):((_1,_16),_4,_0,_0)\n  PermutationMNK: (_,_,_)\n"
    rows |= {(lane + 4, v): (row + 8, v) for (lane, v), (row, _) in tuple(rows.items())}
    assert owners(picture_of(tiled + text, operand="C")) == inverse(rows)


def test_threads_that_are_no_whole_atoms():
    with refuses(LayoutError):
        picture_of(prints.CPP_SS.replace("(_1,_128,_0,_0)", "(_1,_64,_0,_0)"))


def test_what_is_printed_can_be_computed_with():
    mma = parse(prints.CPP_SS).tiled()
    assert (mma.thr_size, mma.partition_shape_C((128, 128))) == (256, ((2, 2, 8), 1, 2))
    assert [mma.traits.source(operand) for operand in "ABC"] == ["smem", "smem", "rmem"]
    copy = parse(prints.DSL_LDMATRIX_A).tiled()
    ours = sm90.make_tiled_copy_A(sm90.make_copy_atom(sm90.ldmatrix_traits(4), 16), parse(prints.DSL_WARP).tiled())
    assert copy.get_layoutS_TV() == ours.get_layoutS_TV()
    with refuses(LayoutError):
        parse(prints.CPP_LDMATRIX).tiled()
