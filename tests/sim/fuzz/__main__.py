"""Try random PTX: changed texts of kernels, changed statements, and random programs beside another interpreter.

    python -m tests.sim.fuzz texts --count 5000 --seed 1 [--ptxas] [--kernels gemm ...] [--files FILE.ptx ...]
    python -m tests.sim.fuzz statements --count 5000 --seed 1 [--ptxas] [--files FILE.ptx ...]
    python -m tests.sim.fuzz programs --count 1000 --seed 1

Of each text the outcome must be a module, or an error with line, column and statement; with `--ptxas` it is compared
with what the assembler says: a text that only we refuse is a mistake here, and one that only ptxas refuses is listed.
The exit code tells whether a mistake was found. What fails is written to the folder `--keep`.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.sim.fuzz import programs, statements, texts


def _texts(options: argparse.Namespace) -> int:
    rng = random.Random(options.seed)
    corpus = dict(texts.kernels(options.kernels)) | {str(f): f.read_text() for f in options.files}
    names = list(corpus)
    return _compare(options, ((name, texts.changed(rng, corpus[name])) for name in iter(lambda: rng.choice(names), "")))


def _statements(options: argparse.Namespace) -> int:
    rng = random.Random(options.seed)
    seeds = statements.of_files([f.read_text() for f in (texts.HANDWRITTEN, *options.files)])
    return _compare(
        options, ((one, statements.module(one)) for one in iter(lambda: statements.changed(rng, seeds), ""))
    )


def _compare(options: argparse.Namespace, tried: Iterator[tuple[str, str]]) -> int:
    """Compare what we say of texts with what ptxas says; returns how many only we refuse, or end otherwise."""
    outcomes: Counter[str] = Counter()
    lenient: dict[str, tuple[str, str, str]] = {}
    start, failed = time.monotonic(), 0
    for number, (name, text) in enumerate(itertools.islice(tried, options.count)):
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
            lenient.setdefault(theirs.split(";", 1)[-1].split("\n")[0][:90], (f"lenient{number}", text, name))
        if options.seconds and time.monotonic() - start > options.seconds:
            break
    for reason, (key, text, name) in sorted(lenient.items()):
        _keep(options.keep, key, text, f"{name}: only ptxas refuses:{reason}")
    print(f"{sum(outcomes.values())} texts, {dict(outcomes)}, {failed} mistakes")
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
    parser.add_argument("what", choices=("texts", "statements", "programs"))
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--ptxas", action="store_true")
    parser.add_argument("--kernels", nargs="*", default=["gemm", "gemm-scaled", "grouped-m"])
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    return 1 if {"texts": _texts, "statements": _statements, "programs": _programs}[options.what](options) else 0


if __name__ == "__main__":
    sys.exit(main())
