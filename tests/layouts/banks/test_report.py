"""bank_conflicts: addresses, conflicts and errors."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import ComposedLayout, Layout, LayoutError, Swizzle, make_layout, parse, sm90, tile_to_shape
from cutepy.layouts.banks import (
    WarpAccess,
    bank_conflicts,
    tma_accesses,
    tv_accesses,
    warp_access,
    wgmma_accesses,
)
from tests.layouts.banks import words
from tests.layouts.banks.patterns import accesses
from tests.messages import pins, refuses

SQUARE = Layout((32, 32), (32, 1))
COLUMN = warp_access("ld", lambda lane: (lane, 0))


def counts(access, layout, bits):
    report = bank_conflicts(access, layout, bits)
    return report.wavefronts, report.ideal


def test_a_column_of_a_square_tile_and_its_cures():
    assert counts(COLUMN, SQUARE, 32) == (32, 1)
    assert counts(COLUMN, Layout((32, 32), (33, 1)), 32) == (1, 1)
    assert counts(COLUMN, ComposedLayout(Swizzle(5, 0, 5), 0, SQUARE), 32) == (1, 1)
    assert counts(COLUMN, Layout((32, 32)), 32) == (1, 1)
    # Half as many bits in the swizzle, half of the cure.
    assert counts(COLUMN, ComposedLayout(Swizzle(4, 0, 5), 0, SQUARE), 32) == (2, 1)


@pytest.mark.parametrize("kind", ["ldmatrix", "stmatrix"])
@pytest.mark.parametrize("num_matrices", [1, 2, 4])
@pytest.mark.parametrize(("mode", "free"), [("SW32", True), ("SW64", True), ("SW128", True), ("INTER", True)])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_gmma_atoms_are_free_of_conflicts_for_matrices(kind, num_matrices, mode, free, bits):
    tile = tile_to_shape(sm90.gmma_layout_atom("K", mode, bits), (64, 1024 // bits))
    wide = 128 // bits
    rows = warp_access(
        kind,
        [(row % 8 + 8 * (row // 8 % 2), row // 16 * wide) for row in range(8 * num_matrices)],
        vector=wide,
        along=1,
    )
    assert counts(rows, tile, bits) == (num_matrices, num_matrices)
    plain = Layout((64, 1024 // bits), (1024 // bits, 1))
    assert counts(rows, plain, bits) == (8 * num_matrices, num_matrices)


def test_the_rows_of_an_accumulator_are_stored_without_conflicts():
    tile = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (64, 64))
    assert counts(warp_access("stmatrix", sm90.accumulator_row_layout(4), vector=8, along=1), tile, 16) == (4, 4)
    columns = tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (64, 64))
    rows = warp_access("stmatrix", sm90.accumulator_row_layout(4, transpose=True), vector=8, along=0)
    assert counts(rows, columns, 16) == (4, 4)


@pytest.mark.parametrize(
    ("major", "mode", "bits"),
    [
        ("MN", "INTER", 16),
        ("K", "INTER", 8),
        ("MN", "SW32", 32),
        ("K", "SW64", 16),
        ("MN", "SW128", 8),
        ("K", "SW128", 32),
    ],
)
def test_wgmma_and_tma_read_canonical_tiles_without_conflicts(major, mode, bits):
    extent = 2048 // bits
    tile = tile_to_shape(sm90.gmma_layout_atom(major, mode, bits), (extent, extent))
    reads = wgmma_accesses((extent, 256 // bits), major=major, bits=bits)
    assert counts(reads, tile, bits) == (len(reads), len(reads))
    assert len(reads) * 8 * 128 == extent * 256  # each unit of 16 bytes once
    gmem = Layout((4 * extent, 4 * extent), (1, 4 * extent) if major == "MN" else (4 * extent, 1))
    copy = sm90.make_tma_copy(gmem, tile, dtype={8: "u8", 16: "f16", 32: "f32"}[bits])
    writes = tma_accesses(copy)
    assert counts(writes, tile, bits) == (len(writes), len(writes))
    touched = [element for access in writes for row in access.elements for element in row]
    assert len(touched) == len(set(touched)) == extent * extent


def test_wgmma_would_conflict_on_a_plain_row_major_tile():
    reads = wgmma_accesses((64, 16), major="K", bits=16)
    assert counts(reads, Layout((64, 64), (64, 1)), 16) == (8 * len(reads), len(reads))


def test_thread_value_layouts_give_an_access_for_each_warp_and_vector():
    tv = Layout((64, 8), (8, 1))  # row-major: a thread has 8 neighbours
    row_major = make_layout((64, 8), (8, 1))
    loads = tv_accesses("ld", tv, vector=4)
    assert len(loads) == 4
    # Index counts columns first: with the same layout the tile is one run.
    assert counts(loads, Layout(512), 32) == (4 * 8, 16)
    assert counts(loads[:2], Layout(512), 32) == (16, 8)
    assert loads[3].elements[1] == tuple(8 * 33 + 4 + i for i in range(4))
    assert row_major(1, 3) == 11
    short = tv_accesses("st", Layout((8, 2), (2, 1)), vector=2)
    assert [len(access.elements) for access in short] == [8]


def test_accumulators_in_pairs_of_half_precision():
    """64x64 accumulators, stored as pairs: eight rows of 128 bytes, four lanes each, in four banks."""
    stores = tv_accesses("st", parse("((4,8),(2)):((128,1),(64))"), vector=2)
    assert counts(stores, Layout((64, 64), (64, 1)), 16) == (8, 1)
    assert counts(stores, Layout((64, 64), (72, 1)), 16) == (1, 1)
    assert counts(stores, tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (64, 64)), 16) == (1, 1)


def test_conflicts_say_who_waits_for_whom():
    report = bank_conflicts(warp_access("ld", lambda lane: (lane % 16, lane // 16)), Layout((16, 64), (64, 1)), 32)
    assert [(c.access, c.banks, len(c.turns)) for c in report.conflicts] == [(0, (0,), 16), (0, (1,), 16)]
    assert [(turn.address, turn.lanes) for turn in report.conflicts[1].turns[:2]] == [(4, (16,)), (260, (17,))]
    vectors = warp_access("ld", lambda lane: (lane // 2, 0), vector=4, along=1)
    report = bank_conflicts(vectors, Layout((16, 64), (64, 1)), 32)
    assert [(c.banks, c.turns[1].address, c.turns[1].lanes) for c in report.conflicts] == [
        ((0, 1, 2, 3), 256, (2, 3)),
        ((0, 1, 2, 3), 2304, (18, 19)),
    ]
    same = bank_conflicts(warp_access("atom", [(0, 0)] * 8), Layout((8, 64), (64, 1)), 32)
    assert [turn.lanes for turn in same.conflicts[0].turns] == [(lane,) for lane in range(8)]
    assert same.wavefronts == same.ideal == 8


@given(accesses())
def test_reports_add_up(access):
    kind, size, addresses = access
    if kind in ("wgmma", "tma") and len(addresses) != 8:
        return
    if "matrix" in kind and len(addresses) not in (8, 16, 32):
        return
    elements = tuple(None if a is None else tuple(range(a, a + size)) for a in addresses)
    top = max(a for a in addresses if a is not None) + size
    report = bank_conflicts(WarpAccess(kind, elements), Layout(top), 8)
    assert report.wavefronts == words.wavefronts(kind, size, addresses)
    (one,) = report.accesses
    assert sum(group.wavefronts for group in one.passes) == one.wavefronts
    assert one.addresses == tuple(addresses)
    for group in one.passes:
        served = sorted(lane for turns in group.turns.values() for turn in turns for lane in turn.lanes)
        assert served == sorted([*group.lanes] * (2 if kind == "cas" else 1))
        for banks, turns in group.turns.items():
            assert all(turn.address // 4 % 32 == banks[0] for turn in turns)
    # A pass with one turn for each bank is in no conflict.
    assert bool(report.conflicts) == any(group.wavefronts > 1 for group in one.passes)


@pytest.mark.parametrize("access", [COLUMN, [COLUMN, COLUMN]])
def test_reports_print(access):
    text = str(bank_conflicts(access, SQUARE, 32))
    pins(text)
    rows = warp_access("ldmatrix", [(row, 0) for row in range(8)], vector=8, along=1)
    assert str(bank_conflicts(rows, Layout((8, 8), (8, 1)), 16)) == "ldmatrix of 8 rows: 1 wavefront, 1 at best"


def rows(count):
    return [(row, 0) for row in range(count)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: bank_conflicts(COLUMN, Layout((16, 32)), 32),
        lambda: bank_conflicts(warp_access("ld", [(0, 1)], vector=4, along=1), SQUARE, 32),
        lambda: bank_conflicts(warp_access("ld", [(0, 0)], vector=4, along=0), SQUARE, 32),
        lambda: bank_conflicts(COLUMN, Layout((32, 32, 3)), 32),
        lambda: warp_access("ld", rows(33)),
        lambda: warp_access("ld", Layout((64, 4))),
        lambda: warp_access("ldmatrix", rows(12), vector=8, along=1),
        lambda: bank_conflicts(warp_access("ldmatrix", rows(8)), SQUARE, 16),
        lambda: bank_conflicts(warp_access("ld", rows(8), vector=3, along=1), SQUARE, 32),
        lambda: bank_conflicts(warp_access("ld", rows(8)), SQUARE, 4),
        lambda: warp_access("ld", rows(8), vector=2),
        lambda: warp_access("lds", rows(8)),
        lambda: warp_access("ld", [None, None]),
        lambda: WarpAccess("ld", ((1, 2), (3,))),
        lambda: warp_access("ld", rows(8), vector=0),
        lambda: tv_accesses("ld", Layout(32)),
        lambda: tv_accesses("ld", Layout((32, 6)), vector=4),
        lambda: wgmma_accesses((60, 16), major="K", bits=16),
        lambda: bank_conflicts(COLUMN, SQUARE, 0),
    ],
)
def test_errors_say_what_to_do(make):
    with refuses(LayoutError):
        make()


def test_what_is_no_access_or_layout_is_a_type_error():
    for wrong in ((), 3, [COLUMN, 3]):
        with refuses(TypeError):
            bank_conflicts(wrong, SQUARE, 32)
    with refuses(TypeError):
        bank_conflicts(COLUMN, 3, 32)


@given(st.integers(0, 31), st.integers(0, 31))
def test_lanes_that_are_off_cost_nothing(lane, other):
    access = warp_access("ld", lambda i: (i, 0) if i in (lane, other) else None)
    assert counts(access, SQUARE, 32) == (len({lane, other}), 1)
    assert access.lanes == tuple(sorted({lane, other}))
