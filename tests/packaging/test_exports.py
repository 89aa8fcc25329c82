"""The public names, pinned: a change here is a change that users see."""

import importlib
import pydoc
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PINNED = Path(__file__).with_name("exports.txt")
MODULES = {name.rpartition(".")[0] for name in PINNED.read_text().splitlines()}
NEEDS_THE_DSL = {
    "cutepy",
    "cutepy.anatomy",
    "cutepy.dsl",
    "cutepy.kernels.gemm",
    "cutepy.kernels.gemv",
    "cutepy.kernels.grouped",
    "cutepy.kernels.sm100",
    "cutepy.nn",
    "cutepy.ops",
}


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=[pytest.mark.dsl] * (name in NEEDS_THE_DSL)) for name in sorted(MODULES)]
)
def test_exported_names_are_the_pinned_ones(module):
    public = importlib.import_module(module)
    pinned = [name for name in PINNED.read_text().splitlines() if name.rpartition(".")[0] == module]
    assert [f"{module}.{name}" for name in sorted(public.__all__)] == sorted(pinned)
    missing = [name for name in public.__all__ if not hasattr(public, name)]
    assert missing == []


@pytest.mark.dsl
@pytest.mark.parametrize("module", sorted({*MODULES, "cutepy.device.rules"}))
def test_help_tells_of_every_exported_name(module):
    # help() looks for what dir() names, and shows what __all__ names.
    public = importlib.import_module(module)
    told = pydoc.render_doc(public, renderer=pydoc.plaintext)
    untold = [name for name in public.__all__ if not re.search(rf"^    (class )?{name}\b", told, re.MULTILINE)]
    assert [name for name in untold if name != "__version__"] == []


@pytest.mark.parametrize("name", ["cutepy.device.rules", "cutepy.sim", "cutepy.sim.ptx"])
def test_all_that_inner_packages_name_is_there(name):
    package = importlib.import_module(name)
    assert [one for one in package.__all__ if not hasattr(package, one)] == []
