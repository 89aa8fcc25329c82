"""What refines the model's estimates: trees that are walked as they are meant, and a choice that follows them."""

import json
from importlib.resources import files

import numpy as np

from cutepy.kernels.gemm import tuned
from cutepy.kernels.gemm.choice import candidates
from cutepy.kernels.gemm.model import Extents
from cutepy.kernels.gemm.refinement import LEAF, Trees, h200
from cutepy.suites.gemm_tuning import settings_of
from tests.kernels import collecting

PROBLEM = Extents(700, 1100, 3000, 16, 1)


def walked(trees, row):
    """Walk one tree after another, node by node."""
    total = 0.0
    for decides_by, at, then in zip(*trees.values(), strict=True):
        node = 0
        while decides_by[node] != LEAF:
            node = then[node] + (row[decides_by[node]] > at[node])
        total += at[node]
    return total


def test_the_trees_are_walked_as_they_are_meant():
    table = candidates("refined")
    rows = table._facts(PROBLEM, np.arange(30), table.expected_us(PROBLEM), 132)
    trees = json.loads(files("cutepy.kernels.gemm").joinpath("h200.json").read_text())
    assert np.allclose(h200().sums(rows), [walked(trees, row) for row in rows])
    assert np.abs(h200().sums(rows)).max() > 0.01
    assert h200().decides_by.max() < rows.shape[1]


def test_what_is_equal_to_a_threshold_goes_to_the_first_node():
    trees = Trees.of_lists([[0, -1, -1]], [[1.0, 10.0, 20.0]], [[1, 1, 2]])
    assert trees.sums(np.array([[1.0], [1.5]])).tolist() == [10.0, 20.0]


def test_a_shortlist_is_refined_and_the_others_follow():
    ranked = list(candidates("refined").ranked(PROBLEM, 132).each())
    expected = [us for us, _ in ranked]
    assert expected == sorted(expected)
    assert len(ranked) == len({choice for _, choice in ranked}) > 100


def test_batches_and_promoted_sums_have_the_model_alone():
    for problem in (PROBLEM._replace(batch=3), PROBLEM._replace(operand_bits=8, promotes=True)):
        table = candidates(problem.table)
        suiting = table.expected_us(problem)[table.suit(problem)]
        assert table.ranked(problem, 132).expected_us[0] == suiting.min()


def test_what_is_timed_for_a_fit_has_the_choice_and_others():
    for index, problem in enumerate(collecting.problems(8, seed=1)):
        settings = settings_of(problem)
        picks = collecting.picks(settings, index)
        assert len(picks) <= collecting.EXPECTED + collecting.BY_MODEL + collecting.OTHERS
        assert all(picks.count(each) == 1 for each in picks)
        default = tuned.default(settings)
        assert "family" in default or picks[0] == default
        for each in picks:
            tuned.chosen_of(settings, each)
