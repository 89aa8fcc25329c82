"""Operations in a new process: the modules that their import brings, and programs that were exported elsewhere."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch")

from cutepy.epilogues import swiglu  # noqa: E402
from cutepy.ops import gemm  # noqa: E402

SCRIPT = """
import importlib, json, pkgutil, sys
import cutepy.ops
import torch

def registered():
    return sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("cutepy::"))

a = torch.ones(8, 32).bfloat16()
cutepy.ops.gemm(a, a)
found = {"modules": sorted(sys.modules), "operations": registered()}

from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as counter:
    cutepy.ops.gemm(a, a)
found["flops"] = counter.get_total_flops()

program, given, expected = torch.export.load(sys.argv[1]), *torch.load(sys.argv[2])
found["loaded gives the same"] = torch.equal(program.module()(*given), expected)

for module in pkgutil.iter_modules(cutepy.ops.__path__, "cutepy.ops."):
    importlib.import_module(module.name)
import cutepy.nn
found["operations of all modules"] = registered()
print(json.dumps(found))
"""


class Model(torch.nn.Module):
    def forward(self, a, b):
        return gemm(a, b, epilogue=swiglu)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Run one process for all tests: each would import torch again."""
    folder = tmp_path_factory.mktemp("exported")
    a, b = torch.randn(6, 16).bfloat16(), torch.randn(8, 16).bfloat16()
    torch.export.save(torch.export.export(Model(), (a, b)), folder / "model.pt2")
    torch.save(((a, b), Model()(a, b)), folder / "given.pt")
    command = [sys.executable, "-c", SCRIPT, folder / "model.pt2", folder / "given.pt"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_exported_programs_load_where_only_the_package_is_imported(found):
    assert found["loaded gives the same"]


def test_all_operations_are_registered_by_the_package(found):
    assert len(found["operations"]) >= 5
    assert found["operations of all modules"] == found["operations"]


@pytest.mark.parametrize("module", ["torch.distributed.tensor", "torch.utils.flop_counter"])
def test_modules_that_few_need_are_imported_by_those_few(found, module):
    """The module of DTensors takes a second to import."""
    assert module not in found["modules"]


def test_flops_are_counted_by_a_counter_that_is_imported_later(found):
    assert found["flops"] == 2 * 8 * 8 * 32
