"""The tier of each test: `make test` runs those that cost little, `make check` the integration tests.

A test is an integration test by its marker, by its folder, or by its cost: `costly.txt` lists the test functions whose
cases take more than `COSTLY` seconds of the processor on average. `make costs` measures them and writes the file.
Single cases that take more than `DEAR` seconds are listed in `dear.txt` and left to `make test-deep`, but for the
cheapest of a file, and of a function where it takes less than `ALONE`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

COMPILED = ("tests/device/", "tests/kernels/")
"""Folders whose tests compile kernels of their own, most for a second or more."""
UNITS = (
    *("*_bands.py", "*_choice.py", "*_config.py", "*_rasterise.py", "*_refinement.py", "*_rules.py", "*_shares.py"),
    *("*_attention_tuned.py", "*_folding.py", "*_signatures.py", "*_tiles.py"),
)
"""Files of these folders that compile nothing."""
COSTLY = 0.2
"""Seconds of an idle processor. What costs less stays in `make test`."""

DEAR = 1.0
"""Seconds of an idle processor. Cases that cost more are deep."""

ALONE = 2.0
"""Seconds of an idle processor. The cheapest case of a function is deep only if it costs more."""

COMPILING = (
    "tests/aot/test_attention.py::test_a_kernel_computes_attention[causal]",
    "tests/kernels/test_attention.py::test_wide_rows_and_rows_that_differ[dtype0-extents0-heads0-192-128-options0]",
    "tests/kernels/test_attention.py::test_wide_rows_and_rows_that_differ[dtype1-extents1-heads1-256-256-options1]",
    "tests/kernels/test_attention_cascade.py::test_results_are_those_of_float64[1-heads0-lengths0-160-options0-None]",
    "tests/kernels/test_attention_varlen.py::"
    "test_results_and_gradients_are_those_of_float64[q_lengths0-k_lengths0-options0]",
    "tests/kernels/test_mla.py::test_each_sequence_attends_to_its_own_rows[8 bits]",
    "tests/kernels/test_score_functions.py::test_block_masks_of_torch_and_ours[128]",
    "tests/kernels/test_sm100_gemm.py::test_epilogues_reduce_and_read_tiles[row]",
    "tests/kernels/test_sm100_gemm.py::test_types_majors_and_ctas[a_dtype1-b_dtype1-scaled1-kk-2-128]",
)
"""Cases that are integration tests whatever they cost: each compiles kernels that no other of these tests compiles."""

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("costly.txt")
DEAR_LIST = Path(__file__).with_name("dear.txt")
_MARKED = re.compile(r"^pytestmark = .*\bintegration\b", re.M)


@cache
def costly() -> frozenset[str]:
    """Give the test functions of the list, `path::name`."""
    return frozenset(LIST.read_text(encoding="utf-8").split())


@cache
def dear() -> frozenset[str]:
    """Give the cases of the list of dear ones, `path::name[case]`."""
    return frozenset(DEAR_LIST.read_text(encoding="utf-8").splitlines())


def function_of(test: str) -> str:
    """Give the test function of a test's identifier, which has the case in brackets."""
    return test.partition("[")[0]


def is_compiled(path: str) -> bool:
    """Tell whether the tests of a file, relative to the checkout, compile kernels of their own."""
    return path.startswith(COMPILED) and not any(fnmatch(path, unit) for unit in UNITS)


def is_integration(test: str) -> bool:
    """Tell whether a test is an integration test by its folder or by its cost."""
    return is_compiled(test.partition("::")[0]) or function_of(test) in costly()


def is_integration_alone(file: Path) -> bool:
    """Tell whether a file has integration tests only: `make test` need not import it."""
    path = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
    return is_compiled(path) or _MARKED.search(file.read_text(encoding="utf-8")) is not None


def write(seconds: Mapping[str, list[float]]) -> None:
    """Write the list, given the seconds of each measured function's cases; keep functions that were not measured."""
    kept = {name for name in costly() - seconds.keys() if (ROOT / name.partition("::")[0]).exists()}
    found = {name for name, cases in seconds.items() if sum(cases) > COSTLY * len(cases)}
    LIST.write_text("".join(f"{name}\n" for name in sorted(kept | found)), encoding="utf-8")


def write_dear(seconds: Mapping[str, float]) -> None:
    """Write the list of dear cases, given the seconds of each; keep those that were not measured."""
    kept = {name for name in dear() - seconds.keys() if (ROOT / name.partition("::")[0]).exists()}
    files: dict[str, list[tuple[float, str]]] = defaultdict(list)
    functions: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for name, spent in seconds.items():
        files[name.partition("::")[0]].append((spent, name))
        functions[function_of(name)].append((spent, name))
    alone = {*COMPILING, *(min(cases)[1] for cases in files.values())}
    alone |= {name for spent, name in map(min, functions.values()) if spent <= ALONE}
    found = {name for name, spent in seconds.items() if spent > DEAR} - alone
    DEAR_LIST.write_text("".join(f"{name}\n" for name in sorted(kept | found)), encoding="utf-8")
