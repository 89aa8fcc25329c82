"""Refinement of the model's estimates: the walk of the trees, and a choice that follows them."""

import json
import math
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from cutepy import epilogues
from cutepy.kernels.gemm import GemmSignature, tuned
from cutepy.kernels.gemm.gpu import H100, H200
from cutepy.kernels.gemm.heuristic.candidates import SHORTLIST, shortlist
from cutepy.kernels.gemm.heuristic.choice import candidates, choose, chosen_us, select_config, straight_and_transposed
from cutepy.kernels.gemm.heuristic.model import Extents
from cutepy.kernels.gemm.heuristic.refinement import BLOCK, PARTS, Trees, hopper
from cutepy.kernels.gemv.choice import MOST_ROWS
from cutepy.suites.gemm_tuning import settings_of
from tests.kernels import collecting, fitting

PROBLEM = Extents(700, 1100, 3000, 16, 1)
TURNED = PROBLEM._replace(m=1100, n=700, transposed=True)
HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")


def walked(trees, row):
    """Walk one tree after another, level by level."""
    total = 0
    for columns, edges, leaves in zip(*trees.values(), strict=True):
        passed = (row[column] > np.float32(edge) for column, edge in zip(columns, edges, strict=True))
        total += leaves[sum(1 << level for level, above in enumerate(passed) if above)]
    return total / PARTS


def facts(problems, gpu=H200):
    """Give the facts of what is refined."""
    table = candidates("refined")
    estimates = table.estimates(problems, gpu)
    return table.facts(problems, estimates, shortlist(np.where(table.suit(problems), estimates.sixths, np.inf)), gpu)


def ranked(*problems):
    """List all choices in their order, and with the problem's place."""
    return list(candidates(problems[0].table).ranked(problems, H200).each())


def test_the_trees_are_walked_as_they_are_meant():
    of_choices = facts([PROBLEM, TURNED])
    trees = json.loads(files("cutepy.kernels.gemm.heuristic").joinpath("trees.json").read_text())
    sums = hopper().sums(of_choices)
    assert sums.tolist() == [walked(trees, row) for row in of_choices.T]
    assert np.abs(sums).max() > 0.01
    assert hopper().facts.max() < len(of_choices)


@pytest.mark.parametrize("depth", [1, 3, 6, 8])
@pytest.mark.parametrize("count", [1, BLOCK, BLOCK + 1])
def test_trees_of_any_depth_and_count_add_up(depth, count):
    random = np.random.default_rng(depth)
    trees = {
        "columns": random.integers(0, 5, (count, depth)).tolist(),
        "edges": random.integers(0, 4, (count, depth)).tolist(),
        "leaves": random.integers(-50_000, 50_000, (count, 2**depth)).tolist(),
    }
    rows = random.integers(0, 5, (7, 5)).astype(np.float32)
    assert Trees.of_lists(**trees).sums(rows.T).tolist() == [walked(trees, row) for row in rows]


def test_what_is_equal_to_an_edge_is_not_above_it():
    trees = Trees.of_lists([[0]], [[0.1]], [[1_000_000, 2_000_000]])
    above = np.nextafter(np.float32(0.1), np.float32(1))
    assert trees.sums(np.array([[0.1, above]], np.float32)).tolist() == [10.0, 20.0]


def test_a_shortlist_is_refined_and_the_others_follow_by_the_model():
    choices, table = ranked(PROBLEM), candidates("refined")
    sixths = np.where(table.suit([PROBLEM]), table.estimates([PROBLEM], H200).sixths, np.inf)
    count = len(shortlist(sixths))
    first, others = choices[:count], choices[count:]
    for part in (first, others):
        expected = [us for us, *_ in part]
        assert expected == sorted(expected)
    assert len(choices) == len({choice for *_, choice in choices}) == table.suit([PROBLEM]).sum()
    (by_model,) = table.expected_us([PROBLEM], H200)
    by_model = dict(zip(table.choices, by_model.tolist(), strict=True))
    assert max(by_model[choice] for *_, choice in first) <= min(by_model[choice] for *_, choice in others)
    assert [us for us, *_ in others] == pytest.approx([by_model[choice] for *_, choice in others])
    assert all(us != by_model[choice] for us, _, choice in first)


def test_what_the_model_cannot_tell_from_the_last_of_a_shortlist_is_on_it():
    times = np.array([[*range(SHORTLIST), SHORTLIST - 1, SHORTLIST], [1.0] + [np.inf] * (SHORTLIST + 1)])
    assert shortlist(times).tolist() == [*range(SHORTLIST + 1), SHORTLIST + 2]
    assert shortlist(np.array([[2.0, np.inf, 1.0]])).tolist() == [0, 2]


@pytest.mark.parametrize("changes", [{}, {"m": 1}, {"batch": 3}, {"operand_bits": 8, "promotes": True}])
def test_both_ways_at_once_are_each_way_alone(changes):
    straight = PROBLEM._replace(**changes)
    transposed = straight._replace(m=straight.n, n=straight.m, transposed=True, a_mn_major=True, b_mn_major=True)
    both = ranked(straight, transposed)
    for place, alone in enumerate((straight, transposed)):
        assert [(us, choice) for us, at, choice in both if at == place] == [
            (us, choice) for us, _, choice in ranked(alone)
        ]


def test_the_fastest_way_is_chosen():
    for m, n in ((16, 4096), (4096, 16), (4096, 4096)):
        ways = list(straight_and_transposed(HALF, (m, n, 4096, 1), H200))
        assert chosen_us(HALF, m, n, 4096) == ways[0].expected_us
        assert choose(HALF, m, n, 4096) == (ways[0].transposed, ways[0].config())
        assert select_config(HALF, m, n, 4096) == next(way for way in ways if not way.transposed).config()


@pytest.mark.parametrize("gpu", [H200, H100, replace(H200, sm_count=66)])
def test_trees_know_the_memory_and_which_of_the_sms_are_busy(gpu):
    *_, busy, memory = facts([PROBLEM._replace(m=4096, n=4096)], gpu)
    assert set(memory.tolist()) == {np.float32(gpu.memory_tbs)}
    assert 0.9 < busy.max() <= 1


def test_a_gpu_of_slower_memory_takes_longer_and_chooses_for_itself():
    extents = [(m, n, 4096) for m in (16, 96, 300) for n in (1000, 4096, 14336)]
    assert all(chosen_us(HALF, *each, gpu=H100) > chosen_us(HALF, *each) for each in extents[:3])
    assert any(choose(HALF, *each, gpu=H100) != choose(HALF, *each) for each in extents)


def test_where_an_epilogue_has_many_instructions_two_consumers_take_turns():
    gelu = replace(HALF, epilogue=epilogues.gelu_tanh.graph.text)
    plain, heavy = (choose(each, 4096, 14336, 4096).config.consumers for each in (HALF, gelu))
    assert (plain, heavy) == (1, 2)
    assert chosen_us(gelu, 4096, 4096, 4096) >= chosen_us(HALF, 4096, 4096, 4096)


def test_batches_and_promoted_sums_have_the_model_alone():
    for problem in (PROBLEM._replace(batch=3), PROBLEM._replace(operand_bits=8, promotes=True)):
        table = candidates(problem.table)
        suiting = table.expected_us([problem], H200)[table.suit([problem])]
        assert [us for us, *_ in ranked(problem)] == pytest.approx(sorted(suiting))


def test_what_is_timed_for_a_fit_has_the_choice_and_others():
    for index, problem in enumerate(collecting.problems(8, seed=1)):
        settings = settings_of(problem)
        picks = collecting.picks(settings, index)
        most = collecting.EXPECTED + collecting.ALONE + collecting.BY_MODEL + collecting.OTHERS
        assert len(picks) <= most + collecting.FEW_ROWS * (min(problem.m, problem.n) <= MOST_ROWS)
        assert all(picks.count(each) == 1 for each in picks)
        default = tuned.default(settings)
        assert "family" in default or picks[0] == default
        for each in picks:
            tuned.chosen_of(settings, each)


def test_most_of_what_is_timed_is_of_medium_work():
    drawn = collecting.worth_timing(40, 1, ["short"])
    assert [problem.m for problem in drawn[:7]] == [8448] * 6 + [8192]
    assert len(drawn) == len(set(drawn)) == 47
    low, high = collecting.MEDIUM
    medium, of_uniform = (
        sum(low <= problem.flops <= high for problem in each) for each in (drawn[7:], collecting.problems(40, 1))
    )
    assert medium > 34 > of_uniform


def test_a_fit_reads_what_was_timed_with_the_facts_that_choices_have(tmp_path):
    (problem,) = collecting.problems(1, seed=1)
    settings = settings_of(problem)
    lines = [
        ["turns", json.dumps(settings), json.dumps(pick), 5.0 + place, None]
        for place, pick in enumerate(collecting.picks(settings, 0))
    ]
    journal = tmp_path / "journal"
    journal.write_text("".join(json.dumps(line) + "\n" for line in [*lines, [*lines[0][:3], None, "failed"]]))
    (group,) = fitting.timed([journal])
    straight, transposed = fitting.both_ways(settings)
    first = ranked(straight, transposed)[0]
    assert np.exp(group.took).tolist() == pytest.approx([5.0 + place for place in range(len(lines))])
    assert group.weights()[0] == 1
    as_expected = group.as_in_the_mean(hopper())
    assert np.ptp(as_expected.took - group.took) < 1e-12
    expected = group.expected + hopper().sums(group.facts)
    assert np.average(expected - as_expected.took, weights=group.weights()) == pytest.approx(0, abs=1e-12)
    assert math.exp(expected[0]) == pytest.approx(first.us), "what is expected to be fastest is timed first"


def test_a_fit_reads_what_catboost_writes():
    class Model:
        def save_model(self, path, format):
            trees = [
                {"splits": [{"float_feature_index": 0, "border": 0.5}], "leaf_values": [0.25, 0.5]},
                {
                    "splits": [{"float_feature_index": n, "border": 1.5} for n in (0, 1)],
                    "leaf_values": [1.0, 2.0, 3.0, 4.0],
                },
            ]
            trees.append({"splits": [], "leaf_values": [0.0]})
            Path(path).write_text(json.dumps({"oblivious_trees": trees}))

    trees = Trees.of_lists(**fitting.lists_of(Model()))
    assert trees.sums(np.array([[0.0, 1.0, 2.0, 0.0], [0.0, 0.0, 2.0, 2.0]])).tolist() == [1.25, 1.5, 4.5, 3.25]
