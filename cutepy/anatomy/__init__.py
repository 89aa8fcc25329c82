"""Anatomy of a kernel: its MMAs, copies, barriers, shared memory and registers, explained.

`explain` is the way in; `Watch` observes simulated launches.
"""

from cutepy.extras import require

require("cutepy.anatomy", "numpy")

# ruff: noqa: E402 - a missing extra is reported before the rest is imported
from cutepy.anatomy.costs import Costs as Costs
from cutepy.anatomy.explain import ExplainError as ExplainError, explain as explain
from cutepy.anatomy.explanation import Explanation as Explanation
from cutepy.anatomy.model import (
    Advisory as Advisory,
    Barrier as Barrier,
    Copy as Copy,
    Kernel as Kernel,
    LaunchFacts as LaunchFacts,
    Mma as Mma,
    Operand as Operand,
    Party as Party,
    Region as Region,
    RegisterChange as RegisterChange,
    Resources as Resources,
    Site as Site,
    SlowPlace as SlowPlace,
)
from cutepy.anatomy.watch import Watch as Watch

__all__ = [
    "Advisory",
    "Barrier",
    "Copy",
    "Costs",
    "ExplainError",
    "Explanation",
    "Kernel",
    "LaunchFacts",
    "Mma",
    "Operand",
    "Party",
    "Region",
    "RegisterChange",
    "Resources",
    "Site",
    "SlowPlace",
    "Watch",
    "explain",
]
