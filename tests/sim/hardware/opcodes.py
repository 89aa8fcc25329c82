"""The launches of the opcode tests: each test function of those modules with all its parameters."""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.messages import unpinned

MODULES = (
    *(
        f"tests.sim.test_opcodes_{part}"
        for part in "async convert float integer interleaved memory sparse_wgmma tma warp wgmma".split()
    ),
    "tests.frontends.ptx.test_warp_matrices",
    "tests.frontends.ptx.test_rarer_instructions",
)


def opcode_tests() -> Iterator[tuple[str, Callable[..., None]]]:
    """Yield the test functions, by the names of module and function."""
    for path in MODULES:
        module = importlib.import_module(path)
        part = path.rpartition(".test_")[2].removeprefix("opcodes_")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and function.__module__ == module.__name__:
                yield f"{part}.{name.removeprefix('test_')}", function


def run_all(function: Callable[..., None]) -> None:
    """Call a test function with all that it is parametrised with; what it skips is left out."""
    for arguments in _arguments(function):
        try:
            with unpinned():
                function(**arguments)
        except pytest.skip.Exception:
            continue


def _arguments(function: Callable[..., None]) -> Iterator[dict[str, Any]]:
    marks = [m for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]
    choices = []
    for mark in marks:
        names, values = mark.args
        if isinstance(names, str):
            names = tuple(part.strip() for part in names.split(","))
        choices.append([dict(zip(names, _as_tuple(value, len(names)), strict=True)) for value in values])
    for combination in itertools.product(*choices):
        yield {name: value for part in combination for name, value in part.items()}


def _as_tuple(value: Any, count: int) -> tuple[Any, ...]:
    if hasattr(value, "marks"):  # pytest.param
        return tuple(value.values)
    return (value,) if count == 1 else tuple(value)


_APPROXIMATE = "approximate within the error that the ISA states; the corpus bounds how far apart they are"
DIFFERENCES: dict[str, tuple[str, int]] = {
    "float.approximate_division": (_APPROXIMATE, 4),
    "float.approximation": (_APPROXIMATE, 15),
    "float.coarse_f64": (_APPROXIMATE, 2),
    "float.half_approximation": (_APPROXIMATE, 8),
    "memory.atom": ("lanes of a warp that hit one address do so in an order that the ISA leaves open", 4),
}
"""Opcode tests whose memory may differ from the GPU's: why, and in how many launches."""

_BLACKWELL = "a Hopper GPU has no such copies"
_REFUSED = "the PTX is wrong, and a GPU refuses it where the simulator does not reach it"
NOT_RECORDED: dict[str, tuple[str, int]] = {
    # An H200 gave 105 of them. In fma.ftz it flushes results that are subnormal after rounding with any exponent:
    # 2^-252 - 2^-126 is -2^-126 by .rn, where the simulator gives -0.
    "float.zeros_and_what_rounds_to_zero": ("newer than the recording", 109),
    "async.st_async_needs_clusters": ("newer than the recording", 2),
    "tma.im2col_load": ("four are newer than the recording", 4),
    "memory.a_load_outside_of_all_arrays_is_refused_as_the_loads_before_it_were_taken": ("newer than the recording", 4),
    "memory.lanes_of_one_load_may_read_several_arrays": ("newer than the recording", 3),
    "memory.lanes_of_one_load_may_read_their_own_ctas_words_and_a_peers": ("newer than the recording", 1),
    "rarer_instructions.refusals": (_REFUSED, 4),
    "rarer_instructions.what_is_not_simulated_is_told_where_it_is_reached": (_REFUSED, 1),
    "tma.a_store_drops_the_bytes_that_a_load_fills": ("newer than the recording", 12),
    "tma.of_global_memory_a_load_reads_what_is_inside_of_the_tensor": ("newer than the recording", 4),
    "tma.prefetch_of_four_rows": (_BLACKWELL, 1),
    "tma.reduction_into_four_rows": (_BLACKWELL, 2),
    "tma.swizzles": (_BLACKWELL, 14),
    "tma.tf32_is_rounded_where_the_box_is_inside": ("newer than the recording", 1),
    "tma.the_atoms_of_a_swizzle_are_replaced": (_BLACKWELL, 2),
    "warp.unknown_forms": (_REFUSED, 2),
}
"""Launches of opcode tests that the recording lacks: why, and how many. What is new waits here for the next one."""
