"""Outcomes of all host rules at their bounds: the arguments that each one takes or refuses, with its words or value."""

import inspect
import re
from dataclasses import dataclass
from itertools import product

import pytest

from cutepy.device.rules import (
    barriers,
    clusters,
    dequantising,
    launches,
    occupancy,
    operands,
    partials,
    promotion,
    ragged,
    registers,
    rings,
    shares,
    staging,
    tickets,
    tiles,
    transposing,
    vectors,
    workspaces,
)
from cutepy.device.sm100 import rules as sm100_rules
from cutepy.layouts import sm90, sm100
from tests.messages import pins

MODULES = (
    *(barriers, clusters, dequantising, launches, occupancy, operands, partials, promotion, ragged, registers, rings),
    *(shares, staging, tickets, tiles, transposing, vectors, workspaces, sm100_rules),
)


@dataclass(frozen=True)
class Frozen:
    """A worker that a scheduler can call."""


@dataclass
class Thawed:
    """A worker that a loop would carry."""


def staged(rows, columns, bits=8, mode=1, swizzle=None):
    return sm90.StagedTile((rows, columns), 2, bits, mode, swizzle)


PLAN = sm90.SmemPlan.of(tile=sm90.StagedTile((64, 64), 2, 16), array=sm90.SmemArray(8, bits=64))
LARGE = sm90.SmemPlan.of(tile=sm90.StagedTile((128, 64), 15, 16), array=sm90.SmemArray(8, bits=64))
ONE, PAIR = sm100.umma_traits("f16", 128, 64), sm100.umma_traits("f16", 256, 64, cta_group=2)
HALF = sm100.umma_traits("f16", 64, 64)
TMEM = sm100.TmemPlan.of(C=128)
WIDE = (1 << 20) - 16
LINES = [1, 2, 3, 24, 128]

# Groups of arguments: a tuple is one call, a list the product of its elements.
CALLS = {
    barriers.named_barriers: [{}, {"a": 2, "b": 0, "c": 1}, {"a": 7, "b": 8}, {"a": 7, "b": 9}, {"a": 1, "b": -1}],
    barriers.check_barrier: [[[-1, 0, 1, 15, 16]]],
    barriers.check_turn_threads: [[[-32, 0, 31, 32, 33, 512, 544]]],
    barriers.check_reduction: [[[-32, 0, 1, 31, 32, 33, 64, 65, 1024, 1056]]],
    barriers.check_scattered: [[range(-1, 18)], [[31, 32, 33, 64]]],
    barriers.check_butterfly: [[range(1, 10)], [[16, 24, 32]]],
    barriers.reduction_slots: [[range(10)]],
    barriers.check_slots: [[[3, 4, 5, 8], [3, 4, 5]]],
    clusters.check_worker: [(Frozen(),), (Thawed(),), (Frozen,), (1,)],
    clusters.check_turns: [[[0, 1, 2]]],
    clusters.check_schedule: [
        [[(1, 1), (4, 4), (4, 2), (0, 1), (1, 0)], [0, 1, 2, 3], [1]],
        [[(1, 1)], [1], [-1, 0, 2]],
    ],
    clusters.check_multicast: [[LINES, [64, 128, 192], [1, 2, 3]]],
    clusters.check_sharing: [[[True, False], [1, 2, 3]]],
    clusters.check_rows_only: [[[(1, 1), (1, 2), (2, 1)], [1, 2]]],
    dequantising.quantised_tile: [
        [[staged(64, n, 16) for n in (64, 128, 192, 256, 384, 512, 1024)], [2]],
        [[staged(64, 128), staged(64, 64, 16, 0), staged(64, 128, 16, 1, "SW64"), staged(64, 128, 16)], [-1, 0, 1]],
    ],
    launches.check_number: [[["stage"], [-1, 0, 1, 3, 4, None], [1, 4, None]]],
    launches.check_buffer: [[[-1, 0, 1, 2, None], [None, 0, 1, 2, 3], [None, 3, 4], [2]], [[0], [0], [4], [1, 3, 4]]],
    launches.check_coordinate: [[[1, 2, 3], [2], ["(row, column)"]]],
    launches.check_threads: [[[128, 256], [None, 127, 128, 255, 256, 384]]],
    launches.check_readers: [[[3, 4, 8, 12, 13], [128, 256], [None, 128, 384]]],
    launches.check_warpgroups: [
        [[-128, 0, 64, 128], [-128, 0, 64, 128, 256], [None]],
        [[0, 128], [128, 256], [127, 128, 255, 256, 384]],
    ],
    launches.check_cluster: [[["a ring"], [(1, 1), (2, 1), (2, 1, 2)], [None, (1, 1, 1), (2, 1, 1), (2, 1, 2)]]],
    occupancy.fillable_sms: [[[1, 2, 4, 8], [1, 4, 11, 66, 100, 132]]],
    occupancy.fills: [[[0, 60, 118, 119, 132], [132]]],
    operands.step_halves: [[range(7)]],
    operands.check_operand_source: [[["smem", "rmem"], ["smem", "rmem"]]],
    operands.check_staged_operand: [[[True], [4, 8, 16, 32], [1, 2, 3, 4, 8]], (False, 16, 2)],
    operands.check_accumulated: [[[(128, 64), (64, 128)], [(128, 64), (128, 32)]]],
    operands.check_fragments: [[[32, 64, 72], [16, 32], [1, 2, 4]]],
    partials.check_widths: [[[8, 16, 24, 32], [1, 2, 4]]],
    partials.partial_shape: [[[0, 1, None], [1, 16, 17, 100], [32, 33, 64], [32]]],
    promotion.block_range: [[[64, 96, 256], [1, 64, 128], [0, 40, 56, 200]]],
    promotion.row_offsets: [[[64, 128, 192, 256], [1], [0, 1, 128]], [[128, 256], [2], [0, 1, 128]]],
    promotion.column_offsets: [[[8, 16, 128, 136, 160, 256], [0, 1, 2, 128]]],
    promotion.staged_scales: [[[64, 192, 256], [0, 1, 128]]],
    promotion.check_tma_scales: [[[(1, 1), (1, 128), (0, 1)], [(a, b) for a in (True, False) for b in (True, False)]]],
    promotion.fitting_buffers: [
        [[(128, 128, 128), (64, 64, 128), (64, 64, 256)], [1, 2], [(1, 128), (0, 0)]],
        [[(64, 64, 256)], [1], [(1, 128)], [98, 99, 100, 101, 102, 103, 104, 105]],
    ],
    promotion.check_promotion: [
        [[(256, 128, 128)], [2], [1], [(1, 128)], range(6, 10)],
        [[(128, 192, 128)], [2], [1], [(0, 0), (1, 1)], [11, 12, 13]],
        [[(64, 64, 64), (64, 64, 128), (128, 64, 128), (64, 64, 192), (64, 64, 256)], [1], [0, 1, 2, 3], [(1, 1)]],
        [[(192, 128, 128), (192, 64, 128)], [1, 3], [1, 2], [(128, 128)]],
    ],
    ragged.back_stride: [[[16, 4096], [8, 16, 32]]],
    ragged.check_ragged: [
        [[2**30, 2**30 + 1], [16], ["a"]],
        [[1], [-16, 0, 8, 15, 16, 24, 2**34 - 16, 2**34]],
    ],
    registers.register_budget: [[range(5), [0, 24, 32, 40, 56]]],
    registers.check_accumulators: [
        [[(64, 8), (64, 256), (128, 192), (128, 256), (192, 256)], [1, 2, 3]],
        [[(64, 160), (64, 200), (64, 240), (64, 248)], [1], [1, 2, 3]],
        [[(128, 240), (128, 256)], [1, 2], [1], [0, 8, 64, 128, 240, 248, 256]],
    ],
    rings.check_ring: [
        [[0, 1], [-16, 0, 8, 16, 24, WIDE, WIDE + 16], [0, 1], [(1, 1)]],
        [[2], [16], [2], [(0, 1), (1, 0), (1, 16), (16, 1), (4, 4), (1, 17), (4, 5), (-1, -1)]],
    ],
    rings.check_overlap: [[range(4)]],
    rings.check_mixed_ring: [[[1], [0, 8, 16], [-32, 0, 1, 31, 32, 33, 64], [1], [(1, 1)]], (0, 0, 32, 1, (1, 1))],
    rings.check_stored_ring: [[[0, 1], [-1, 0, 1], [0, 1]]],
    rings.full_barrier_arrivals: [[[0, 64, 128], [0, 1, 16384]]],
    rings.check_pieces: [
        [[(128, 64)], [0, 1], [16], [2, 4, 8, 16, 32], [96, 128]],
        [[(24, 8), (8, 24), (8, 2)], [0, 1], [8, 16], [4, 8, 16], [64]],
    ],
    rings.piece_threads: [[[1, 6, 16, 256], [96, 128]]],
    rings.empty_barrier_arrivals: [[[1, 8], [(1, 1), (1, 2), (2, 1), (2, 2), (3, 4)]]],
    rings.check_exchange: [[[1, 2, 16, 17], [0, 3, 4, 6, 8]]],
    rings.owners: [[[1, 2, 8], [1, 4, 8]]],
    rings.partial_bytes: [[[8, 16], [128, 256]]],
    rings.exchange_bytes: [[[2, 3, 4], [1, 2, 3, 8], [16], [128]]],
    shares.choose: [[[True, False], ["yes"], ["no"]]],
    shares.parts_of: [[[*range(1, 20), 35, 36, 63, 64, 99, 100, 143, 144, 195, 196, 255, 256, 323, 324, 1000]]],
    staging.signless: [[["Uint8", "Int8", "Uint16", "Float16", "UE8M0"]]],
    staging.check_multiplied: [[["A"], ["Int8", "Float16"], ["Uint8", "Float16"]]],
    staging.check_operand_major: [[["A"], [None, 0, 1], ["K", "MN"]]],
    staging.check_contiguous_mode: [[[None, 0, 1], [None, 0, 1]]],
    staging.check_copied_type: [[["Int8", "TFloat32", "Float32"], ["Uint8", "TFloat32", "Float32"]]],
    staging.check_copy_tile: [[[(64, 64), (64, 32)], [(64, 64), (32, 64)]]],
    staging.check_tile_of_stages: [[[(128, 64), (64, 96), (96, 128)], [(64, 32), (64, 64)]]],
    staging.check_tile_or_part: [[[(16, 64), (64, 16), (128, 64), (48, 64), (256, 64)], [(128, 64)], [None, 0, 1]]],
    staging.parts_of_stage: [
        [[(16, 64), (4, 64), (128, 64), (48, 64), (128, 8), (128, 4), (128, 24)], [(128, 64)], [None, 0, 1]],
    ],
    staging.place_of_part: [[[None, -1, 0, 1, 3, 4], [(1, 1), (4, 1), (1, 4)]]],
    staging.check_covering: [[[(128, 64)], [(128, 64), (128, 32), (64, 64)]]],
    staging.check_registers: [[[15, 16, 17], [16]]],
    staging.check_sums: [[["Float32", "Int32", "Float16"]]],
    tickets.check_tickets: [[[0, 1], [0, 1], [1]], [[2], [2], [-1, 0, 1, 16, 17]]],
    tickets.check_working_dealer: [[[-1, 0, 1, 2]]],
    tickets.ticket_slots: [[[1, 2, 3]]],
    tiles.tile_bytes: [[[1, 128], [64], [4, 8, 16]]],
    tiles.accumulator_registers: [[[64, 128], [8, 256], [1, 2]]],
    tiles.accumulator_dtype: [[[*tiles.WGMMA_DTYPES]]],
    tiles.longest_sum: [[["int8", "uint8"], ["int8", "uint8"]]],
    tiles.wgmma_tiling: [
        [[*tiles.WGMMA_DTYPES], ["float16", "float32", "uint8", "float8_e5m2"], [64], [1]],
        [["float16"], ["float16"], [8, 12, 256, 264], [0, 1, 2, (1, 2), (0, 1), (1, 0)]],
        [["float16", "half", "int16", "complex64"], ["half", "complex128"], [64], [1]],
    ],
    tiles.staged_columns: [[[32, 33, 40, 64, 72, 136, 200], [8, 16], [True, False], [1, 2, 3]]],
    tiles.multiplied_columns: [[[144, 192, 288], [144, 192], ["K", "MN"]]],
    tiles.check_stages: [
        [[(128, 64), (96, 64), (128, 24)], [(64, 64), (72, 64), (64, 24)], [(64, 64, 16), (128, 8, 8)]]
    ],
    tiles.check_ring_stages: [[[3, 4], [3, 4], [4]]],
    tiles.check_whole_columns: [[[64, 128], [64, 128], [1, 2]]],
    tiles.check_stacked: [[["a loop"], [1, 2]]],
    tiles.check_subtile: [[[64, 128], [-8, 0, 1, 8, 12, 16], [1, 2]]],
    tiles.check_subtile_columns: [[[8, 16, 24, 64], [8, 16, 24, 48]]],
    tiles.check_smem: [(PLAN,), (LARGE,)],
    tiles.check_room: [[[PLAN["array"], PLAN["tile"]], [7, 8, 9], [32, 64], ["a ring"]]],
    tiles.check_region: [[[PLAN["array"], PLAN["tile"]], [None, 16, 64]]],
    transposing.check_transposes: [
        [[staged(64, 64, 8, 0), staged(64, 64), staged(24, 64)], [staged(64, 64)], [0, 1]],
        (staged(64, 16, 8, 0), staged(64, 16), 1),
        (staged(8, 64), staged(8, 64), 1),
        (staged(64, 64, 16, 0), staged(64, 64), 1),
        (staged(64, 64, 8, 0), staged(64, 64, 16), 1),
        (staged(64, 64, 8, 0), staged(64, 64, 8, 0), 1),
    ],
    vectors.vector_elems: [
        [[4, 8, 16, 32, 64, 128], [16], [0, 1, 2, 8]],
        [[8, 16, 32], [1, 2, 3, 4, 6, 16, 32], [0, 4], [0, 1, 2, 3]],
    ],
    vectors.check_row_stores: [[[0, 1, 2, 3, 4, 8], [8, 16, 24, 32]]],
    vectors.check_rows: [[range(4), [True]], (1, False), (2, False)],
    vectors.check_vector: [[[7, 8, 9], [8]]],
    workspaces.workspace_shapes: [[[1, 132], [128], [64, 256]]],
    workspaces.check_workspace: [[[0, 3, 4, 5, 8], [32]], [[4], [-32, 0, 31, 32, 33, 512, 544]]],
    sm100_rules.check_stages: [
        [
            ["A", "B"],
            [ONE, PAIR],
            [(32, 64), (64, 64), (128, 64), (128, 24), (64, 128)],
            ["float16"],
            ["K", "MN", None],
        ],
        ("A", ONE, (128, 64), "bfloat16", "K"),
    ],
    sm100_rules.check_accumulators: [[[ONE, PAIR, HALF], [TMEM], ["C", "D"], [0, 1, 2, 3]]],
    sm100_rules.check_loaded_columns: [[[4, 8, 16, 24, 32, 64, 128], [96, 128]]],
    sm100_rules.check_row_threads: [[[None, 96, 127, 128, 192]]],
    sm100_rules.check_accumulator_ring: [[[0, 1, 2], [0, 1], [0, 1, 2, 3]]],
}


def calls_of(rule):
    for group in CALLS[rule]:
        yield from [group] if isinstance(group, tuple | dict) else product(*group)


def outcome_of(rule, arguments):
    try:
        value = rule(**arguments) if isinstance(arguments, dict) else rule(*arguments)
    except (ValueError, TypeError, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    return "taken" if value is None else short(value)


def short(value):
    if isinstance(value, sm90.StagedTile):
        return f"{value.tile[0]}x{value.tile[1]}:{value.stages}:{value.bits}:{value.contiguous_mode}:{value.swizzle}"
    return getattr(value, "name", None) or re.sub(rf"<class .*\.(\w+)'>|{re.escape(__name__)}\.?", r"\1", str(value))


def short_call(arguments):
    given = [f"{name}={value}" for name, value in arguments.items()] if isinstance(arguments, dict) else arguments
    return ",".join(short(value).replace(" ", "") for value in given)


@pytest.mark.parametrize(
    "rule", CALLS, ids=lambda rule: f"{rule.__module__.removeprefix('cutepy.device.')}.{rule.__name__}"
)
def test_outcomes_at_the_bounds(rule):
    """Refusals that differ only in numbers stand together, with the texts of the first one and the last one."""
    outcomes = {}
    for arguments in calls_of(rule):
        outcome = outcome_of(rule, arguments)
        kind = re.sub(r"-?\d+", "N", outcome) if "Error: " in outcome else outcome
        texts, calls = outcomes.setdefault(kind, ([], []))
        texts.append(outcome)
        calls.append(short_call(arguments))
    lines = []
    for texts, calls in outcomes.values():
        lines += [f"{' '.join(calls)} -> {texts[0]}", *(texts[-1:] if texts[-1] != texts[0] else [])]
    pins("\n".join(lines))


def test_every_rule_has_its_bounds_here():
    found = {
        function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert found == set(CALLS)
