"""Search for the kernels of an exported GEMM: `python -m tests.kernels.exporting` prints them.

The exported library chooses by the model alone. A choice is judged by its refined time, that of the decision trees,
against the best of all choices.
"""

import math
import random

import numpy as np

from cutepy.aot.gemm_tiles import EXPORTED
from cutepy.kernels.gemm.gpu import H200
from cutepy.kernels.gemm.heuristic.choice import candidates
from cutepy.kernels.gemm.heuristic.model import Extents
from cutepy.kernels.gemm.heuristic.refinement import hopper
from cutepy.suites.gemm_problems import random_problems

COUNT = 21


def drawn(count, seed):
    """Draw random problems of 8 and 16 bits, K-major, in one table's order: M, N, K, bits."""
    return [(p.m, p.n, p.k, 8 if p.dtype.startswith("float8") else 16) for p in random_problems(count, seed)]


def small(count, seed):
    """Draw problems of 16 bits with extents up to 2048."""
    chance = random.Random(seed)
    extents = ([math.exp(chance.uniform(0, math.log(2048))) for _ in "mnk"] for _ in range(count))
    return [(max(1, round(m)), max(8, 8 * round(n / 8)), max(64, 8 * round(k / 8)), 16) for m, n, k in extents]


class Judged:
    """Times of all choices for some problems.

    Attributes
    ----------
    choices : tuple of Choice
    model, loss : float array, (problems, choices)
        The model's time, infinite where the choice does not suit; the refined time over that of the chooser's best.
    best : list of Choice
        The chooser's.
    """

    def __init__(self, problems):
        table = candidates("refined")
        self.choices = table.choices
        every, least = np.arange(len(self.choices)), np.array([choice.least for choice in self.choices]).T
        model, loss, self.best = [], [], []
        for m, n, k, bits in problems:
            extents = [Extents(m, n, k, bits, 1)]
            estimates = table.estimates(extents, H200)
            factor = np.exp(hopper().sums(table.facts(extents, estimates, every, H200)))
            suits = (least[0] <= m) & (least[1] <= n) & (least[2] <= k * bits)
            self.best.append(next(table.ranked(extents, H200).each()).choice)
            refined = estimates.us[0] * factor
            model.append(np.where(suits, table.estimates([extents[0]._replace(any_k=True)], H200).us[0], np.inf))
            loss.append(refined / refined[self.choices.index(self.best[-1])])
        self.model, self.loss = np.array(model), np.array(loss)

    def chosen(self, places):
        """Return the place of the choice of least model time among `places`, and its loss, for each problem."""
        places = np.array(places)
        found = places[self.model[:, places].argmin(axis=1)]
        return found, self.loss[np.arange(len(found)), found]


def search(judged, pool, first):
    """Add the choice that lowers the mean loss most, then exchange single ones while that lowers it."""

    def mean(places):
        return np.log(judged.chosen(sorted(places))[1]).mean()  # sorted: of equal times the first is chosen

    def best(places):
        return min((place for place in pool if place not in places), key=lambda place: mean([*places, place]))

    found = list(first)
    while len(found) < COUNT:
        found.append(best(found))
    improved = True
    while improved:
        improved = False
        for at in range(len(first), COUNT):
            others = found[:at] + found[at + 1 :]
            other = best(others)
            if mean([*others, other]) < mean(found) - 1e-5:
                found, improved = [*others[:at], other, *others[at:]], True
    return found


if __name__ == "__main__":
    times = Judged([*drawn(1500, 11), *small(150, 5)])
    every_type = [choice for choice in candidates("model").choices if choice.tile.n % 16 == 0]
    of_model = [times.choices.index(choice) for choice in every_type]
    kept = [times.choices.index(EXPORTED[at]) for at in (0, 4)]
    for place in sorted(search(times, of_model, kept), key=lambda place: times.choices[place]):
        print(times.choices[place])
