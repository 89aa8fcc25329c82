"""`python -m tests.oracle --cases 1000 --seed 7`: fresh random cases, answered by C++ CuTe and by cutepy.layouts.

Exits with 1 and a list where they disagree, with 2 and the names of the missing packages where the oracle cannot run.
"""

import argparse
import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.oracle.compare import Disagreement, disagreements
from tests.oracle.cpp import Case, CppOracle, OracleUnavailableError, Rejected
from tests.oracle.questions import questions
from tests.oracle.questions_copy import WARP_ATOMS, copies
from tests.oracle.questions_sm90 import atom_names, extended_atom_names, hopper
from tests.oracle.questions_sm100 import blackwell, fixed

_STEP = 500


def main(arguments: list[str] | None = None) -> int:
    """Draw cases, compare, print every disagreement; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="number of random cases (default 1000)")
    parser.add_argument("--seed", type=int, help="seed of the draw (default: a new one, printed)")
    parser.add_argument(
        "--kind", choices=("algebra", "sm90", "sm100", "copy", "all"), default="all", help="what to ask about"
    )
    parser.add_argument("--only", help="comma-separated operations of the algebra to restrict to")
    parser.add_argument("--atoms", action="store_true", help="also compare every MMA atom's traits")
    parser.add_argument("--workdir", type=Path, help="folder for the generated programs (default: a temporary one)")
    parser.add_argument("--record", type=Path, help="write the reference vectors of Blackwell to this file, and end")
    parser.add_argument("--save", type=Path, help="append the disagreements to this file as reference vectors")
    options = parser.parse_args(arguments)
    try:
        oracle = CppOracle(options.workdir)
    except OracleUnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    if options.record:
        _record(oracle, options.record)
        return 0
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    cases = list(_cases(options, seed))
    print(f"{len(cases)} cases, seed {seed}", flush=True)
    found: list[Disagreement] = []
    for done in range(0, len(cases), _STEP):
        new = disagreements(oracle, cases[done : done + _STEP])
        found += new
        for disagreement in new:
            print(disagreement)
        print(f"{min(done + _STEP, len(cases))} compared, {len(found)} disagree", flush=True)
    if options.save:
        with options.save.open("a") as file:
            file.writelines(json.dumps(_vector(d), separators=(",", ":")) + "\n" for d in found)
    return 1 if found else 0


def _cases(options: argparse.Namespace, seed: int) -> Iterator[Case]:
    only = frozenset(options.only.split(",")) if options.only else None
    if options.kind in ("algebra", "all"):
        count = options.cases if options.kind == "algebra" or only else options.cases // 2
        yield from (Case(*q) for q in questions(seed, count, only=only))
    for kind, draw in (("sm90", hopper), ("sm100", blackwell), ("copy", copies)):
        if options.kind in (kind, "all") and not only:
            count = options.cases if options.kind == kind else options.cases // 4
            yield from itertools.islice((Case(*q) for q in draw(seed, count)), count)
    if options.atoms:
        names = (*atom_names(), *extended_atom_names(), *WARP_ATOMS)
        yield from (Case("mma_traits", (name,)) for name in names)


def _record(oracle: CppOracle, path: Path) -> None:
    """Write what C++ CuTe answers to each fixed question of Blackwell."""
    cases = [Case(*question) for question in fixed()]
    rows = []
    for case, out in zip(cases, oracle.answer(cases), strict=True):
        if isinstance(out, Rejected):
            raise SystemExit(f"C++ CuTe refuses {case}: {out.reason} at {out.at}")
        rows.append({"op": case.op, "in": list(case.operands), "out": out})
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    print(f"{len(rows)} vectors")


def _vector(found: Disagreement) -> dict[str, object]:
    """A disagreement as a reference vector: CuTe's answer, or its refusal."""
    row: dict[str, object] = {"op": found.case.op, "in": list(found.case.operands)}
    if isinstance(found.expected, Rejected):
        return {**row, "out": None, "error": found.expected.reason, "at": found.expected.at, "src": "fresh"}
    return {**row, "out": found.expected, "src": "fresh"}


if __name__ == "__main__":
    sys.exit(main())
