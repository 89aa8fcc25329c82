"""The runner of others' tests of attention: it runs those of a made-up checkout, and prints what became of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
import torch
from flash_attn.cute.cache_utils import JITCache
from flash_attn.cute.interface import _flash_attn_bwd, flash_attn_func, flash_attn_varlen_func
from flash_attn.cute.testing import reference

@pytest.mark.parametrize("n", [4, 8, 4096])
def test_right(n):
    assert n < 4096
    q = torch.randn(1, n, 1, 16, device="cuda").half().requires_grad_()
    out, lse = flash_attn_func(q, q, q, causal=True, window_size=(None, None), num_splits=3)
    assert (out - reference(q)).abs().max() < 0.01

def test_wrong():
    q = torch.ones(1, 4, 1, 16, device="cuda").half()
    assert flash_attn_func(q, q, q)[0].sum() == 0, "not zero"

@pytest.mark.parametrize("argument", ["qv", "aux_tensors", "head", "none"])
def test_refused(argument):
    q = torch.ones(4, 1, 12 if argument == "head" else 16, device="cuda").half()
    given = {} if argument in ("head", "none") else {argument: q}
    bounds = torch.tensor([0, 4], dtype=torch.int32, device="cuda")
    flash_attn_varlen_func(q, q, q, cu_seqlens_q=bounds, cu_seqlens_k=bounds, **given)

def test_of_something_else():
    JITCache()
"""
REFERENCE = """
def reference(q):
    scores = (q[0, :, 0].float() @ q[0, :, 0].float().T / 4).tril()
    hidden = scores.new_ones(scores.shape).triu(1).bool()
    return (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ q[0, :, 0].float())[None, :, None]
"""
OF_TORCH = """
import torch
from torch.nn.functional import scaled_dot_product_attention

class TestSDPACudaOnly:
    def test_values(self, size):
        assert size < 4096
        q = torch.randn(1, 1, size, 16, device="cuda").half()
        mask = torch.ones(size, size, device="cuda").bool()
        wanted = q.float() @ q.float().mT / 4
        found = scaled_dot_product_attention(q, q, q, mask)
        assert (found - wanted.softmax(-1) @ q.float()).abs().max() < 0.01

    def test_of_float32(self, size):
        q = torch.zeros(1, 1, size, 16, device="cuda")
        scaled_dot_product_attention(q, q, q)

class TestSDPACudaOnlyCUDA:
    pass

def of_size(test, size):
    return lambda self: test(self, size)

for size in (8, 4096):
    for name in ("test_values", "test_of_float32"):
        run = of_size(getattr(TestSDPACudaOnly, name), size)
        setattr(TestSDPACudaOnlyCUDA, f"{name}_size_{size}_cuda", run)
del TestSDPACudaOnly, run
"""


@pytest.mark.deep
@pytest.mark.integration
def test_tests_of_others_are_run_and_their_outcomes_counted(tmp_path):
    tests, package = tmp_path / "tests" / "cute", tmp_path / "flash_attn" / "cute"
    for folder in (tests, package):
        folder.mkdir(parents=True)
    for name in ("test_flash_attn", "test_flash_attn_fast", "test_flash_attn_varlen"):
        (tests / f"{name}.py").write_text(TESTS if name == "test_flash_attn" else "")
    (package / "testing.py").write_text(REFERENCE)
    of_torch = tmp_path / "test_transformers.py"
    of_torch.write_text(OF_TORCH)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.kernels.foreign", str(tmp_path), str(of_torch), "--sets", "4"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("| test_")]
    assert lines == [
        "| test_flash_attn.py::test_refused | 4 | 1 | aux_tensors (1), qv (1), "
        "rows of q must have a multiple of N elements up to N, got N; pad them with zeros (1) |  |",
        "| test_flash_attn.py::test_right | 2 | 2 |  |  |",
        "| test_flash_attn.py::test_wrong | 1 | 0 |  | AssertionError: not zero (1) |",
        "| test_values | 1 | 1 |  |  |",
    ], ended.stderr[-2000:]
    assert ended.returncode == 1
