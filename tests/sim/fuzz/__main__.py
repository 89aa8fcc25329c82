"""Try random PTX: changed texts of real kernels, and random programs beside an interpreter of their own.

    python -m tests.sim.fuzz texts --count 5000 --seed 1 [--ptxas] [--kernels gemm ...] [--files FILE.ptx ...]
    python -m tests.sim.fuzz programs --count 1000 --seed 1

Of each text the outcome must be a module, or an error with line, column and statement; with `--ptxas` it is compared
with what the assembler says: a text that only we refuse is a mistake here, and one that only ptxas refuses is listed.
The exit code tells whether a mistake was found. What fails is written to the folder `--keep`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from tests.sim.fuzz import programs, texts


def _texts(options: argparse.Namespace) -> int:
    rng = random.Random(options.seed)
    corpus = dict(texts.kernels(options.kernels)) | {str(f): f.read_text() for f in options.files}
    outcomes: Counter[str] = Counter()
    lenient: dict[str, tuple[str, str]] = {}
    start, failed = time.monotonic(), 0
    for number in range(options.count):
        name = rng.choice(list(corpus))
        text = texts.changed(rng, corpus[name])
        try:
            said = texts.outcome(text, number % 10 == 0)
        except texts.RawError as error:
            failed += 1
            _keep(options.keep, f"raw{number}", text, f"{name}: {error}")
            continue
        theirs = texts.refusal_of_ptxas(text) if options.ptxas else ""
        outcomes[("refused" if said else "accepted") + (", by ptxas refused" if theirs else "")] += 1
        if options.ptxas and said and not theirs:
            failed += 1
            _keep(options.keep, f"strict{number}", text, f"{name}: only we refuse: {said}")
        elif options.ptxas and theirs and not said:
            lenient.setdefault(theirs.split(";", 1)[-1].split("\n")[0][:90], (f"lenient{number}", text))
        if options.seconds and time.monotonic() - start > options.seconds:
            break
    for reason, (key, text) in sorted(lenient.items()):
        _keep(options.keep, key, text, f"only ptxas refuses:{reason}")
    print(f"{sum(outcomes.values())} texts of {len(corpus)} kernels, {dict(outcomes)}, {failed} mistakes")
    return failed


def _programs(options: argparse.Namespace) -> int:
    failed = 0
    for number in range(options.count):
        program = programs.random_program(random.Random(f"{options.seed} {number}"))
        for back_end in ("numpy", "machine code"):
            wrong = programs.difference(program, back_end)
            if wrong:
                failed += 1
                _keep(options.keep, f"program{number}", program.text, f"{back_end}: {wrong}")
    print(f"{options.count} programs, {failed} mistakes")
    return failed


def _keep(folder: Path | None, name: str, text: str, said: str) -> None:
    print(f"{name}: {said}")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.ptx").write_text(text, encoding="utf-8", errors="replace")


def main() -> int:
    """Read the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("texts", "programs"))
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--ptxas", action="store_true")
    parser.add_argument("--kernels", nargs="*", default=["gemm", "gemm-scaled", "grouped-m"])
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    return 1 if (_texts if options.what == "texts" else _programs)(options) else 0


if __name__ == "__main__":
    sys.exit(main())
