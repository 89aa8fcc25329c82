"""Others' tests of attention, with cutepy's in place of theirs: what passes, what is refused, and what is wrong?

    python -m tests.kernels.foreign CHECKOUT...

A checkout is a folder of FlashAttention, whose `tests/cute` are run, or a file of PyTorch's,
`test/test_transformers.py`, whose tests of scaled_dot_product_attention are run; both unmodified. Nothing of theirs is
kept here. FlashAttention's need einops, PyTorch's expecttest. Without a GPU the device is simulated.

Of each test `--sets` parameter sets are run, drawn at random by `--seed` from those without an integer above
`--extent`. Tests that don't call attention are not counted. On a GPU:

    python -m tests.kernels.foreign CHECKOUT... --sets 200 --extent 100000
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.kernels.foreign import dot_product, flash_attention
from tests.kernels.foreign.calls import CALLS, RefusedError
from tests.sim.foreign.child import Selection

FILES = ("test_flash_attn", "test_flash_attn_fast", "test_flash_attn_varlen")
"""Those of FlashAttention's tests whose functions of scores, if any, are not written in the DSL."""
REPEATING = ("test_flash_attn_race_condition",)


class Outcomes:
    """Outcomes of the cases of each test that called cutepy's attention."""

    run = None

    def __init__(self) -> None:
        self.of: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._before = 0

    @staticmethod
    def test_of(case: str) -> str:
        """Return the test that a case is of."""
        return case.partition("[")[0].rpartition("/")[2]

    def begin(self, case: str) -> None:
        """Note that a case begins."""
        self._before = CALLS.count

    def end(self, case: str, outcome: str, reason: str = "") -> None:
        """Count a case."""
        if CALLS.count == self._before:
            return
        kind = reason.removeprefix("RefusedError: ")
        said = "passed" if outcome == "passed" else f"refused: {kind}" if kind != reason else f"failed: {reason}"
        print(f"{case.rpartition('/')[2]}  {said}", flush=True)
        self.of[self.test_of(case)][re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", said)] += 1

    def lines(self) -> list[str]:
        """Return the table."""
        lines = ["| test | cases | passed | refused | failed |", "| --- | --- | --- | --- | --- |"]
        for test, counts in sorted(self.of.items()):
            passed, reasons = counts["passed"], [", ".join(_reasons(counts, kind)) for kind in ("refused", "failed")]
            if counts.total():
                lines.append(f"| {test} | {counts.total()} | {passed} | {' | '.join(reasons)} |")
        return lines


def _reasons(counts: Counter[str], kind: str) -> Iterator[str]:
    for said, count in sorted(counts.items()):
        if said.startswith(kind):
            yield f"{said.partition(': ')[2]} ({count})"


class Limit:
    """A pytest plugin: ends tests that take too much of the processor's time."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        signal.signal(signal.SIGPROF, self._end)

    def _end(self, *_: object) -> None:
        raise RefusedError(f"more than {self._seconds} s")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Set a timer."""
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def files_of(checkout: Path) -> list[Path]:
    """Return the tests of a checkout; those that repeat a gradient a thousand times are for a GPU."""
    if checkout.is_file():
        return [checkout]
    return [checkout / "tests" / "cute" / f"{name}.py" for name in FILES + REPEATING * torch.cuda.is_available()]


def main(arguments: list[str]) -> int:
    """Run what is given; the exit code tells whether anything failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kernels.foreign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--sets", type=int, default=2, help="parameter sets of each test (%(default)s)")
    parser.add_argument("--extent", type=int, default=128, help="largest integer in a set (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sets that are drawn (%(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="of the processor, for a case (%(default)s)")
    parser.add_argument("-k", "--only", default="", help="only tests of these names, as pytest takes them")
    parser.add_argument("--tb", default="no", help="style of pytest's tracebacks (%(default)s)")
    given = parser.parse_args(arguments)
    outcomes = Outcomes()
    options = ["-q", f"--tb={given.tb}", "--no-header", "-o", "addopts="]
    options += [f"-pno:{plugin}" for plugin in ("cacheprovider", "timeout", "xdist")]
    options += ["-k", given.only] if given.only else []
    options += [] if torch.cuda.is_available() else ["--simulate"]
    for checkout in map(Path.resolve, given.checkouts):
        with dot_product.in_place() if checkout.is_file() else flash_attention.in_place(checkout):
            for file in files_of(checkout):
                drawn = given.sets, given.extent, given.seed
                plugins: list[object] = [Limit(given.seconds), Selection(outcomes, frozenset(), *drawn)]
                plugins += [dot_product.Draw(file, outcomes, *drawn)] if checkout.is_file() else []
                pytest.main([*options, f"--rootdir={file.parent}", str(file)], plugins=plugins)
    print("\n".join(outcomes.lines()))
    return int(any(each.startswith("failed") for counts in outcomes.of.values() for each in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
