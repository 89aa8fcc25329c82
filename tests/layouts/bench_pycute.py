"""Time cutepy.layouts against pycute on calls drawn from the reference vectors: `make bench-layouts`.

The basket is drawn, with repetition, from the vectors that pycute can compute: the function is pycute's, the operands
are integers, tuples and plain layouts or swizzles, and pycute raises nothing. Every timed call makes its operands anew
from integers and tuples, on both sides; a second figure leaves their making out. Neither side caches results. A call's
time is the least of ROUNDS rounds, taken in turn on both sides; the figure is the geometric mean of the ratios.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from time import perf_counter
from types import ModuleType
from typing import Any

from cutepy import layouts
from cutepy.layouts import Layout, Swizzle, parse
from tests.golden.calls import vectors

CALLS = 2000
ROUNDS = 7
REPEATS = 10
REQUIRED = 2.0
FUNCTIONS = (
    *("coalesce", "complement", "composition", "cosize", "crd2idx", "filter", "flatten", "idx2crd", "left_inverse"),
    *("logical_divide", "logical_product", "product", "right_inverse", "shape_div", "size", "slice"),
    *("slice_and_offset", "tiled_divide", "tiled_product", "zipped_divide", "zipped_product"),
)

Recipe = Callable[[ModuleType], Any]


@dataclass(frozen=True)
class Case:
    """One call: its operation, and per operand what makes it in a module."""

    op: str
    recipes: tuple[Recipe, ...]

    def function(self, module: ModuleType) -> Callable[..., Any]:
        """The function that is timed."""
        if self.op == "eval":
            return lambda layout: [layout(i) for i in range(layout.size())]
        if self.op == "swizzle_apply":
            return lambda swizzle: [swizzle(i) for i in range(64)]
        return getattr(module, "slice_" if self.op == "slice" else self.op)  # type: ignore[no-any-return]

    def runs_in(self, module: ModuleType) -> bool:
        """Tell whether the module takes the call."""
        try:
            self.function(module)(*(make(module) for make in self.recipes))
        except Exception:
            return False
        return True


def recipe(value: Any) -> Recipe | None:
    """Return a function that makes an operand anew in either module; None for an operand that pycute lacks."""
    if value is None or isinstance(value, int):
        return lambda module: value
    if isinstance(value, Layout):
        shape, stride = value.shape, value.stride
        return lambda module: module.Layout(shape, stride)
    if isinstance(value, Swizzle):
        return lambda module: module.Swizzle(value.bits, value.base, value.shift)
    if isinstance(value, tuple):
        parts = [recipe(element) for element in value]
        if all(parts):
            return lambda module: tuple([part(module) for part in parts if part is not None])
    return None


def eligible(pycute: ModuleType) -> list[Case]:
    """All vectors that pycute can compute."""
    cases = []
    for vector in vectors("algebra"):
        if vector["op"] not in (*FUNCTIONS, "eval", "swizzle_apply"):
            continue
        recipes = [recipe(parse(x) if isinstance(x, str) else x) for x in vector["in"]]
        if all(recipes):
            case = Case(vector["op"], tuple(r for r in recipes if r is not None))
            if case.runs_in(pycute) and case.runs_in(layouts):
                cases.append(case)
    return cases


def time_once(case: Case, module: ModuleType, *, with_operands: bool) -> float:
    """Seconds of one call, the mean over REPEATS."""
    function, recipes = case.function(module), case.recipes
    operands = [[make(module) for make in recipes] for _ in range(REPEATS)]
    if with_operands:
        start = perf_counter()
        for _ in range(REPEATS):
            function(*[make(module) for make in recipes])
        return (perf_counter() - start) / REPEATS
    start = perf_counter()
    for arguments in operands:
        function(*arguments)
    return (perf_counter() - start) / REPEATS


def speedups(cases: list[Case], pycute: ModuleType, *, with_operands: bool) -> list[float]:
    """Ratio of pycute's time to ours, for every call of the basket."""
    ratios = []
    for case in cases:
        pairs = [
            [time_once(case, module, with_operands=with_operands) for module in (pycute, layouts)]
            for _ in range(ROUNDS)
        ]
        theirs, ours = (min(side) for side in zip(*pairs, strict=True))
        ratios.append(theirs / ours)
    return ratios


def geometric_mean(ratios: list[float]) -> float:
    """Geometric mean."""
    return exp(fmean(map(log, ratios)))


def main() -> int:
    """Run the benchmark; exit 1 where the speed-up with operands is below REQUIRED."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        import pycute
    except ImportError:
        print("needs pycute: pip install --no-deps nvidia-cutlass==4.2.0.0", file=sys.stderr)
        return 2
    candidates = eligible(pycute)
    basket = random.Random(options.seed).choices(candidates, k=options.calls)
    gc.disable()
    whole = speedups(basket, pycute, with_operands=True)
    alone = speedups(basket, pycute, with_operands=False)
    by_op: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case, *pair in zip(basket, whole, alone, strict=True):
        by_op[case.op].append((pair[0], pair[1]))
    print(f"{'operation':18}{'calls':>6}{'with operands':>15}{'call alone':>12}")
    for op, pairs in sorted(by_op.items()):
        figures = [geometric_mean(list(side)) for side in zip(*pairs, strict=True)]
        print(f"{op:18}{len(pairs):6}{figures[0]:14.2f}x{figures[1]:11.2f}x")
    mean = geometric_mean(whole)
    print(f"{'geometric mean':18}{len(basket):6}{mean:14.2f}x{geometric_mean(alone):11.2f}x")
    print(f"from {len(candidates)} vectors, python {sys.version.split()[0]}; required: {REQUIRED}x with operands")
    return 0 if mean >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
