"""Optimal swizzles: proven by bank_conflicts, and by trying every layout where there are few."""

from itertools import permutations

import pytest
from hypothesis import given, settings, strategies as st

from cutepy.layouts import LayoutError, sm90
from cutepy.layouts.banks import bank_conflicts
from cutepy.layouts.linear import LinearLayout, Use, f2, optimal_swizzle, to_layout, to_linear
from tests.messages import refuses

FIVE = (1, 2, 4, 8, 16)


def register_layout(columns, registers, lanes, outs):
    return LinearLayout.of_columns(columns, {"register": 1 << registers, "lane": 1 << lanes}, outs)


@st.composite
def two_uses(draw):
    """A write and a read of one tile, bijective, by 32 lanes."""
    registers = draw(st.integers(0, 6))
    outs = {"dim0": 1 << draw(st.integers(0, registers + 5)), "dim1": 1}
    outs["dim1"] = (1 << (registers + 5)) // outs["dim0"]
    uses = []
    for kind in ("st", "ld"):
        columns = list(draw(st.permutations([1 << i for i in range(registers + 5)])))
        for i, j in draw(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=4)):
            if i < len(columns) and j < len(columns) and i != j:
                columns[i] ^= columns[j]
        uses.append(Use(kind, register_layout(columns, registers, 5, outs)))
    return uses


@settings(max_examples=60)
@given(two_uses(), st.sampled_from([8, 16, 32, 64]))
def test_one_write_and_one_read_never_conflict(uses, bits):
    best = optimal_swizzle(uses, bits)
    assert best.proof == "conflict-free"
    assert best.layout.is_invertible
    # The report is bank_conflicts', of accesses that are the uses'; all other instructions take as many.
    assert bank_conflicts([r.access for r in best.report.accesses], best.memory, bits).conflict_free
    for use, report, own in zip(best.uses, best.report.accesses, uses, strict=True):
        assert own.layout is use.layout
        held = [{use.layout(r, lane) for r in range(use.layout.in_dims["register"])} for lane in range(32)]
        for lane, elements in enumerate(report.access.elements):
            assert set(elements) <= held[lane]
            assert len(elements) == use.vector
    assert best.wavefronts == tuple(
        n * r.wavefronts for n, r in zip(best.instructions, best.report.accesses, strict=True)
    )


@st.composite
def mixed_columns(draw, bits):
    """An invertible map that is no permutation of bits."""
    columns = list(draw(st.permutations([1 << i for i in range(bits)])))
    for i, j in draw(st.lists(st.tuples(*[st.integers(0, bits - 1)] * 2), max_size=10)):
        columns[i] ^= columns[j] * (i != j)
    return columns


@pytest.mark.integration
@settings(max_examples=8)
@given(st.lists(mixed_columns(7), min_size=3, max_size=6))
def test_more_uses_get_what_no_layout_betters(columns):
    """By brute force over all segments: a tile of 128 floats, of which two bits choose the row of banks."""
    uses = [Use("ld", register_layout(c, 2, 5, {"x": 128}), 1) for c in columns]
    best = optimal_swizzle(uses, 32)
    assert best.proof == ("conflict-free" if best.report.conflict_free else "exhaustive search")
    least = min(
        sum(4 * 2 ** (5 + 2 - f2.rank([*use.layout.columns_of("lane"), a, b])) for use in uses)
        for a in range(1, 128)
        for b in range(a + 1, 128)
    )
    assert sum(best.wavefronts) == least


def test_where_every_layout_conflicts_the_best_is_found():
    """Reads of all 63 hyperplanes of a tile of six bits: whatever bit chooses the row of banks, 31 of them have it."""
    hyperplanes = [f2.complement([], 6, [x for x in range(1, 64) if (x & normal).bit_count() % 2 == 0]) for normal in
                   range(1, 64)]  # fmt: skip
    uses = [Use("ld", register_layout([planes[5], *planes[:5]], 1, 5, {"x": 64}), 1) for planes in hyperplanes]
    best = optimal_swizzle(uses, 32)
    # The segment lies in 31 of the 63 hyperplanes, whichever it is: those uses take two wavefronts an instruction.
    assert sum(best.wavefronts) == 2 * (63 + 31)
    assert best.proof == "exhaustive search"
    few = optimal_swizzle([uses[0], *uses[2:20]], 32)
    best_of_few = min(
        sum(2 * (2 if (s & n).bit_count() % 2 == 0 else 1) for n in (1, *range(3, 21))) for s in range(1, 64)
    )
    assert sum(few.wavefronts) == best_of_few


def test_a_transposition_becomes_the_known_swizzle():
    rows = LinearLayout({"register": [[i, 0] for i in FIVE], "lane": [[0, i] for i in FIVE]}, {"dim0": 32, "dim1": 32})
    columns = LinearLayout({"register": [[0, i] for i in FIVE], "lane": [[i, 0] for i in FIVE]}, rows.out_dims)
    best = optimal_swizzle([Use("st", rows), Use("ld", columns)], 32)
    assert best.wavefronts == (32, 32)
    assert str(to_layout(best.memory)).startswith("Sw<5,0,5> o 0 o")


def test_dimensions_are_in_the_order_of_the_first_use():
    rows = LinearLayout({"register": [[i, 0] for i in FIVE], "lane": [[0, i] for i in FIVE]}, {"dim0": 32, "dim1": 32})
    columns = LinearLayout(
        {"register": [[i, 0] for i in FIVE], "lane": [[0, i] for i in FIVE]}, {"dim1": 32, "dim0": 32}
    )
    best = optimal_swizzle([Use("st", rows), Use("ld", columns)], 32)
    assert list(best.layout.out_dims) == ["dim0", "dim1"]
    assert best.wavefronts == (32, 32)


def test_vectors_are_as_wide_as_both_can_have():
    wide = LinearLayout({"register": [1, 2, 4, 8], "lane": [16, 32, 64, 128, 256]}, {"x": 512})
    turned = LinearLayout({"register": [4, 1, 256, 128], "lane": [16, 32, 64, 2, 8]}, {"x": 512})
    best = optimal_swizzle([Use("st", wide), Use("ld", turned)], 16)
    assert [use.vector for use in best.uses] == [4, 4]
    assert best.report.conflict_free
    # One of them wider, the other narrower.
    best = optimal_swizzle([Use("st", wide, 8), Use("ld", turned, 2)], 16)
    assert [report.size_bytes for report in best.report.accesses] == [16, 4]
    assert best.report.conflict_free
    with refuses(LayoutError):
        optimal_swizzle([Use("st", wide, 8), Use("ld", turned, 8)], 16)


def test_the_accumulator_of_wgmma_is_stored_and_read_in_rows():
    accumulator = to_linear(sm90.accumulator_layout(64), {"lane": 32, "warp": 4, "register": 32}, {"m": 64, "n": 64})
    rows = LinearLayout(
        {"register": [[0, 1], [0, 2], [0, 4], [16, 0], [32, 0]], "lane": [[0, 8], [0, 16], [0, 32], [1, 0], [2, 0]],
         "warp": [[4, 0], [8, 0]]}, {"m": 64, "n": 64},
    )  # fmt: skip
    best = optimal_swizzle([Use("st", accumulator, 2), Use("ld", rows, 8)], 16)
    assert best.proof == "conflict-free"
    assert [r.wavefronts for r in best.report.accesses] == [1, 4]


def test_values_that_lanes_share_merge_passes():
    """Pairs of lanes read one vector of 16 bytes: two wavefronts in place of four."""
    shared = LinearLayout({"register": [1, 2, 64], "lane": [0, 4, 8, 16, 32]}, {"x": 128})
    best = optimal_swizzle([Use("ld", shared, 4)], 32)
    assert [r.wavefronts for r in best.report.accesses] == [2]


@pytest.mark.parametrize(
    ("uses", "bits"),
    [
        ([], 32),
        ([Use("ld", LinearLayout({"register": [1], "lane": [2]}, ["x"]))], 4),
        ([Use("atom", LinearLayout({"register": [1], "lane": [2]}, ["x"]))], 32),
        ([Use("ld", LinearLayout({"register": [1], "lane": [0]}, {"x": 4}))], 32),
        ([Use("ld", LinearLayout({"register": [1]}, ["x"]))], 32),
        ([Use("ld", LinearLayout({"register": [1], "lane": [2]}, ["x"]), 3)], 32),
        (
            [
                Use("ld", LinearLayout({"register": [1], "lane": [2]}, ["x"])),
                Use("ld", LinearLayout({"register": [1], "lane": [2]}, ["y"])),
            ],
            32,
        ),
    ],
)
def test_errors(uses, bits):
    with refuses(LayoutError):
        optimal_swizzle(uses, bits)


def test_permutations_of_three_uses_have_one_cost():
    bases = [[1, 2], [4, 8], [16, 32]]
    costs = set()
    for order in permutations(bases):
        uses = [
            Use("ld", register_layout([*r, *(1 << i for i in range(7) if 1 << i not in r)], 2, 5, {"x": 128}), 1)
            for r in order
        ]
        costs.add(sum(optimal_swizzle(uses, 32).wavefronts))
    assert len(costs) == 1


def test_a_single_lane_has_no_conflicts():
    alone = LinearLayout({"register": [1, 2, 4, 8], "lane": []}, ["x"])
    best = optimal_swizzle([Use("st", alone, 4), Use("ld", alone, 1)], 32)
    assert ([report.wavefronts for report in best.report.accesses], best.proof) == ([1, 1], "conflict-free")
