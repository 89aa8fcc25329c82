"""The public names, pinned: a change here is a change that users see."""

import importlib
from pathlib import Path

import pytest

PINNED = Path(__file__).with_name("exports.txt")
MODULES = {name.rpartition(".")[0] for name in PINNED.read_text().splitlines()}
NEEDS_THE_DSL = {"cutepy.dsl", "cutepy.kernels.gemm", "cutepy.nn", "cutepy.ops"}


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=[pytest.mark.dsl] * (name in NEEDS_THE_DSL)) for name in sorted(MODULES)]
)
def test_exported_names_are_the_pinned_ones(module):
    public = importlib.import_module(module)
    pinned = [name for name in PINNED.read_text().splitlines() if name.rpartition(".")[0] == module]
    assert [f"{module}.{name}" for name in sorted(public.__all__)] == sorted(pinned)
    missing = [name for name in public.__all__ if not hasattr(public, name)]
    assert missing == []
