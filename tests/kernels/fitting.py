"""Fit more trees of `cutepy.kernels.gemm.refinement`, to what `cutepy tune gemm` timed.

    python -m tests.kernels.fitting kernels/gemm/h200.json gemm.0.heats ...

reads the journals of tuning, fits trees to what those that are there leave (scikit-learn must be installed), prints
what the choice loses against the fastest of what was timed, for eighths of the problems that a fit had not seen too,
and writes all trees. What earlier ones were fitted to need not be at hand.
"""

import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from cutepy.kernels.gemm import tuned
from cutepy.kernels.gemm.candidates import Candidates
from cutepy.kernels.gemm.model import Choice, Extents
from cutepy.kernels.gemm.refinement import Trees
from cutepy.kernels.gemm.tiles import Tile
from cutepy.layouts.sm90.arch import SM_COUNT

FOLDS = 8
TREES = {"max_iter": 80, "learning_rate": 0.1, "max_leaf_nodes": 31, "max_depth": 6, "min_samples_leaf": 30}
FASTER = 5.0
"""How much more the fastest candidates of a problem count than slow ones."""


def read(paths, trees):
    """Read journals: for each problem the facts of its candidates, what trees expect of them, and what they took.

    What two journals have of a problem isn't compared: GPUs differ.
    """
    times = defaultdict(dict)
    for path in paths:
        for line in Path(path).read_text().splitlines():
            _, problem, candidate, us, _ = json.loads(line)
            if us is not None:
                times[path, problem][candidate] = us
    for (_, problem), took in times.items():
        candidates = [json.loads(candidate) for candidate in took]
        rows, expected, took = facts_of(json.loads(problem), candidates, list(took.values()))
        yield rows, expected + trees.sums(rows), took


def facts_of(problem, candidates, took):
    """Give facts (candidates, facts), the logarithms of what the model expects and of what they took."""
    rows, expected = [], []
    for candidate in candidates:
        turned, config = tuned.chosen_of(problem, candidate)
        bits, signature = config.signature.operand_bits, config.signature
        m, n = (problem["n"], problem["m"]) if turned else (problem["m"], problem["n"])
        spans = config.tile_k * bits // 1024
        tile = Tile(config.tile_m, config.tile_n, spans, config.consumers, config.split_k)
        table = Candidates([Choice(tile, config.cluster_m, config.cluster_n)])
        majors = {"a_mn_major": signature.a_major == "mn", "b_mn_major": signature.b_major == "mn"}
        extents = Extents(m, n, problem["k"], bits, problem["batch"], **majors, turned=turned)
        estimate = table.expected_us(extents, SM_COUNT)
        expected.append(math.log(estimate[0]))
        rows.append(table._facts(extents, np.zeros(1, np.int64), estimate, SM_COUNT)[0])
    return np.array(rows), np.array(expected), np.log(took)


def fit(problems):
    """Fit trees to what estimates are off by, compared with other candidates of the same problem."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    off = [took - expected - np.mean(took - expected) for _, expected, took in problems]
    weights = [np.exp(-FASTER * (took - took.min())) for *_, took in problems]
    model = HistGradientBoostingRegressor(**TREES)
    rows = np.concatenate([facts for facts, *_ in problems])
    return model.fit(rows, np.concatenate(off), sample_weight=np.concatenate(weights))


def lost(problems, model=None):
    """Give how much slower the choice is than the fastest candidate, in the geometric mean."""
    losses = []
    for facts, expected, took in problems:
        estimates = expected + (0 if model is None else model.predict(facts))
        losses.append(took[np.argmin(estimates)] - took.min())
    return math.expm1(np.mean(losses))


def write(model, path):
    """Add trees to those in a file, breadth first, as `Trees.of_lists` reads them."""
    trees = json.loads(Path(path).read_text())
    for (tree,) in model._predictors:
        nodes, order = tree.nodes, [0]
        columns = {name: [] for name in trees}
        for place, index in enumerate(order):
            node = nodes[index]
            leaf = bool(node["is_leaf"])
            # Rounded up: what equals a threshold stays on its side.
            most = float(node["num_threshold"]) + abs(float(node["num_threshold"])) * 5e-7 + 1e-9
            columns["decides_by"].append(-1 if leaf else int(node["feature_idx"]))
            columns["at"].append(float(f"{node['value']:.4g}") if leaf else float(f"{most:.7g}"))
            columns["then"].append(place if leaf else len(order))
            if not leaf:
                order += [int(node["left"]), int(node["right"])]
        for name, column in columns.items():
            trees[name].append(column)
    Path(path).write_text(json.dumps(trees, separators=(",", ":")))


def main(out, *journals):
    """Fit, tell how well, and write."""
    problems = list(read(journals, Trees.of_lists(**json.loads(Path(out).read_text()))))
    fold = np.random.default_rng(0).permutation(len(problems)) % FOLDS
    unseen = []
    for own in range(FOLDS):
        model = fit([problem for problem, each in zip(problems, fold, strict=True) if each != own])
        unseen += [math.log1p(lost([p], model)) for p, each in zip(problems, fold, strict=True) if each == own]
    model = fit(problems)
    print(f"{len(problems)} problems, {sum(len(took) for *_, took in problems)} times; slower than the fastest by")
    print(
        f"{lost(problems):.3f} by the trees there were, {math.expm1(np.mean(unseen)):.3f} of what a fit had not seen,",
        end=" ",
    )
    print(f"{lost(problems, model):.3f} of all")
    write(model, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
