"""A tunable without a GPU, whose times are known: what is tuned in these tests, in several processes too."""

import os
from statistics import median

from cutepy.benchmark import Timing
from cutepy.tune import Space, Tunable

SPACE = Space({"tile": (1, 2, 4, 8), "stages": (2, 3)}).where("empty", lambda tile, m: tile <= m)


class Fake(Tunable):
    """Takes |m - tile| + 1 / stages microseconds; fails to compile, launch, or compute where it is told to."""

    name = "fake"

    def __init__(self, uncompilable=(), unlaunchable=(), wrong=(), deadly=()):
        self.uncompilable, self.unlaunchable, self.wrong, self.deadly = uncompilable, unlaunchable, wrong, deadly
        self.compiled, self.launched, self.prepared = [], [], 0

    def candidates(self, problem):
        return SPACE.candidates(problem)

    def default(self, problem):
        return {"tile": 1, "stages": 2}

    def variant(self, problem, candidate):
        raise AssertionError("compile is replaced")

    def compile(self, pairs, progress):
        self.compiled += [candidate["tile"] for _, candidate in pairs]
        return [
            RuntimeError("no such tile") if candidate["tile"] in self.uncompilable else f"f{candidate['tile']}"
            for _, candidate in pairs
        ]

    def prepare(self, problem):
        self.prepared += 1
        return _Trial(self, problem)


class _Trial:
    sets = 2

    def __init__(self, tunable, problem):
        self.tunable, self.problem, self.last = tunable, problem, None

    def launch(self, function, candidate, index):
        if candidate["tile"] in self.tunable.deadly:
            os._exit(3)
        if candidate["tile"] in self.tunable.unlaunchable:
            raise RuntimeError("too many resources requested for launch")
        assert function == f"f{candidate['tile']}"
        self.tunable.launched.append((self.problem["m"], candidate["tile"], candidate["stages"]))
        self.last = candidate

    def complaint(self):
        return "all zeros" if self.last["tile"] in self.tunable.wrong else None


def compare(contenders, *, sets, protocol):
    """Time contenders by what they are: each is a partial of `launch`, whose second argument is the candidate."""
    timings = {}
    for name, run in contenders.items():
        for index in range(sets):
            run(index)
        problem, candidate = run.func.__self__.problem, run.args[1]
        us = abs(problem["m"] - candidate["tile"]) + 1 / candidate["stages"]
        timings[name] = Timing(us, us)
    return timings


class Drifting:
    """A timer by a clock that slows down: each turn of a contender takes so much longer than the one before it."""

    def __init__(self, us, drift):
        self.us, self.drift, self.turns = us, drift, 0

    def __call__(self, contenders, *, sets, protocol):
        """Time contenders in turns, as `cutepy.benchmark.compare` does."""
        took = {name: [] for name in contenders}
        for _ in range(protocol.rounds):
            for name, run in contenders.items():
                took[name].append(self.us(run.args[1]) * (1 + self.drift) ** self.turns)
                self.turns += 1
        return {name: Timing(median(each), median(each)) for name, each in took.items()}
