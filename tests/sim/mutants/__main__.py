"""`python -m tests.sim.mutants gemm gemm-fp8`: change one synchronisation at a time, and see whether it is reported.

A name is one of `kernels.py`, or a script for a GPU with its arguments, quoted as one. Of each mutant it says what
became of it; those that are silent, though silent.md doesn't explain them, make the status 1, and so does an
explanation that none is left for.

With `--json FILE` each is written as it ends, and another run with the same file goes on from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.sim.mutants.kernels import KERNELS, LAUNCHES, script
from tests.sim.mutants.operators import Mutant
from tests.sim.mutants.pool import verdicts
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
    outcome: str
    told: str
    seconds: float
    digest: str
    """Of the mutant's PTX."""
    name: str = ""
    source: str = ""

    def explained_by(self, reasons: list[Reason]) -> list[Reason]:
        """Give the reasons why it may be silent, if it is, under all schedules."""
        harmless = self.outcome == "silent" and not self.told
        return [r for r in reasons if harmless and r.explains(self.name, self.source)]


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
    parser.add_argument("-j", "--jobs", type=int, default=1, help="mutants at a time (%(default)s)")
    parser.add_argument("--seconds", type=float, default=180, help="limit of each mutant (%(default).0f)")
    parser.add_argument("--schedules", type=int, default=10, help="played of each silent mutant (%(default)s)")
    parser.add_argument("--part", type=_part, default=(0, 1), help="K/N: of N parts of the mutants, only the Kth")
    parser.add_argument("--verbose", "-v", action="store_true", help="print those that are reported, too")
    parser.add_argument("--json", type=Path, help="where to keep all, line by line, and to go on from")
    options = parser.parse_args(arguments)
    found: list[Tried] = []
    for kernel in options.kernels:
        found += tried(kernel, options, read_reasons())
    whole = not options.only and options.count is None and options.part == (0, 1)
    return report(found, read_reasons(), whole=whole)


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"a part is K/N, with K from 1 to N, got {text}")
    return int(found[1]) - 1, int(found[2])


def _recorded(path: Path | None) -> dict[tuple[str, str], Tried]:
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    known = (Tried(**json.loads(line)) for line in lines)
    return {(one.kernel, one.digest): one for one in known}


def tried(kernel: str, options: argparse.Namespace, reasons: list[Reason]) -> list[Tried]:
    """Try the mutants of all that a kernel's host code launches."""
    found: list[Tried] = []
    known = _recorded(options.json)

    def at_launch(name: str, trial: Trial, all_of_them: list[Mutant]) -> None:
        title = f"{Path(shlex.split(kernel)[0]).stem}: {name}" if kernel not in KERNELS else kernel
        matching = [m for m in all_of_them if re.search(options.only, f"{title}: {m.name}")]
        count = len(matching) if options.count is None else min(options.count, len(matching))

        def named(mutant: Mutant) -> dict[str, str]:
            return {"name": f"{title}: {mutant.name}", "source": mutant.source}

        chosen = random.Random(options.seed).sample(matching, count) if count < len(matching) else matching
        chosen = chosen[options.part[0] :: options.part[1]]
        digests = {m: hashlib.blake2b(m.ptx.encode(), digest_size=16).hexdigest() for m in chosen}
        done = [replace(known[title, digests[m]], **named(m)) for m in chosen if (title, digests[m]) in known]
        left = [m for m in chosen if (title, digests[m]) not in known]
        recorded = f", {len(done)} of them recorded" if done else ""
        print(
            f"{title}: {len(chosen)} of {len(all_of_them)} mutants{recorded}, {trial.seconds:.2f} s a launch",
            flush=True,
        )
        for one in done:
            _tell(one, reasons, options)
        for mutant, verdict, seconds in verdicts(trial.verdict, left, options.jobs, options.seconds):
            facts = mutant.operator, mutant.group, mutant.line, mutant.what
            became = verdict.outcome, verdict.told, round(seconds, 2), digests[mutant]
            new = Tried(title, *facts, *became, **named(mutant))
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(asdict(new)) + "\n")
            found.append(new)
            _tell(new, reasons, options)
        found.extend(done)

    chosen, times = lambda name: bool(re.search(options.launches, name)), LAUNCHES.get(kernel, 1)
    with tried_at_launch(at_launch, chosen, options.schedules, times):
        _launcher(kernel, options.clusters)()
    return found


def _launcher(kernel: str, clusters: int | None) -> Callable[[], None]:
    if kernel in KERNELS:
        return KERNELS[kernel]
    path, *arguments = shlex.split(kernel)
    if not Path(path).is_file():
        raise SystemExit(f"no such kernel or script: {path}; there are {', '.join(KERNELS)}")
    return script(Path(path), arguments, clusters)


def _tell(new: Tried, reasons: list[Reason], options: argparse.Namespace) -> None:
    if options.verbose or (new.outcome not in (*REPORTED, "unreached") and not new.explained_by(reasons)):
        told = f"  ({new.told})" if new.told else ""
        source = f"  # {new.source}" if new.source else ""
        print(f"{new.outcome:9} {new.seconds:4.1f} s  line {new.line}  {new.name[:300]}{source}{told}", flush=True)


def report(found: list[Tried], reasons: list[Reason], *, whole: bool) -> int:
    """Print a table by operator and class of instruction; gives the exit status."""
    table: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    unexplained = []
    used: Counter[Reason] = Counter()
    wrongly: list[str] = []
    for one in found:
        outcome = one.outcome
        if outcome == "unreached":
            pass
        elif outcome in REPORTED:
            wrong = (r for r in reasons if r.always and r.explains(one.name, one.source))
            wrongly += [f"{one.name}: {one.outcome}, in spite of `{r.pattern}`" for r in wrong]
        elif matching := one.explained_by(reasons):
            outcome = "explained"
            used.update(matching[:1])
        else:
            unexplained.append(one)
        table[one.operator, one.group][outcome] += 1
    outcomes = (
        "hazard",
        "advisory",
        "deadlock",
        "error",
        "explained",
        "wrong",
        "endless",
        "crash",
        "silent",
        "unreached",
    )
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
