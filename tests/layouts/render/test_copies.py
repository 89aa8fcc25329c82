"""Pictures of copies: both sides, the rows that a tiler takes, and what lies beyond the tile."""

import pytest
from hypothesis import given

from cutepy.layouts import Layout, LayoutError, sm80, sm90
from cutepy.layouts.render import picture_of, render_html, render_raw, render_svg, render_text
from tests.layouts import brute_force as bf
from tests.layouts.render.readers import HtmlGrid, SvgGrid, read_text
from tests.layouts.render.test_threads import owners
from tests.layouts.sm90.test_tiled_copy import tilings
from tests.messages import pins, refuses

STSM = sm90.make_copy_atom(sm90.stmatrix_traits(2), 16)


@given(tilings(warps=False))
def test_each_cell_has_who_reads_and_who_writes_it(tiling):
    check_cells(sm90.make_tiled_copy(*tiling))


@pytest.mark.parametrize("make", [sm90.ldmatrix_traits, sm90.stmatrix_traits])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_so_it_has_where_a_warp_copies(make, matrices, transpose):
    atom = sm90.make_copy_atom(make(matrices, transpose=transpose), 16)
    check_cells(sm90.make_tiled_copy(atom, Layout((8, 8), (8, 1)), Layout((2, matrices), (1, 2))))


def check_cells(copy):
    for grid, layout in zip(picture_of(copy).grids, (copy.get_layoutS_TV(), copy.get_layoutD_TV()), strict=True):
        expected = {}
        for index, place in enumerate(bf.table(layout)):
            expected.setdefault(place, set()).add((index % copy.thr_size, index // copy.thr_size))
        held = {
            cell.flat: {(thread, value) for threads, value in cell.owners for thread in threads}
            for row in grid.cells
            for cell in row
        }
        assert held == expected


def test_rows_and_columns_stand_in_the_tensors_order():
    """Tiled by layouts, the tile's row 8 is the tensor's row 16; the picture shows the tensor's, as C++ CuTe does."""
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x16x16_F32F16F16_SS"))
    copy = sm90.make_tiled_copy_C_atom(STSM, mma)
    source, _ = picture_of(copy).grids
    assert owners(source) == {
        (i, j): {(32 * (i // 16) + 4 * (i % 8) + j // 2, j % 2 + 2 * (i % 16 // 8))}
        for i in range(64)
        for j in range(8)
    }
    assert source.cell(9, 3).coordinate == (9, 3)
    pins("\n".join(source.caption))


def test_gaps_of_a_tiler_are_told_by_the_labels():
    copy = sm90.TiledCopy(sm90.make_copy_atom(sm90.universal_copy(16), 16), Layout((4, 2)), (Layout(4, 3), 2))
    source, _ = picture_of(copy).grids
    assert [source.rows.label(i) for i in range(4)] == ["0", "3", "6", "9"]
    assert source.cell(2, 1).coordinate == (6, 1)
    assert read_text(render_text(source))["6", "1"] == "T2V1"


def test_atoms_along_k_are_told_of():
    """CuTe's layoutC_TV maps the threads of further atoms along K beyond the tile."""
    mma = sm90.TiledMMA(sm80.mma_traits("SM80_16x8x8_F16F16F16F16_TN"), Layout((1, 2, 2), (0, 1, 2)))
    copy = sm90.make_tiled_copy_C(sm90.make_copy_atom(sm90.universal_copy(32), 16), mma)
    assert max(bf.table(copy.layout_tv)) >= 16 * 16
    for grid in picture_of(copy).grids:
        assert (grid.rows.size, grid.columns.size) == (16, 16)
        pins("\n".join(grid.caption))
        assert all(cell.owners for row in grid.cells for cell in row)


def test_one_side_alone():
    copy = sm90.make_tiled_copy(STSM, Layout((8, 4), (4, 1)), Layout((2, 2)))
    grid = picture_of(copy, side="D")
    pins(grid.title)
    with refuses(LayoutError):
        picture_of(copy, side="C")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("UniversalCopy<uint128_t>", (1, 8)),
        ("UniversalCopy<uint32_t>", (1, 2)),
        ("SM80_CP_ASYNC_CACHEGLOBAL<cute::uint128_t>", (1, 8)),
    ],
)
def test_plain_copies_by_name(name, shape):
    for grid in picture_of(name).grids:
        assert owners(grid) == {(0, j): {(0, j)} for j in range(shape[1])}


def test_an_atom_is_drawn_in_rows_of_16_bytes():
    atom = sm90.make_copy_atom(sm90.ldmatrix_traits(2, transpose=True), 16)
    source, destination = picture_of(atom).grids
    assert owners(source) == {(i, j): {(i, j), (i + 16, j)} for i in range(16) for j in range(8)}
    assert owners(destination) == {
        (i, j): {(4 * j + i % 8 // 2, i % 2 + 2 * (i // 8))} for i in range(16) for j in range(8)
    }


def test_notebooks_show_them():
    copy = sm90.make_tiled_copy(STSM, Layout((8, 4), (4, 1)), Layout((2, 2)))
    for value in (copy, STSM, sm80.mma_traits("SM80_8x8x4_F64F64F64F64_TN"), sm90.universal_copy(32)):
        page = HtmlGrid(value._repr_html_())
        assert len(page.tables) == len(picture_of(value).grids)
        assert value._repr_svg_().startswith("<svg")
    cells = HtmlGrid(render_html(picture_of(copy))).cells()
    assert cells["0", "1"][0] == "T0\nV2"
    svg = SvgGrid(render_svg(picture_of(copy, side="S")))
    svg.check_places()
    assert svg.cells[0, 1] == "T0\nV2"


def test_all_cells_at_once_are_those_one_by_one():
    mma = sm90.TiledMMA(sm90.wgmma_traits("SM90_64x16x16_F32F16F16_SS"))
    for copy in (sm90.make_tiled_copy_C_atom(STSM, mma), sm90.make_tiled_copy_C(STSM, mma)):
        for grid in picture_of(copy).grids:
            assert grid.bulk is not None
            assert render_raw(grid)["grids"] == render_raw(grid.but(bulk=None))["grids"]
