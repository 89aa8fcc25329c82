"""`python -m tests.sim.mutants gemm gemm-fp8`: change one synchronisation at a time, and see whether it is reported.

A name is one of `kernels.py`, or a script for a GPU with its arguments, quoted as one. Of each mutant it says what
became of it; those that are silent, though silent.md doesn't explain them, make the status 1, and so does an
explanation that none is left for.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.sim.mutants.kernels import KERNELS, script
from tests.sim.mutants.operators import Mutant
from tests.sim.mutants.reasons import Reason, read_reasons
from tests.sim.mutants.trying import REPORTED, Trial, tried_at_launch


@dataclass(frozen=True)
class Tried:
    """A mutant, and what became of it."""

    kernel: str
    operator: str
    group: str
    line: int
    what: str
    name: str
    outcome: str
    told: str


def main(arguments: list[str] | None = None) -> int:
    """Try mutants; report those that are silent."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("kernels", nargs="*", default=["gemm"], help=f"{', '.join(KERNELS)}, or a script's path")
    parser.add_argument("--count", type=int, help="only a random sample of so many mutants of each kernel")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: %(default)s)")
    parser.add_argument("--only", default="", help="a regular expression of mutants' names")
    parser.add_argument("--launches", default="", help="a regular expression of the kernels that a script launches")
    parser.add_argument(
        "--clusters", type=int, help="that the device is said to hold, for scripts of persistent kernels"
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="print those that are reported, too")
    parser.add_argument("--json", type=Path, help="where to keep all, line by line")
    options = parser.parse_args(arguments)
    found: list[Tried] = []
    for kernel in options.kernels:
        found += tried(kernel, options, read_reasons())
    return report(found, read_reasons(), whole=not options.only and options.count is None)


def tried(kernel: str, options: argparse.Namespace, reasons: list[Reason]) -> list[Tried]:
    """Try the mutants of all that a kernel's host code launches."""
    found: list[Tried] = []

    def at_launch(name: str, trial: Trial, all_of_them: list[Mutant]) -> None:
        title = f"{Path(shlex.split(kernel)[0]).stem}: {name}" if kernel not in KERNELS else kernel
        named = [m for m in all_of_them if re.search(options.only, f"{title}: {m.name}")]
        count = len(named) if options.count is None else min(options.count, len(named))
        chosen = random.Random(options.seed).sample(named, count) if count < len(named) else named
        print(f"{title}: {len(chosen)} of {len(all_of_them)} mutants, {trial.seconds:.2f} s a launch", flush=True)
        for mutant in chosen:
            begun = time.perf_counter()
            verdict = trial.verdict(mutant)
            facts = mutant.operator, mutant.group, mutant.line, mutant.what, f"{title}: {mutant.name}"
            new = Tried(title, *facts, verdict.outcome, verdict.told)
            found.append(new)
            _tell(new, time.perf_counter() - begun, reasons, options)

    with tried_at_launch(at_launch, lambda name: bool(re.search(options.launches, name))):
        _launcher(kernel, options.clusters)()
    return found


def _launcher(kernel: str, clusters: int | None) -> Callable[[], None]:
    if kernel in KERNELS:
        return KERNELS[kernel]
    path, *arguments = shlex.split(kernel)
    if not Path(path).is_file():
        raise SystemExit(f"no such kernel or script: {path}; there are {', '.join(KERNELS)}")
    return script(Path(path), arguments, clusters)


def _tell(new: Tried, seconds: float, reasons: list[Reason], options: argparse.Namespace) -> None:
    if options.json:
        with options.json.open("a") as file:
            file.write(json.dumps(asdict(new)) + "\n")
    explained = any(r.explains(new.name) for r in reasons)
    if options.verbose or (new.outcome not in (*REPORTED, "unreached") and not explained):
        told = f"  ({new.told})" if new.told else ""
        print(f"{new.outcome:9} {seconds:4.1f} s  line {new.line}  {new.name[:300]}{told}", flush=True)


def report(found: list[Tried], reasons: list[Reason], *, whole: bool) -> int:
    """Print a table by operator and class of instruction; gives the exit status."""
    table: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    unexplained = []
    used: Counter[Reason] = Counter()
    wrongly: list[str] = []
    for one in found:
        outcome = one.outcome
        matching = [r for r in reasons if r.explains(one.name)]
        if outcome == "unreached":
            pass
        elif outcome in REPORTED:
            wrongly += [f"{one.name}: {one.outcome}, in spite of `{r.pattern}`" for r in matching if r.always]
        elif matching:
            outcome = "explained"
            used.update(matching[:1])
        else:
            unexplained.append(one)
        table[one.operator, one.group][outcome] += 1
    outcomes = ("hazard", "advisory", "deadlock", "error", "explained", "wrong", "endless", "silent", "unreached")
    print("\n| operator | instruction | " + " | ".join(outcomes) + " |\n|" + " --- |" * (len(outcomes) + 2))
    for (operator, group), counts in sorted(table.items()):
        print(f"| {operator} | `{group}` | " + " | ".join(str(counts[o] or "") for o in outcomes) + " |")
    total = sum(table.values(), Counter[str]())
    print("| all | | " + " | ".join(str(total[o] or "") for o in outcomes) + " |")
    kernels = {one.kernel for one in found}
    ours = [(r, {k for k in KERNELS if r.concerns(k)}) for r in reasons if r not in used]
    idle = [r for r, those in ours if whole and those and those <= kernels]
    for line in wrongly + [f"no mutant is left for `{r.pattern}`" for r in idle]:
        print(line)
    counted = len(found) - total["explained"] - total["unreached"]
    noticed = sum(total[o] for o in REPORTED)
    print(f"{noticed} of {counted} reported: {noticed / max(counted, 1):.1%}, and {total['explained']} explained")
    return int(bool(unexplained or wrongly or idle))


if __name__ == "__main__":
    sys.exit(main())
