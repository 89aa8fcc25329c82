"""Time the simulator beside Triton's interpreter, and with a kernel of plain threads.

`python -m tests.laboratory.sim` times the GEMM in turns with a Triton kernel of the same tiles. The kernel of plain
threads has no tensor cores and no copies. It is timed in machine code, without, and under the sanitizer.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import typer

from cutepy.frontends import simulate
from cutepy.sim import Observer
from cutepy.suites.sim import ROUNDS, SANITIZED, SMALL, TILE, Extents, Figure, SimulatedGemm, in_turns, one_core
from tests.laboratory.simt import BLOCK, Rounds

THREADS = 512, 64
"""CTAs and rounds of the kernel of plain threads."""
_TRITON = "Triton's interpreter"


def beside_triton(extents: Extents = SMALL, rounds: int = ROUNDS) -> list[Figure]:
    """Time a product on one core, simulated and in Triton's interpreter, in turns."""
    gemm = SimulatedGemm(extents)
    os.environ["TRITON_INTERPRET"] = "1"
    from tests.laboratory import triton_gemm

    def interpreted() -> None:
        triton_gemm.gemm(gemm.a, gemm.b, gemm.out, TILE)

    with simulate(processes=1), one_core():
        times = in_turns({"cutepy": gemm, _TRITON: interpreted}, rounds)
        right = []
        for multiply in (gemm, interpreted):
            gemm.out.zero_()
            multiply()
            right.append(gemm.is_right())
    what = f"fp16 GEMM {'x'.join(map(str, extents))}, one core"
    ours, theirs = times.values()
    return [
        Figure(what, "cutepy", ours, "s", f"median of {rounds}", right[0]),
        Figure(what, _TRITON, theirs, "s", f"cutepy is {theirs / ours:.1f} times faster", right[1]),
    ]


def plain_threads(extents: tuple[int, int] = THREADS, rounds: int = ROUNDS) -> list[Figure]:
    """Time a kernel of plain threads on one core: in machine code, without, and under the sanitizer."""
    kernel = Rounds(*extents)

    def run(**options: Any) -> Callable[[], None]:
        def launch() -> None:
            with simulate(processes=1, **options):
                kernel()

        return launch

    ways = {"cutepy": run(), "cutepy, watched": run(observers=(Observer(),)), SANITIZED: run(sanitize=True)}
    with one_core():
        times = in_turns(ways, rounds)
    compiled, watched, sanitized = times.values()
    what = f"{extents[0]} CTAs of {BLOCK} threads, {extents[1]} rounds with barriers, one core"
    relations = (
        f"in machine code; median of {rounds}",
        f"without machine code, {watched / compiled:.1f} times as long",
        f"{sanitized / compiled:.1f} times as long, {sanitized / watched:.1f} times as what is watched",
    )
    right = kernel.is_right()
    return [Figure(what, who, times[who], "s", said, right) for who, said in zip(times, relations, strict=True)]


def main() -> None:
    """Print every figure, and fail where a result is wrong."""
    figures = [] if importlib.util.find_spec("triton") is None else beside_triton()
    figures += plain_threads()
    for f in figures:
        typer.echo(f"{f.what}  {f.who}  {f.value:.3g} {f.unit}  {f.relation}{'' if f.right else '  WRONG'}")
    raise typer.Exit(not all(f.right for f in figures))


if __name__ == "__main__":
    typer.run(main)
