"""`cutepy bench sim`: time and memory of a simulated GEMM, with the sanitizer and without, beside numpy.

The small product is timed on one core, in turns with itself under the sanitizer and with numpy's float32 product of the
same extents. The memory of a larger one is measured under the sanitizer and without. The largest is spread over all
cores.
"""

import datetime
import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import typer

from cutepy import frontends
from cutepy.benchmark.report import processor
from cutepy.extras import require
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm
from cutepy.runtime.program import HOPPER
from cutepy.sim.parallel.blas import one_thread
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.translate import translate_function

Extents = tuple[int, int, int]
SMALL: Extents = (512, 512, 1024)
LARGE: Extents = (4096, 4096, 4096)
DEEP: Extents = (1024, 1024, 4096)
TILE: Extents = (128, 128, 64)
ROUNDS = 9
_TRANSLATIONS = 3
SANITIZED = "cutepy, sanitized"
MOST_TIMES, MOST_MEMORY = 5, 4
"""Bounds of the sanitizer's time and memory, as multiples of the simulator's without it."""


@dataclass(frozen=True)
class Figure:
    """Something measured.

    Attributes
    ----------
    what, who : str
        Operation, and the program that did it.
    value : float or None
        None for a contender that is not installed.
    unit : str
    relation : str
        Remark on the value.
    right : bool
        True if the result is.
    """

    what: str
    who: str
    value: float | None
    unit: str
    relation: str = ""
    right: bool = True


def run_sim(
    small: Extents = SMALL,
    large: Extents | None = LARGE,
    rounds: int = ROUNDS,
    json_path: Path | None = None,
    deep: Extents | None = DEEP,
) -> int:
    """Measure, print, and check every result.

    Parameters
    ----------
    small, large, deep : (M, N, K)
        Multiples of `TILE`, for the product beside its peers, for the one on all cores, and for the one whose memory is
        measured. Without `large` or `deep`, that one is left out.
    rounds : int
        Of the small product; the figures are their medians.
    json_path : Path, optional
        File to write the figures to.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong.

    Raises
    ------
    MissingPackagesError
        If a needed package is not installed.
    """
    require("cutepy bench sim", "numpy", "cutlass", "torch")
    # First, for its peak of memory: that of a process never falls.
    figures = [] if large is None else large_product(large)
    figures += small_product(small, rounds)
    figures += [] if deep is None else [sanitized_memory(deep)]
    machine = _machine()
    typer.echo(_table(figures, machine))
    if json_path:
        rows = [asdict(figure) for figure in figures]
        json_path.write_text(json.dumps({"environment": machine, "rows": rows}, indent=1) + "\n")
        typer.echo(f"saved {json_path}")
    wrong = [figure.what for figure in figures if not figure.right]
    for what in wrong:
        typer.echo(f"WRONG: {what}", err=True)
    return 1 if wrong else 0


class SimulatedGemm:
    """Our GEMM of exact sums."""

    def __init__(self, extents: Extents) -> None:
        m, n, k = extents
        signature = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
        tile_m, tile_n, tile_k = TILE
        config = GemmConfig(signature=signature, tile_m=tile_m, tile_n=tile_n, warpgroups=2)
        assert config.tile_k == tile_k
        self._kernel = compile_gemm(config)
        # Small integers: every partial sum is exact, so that results are equal bit for bit.
        self.a, self.b = (torch.randint(-3, 4, (rows, k)).half() for rows in (m, n))
        self.out = torch.empty((m, n), dtype=torch.float16)

    def __call__(self) -> None:
        """Launch it, in the simulator that is active."""
        self._kernel(self.a, self.b, None, self.out, 132, None)

    def is_right(self) -> bool:
        """Return whether the product equals torch's, bit for bit."""
        return torch.equal(self.out, (self.a.float() @ self.b.float().t()).half())


def large_product(extents: Extents = LARGE) -> list[Figure]:
    """Time one product on all cores; gives its time, and the memory of all processes."""
    what = f"fp16 GEMM {'x'.join(map(str, extents))}, all cores"
    gemm = SimulatedGemm(extents)
    with frontends.simulate(arch=HOPPER) as run:
        gemm()
    right = gemm.is_right()
    launch = run.launches[-1]
    # Pages that a worker shares with this process count twice.
    here, worker = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    peak = (here + worker * (launch.processes - 1)) / 2**20
    return [
        Figure(what, "cutepy", launch.seconds, "s", f"{launch.processes} processes", right),
        Figure("its memory at most", "cutepy", peak, "GiB", "all processes"),
    ]


def small_product(extents: Extents = SMALL, rounds: int = ROUNDS) -> list[Figure]:
    """Time a product on one core; gives the times of ours, of numpy, and of translating our PTX."""
    what = f"fp16 GEMM {'x'.join(map(str, extents))}, one core"
    gemm = SimulatedGemm(extents)
    with frontends.simulate(arch=HOPPER, processes=1) as run, one_core():
        a, b = gemm.a.numpy().astype(np.float32), gemm.b.numpy().astype(np.float32).T
        contenders: dict[str, Callable[[], object]] = {
            "cutepy": gemm,
            SANITIZED: lambda: _sanitized(gemm),
            "numpy float32": lambda: a @ b,
        }
        times = in_turns(contenders, rounds)
        right = gemm.is_right()
        translation = _translation_s(run.launches[-1].ptx)
    ours, sanitized, numpys = (times[who] for who in ("cutepy", SANITIZED, "numpy float32"))
    return [
        Figure(what, "cutepy", ours, "s", f"median of {rounds}", right),
        Figure(
            what,
            SANITIZED,
            sanitized,
            "s",
            f"{sanitized / ours:.1f} times as long, {MOST_TIMES} at most; with its certificate",
        ),
        Figure(what, "numpy float32", numpys, "s", f"cutepy takes {ours / numpys:.1f} times as long"),
        Figure("translating its PTX, once", "cutepy", translation, "s"),
    ]


def sanitized_memory(extents: Extents = DEEP) -> Figure:
    """Return the peak memory of a product with and without the sanitizer."""
    plain, sanitized = (_in_a_process(extents, sanitize) for sanitize in (False, True))
    relation = f"{sanitized / plain:.2f} times the {plain:.0f} MiB of the simulator, {MOST_MEMORY} at most"
    return Figure(f"memory of {'x'.join(map(str, extents))}", SANITIZED, sanitized, "MiB", relation)


def _in_a_process(extents: Extents, sanitize: bool) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_mib, (extents, sanitize))


def _peak_mib(extents: Extents, sanitize: bool) -> float:
    """Return the peak memory of this process after it ran a product."""
    gemm = SimulatedGemm(extents)
    with frontends.simulate(arch=HOPPER, processes=1, sanitize=sanitize):
        gemm()
    # The peak of `getrusage` has in it what the process has inherited.
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _sanitized(gemm: SimulatedGemm) -> None:
    with frontends.simulate(arch=HOPPER, processes=1, sanitize=True):
        gemm()


def in_turns(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Time contenders in turns, after a first run of each; gives the median of each in seconds."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def _translation_s(ptx: str) -> float:
    times = []
    for _ in range(_TRANSLATIONS):
        start = time.perf_counter()
        for function in parse_module(ptx).functions.values():
            translate_function(function)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread on one core, and numpy's products in it."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with one_thread():
            yield
    finally:
        os.sched_setaffinity(0, cores)


def _machine() -> dict[str, str]:
    return {
        "CPU": processor(),
        "versions": f"python {platform.python_version()}, numpy {np.__version__}",
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
    }


def _table(figures: list[Figure], machine: Mapping[str, str]) -> str:
    lines = [f"{key}: {value}" for key, value in machine.items()]
    what, who = (max(len(text) for text in texts) for texts in zip(*((f.what, f.who) for f in figures), strict=True))
    for f in figures:
        value = "-" if f.value is None else f"{f.value:.3g}"
        lines.append(f"{f.what:{what}}  {f.who:{who}}  {value:>8} {f.unit:3}  {f.relation}".rstrip())
    return "\n".join(lines)
