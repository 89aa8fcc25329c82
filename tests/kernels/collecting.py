"""Time what may be chosen for random problems, in turns, for `tests.kernels.fitting` to fit trees to.

    python -m tests.kernels.collecting COUNT SEED JOURNAL [--seconds SECONDS] [--wide TIMES] [SUITE ...]

draws problems as `cutepy bench gemm --sweep` does, most of them of medium work, after those of suites in bfloat16,
times some choices of each, and adds what they take to a journal, and what cuBLAS takes; it needs a GPU. All choices of
a problem take turns: timed one after another, those that come first find a cool GPU. Each is timed twice: back to back,
and with an elementwise kernel between two launches, whose time is subtracted. Another process compiles the choices of
the next problems meanwhile. `--wide 3` takes three times as many choices of a problem, for as many more seconds: what
is fastest among few need not be among all.
"""

import argparse
import json
import multiprocessing
import random
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from cutepy.kernels.gemm import tuned
from cutepy.kernels.gemm.gpu import H200, gpu_of
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel, candidates, extents_of, straight_and_transposed
from cutepy.kernels.gemv import choice as gemv
from cutepy.suites.gemm_problems import gemm_problems, random_problems
from cutepy.suites.gemm_tuning import GemmTrial, GemmTunable, settings_of
from cutepy.suites.measurement import elementwise
from cutepy.suites.peers import cublas
from cutepy.tune.winners import key_of

EXPECTED, ALONE, BY_MODEL, OTHERS, FEW_ROWS = 5, 2, 1, 5, 2
"""Choices that the trees expect to be fastest; more of these without a cluster; of those that the model alone does; any
of its first ones; and, of few rows, those without tensor cores.
"""
FIRST, DRAWN = 100, 40
"""The model's first choices; and as many of them as are looked at for others."""
FIRST_CHUNK, CHUNK = 4, 60
"""Problems whose choices are compiled together: the first ones, which show that all works, and others."""
CUBLAS, MEMORY = "cuBLAS", "memory"
"""Competitor of our choices; and the key of the GPU's memory bandwidth in TB/s."""
TURNS, COMPANY = "turns", "company"
"""Keys of times back to back, and of times with an elementwise kernel between two launches."""
ROUNDS, MOST_SETS, TURN_US = 7, 96, 400.0
"""Turns of each choice; sets of buffers, and launches in a turn of small problems; time of a turn of others, at least.
"""
FLUSH_BYTES = 1 << 28
"""Read before each turn, so that operands come from device memory however few there are: several times the L2."""
MEDIUM, MOST_FLOPS, OTHER_CHANCE = (2e7, 1e11), 4e11, 0.25
"""Work of the problems that are all taken, and of those that are not; the share of others that is."""


def problems(count, seed, suites=()):
    """Draw problems, each once; those of float16 are as fast in bfloat16, of which kernels are made already."""
    drawn = (replace(p, dtype="bfloat16") if p.dtype == "float16" else p for p in random_problems(count, seed))
    every = [*gemm_problems(suites, ["bfloat16"]), *drawn]
    return list({key_of(settings_of(problem)): problem for problem in every}.values())


def worth_timing(count, seed, suites=()):
    """Draw problems of which most are of medium work: the choice matters there, and a launch takes little time."""
    chance, suite = random.Random(seed), problems(0, seed, suites)
    drawn = problems(4 * count, seed)
    shares = [1.0 if MEDIUM[0] <= p.flops <= MEDIUM[1] else OTHER_CHANCE * (p.flops < MOST_FLOPS) for p in drawn]
    taken = [p for p, share in zip(drawn, shares, strict=True) if chance.random() < share and p not in suite]
    return suite + taken[:count]


def picks(settings, seed, gpu=H200, made=(), wide=1):
    """List choices of a problem that are worth to be timed, as `cutepy tune gemm` describes them: `wide` times as many.

    Of those that are nobody's first choice, those with a kernel that is `made` already are preferred.
    """
    signature, (m, n, k) = tuned.signature_of(settings), (settings[extent] for extent in "mnk")
    ways = list(islice(straight_and_transposed(signature, (m, n, k, 1), gpu), FIRST))
    kinds, mns = (signature, signature.transposed), ((m, n), (n, m))
    problems = [extents_of(kinds[transposed], *mns[transposed], k, 1, bool(transposed)) for transposed in (0, 1)]
    table = candidates(problems[0].table)
    expected = np.where(table.suit(problems), table.expected_us(problems, gpu), np.inf)
    places = expected.argsort(axis=None, kind="stable")[: np.isfinite(expected).sum()]
    at = (divmod(place, len(table.choices)) for place in places.tolist())
    by_model = [(bool(transposed), kinds[transposed], table.choices[row]) for transposed, row in at]
    others = random.Random(seed).sample(by_model[:FIRST], k=min(DRAWN * wide, len(by_model[:FIRST])))
    found = []

    def add(most, choices):
        """Add so many that are not there yet and have a kernel."""
        enough = len(found) + most * wide
        for transposed, kind, choice in choices:
            if len(found) == enough:
                return
            config = _config((transposed, kind, choice), k)
            if config is not None and (candidate := tuned.candidate_of(ChosenKernel(transposed, config))) not in found:
                found.append(candidate)

    by_trees = [(way.transposed, way.signature, way.choice) for way in ways]
    add(EXPECTED, by_trees)
    add(ALONE, (each for each in by_trees if each[2].cluster_m == each[2].cluster_n == 1))
    add(BY_MODEL, by_model)
    add(OTHERS, sorted(others, key=lambda each: _config(each, k) not in made))
    if min(m, n) <= gemv.MOST_ROWS:
        found += without_tensor_cores(n < m, kinds[n < m], *sorted((m, n)), k, gpu)
    return found


def _config(way, k):
    """Give the configuration of a way to compute a product; None if there is no kernel."""
    _, kind, choice = way
    try:
        return choice.config(kind, k)
    except ValueError:
        return None


def without_tensor_cores(transposed, signature, m, n, k, gpu):
    """List the choice of `kernels.gemv` and the first of its model's, if it takes such operands."""
    ranked = [config for _, config in gemv.configs(signature, m, n, k, gpu.sm_count)]
    if not ranked:
        return []
    first = gemv.select_gemv(signature, m, n, k, gpu.sm_count)
    configs = [first, *(config for config in ranked if config != first)][:FEW_ROWS]
    return [tuned.candidate_of(ChosenKernel(transposed, config)) for config in configs]


class Turn:
    """Launches of one turn, captured: on one set of buffers after another, company after each if there is any.

    `torch.cuda.graph` would give back all memory before each capture, which takes longer than what is captured.
    """

    def __init__(self, launch, sets, count, company=None):
        import torch

        self._count, self._graph = count, torch.cuda.CUDAGraph()
        self._graph.capture_begin()
        try:
            for index in range(count):
                launch(index % sets)
                if company is not None:
                    company(index % sets)
        finally:
            self._graph.capture_end()

    def us(self):
        """Replay, and give the microseconds of a launch."""
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self._graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / self._count


class InTurns:
    """Timer of choices, in turns, both ways, with a cold L2 cache; on a stream that isn't the default one.

    Parameters
    ----------
    company : callable
        Launches the kernel between two launches.
    """

    def __init__(self, company):
        import torch

        self._company = company
        self._flushed = torch.ones(FLUSH_BYTES // 4, device="cuda")
        self._sum = torch.empty((), device="cuda")
        company(0)

    def times(self, problem, settings, chosen, expected_us):
        """Give (key, candidate, microseconds) of all choices of a problem that can be launched.

        The key of cuBLAS's own times is `CUBLAS`, in company `CUBLAS` and `COMPANY` with a space between.
        """
        trial = GemmTrial(problem, most=MOST_SETS)
        launches = {CUBLAS: cublas(problem, trial.buffers)}
        launches |= {key_of(candidate): partial(trial.launch, None, candidate) for candidate in chosen}
        count = trial.sets * max(1, round(min(MOST_SETS, TURN_US / expected_us) / trial.sets))
        turns = {}
        for key, launch in launches.items():
            try:
                launch(0)  # finds the kernel and loads it
            except Exception as error:
                print(f"{problem}: {key}: {error}", flush=True)
                continue
            turns[TURNS, key] = Turn(launch, trial.sets, count)
            turns[COMPANY, key] = Turn(launch, trial.sets, count, self._company)
        turns[COMPANY, None] = Turn(self._company, trial.sets, count)
        taken = {key: [] for key in turns}
        for _ in range(ROUNDS):
            for key, turn in turns.items():
                self._flush()
                taken[key].append(turn.us())
        alone = statistics.median(taken.pop((COMPANY, None)))
        for (way, key), us in taken.items():
            own = statistics.median(us) - (alone if way == COMPANY else 0.0)
            if key == CUBLAS:
                yield CUBLAS if way == TURNS else f"{CUBLAS} {way}", None, own
            else:
                yield way, key, own

    def _flush(self):
        import torch

        torch.sum(self._flushed, dim=0, out=self._sum)


def expected_us(settings, gpu):
    """Give the time that the first of a problem's candidates is expected to take."""
    m, n, k = (settings[extent] for extent in "mnk")
    return next(iter(straight_and_transposed(tuned.signature_of(settings), (m, n, k, 1), gpu))).expected_us


_made = set()
"""Configurations that this process has compiled."""


def compiled(drawn, first, gpu, wide=1):
    """Pick choices of problems, of which this is the first's place, and compile them, for another process to find."""
    described, chosen = [settings_of(problem) for problem in drawn], []
    for index, settings in enumerate(described):
        chosen.append(picks(settings, first + index, gpu, _made, wide))
        _made.update(tuned.chosen_of(settings, each).config for each in chosen[-1])
    pairs = [(settings, each) for settings, own in zip(described, chosen, strict=True) for each in own]
    GemmTunable(drawn).compile(pairs, progress=False)
    return chosen


def main():
    """Draw, compile, time, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("journal", type=Path)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--wide", type=int, default=1, help="times as many choices of a problem")
    options = parser.parse_args()
    drawn = worth_timing(options.count, options.seed, options.suites)
    collect(drawn, options.journal, options.seconds, options.wide)


def collect(drawn, journal, seconds, wide=1):
    """Add times of problems to a journal, until so many seconds have passed."""
    import torch

    begun, gpu = time.monotonic(), gpu_of(torch.device("cuda"))
    starts = [0, *range(FIRST_CHUNK, len(drawn), CHUNK // wide), len(drawn)]
    parts = [drawn[start:end] for start, end in pairwise(starts)]
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    try:
        ready = [pool.submit(compiled, part, start, gpu, wide) for start, part in zip(starts, parts, strict=False)]
        with journal.open("a") as out, torch.cuda.stream(torch.cuda.Stream()):
            out.write(json.dumps([MEMORY, None, None, gpu.memory_tbs, None]) + "\n")
            timer = InTurns(elementwise())
            for end, part, chosen in zip(starts[1:], parts, ready, strict=True):
                for problem, own in zip(part, chosen.result(), strict=True):
                    if time.monotonic() - begun > seconds:
                        return
                    settings = settings_of(problem)
                    for who, key, us in timer.times(problem, settings, own, expected_us(settings, gpu)):
                        out.write(json.dumps([who, key_of(settings), key, us, None]) + "\n")
                out.flush()
                torch.cuda.empty_cache()  # what the graphs of these problems had
                print(f"{end} of {len(drawn)} problems in {time.monotonic() - begun:.0f} s", flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()


if __name__ == "__main__":
    main()
