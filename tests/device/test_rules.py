"""The host rules of TMA -> WGMMA kernels."""

import pytest
from hypothesis import example, given, strategies as st

from cutepy.device import rules
from cutepy.device.rules import clusters, occupancy, promotion, ragged, registers, rings, tiles, vectors, workspaces
from cutepy.layouts import LayoutError, size, sm90
from tests.messages import refuses


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(("swizzle", "span_bytes"), [("SW128", 128), ("SW64", 64), ("SW32", 32), ("INTER", 16)])
def test_the_widest_swizzle_is_the_one_whose_atom_fits(bits, swizzle, span_bytes):
    elems = span_bytes * 8 // bits
    assert rules.widest_swizzle(elems, bits) == swizzle
    assert rules.widest_swizzle(3 * elems, bits) == swizzle
    for major in ("K", "MN"):
        atom = sm90.gmma_layout_atom(major, swizzle, bits)
        assert size(atom) * bits // 8 == 8 * span_bytes, "an atom is 8 rows of one span"


@pytest.mark.parametrize("elems", [0, 4, 12])
def test_extents_that_no_atom_divides_are_refused(elems):
    with refuses(ValueError):
        rules.widest_swizzle(elems, 16)


@given(st.integers(1, 16), st.integers(1, 4), st.integers(1, 4))
def test_every_warp_that_reads_a_stage_arrives_once_on_each_cta_that_fills_it(warps, cluster_m, cluster_n):
    """Play the releases of a whole cluster: every empty barrier receives just the arrivals it was set to."""
    arrivals = dict.fromkeys(((m, n) for m in range(cluster_m) for n in range(cluster_n)), 0)
    for m, n in arrivals:
        for peer in arrivals:
            if peer[0] == m or peer[1] == n:  # the peer multicasts A to this row or B to this column
                arrivals[peer] += warps
    assert set(arrivals.values()) == {rules.empty_barrier_arrivals(warps, (cluster_m, cluster_n))}


def test_sizes():
    assert rules.tile_bytes(128, 64, 16) == 16384
    assert rules.accumulator_registers(64, 256, 1) == 128
    assert sm90.StagedTile((64, 64), 1, 16).alignment_bytes == 1024


@pytest.mark.parametrize("mode", [0, 1])
def test_a_staged_tile_is_made_of_whole_atoms(mode):
    def tile(across, along):
        return (across, along) if mode == 1 else (along, across)

    assert rules.staged_swizzle(tile(8, 64), mode, 1, 16) == "SW128"
    assert rules.staged_swizzle(tile(24, 32), mode, 3, 16) == "SW64"
    assert rules.staged_swizzle(tile(64, 64), mode, 3, 16, "SW32") == "SW32"
    with refuses(ValueError):
        rules.staged_swizzle(tile(12, 64), mode, 2, 16)
    with refuses(ValueError):
        rules.staged_swizzle(tile(0, 64), mode, 2, 16)
    with refuses(ValueError):
        rules.staged_swizzle(tile(64, 32), mode, 2, 16, "SW128")
    with refuses(ValueError):
        rules.staged_swizzle(tile(64, 0), mode, 2, 16, "INTER")
    with refuses(ValueError):
        rules.staged_swizzle(tile(64, 64), mode, 0, 16)
    with refuses(ValueError):
        rules.staged_swizzle(tile(64, 64), 2, 1, 16)


@pytest.mark.parametrize(
    ("rows", "columns", "warpgroups", "fits"),
    [
        (64, 16, 1, None),
        (128, 48, 2, None),
        (128, 16, 1, r"use \(64, 16\)"),
        (64, 16, 2, r"use \(128, 16\)"),
        (64, 40, 1, None),
        (64, 36, 1, r"use \(64, 40\)"),
        (64, 0, 1, r"use \(64, 8\)"),
    ],
)
def test_subtiles_say_what_would_fit(rows, columns, warpgroups, fits):
    if fits is None:
        rules.check_subtile(rows, columns, warpgroups)
    else:
        with refuses(ValueError):
            rules.check_subtile(rows, columns, warpgroups)


def test_columns_divide_into_subtiles():
    rules.check_subtile_columns(64, 16)
    for columns in (24, 128):
        with refuses(ValueError):
            rules.check_subtile_columns(64, columns)
    with refuses(ValueError):
        rules.check_subtile_columns(8, 16)


def test_a_main_loop_loads_a_stage_while_it_multiplies_another():
    rules.check_overlap(2)
    for stages in (0, 1):
        with refuses(ValueError):
            rules.check_overlap(stages)


def test_halves_of_a_stage_have_all_of_its_steps():
    for steps in range(2, 9):
        first, second = rules.step_halves(steps)
        assert [*first, *second] == list(range(steps))
        assert len(first) - len(second) in (0, 1)
    for steps in (0, 1):
        with refuses(ValueError):
            rules.step_halves(steps)


def test_an_operand_that_threads_can_load():
    rules.check_staged_operand(True, 16, 2)
    with refuses(ValueError):
        rules.check_staged_operand(False, 16, 2)
    with refuses(ValueError):
        rules.check_staged_operand(True, 2, 2)
    rules.check_accumulated((128, 64), (128, 64))
    with refuses(ValueError):
        rules.check_accumulated((128, 64), (128, 128))
    rules.check_fragments(64, 16, 4)
    for columns, fragments in ((24, 1), (64, 3), (64, 5)):
        with refuses(ValueError):
            rules.check_fragments(columns, 16, fragments)
    rules.check_operand_source("smem", "smem")
    with refuses(ValueError):
        rules.check_operand_source("rmem", "smem")


def test_a_ring_that_its_barriers_can_count():
    rules.check_ring(1, 16, 1, (1, 1))
    rules.check_ring(7, 2**20 - 16, 8, (4, 4))
    for ring in (
        (0, 16, 1, (1, 1)),
        (1, 0, 1, (1, 1)),
        (1, 24, 1, (1, 1)),
        (1, 2**20, 1, (1, 1)),
        (1, 16, 0, (1, 1)),
        (1, 16, 1, (0, 1)),
        (1, 16, 1, (1, -1)),
        (1, 16, 1, (4, 5)),
    ):
        with refuses(ValueError):
            rules.check_ring(*ring)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float64", "bool", "int16"])
def test_types_that_wgmma_does_not_multiply_are_named(dtype):
    for types in ((dtype, "float16"), ("float16", dtype)):
        with refuses(LayoutError):
            rules.wgmma_tiling(*types, 128, 1)


@given(st.sampled_from([8, 16, 32, 64, 128]), st.integers(1, 64), st.integers(0, 40), st.integers(0, 17))
@example(8, 8, 16, 0)
def test_vectors_are_the_widest_that_every_row_can_begin_with(bits, units, row_stride, most):
    size, alignment = bits // 8, units * bits // 8
    fit = [
        elems
        for elems in (1, 2, 4, 8, 16)
        if elems * size <= 16 and alignment % (elems * size) == 0 and row_stride % elems == 0 and elems <= (most or 16)
    ]
    assert vectors.vector_elems(bits, alignment, row_stride, most) == max(fit)
    if size > 1:
        with pytest.raises(ValueError, match="declare its alignment"):
            vectors.vector_elems(bits, alignment + 1, row_stride, most)


@given(st.integers(1, 32).map(lambda n: 8 * n), st.sampled_from([1, 8, 64, 128, 192]), st.data())
def test_a_row_of_a_tile_is_in_the_blocks_that_tiles_can_begin_before(tile, rows, data):
    offset = data.draw(st.integers(0, tile - 1))
    starts = [n * tile for n in range(rows)]
    found = {(start + offset) // rows - start // rows for start in starts}
    assert promotion.block_range(tile, rows, offset) == (min(found), max(found))
    most = max((start + tile - 1) // rows - start // rows + 1 for start in starts)
    assert promotion.staged_scales(tile, rows) == most


@pytest.mark.parametrize(("tile", "warpgroups", "sets"), [((128, 128, 128), 2, 1), ((64, 64, 256), 1, 2)])
def test_two_sets_of_accumulators_are_taken_where_they_fit(tile, warpgroups, sets):
    assert rules.fitting_buffers(tile, warpgroups, (1, 128)) == sets
    promotion.check_promotion(tile, warpgroups, sets, (1, 128))


@pytest.mark.parametrize(
    ("tile_n", "cluster_m", "columns"),
    [(32, 1, 32), (40, 1, 64), (64, 1, 64), (136, 1, 192), (136, 3, 192), (136, 2, 136), (200, 2, 256), (256, 2, 256)],
)
def test_a_stage_of_columns_has_whole_spans_where_a_cluster_shares_them(tile_n, cluster_m, columns):
    assert tiles.staged_columns(tile_n, 16, True, cluster_m) == columns
    assert tiles.staged_columns(tile_n, 16, False, cluster_m) == tile_n
    assert tiles.staged_columns(tile_n, 8, True, cluster_m) == tile_n


@given(st.integers(1, 1 << 20), st.sampled_from([8, 16, 32, 64]))
def test_the_offset_of_a_group_is_subtracted_again(pitch, bits):
    assert ragged.EXTENT * (ragged.back_stride(pitch, bits) + pitch) * bits // 8 % 2**64 == 0


@pytest.mark.parametrize(("warpgroups", "producer"), [(1, 0), (2, 0), (3, 0), (1, 24), (2, 24), (2, 32), (3, 32)])
def test_registers_are_dealt_out_of_those_that_a_cta_is_launched_with(warpgroups, producer):
    found = registers.register_budget(warpgroups, producer)
    assert found.dealt == (warpgroups > 1)
    assert found.producer == (producer or {1: 40, 2: 40, 3: 32}[warpgroups])
    threads = 128 * (1 + max(warpgroups, 2))
    at_launch = 65536 // threads // 8 * 8
    taken = found.producer + max(warpgroups, 2) * found.consumer
    assert taken * 128 <= threads * at_launch < (taken + 8 * max(warpgroups, 2)) * 128


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (rings.check_exchange, [(2, 4), (16, 8), (4, 12)], [(1, 4), (17, 4), (2, 0), (2, 3), (2, 5), (2, 6)]),
        (workspaces.check_workspace, [(4, 32), (12, 512)], [(0, 32), (3, 32), (6, 32), (4, 0), (4, 33), (4, 544)]),
        (
            clusters.check_schedule,
            [((1, 1), 1, 1), ((4, 2), 2, 8), ((1, 16), 1, 1)],
            [((4, 4), 2, 1), ((0, 1), 1, 1), ((1, 0), 1, 1), ((1, 1), 0, 1), ((1, 1), 1, 0), ((1, 17), 1, 1)],
        ),
        (
            rings.check_pieces,
            [((128, 64), 1, 16, 8, 128), ((64, 128), 0, 16, 16, 128), ((128, 64), 1, 8, 4, 128)],
            [((128, 64), 1, 16, 3, 128), ((128, 6), 1, 16, 8, 128), ((1, 64), 1, 16, 8, 128)],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_arguments_up_to_their_bounds_are_taken(check, right, wrong):
    for arguments in right:
        check(*arguments)
    for arguments in wrong:
        with refuses(ValueError):
            check(*arguments)


@pytest.mark.parametrize("sm_count", [100, 132])
def test_a_launch_leaves_hardly_an_sm_idle_from_its_share_on(sm_count):
    least = next(ctas for ctas in range(sm_count + 1) if ctas >= occupancy.FULL * sm_count)
    assert [occupancy.fills(ctas, sm_count) for ctas in (0, least - 1, least, sm_count)] == [False, False, True, True]
