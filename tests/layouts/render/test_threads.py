"""Thread-value pictures against the PTX ISA's formulas, and against the layouts that C++ CuTe prints."""

import re

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import Layout, LayoutError, parse, sm90, tile_to_shape
from cutepy.layouts.render import layout_grid, picture_of, render_html, render_svg, render_text, tv_grid
from cutepy.layouts.sm90.arch import DTYPE_BITS
from cutepy.testing.strategies import layouts
from tests.golden.calls import vectors
from tests.layouts import brute_force
from tests.layouts.render.readers import HtmlGrid, SvgGrid, read_text
from tests.messages import pins, refuses

TRAITS = [row for row in vectors("tv_layouts") + vectors("extra_sm90") if row["op"] == "mma_traits"]
SMALL_TRAITS = [row for row in TRAITS if int(row["in"][0].split("x")[1]) <= 16]


def owners(grid):
    """Row and column -> {(thread, value)} of a grid."""
    return {
        (i, j): {(thread, value) for threads, value in cell.owners for thread in threads}
        for i, row in enumerate(grid.cells)
        for j, cell in enumerate(row)
    }


def fragment(row, column, per_register):
    """Thread of an element of a wgmma fragment: PTX ISA, "Register Fragments", figures of D and of A.

    A warp has 16 rows; a thread `per_register` neighbours of a row, 32 bits, in each of the rows 8 apart; then those to
    the right.
    """
    warp, lane_row = row // 16, row % 8
    group, within = divmod(column, 4 * per_register)
    thread = 32 * warp + 4 * lane_row + within // per_register
    value = within % per_register + per_register * (row % 16 // 8) + 2 * per_register * group
    return {(thread, value)}


ATOMS = [
    "SM90_64x8x16_F16F16F16_RS",
    "SM90_64x24x16_F32BF16BF16_RS",
    "SM90_64x16x32_F32E4M3E4M3_RS_TN",
    "SM90_64x32x32_S32S8U8_RS_TN_SATURATE",
    "SM90_64x40x8_F32TF32TF32_RS_TN",
]


@pytest.mark.parametrize("name", ATOMS)
def test_fragments_are_those_of_the_ptx_isa(name):
    a, _, c = picture_of(name).grids
    bits = sm90.wgmma_traits(name).a_bits
    assert owners(c) == {place: fragment(*place, 2) for place in owners(c)}
    if bits == 32:
        # A of 32 bits: one element a register, rows 8 apart, then 4 columns to the right.
        held = {(i, j): {(32 * (i // 16) + 4 * (i % 8) + j % 4, i % 16 // 8 + 2 * (j // 4))} for i, j in owners(a)}
    else:
        held = {place: fragment(*place, 32 // bits) for place in owners(a)}
    assert owners(a) == held


@pytest.mark.parametrize("name", ["SM90_64x8x16_F16F16F16_SS", "SM90_64x16x8_F32TF32TF32_SS_TN"])
def test_all_threads_own_what_lies_in_shared_memory(name):
    a, b, _ = picture_of(name).grids
    for grid, rows in ((a, 64), (b, b.rows.size)):
        assert owners(grid) == {(i, j): {(t, i + rows * j) for t in range(128)} for i, j in owners(grid)}
        assert grid.cell(1, 0).text == "T*\nV1"
        pins("\n".join(grid.caption))
        assert grid.colours == ""


@pytest.mark.integration
@pytest.mark.parametrize("row", SMALL_TRAITS, ids=lambda r: r["in"][0])
def test_pictures_are_the_layouts_that_cute_prints(row):
    (name,) = row["in"]
    for grid, operand, (x, _) in zip(picture_of(name).grids, "ABC", ((0, 2), (1, 2), (0, 1)), strict=True):
        layout = parse(row["out"][f"{operand}Layout"])
        extent = brute_force.size(parse(row["out"]["Shape_MNK"])[x])
        threads, values = (brute_force.table(mode) for mode in layout)
        expected = {}
        for thread, start in enumerate(threads):
            for value, part in enumerate(values):
                place = (start + part) % extent, (start + part) // extent
                expected.setdefault(place, set()).add((thread, value))
        assert owners(grid) == expected


@pytest.mark.parametrize("name", sm90.wgmma_names()[::97])
def test_every_atom_is_drawn_by_every_renderer(name):
    traits = sm90.wgmma_traits(name)
    picture = picture_of(traits, operand="C")
    assert picture.title.startswith(name)
    drawn = read_text(render_text(picture))
    assert len(drawn) == 64 * traits.shape_mnk[1]
    assert set(drawn.values()) == {
        f"T{thread}V{value}" for thread in range(128) for value in range(traits.shape_mnk[1] // 2)
    }


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("kind", ["LDSM", "STSM"])
def test_ldmatrix_and_stmatrix_are_those_of_the_ptx_isa(kind, matrices, transpose):
    family = "SM75" if kind == "LDSM" else "SM90"
    name = f"{family}_U16x{2 * matrices}_{kind}_T" if transpose else f"{family}_U32x{matrices}_{kind}_N"
    grids = picture_of(name).grids
    smem, registers = grids if kind == "LDSM" else grids[::-1]
    lanes = 8 * matrices
    for (i, j), held in owners(smem).items():
        # Row i % 8 of matrix i // 8 lies where lane i points; with fewer than 4 matrices other lanes repeat them.
        assert held == {(lane, j) for lane in range(i, 32, lanes)}
    for (i, j), held in owners(registers).items():
        row, column = (j, i % 8) if transpose else (i % 8, j)
        assert held == {(4 * row + column // 2, column % 2 + 2 * (i // 8))}


@pytest.mark.parametrize(
    ("atoms", "source"), [((1, 1, 1), "SS"), ((2, 1, 1), "RS"), ((1, 2, 1), "SS"), ((2, 1, 2), "SS")]
)
def test_tiled_mma_puts_warpgroups_side_by_side(atoms, source):
    m, n, k = atoms
    mma = sm90.TiledMMA(sm90.wgmma_traits(f"SM90_64x8x16_F16F16F16_{source}"), Layout(atoms))
    a, b, c = picture_of(mma).grids
    for (i, j), held in owners(c).items():
        ((thread, value),) = fragment(i % 64, j % 8, 2)
        # With atoms along K, a warpgroup of each holds partial sums of the element.
        assert held == {(thread + 128 * (i // 64 + m * (j // 8) + m * n * z), value) for z in range(k)}
    for (i, j), held in owners(b).items():
        groups = [x + m * (i // 8) + m * n * (j // 16) for x in range(m)]
        assert held == {(128 * g + t, i % 8 + 8 * (j % 16)) for g in groups for t in range(128)}
    for (i, j), held in owners(a).items():
        groups = [i // 64 + m * y + m * n * (j // 16) for y in range(n)]
        if source == "SS":
            assert held == {(128 * g + t, i % 64 + 64 * (j % 16)) for g in groups for t in range(128)}
        else:
            ((thread, value),) = fragment(i % 64, j % 16, 2)
            assert held == {(thread + 128 * g, value) for g in groups}


def test_a_larger_tile_repeats_the_values():
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x8x16_F16F16F16_SS"))
    grid = picture_of(mma, operand="C", tile_mnk=(128, 16, 16))
    assert (grid.rows.size, grid.columns.size) == (128, 16)
    for (i, j), held in owners(grid).items():
        ((thread, value),) = fragment(i % 64, j % 8, 2)
        assert held == {(thread, value + 4 * (i // 64) + 8 * (j // 8))}


@given(layouts((4, 4), max_stride=8), st.integers(1, 5))
def test_any_thread_value_layout_is_inverted(layout, columns):
    reach = max(brute_force.table(layout)) + 1
    tile = (-(-reach // columns), columns)
    grid = tv_grid(layout, tile)
    expected = {(i % tile[0], i // tile[0]): set() for i in range(tile[0] * tile[1])}
    for index, at in enumerate(brute_force.table(layout)):
        expected[at % tile[0], at // tile[0]].add((index % 4, index // 4))
    assert owners(grid) == expected
    svg = SvgGrid(render_svg(grid))
    for place, text in svg.cells.items():
        held = expected[place]
        who, _, what = text.partition("\n")
        if not held:
            assert text == "-"
        elif len(held) == 1:
            assert text == "T{}\nV{}".format(*next(iter(held)))
        else:
            threads = sorted({thread for thread, _ in held})
            assert who[1:] == "*" or int(re.match(r"T(\d+)", who)[1]) == threads[0]
            assert int(re.match(r"V(\d+)", what)[1]) in {value for _, value in held}
    for place, (_, facts, attributes) in zip(
        sorted(expected), sorted_cells(HtmlGrid(render_html(grid)).cells()), strict=True
    ):
        assert ("thread" in facts) == bool(expected[place])
        if expected[place]:
            assert int(attributes["data-thread"]) == min(expected[place])[0]


def sorted_cells(cells):
    return [cells[place] for place in sorted(cells, key=lambda place: tuple(map(int, place)))]


def test_texts_of_owners():
    def text(layout, tile=None):
        return tv_grid(layout, tile).cell(0, 0).text.replace("\n", " ")

    assert text(Layout((4, 2), (0, 1))) == "T* V0"
    assert text(Layout(((2, 2), 1), ((0, 1), 0))) == "T0,1 V0"
    assert text(Layout(((16, 2), 1), ((0, 1), 0))) == "T0-15 V0"
    assert text(Layout(((2, 16), 1), ((1, 0), 0))) == "T0+15 V0"
    assert text(Layout((2, 2), (1, 0))) == "T0 V0,1"
    assert text(Layout((2, 2), (1, 1)), 3) == "T0 V0"
    assert tv_grid(Layout((2, 2), (1, 1)), 3).cell(1, 0).text == "T0\nV1&"
    pins("\n".join(tv_grid(Layout(((2, 16), 1), ((1, 0), 0))).caption))
    pins("\n".join(tv_grid(Layout((2, 1), (2, 1))).caption))


def test_wrong_thread_value_layouts_are_told():
    with refuses(LayoutError):
        tv_grid(Layout((2, 2)), 2)
    with refuses(LayoutError):
        tv_grid(Layout(4), 4)
    with refuses(LayoutError):
        picture_of(sm90.wgmma_traits(ATOMS[0]), operand="D")


# ---------------------------------------------------------------------------------------------------------------------
# Descriptors and boxes
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("major", ["MN", "K"])
@pytest.mark.parametrize("swizzle", ["INTER", "SW32", "SW64", "SW128"])
def test_a_descriptor_walks_the_layout_that_it_was_made_of(major, swizzle, bits):
    atom = sm90.gmma_layout_atom(major, swizzle, bits)
    extents = (max(64, atom.shape[0]), max(256 // bits, atom.shape[1]))
    smem = tile_to_shape(atom, extents)
    iterator = sm90.GmmaDescriptorIterator(smem, major=major, bits=bits, mma_shape=(64, 256 // bits), base_address=2048)
    (grid,) = picture_of(iterator[0, 0]).grids
    for row in grid.cells:
        for cell in row:
            offset = brute_force_at(smem, *cell.coordinate)
            assert (cell.offset, cell.byte) == (offset, 2048 + offset * bits // 8)
            assert cell.text == hex(cell.byte)
    along, across = (128 // bits, 1) if major == "MN" else (1, 128 // bits)
    assert [grid.rows.label(i) for i in range(grid.rows.size)] == [str(mn) for mn in range(0, 64, along)]
    assert [grid.columns.label(j) for j in range(grid.columns.size)] == [str(k) for k in range(0, 256 // bits, across)]
    assert [[cell.coordinate for cell in row] for row in grid.cells] == [
        [(mn, k) for k in range(0, 256 // bits, across)] for mn in range(0, 64, along)
    ]


def brute_force_at(layout, row, column):
    tables = getattr(brute_force_at, "tables", {})
    if layout not in tables:
        tables[layout] = brute_force.table(layout)
        brute_force_at.tables = tables
    return tables[layout][row + brute_force.size(layout.shape[0]) * column]


def test_a_word_alone_is_drawn_for_both_majors():
    word = sm90.GmmaDescriptor.decode(0x4000004000000040)
    assert [grid.title[:7] for grid in picture_of(word).grids] == ["MN-majo", "K-major"]
    (grid,) = picture_of(word, major="K", bits=16, shape_mn_k=(8, 16)).grids
    assert (grid.rows.size, grid.columns.size) == (8, 2)
    with refuses(LayoutError):
        picture_of(sm90.GmmaDescriptor(0, 16, 16, base_offset=1, layout_type=1))


def test_an_iterator_is_drawn_block_by_block():
    smem = tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (128, 64, 3))
    iterator = sm90.GmmaDescriptorIterator(smem, major="MN", bits=16, mma_shape=(64, 16), base_address=0x400)
    grid = picture_of(iterator)
    assert (grid.rows.size, grid.columns.size) == (6, 4)
    for stage in range(3):
        for mn in range(2):
            for k in range(4):
                cell = grid.cell(mn + 2 * stage, k)
                assert cell.byte == 0x400 + 2 * brute_force_3d(smem, 64 * mn, 16 * k, stage)
                assert dict(cell.facts())["descriptor"] == f"{int(iterator[mn, k, stage]):#018x}"


def brute_force_3d(layout, row, column, stage):
    return brute_force.table(layout)[row + 128 * (column + 64 * stage)]


@pytest.mark.parametrize("multicast", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["e4m3", "f16", "f32"])
@pytest.mark.parametrize(("major", "swizzle"), [("K", "SW128"), ("K", "SW32"), ("MN", "SW64"), ("K", "INTER")])
def test_tma_puts_each_element_where_the_layout_has_it(major, swizzle, dtype, multicast):
    bits = DTYPE_BITS[dtype]
    atom = sm90.gmma_layout_atom(major, swizzle, bits)
    smem = tile_to_shape(atom, (2 * atom.shape[0], 2 * atom.shape[1]))
    gmem = Layout((512, 1024), (1024, 1) if major == "K" else (1, 512))
    copy = sm90.make_tma_copy(gmem, smem, dtype=dtype, multicast=multicast)
    grid = picture_of(copy)
    assert [[cell.offset for cell in row] for row in grid.cells] == [
        [cell.offset for cell in row] for row in layout_grid(smem).cells
    ]
    places = brute_force.table(smem)
    assert all(cell.offset == places[cell.flat] for row in grid.cells for cell in row)
    for number, box in enumerate(copy.boxes):
        assert ("box", str(number)) in grid.cell(*box.coordinate).notes
