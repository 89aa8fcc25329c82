"""Time what may be chosen for random problems, in turns, for `tests.kernels.fitting` to fit trees to.

    python -m tests.kernels.collecting COUNT SEED JOURNAL [SUITE ...]

draws problems as `cutepy bench gemm --sweep` does, after those of suites in bfloat16, compiles some choices of each,
and adds what they take to a journal, and what cuBLAS takes; it needs a GPU. All choices of a problem take turns: timed
one after another, those that come first find a cool GPU. Each is timed twice: back to back, and with an elementwise
kernel between two launches, whose time is subtracted.
"""

import json
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from cutepy.benchmark import Protocol, compare
from cutepy.kernels.gemm import tuned
from cutepy.kernels.gemm.gpu import H200, gpu_of
from cutepy.kernels.gemm.heuristic.choice import Chosen, candidates, extents_of, straight_and_transposed
from cutepy.suites.gemm_problems import Buffers, gemm_problems, random_problems
from cutepy.suites.gemm_tuning import GemmTrial, GemmTunable, settings_of
from cutepy.suites.measuring import elementwise
from cutepy.suites.peers import cublas
from cutepy.tune.winners import key_of

EXPECTED, BY_MODEL, OTHERS = 5, 1, 6
"""Choices that the trees expect to be fastest; more of those that the model alone does; and any of its first ones."""
FIRST = 100
CHUNK = 36
"""Problems whose choices are compiled together."""
CUBLAS, MEMORY = "cuBLAS", "memory"
"""Competitor of our choices; and the key of the GPU's memory bandwidth in TB/s."""
TURNS, COMPANY = "turns", "company"
"""Keys of times back to back, and of times with an elementwise kernel between two launches."""
PROTOCOL = Protocol(rounds=5, turn_us=500.0, max_launches=30)


def problems(count, seed, suites=()):
    """Draw problems, each once; those of float16 are as fast in bfloat16, of which kernels are made already."""
    drawn = (replace(p, dtype="bfloat16") if p.dtype == "float16" else p for p in random_problems(count, seed))
    every = [*gemm_problems(suites, ["bfloat16"]), *drawn]
    return list({key_of(settings_of(problem)): problem for problem in every}.values())


def picks(settings, seed, gpu=H200):
    """List choices of a problem that are worth to be timed, as `cutepy tune gemm` describes them."""
    signature, (m, n, k) = tuned.signature_of(settings), (settings[extent] for extent in "mnk")
    ways = list(straight_and_transposed(signature, (m, n, k, 1), gpu))
    kinds, mns = (signature, signature.transposed), ((m, n), (n, m))
    problems = [extents_of(kinds[transposed], *mns[transposed], k, 1, bool(transposed)) for transposed in (0, 1)]
    table = candidates(problems[0].table)
    expected = np.where(table.suit(problems), table.expected_us(problems, gpu), np.inf)
    places = expected.argsort(axis=None, kind="stable")[: np.isfinite(expected).sum()]
    at = (divmod(place, len(table.choices)) for place in places.tolist())
    by_model = [(bool(transposed), kinds[transposed], table.choices[row]) for transposed, row in at]
    others = random.Random(seed).sample(by_model[:FIRST], k=min(FIRST, len(by_model)))
    found = []

    def add(most, choices):
        """Add so many that are not there yet and have a kernel."""
        enough = len(found) + most
        for transposed, kind, choice in choices:
            if len(found) == enough:
                return
            try:
                candidate = tuned.candidate_of(Chosen(transposed, choice.config(kind, k)))
            except ValueError:
                continue
            if candidate not in found:
                found.append(candidate)

    add(EXPECTED, ((way.transposed, way.signature, way.choice) for way in ways))
    add(BY_MODEL, by_model)
    add(OTHERS, others)
    return found


def in_turns(tunable, problem, settings, chosen):
    """Time the choices of a problem, both ways; gives (key, candidate, microseconds) of all that could be compiled.

    The key of cuBLAS's own times is `CUBLAS`, in company `CUBLAS` and `COMPANY` with a space between.
    """
    trial = GemmTrial(problem)
    built = tunable.compile([(settings, candidate) for candidate in chosen], progress=False)
    launches = {
        key_of(candidate): partial(trial.launch, function, candidate)
        for candidate, function in zip(chosen, built, strict=True)
        if not isinstance(function, Exception)
    }
    launches[CUBLAS] = cublas(problem, Buffers(trial._a, trial._b, trial._out))
    for way, company in ((TURNS, None), (COMPANY, elementwise())):
        timings = compare(launches, sets=trial.sets, protocol=PROTOCOL, company=company)
        of_cublas = CUBLAS if company is None else f"{CUBLAS} {way}"
        yield of_cublas, None, timings.pop(CUBLAS).device_us
        for key, timing in timings.items():
            yield way, key, timing.device_us


def main(count, seed, journal, *suites):
    """Draw, compile, time, and write."""
    import torch

    drawn = problems(int(count), int(seed), suites)
    tunable, described = GemmTunable(drawn), [settings_of(problem) for problem in drawn]
    gpu = gpu_of(torch.device("cuda"))
    chosen = [picks(settings, index, gpu) for index, settings in enumerate(described)]
    with Path(journal).open("a") as out:
        out.write(json.dumps([MEMORY, None, None, gpu.memory_tbs, None]) + "\n")
        for start in range(0, len(drawn), CHUNK):
            part = range(start, min(start + CHUNK, len(drawn)))
            tunable.compile([(described[i], candidate) for i in part for candidate in chosen[i]], progress=True)
            for i in part:
                for who, key, us in in_turns(tunable, drawn[i], described[i], chosen[i]):
                    out.write(json.dumps([who, key_of(described[i]), key, us, None]) + "\n")
                out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
