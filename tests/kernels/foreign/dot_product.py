"""torch's scaled_dot_product_attention, computed by cutepy where torch would choose a fused kernel."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from cutepy.ops import scaled_dot_product_attention
from tests.kernels.foreign.calls import refuse, refusing

FUSED = ("flash_sdp_enabled", "mem_efficient_sdp_enabled", "cudnn_sdp_enabled")
"""Settings of torch that allow another kernel than the mathematical one."""
CLASSES = ("TestSDPACudaOnlyCUDA", "TestSDPACUDA", "TestAttnBiasCUDA")
"""Of tests whose results count; others look at torch's own errors and choices."""
OWN = r"_choice|_priority_order|determinis|_heuristic|fail_d128|preserves_query_layout|nested|math_with_negative_scale"
"""Of tests that look at what torch's kernels are, which they are not."""
SPARE = 12
"""Cases of each test beyond those that are wanted: some skip themselves, or use other types."""
PLATFORM = ("FLASH_ATTENTION", "MEM_EFF_ATTENTION", "CUDNN_ATTENTION", "FUSED_ATTENTION", "FUSED_SDPA")
"""Kernels of torch, without which its tests skip themselves."""


@contextmanager
def in_place() -> Iterator[None]:
    """Let torch's function be cutepy's for tensors of 16 bits, unless only torch's mathematical kernel is wanted."""
    original = torch.nn.functional.scaled_dot_product_attention
    if not torch.cuda.is_available():
        _claim_kernels()
    ours = refusing(_checked)

    def call(query: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        has_fused = any(getattr(torch.backends.cuda, name)() for name in FUSED)
        if not has_fused or not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
            return original(query, *rest, **named)
        return ours(query, *rest, **named)

    torch.nn.functional.scaled_dot_product_attention = call  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = original


def _checked(query: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    if query.is_nested:
        refuse("nested tensors")
    return scaled_dot_product_attention(query, *rest, **named)


def _claim_kernels() -> None:
    """Let tests that look for a GPU's kernels of torch find them, as they are not called."""
    if find_spec("expecttest") is None:  # which torch's tests import, and say so
        return
    from torch.testing._internal import common_cuda

    for name in PLATFORM:
        setattr(common_cuda, f"PLATFORM_SUPPORTS_{name}", True)
    torch.backends.cudnn.version = lambda: 91000  # type: ignore[assignment]


class Draw:
    """A pytest plugin: draws cases of each test, of which torch makes methods with names of their own."""

    def __init__(self, file: Path, outcomes: Any, sets: int, extent: int, seed: int) -> None:
        tree = ast.walk(ast.parse(file.read_text()))
        self._names = {node.name for node in tree if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}
        self._outcomes, self._sets, self._extent, self._seed = outcomes, sets, extent, seed
        outcomes.test_of = self.test_of

    def test_of(self, case: str) -> str:
        """Return the test that a case is of."""
        return max((name for name in self._names if name in case), key=len, default=case)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep some cases."""
        found: defaultdict[str, list[Any]] = defaultdict(list)
        for item in items:
            test = self.test_of(item.name)
            numbers = map(int, re.findall(r"(?<=_)\d+(?=_)", item.name.removeprefix(test)))
            if item.nodeid.partition("::")[2].startswith(CLASSES) and max(numbers, default=0) <= self._extent:
                found[test] += [] if re.search(OWN, test) else [item]
        for test, cases in found.items():
            random.Random(f"{self._seed} {test}").shuffle(cases)
            del cases[self._sets + SPARE :]
        kept = {item.nodeid for cases in found.values() for item in cases}
        items[:] = [item for item in items if item.nodeid in kept]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: Any) -> None:
        """Skip what is beyond the cases that are wanted."""
        if self._outcomes.of[self.test_of(item.name)].total() >= self._sets:
            pytest.skip("enough cases")
