"""Fit the trees of `cutepy.kernels.gemm.heuristic`, to what was timed and to what the trees in their file say.

    python -m tests.kernels.fitting kernels/gemm/heuristic/trees.json [JOURNAL ...]

reads journals (`tests.kernels.collecting`, `cutepy tune gemm`), those in `timed` besides, and the trees there are, fits
all trees afresh (CatBoost must be installed; 1.2.10 was), prints how much slower than the fastest of what was timed the
choice is, for problems that a fit had not seen too, and how far it is from the choice by the trees before; and writes
them. What these were fitted to need not be at hand: they are asked about random problems, and what they say counts less
than what was timed.
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
from cutepy.kernels.gemm.heuristic.candidates import Candidates, shortlist
from cutepy.kernels.gemm.heuristic.choice import candidates, extents_of
from cutepy.kernels.gemm.heuristic.model import H200_COSTS, Choice
from cutepy.kernels.gemm.heuristic.refinement import PARTS, Trees
from cutepy.kernels.gemm.heuristic.tiles import OutputTile
from cutepy.suites.gemm_problems import GEMM_SUITES
from cutepy.suites.gemm_tuning import settings_of
from tests.kernels.collecting import COMPANY, CUBLAS, MEMORY, problems

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
FASTER, FASTER_SAID = 5.0, 15.0
"""Weight of a problem's fastest candidates against slow ones; of timings, and of older trees' times, without noise."""
ASKED, ASKED_SEED, FRESH, FRESH_SEED = 4000, 20261201, 500, 20261202
"""Random problems that the trees there are are asked about; and such as tell afterwards how far the new ones are."""
LEAST_US = 0.5
"""Time of a launch in company, at least: less is the noise of the company's own time."""
KNOWN = 5
"""Weight of the problems of suites, which people look at."""
_SUITES = {extents for suite in ("rows", "cubes", "short") for extents in GEMM_SUITES[suite]}
SHARE = 0.05
"""As how much of what was timed, what they say counts."""


class Group(NamedTuple):
    """Candidates of a problem: facts (facts, candidates), the logarithms of what the model expects and of what is.

    It counts so many times as others.
    """

    facts: np.ndarray
    expected: np.ndarray
    took: np.ndarray
    times: int = 1

    def weights(self, faster):
        """Tell how much each counts."""
        return self.times * np.exp(-faster * (self.took - self.took.min()))

    def as_in_the_mean(self, trees):
        """Give the same with times so much longer that they are in the mean what trees expect: ratios were timed."""
        off = self.expected + trees.sums(self.facts) - self.took
        return self._replace(took=self.took + np.average(off, weights=self.weights(FASTER)))

    def lost(self, trees):
        """Give the logarithm of how much slower the choice by trees is than the fastest."""
        return self.took[np.argmin(self.expected + trees.sums(self.facts))] - self.took.min()


def timed(paths):
    """Read journals. What two of them have of a problem isn't compared: GPUs differ.

    Times back to back and in company count alike: their geometric mean is what a candidate took.
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
                key: math.prod(both.values()) ** (1 / len(both))
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
    return Group(facts, expected, took, KNOWN if tuple(settings[mode] for mode in "mnk") in _SUITES else 1)


def said(trees, count, seed):
    """Ask trees about the choices that would be refined, of random problems."""
    table = candidates("refined")
    for problem in problems(count, seed):
        asked = both_ways(settings_of(problem))
        estimates = table.estimates(asked, H200)
        places = shortlist(np.where(table.suit(asked), estimates.sixths, np.inf))
        facts, expected = table.facts(asked, estimates, places, H200), np.log(estimates.us.take(places))
        yield Group(facts, expected, expected + trees.sums(facts))


def fit(measured, told, settings, share=SHARE):
    """Fit trees to what estimates are off by, compared with others of the same problem: lists for `Trees.of_lists`.

    Settings are CatBoost's, besides `TREES`.
    """
    from catboost import CatBoost, Pool

    groups = [*measured, *told]
    heavy, light = [group.weights(FASTER) for group in measured], [group.weights(FASTER_SAID) for group in told]
    scale = share * sum(map(np.sum, heavy)) / sum(map(np.sum, light)) if measured else 1.0
    pool = Pool(
        np.concatenate([group.facts for group in groups], axis=1).T,
        label=np.concatenate([group.took - group.expected for group in groups]),
        weight=np.concatenate([*heavy, *(scale * each for each in light)]),
        group_id=np.repeat(np.arange(len(groups)), [len(group.took) for group in groups]),
    )
    model = CatBoost({**TREES, **settings, "verbose": False, "allow_writing_files": False}).fit(pool)
    return lists_of(model)


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


def unseen(measured, told, settings, share):
    """Describe choices by trees that were fitted without the problems that they choose for."""
    fold = np.random.default_rng(0).permutation(len(measured)) % FOLDS
    losses = []
    for own in range(FOLDS):
        others = [group for group, each in zip(measured, fold, strict=True) if each != own]
        trees = Trees.of_lists(**fit(others, told, settings, share))
        losses += [group.lost(trees) for group, each in zip(measured, fold, strict=True) if each == own]
    return summary(losses)


def refit(old, journals, settings, share=SHARE, asked=ASKED):
    """Fit trees to journals and to what old ones say, and tell how well: lists for `Trees.of_lists`."""
    measured, told = [group.as_in_the_mean(old) for group in timed(journals)], list(said(old, asked, ASKED_SEED))
    lists = fit(measured, told, settings, share)
    new, fresh = Trees.of_lists(**lists), list(said(old, FRESH, FRESH_SEED))
    if measured:
        print(f"{len(measured)} problems, {sum(len(group.took) for group in measured)} times; slower than the fastest:")
        print(f"  {lost(measured, old)} by the trees there were")
        print(f"  {unseen(measured, told, settings, share)} by trees that had not seen them")
        print(f"  {lost(measured, new)} by the new trees")
    drift = [np.mean(new.sums(group.facts) - (group.took - group.expected)) for group in fresh]
    print(f"slower than the choice by the trees there were, as these expect: {lost(fresh, new)};", end=" ")
    print(f"in the mean {np.mean(drift):+.4f} from what they expect, {np.std(drift):.4f} from problem to problem")
    return lists


def main():
    """Fit, tell how well, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trees", type=Path)
    parser.add_argument("journals", nargs="*")
    parser.add_argument("--iterations", type=int, default=TREES["iterations"], help="how many trees")
    parser.add_argument("--depth", type=int, default=TREES["depth"], choices=range(1, 9))
    parser.add_argument("--learning-rate", type=float, default=TREES["learning_rate"])
    parser.add_argument(
        "--loss", dest="loss_function", default=TREES["loss_function"], help="or QueryRMSE: ratios alone"
    )
    parser.add_argument("--share", type=float, default=SHARE, help="as how much of what was timed, trees' word counts")
    parser.add_argument("--asked", type=int, default=ASKED, help="how many problems they are asked about")
    options = parser.parse_args()
    old = Trees.of_lists(**json.loads(options.trees.read_text()))
    settings = {name: getattr(options, name) for name in ("iterations", "depth", "learning_rate", "loss_function")}
    lists = refit(old, [*sorted(TIMED.glob("*.xz")), *options.journals], settings, options.share, options.asked)
    options.trees.write_text(json.dumps(lists, separators=(",", ":")))


if __name__ == "__main__":
    main()
