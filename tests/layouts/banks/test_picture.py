"""The picture of bank conflicts against the addresses of the lanes."""

from hypothesis import given, strategies as st

from cutepy.layouts import LinearLayout, bank_conflicts, parse, warp_access
from cutepy.layouts.render import picture_of, render_text
from tests.messages import refuses

COLUMN = warp_access("ld", lambda lane: (lane, 0))
TILES = ["(32,32):(32,1)", "(32,32):(33,1)", "(32,32):(1,32)", "Sw<5,0,5> o 0 o (32,32):(32,1)"]


@given(st.sampled_from(TILES), st.sampled_from((32, 64)), st.integers(0, 31))
def test_lanes_stand_at_their_elements(text, bits, column):
    layout = parse(text)
    report = bank_conflicts(warp_access("ld", lambda lane: (lane, column)), layout, bits)
    (grid,) = picture_of(report).grids
    for i in range(32):
        for j in {column, (i * 7 + column) % 32}:
            cell, bank = grid.cell(i, j), layout(i, j) * bits // 32 % 32
            assert cell.bank == bank
            assert cell.text == (f"L{i}\nb{bank}" if j == column else str(bank))
            assert bool(cell.marks) == (j == column and any(i in t.lanes for c in report.conflicts for t in c.turns))
    assert any(cell.marks for row in grid.cells for cell in row) == (not report.conflict_free)


def test_the_title_counts_and_every_access_has_a_grid():
    picture = picture_of(bank_conflicts([COLUMN, COLUMN], parse(TILES[0]), 32))
    assert picture.title == "64 wavefronts, 2 at best"
    assert len(picture.grids) == 2
    assert "*L0b0" in render_text(picture)


def test_vectors_and_shared_elements():
    broadcast = bank_conflicts(warp_access("ld", lambda lane: (0, 0)), parse("(8,8):(8,1)"), 32)
    assert picture_of(broadcast).grids[0].cell(0, 0).text == "L0+31\nb0"
    pairs = bank_conflicts(warp_access("ld", lambda lane: (lane, 0), vector=2, along=1), parse("(32,2):(2,1)"), 16)
    assert picture_of(pairs).grids[0].cell(3, 1).text == "L3\nb3"


def test_other_tiles_are_told():
    linear = LinearLayout({"register": [[1], [2], [4], [8], [16]]}, {"dim0": 32})
    report = bank_conflicts(COLUMN, parse(TILES[0]), 32)
    with refuses(TypeError):
        picture_of(type(report)(linear, 32, report.accesses))
