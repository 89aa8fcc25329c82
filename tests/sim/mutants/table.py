"""`python -m tests.sim.mutants.table FILE...`: the tables of results.md, of what `--json` has written.

One line for each kernel, then for each class of instruction, then for each way of changing it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sim.mutants.reasons import read_reasons

CLASSES = (
    ("mbarrier: init", r"mbarrier\.(init|inval)|fence\.mbarrier_init"),
    ("mbarrier: arrivals, counts, bytes", r"mbarrier\.(arrive|expect|complete)"),
    ("mbarrier: waits, parity", r"mbarrier\.\w+_wait"),
    ("barriers of a CTA or warp", r"bar(rier)?\.(sync|arrive|red|warp|cta)|elect\."),
    ("barriers of a cluster", r"barrier\.cluster"),
    ("proxy fences", r"fence\.proxy"),
    ("wgmma: fences, commits, waits", r"wgmma\.(fence|commit_group|wait_group)"),
    ("copies: commits, waits", r"cp\.async\.(bulk\.)?(commit_group|wait_group|wait_all|mbarrier)"),
    ("`griddepcontrol`", r"griddepcontrol"),
    ("`setmaxnreg`", r"setmaxnreg"),
    ("accesses beside them, exchanged", r""),
)
"""A name, and what the statement that was changed, or the first of two that were exchanged, begins with."""

OPERATORS = {
    "removed": "removed",
    "moved": "exchanged with what is beside it",
    "weakened": "scope, semantics or kind weakened",
    "count": "another count, parity or group",
    "barrier": "another barrier",
}
OUTCOMES = {
    "hazard": "a hazard",
    "advisory": "an advisory",
    "deadlock": "a deadlock",
    "error": "another error",
    "explained": "harmless, explained",
    "silent": "silent",
    "unreached": "never executed",
}


def read(path: Path) -> list[dict[str, Any]]:
    """Read records; those that are silent and explained get this outcome, and whatever is not noticed is "silent"."""
    reasons = read_reasons()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for one in records:
        explained = any(reason.explains(one["name"], one["source"]) for reason in reasons)
        if one["outcome"] == "silent" and not one["told"] and explained:
            one["outcome"] = "explained"
        elif one["outcome"] not in OUTCOMES:
            one["outcome"] = "silent"
    return records


def class_of(what: str) -> str:
    """Name the class of a statement."""
    return next(name for name, pattern in CLASSES if re.match(pattern, what))


def rows(records: list[dict[str, Any]], named: Callable[[dict[str, Any]], str], order: list[str]) -> list[str]:
    """Give the lines of a table, with all in the last."""
    counts = {name: Counter(one["outcome"] for one in records if named(one) == name) for name in order}
    counts["all"] = Counter(one["outcome"] for one in records)
    return [
        f"| {name} | {found.total()} | " + " | ".join(str(found[each] or "") for each in OUTCOMES) + " |"
        for name, found in counts.items()
        if found
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants.table", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    records = [one for path in parser.parse_args().files for one in read(path)]
    print("| | tried | " + " | ".join(OUTCOMES.values()) + " |\n|" + " --- |" * (len(OUTCOMES) + 2))
    kernels = list(dict.fromkeys(one["kernel"] for one in records))
    print("\n".join(rows(records, lambda one: str(one["kernel"]), kernels)))
    print("\n".join(rows(records, lambda one: class_of(one["what"]), [name for name, _ in CLASSES])[:-1]))
    print("\n".join(rows(records, lambda one: OPERATORS[one["operator"]], list(OPERATORS.values()))))


if __name__ == "__main__":
    main()
