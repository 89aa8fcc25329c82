"""Fit the trees of `cutepy.kernels.gemm.heuristic` to what was timed.

    python -m tests.kernels.fitting kernels/gemm/heuristic/trees.json [JOURNAL ...]

reads the journals in `timed` (`tests.kernels.collecting`), and those that are named (`cutepy tune gemm` writes such,
too), fits all trees afresh (CatBoost must be installed; 1.2.10 was), prints how much slower than the fastest of what
was timed the choice is, for problems that a fit had not seen too; and writes them. GPUs, days and ways to launch differ
in how long all candidates of a problem take. So trees are fitted twice: the second fit is to times that are in the mean
what the first trees expect.
"""

import argparse
import json
import lzma
import math
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cutepy.kernels.gemm import GemmConfig, tuned
from cutepy.kernels.gemm.gpu import H200
from cutepy.kernels.gemm.heuristic.candidates import Candidates
from cutepy.kernels.gemm.heuristic.choice import extents_of
from cutepy.kernels.gemm.heuristic.model import H200_COSTS, Choice
from cutepy.kernels.gemm.heuristic.refinement import PARTS, Trees
from cutepy.kernels.gemm.heuristic.tiles import OutputTile
from cutepy.suites.gemm_problems import GEMM_SUITES
from tests.kernels.collecting import COMPANY, CUBLAS, MEMORY

TIMED = Path(__file__).parent / "timed"
FOLDS = 5
TREES = {
    "loss_function": "RMSE",
    "iterations": 500,
    "depth": 6,
    "learning_rate": 0.1,
    "l2_leaf_reg": 3.0,
    "border_count": 32,
    "random_seed": 0,
}
FASTER = 5.0
"""Weight of a problem's fastest candidates against slow ones."""
LEAST_US = 0.5
"""Time of a launch in company, at least: less is the noise of the company's own time."""
KNOWN = 5
"""Weight of the problems of suites, which people look at."""
COMPANY_SHARE = 0.7
"""Exponent of the time in company in the mean of both ways; users launch other kernels between."""
MANY, WIDE = 20, 3
"""Candidates of a problem that are many, and how many times such a problem counts: what is fastest of a dozen may not
be of all.
"""
_SUITES = {extents for suite in ("rows", "cubes", "short") for extents in GEMM_SUITES[suite]}


class Group(NamedTuple):
    """Candidates of a problem: facts (facts, candidates), the logarithms of what the model expects and of what is.

    It counts so many times as others.
    """

    facts: np.ndarray
    expected: np.ndarray
    took: np.ndarray
    times: int = 1

    def weights(self):
        """Tell how much each counts."""
        return self.times * np.exp(-FASTER * (self.took - self.took.min()))

    def as_in_the_mean(self, trees):
        """Give the same with times so much longer that they are in the mean what trees expect."""
        off = self.expected + trees.sums(self.facts) - self.took
        return self._replace(took=self.took + np.average(off, weights=self.weights()))

    def lost(self, trees):
        """Give the logarithm of how much slower the choice by trees is than the fastest."""
        return self.took[np.argmin(self.expected + trees.sums(self.facts))] - self.took.min()


def timed(paths):
    """Read journals. What two of them have of a problem isn't compared: GPUs differ.

    Of times back to back and in company a weighted geometric mean is what a candidate took.
    """
    for path in paths:
        times, gpu = defaultdict(lambda: defaultdict(dict)), H200
        read = lzma.decompress(Path(path).read_bytes()) if Path(path).suffix == ".xz" else Path(path).read_bytes()
        for line in read.splitlines():
            who, problem, candidate, us, _ = json.loads(line)
            if who == MEMORY:
                gpu = replace(H200, memory_tbs=us)
            elif us is not None and not who.startswith(CUBLAS):
                times[problem][candidate][who == COMPANY] = max(us, LEAST_US)
        for problem, candidates_of in times.items():
            ways_timed = max(len(took) for took in candidates_of.values())
            took = {
                key: both[False] ** (1 - COMPANY_SHARE) * both[True] ** COMPANY_SHARE if len(both) > 1 else both[False]
                for key, both in candidates_of.items()
                if len(both) == ways_timed
            }
            known = {json.dumps(way): us for key, us in took.items() if (way := way_of(json.loads(problem), key))}
            if len(known) > 1:
                ways, settings = [json.loads(way) for way in known], json.loads(problem)
                yield group_of(settings, ways, np.log(list(known.values())), gpu)


def way_of(problem, key):
    """Tell whether a candidate is transposed, and its numbers; None if nothing that is chosen from is like it."""
    transposed, config = tuned.chosen_of(problem, json.loads(key))
    if not isinstance(config, GemmConfig):
        return None
    spans = config.tile_k * config.signature.operand_bits // 1024
    tile = OutputTile(config.tile_m, config.tile_n, spans, config.consumers, config.split_k)
    choice = Choice(tile, config.cluster_m, config.cluster_n)
    return (transposed, tile, *choice[1:]) if choice.config(config.signature, problem["k"]) == config else None


def both_ways(settings):
    """Give the extents of a product and of the transposed one."""
    signature, m, n, k = tuned.signature_of(settings), *(settings[extent] for extent in "mnk")
    straight = extents_of(signature, m, n, k, settings["batch"], False)
    return straight, extents_of(signature.transposed, n, m, k, settings["batch"], True)


def group_of(settings, ways, took, gpu):
    """Put together what is known of candidates that were timed."""
    table = Candidates([Choice(OutputTile(*tile), *cluster) for _, tile, *cluster in ways], H200_COSTS)
    places = np.array([transposed for transposed, *_ in ways]) * len(ways) + np.arange(len(ways))
    asked = both_ways(settings)
    estimates = table.estimates(asked, gpu)
    facts, expected = table.facts(asked, estimates, places, gpu), np.log(estimates.us.take(places))
    times = KNOWN if tuple(settings[mode] for mode in "mnk") in _SUITES else WIDE if len(took) >= MANY else 1
    return Group(facts, expected, took, times)


def fit(groups, settings):
    """Fit trees to what estimates are off by: lists for `Trees.of_lists`.

    Settings are CatBoost's, besides `TREES`.
    """
    lists = fit_once(groups, settings)
    return fit_once([group.as_in_the_mean(Trees.of_lists(**lists)) for group in groups], settings)


def fit_once(groups, settings):
    """Fit trees to the times as they are."""
    from catboost import CatBoost, Pool

    pool = Pool(
        np.concatenate([group.facts for group in groups], axis=1).T,
        label=np.concatenate([group.took - group.expected for group in groups]),
        weight=np.concatenate([group.weights() for group in groups]),
    )
    return lists_of(CatBoost({**TREES, **settings, "verbose": False, "allow_writing_files": False}).fit(pool))


def lists_of(model):
    """Give what trees compare, and their leaves; a tree that is less deep repeats its last comparison."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        trees = json.loads(path.read_text())["oblivious_trees"]
    depth = max(len(tree["splits"]) for tree in trees)
    lists = {"columns": [], "edges": [], "leaves": []}
    for tree in filter(lambda tree: tree["splits"], trees):
        more = depth - len(tree["splits"])
        splits = tree["splits"] + tree["splits"][-1:] * more
        lists["columns"].append([split["float_feature_index"] for split in splits])
        lists["edges"].append([float(f"{split['border']:.6g}") for split in splits])
        lists["leaves"].append([round(value * PARTS) for value in tree["leaf_values"] * 2**more])
    return lists


def summary(losses):
    """Describe how much slower choices are than the fastest: in the geometric mean, and a hundredth of them."""
    return f"{math.expm1(np.mean(losses)):.4f} ({math.expm1(np.quantile(losses, 0.99)):.3f} for a hundredth)"


def lost(groups, trees):
    """Describe choices by trees."""
    return summary([group.lost(trees) for group in groups])


def unseen(groups, settings):
    """Describe choices by trees that were fitted without the problems that they choose for."""
    fold = np.random.default_rng(0).permutation(len(groups)) % FOLDS
    losses = []
    for own in range(FOLDS):
        trees = Trees.of_lists(
            **fit([group for group, each in zip(groups, fold, strict=True) if each != own], settings)
        )
        losses += [group.lost(trees) for group, each in zip(groups, fold, strict=True) if each == own]
    return summary(losses)


def main():
    """Fit, tell how well, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trees", type=Path)
    parser.add_argument("journals", nargs="*", type=Path)
    parser.add_argument("--iterations", type=int, default=TREES["iterations"], help="how many trees")
    parser.add_argument("--depth", type=int, default=TREES["depth"], choices=range(1, 9))
    parser.add_argument("--learning-rate", type=float, default=TREES["learning_rate"])
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("iterations", "depth", "learning_rate")}
    before = Trees.of_lists(**json.loads(options.trees.read_text()))
    groups = list(timed([*sorted(TIMED.glob("*.xz")), *options.journals]))
    lists = fit(groups, settings)
    print(f"{len(groups)} problems, {sum(len(group.took) for group in groups)} times; slower than the fastest:")
    print(f"  {lost(groups, before)} by the trees there were")
    print(f"  {unseen(groups, settings)} by trees that had not seen them")
    print(f"  {lost(groups, Trees.of_lists(**lists))} by the new trees")
    options.trees.write_text(json.dumps(lists, separators=(",", ":")))


if __name__ == "__main__":
    main()
