"""Looking inside of our GEMM: its operand tiles, accumulators, bank conflicts and trace."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cutepy.frontends import simulate
from cutepy.sim import Observer

from .test_gemm import compiled, configuration, matrix, multiply

pytestmark = pytest.mark.dsl

pytest.importorskip("cutlass")
import cutepy.device.product  # noqa: E402


@pytest.fixture(scope="module")
def inspected():
    """A GEMM of four k tiles that fit into the stages, with a breakpoint where it issues MMAs."""
    with simulate(inspect=True) as run:
        function, signature = compiled(stages=4, out_dtype="float16")
        hits = []
        where = mma_line()
        run.breakpoint(where, lambda step: hits.append((step, step.accumulators, step.smem().size)))
        got, expected = multiply(function, signature, 128, 128, 256)
    assert torch.equal(got, expected)
    return run, hits, expected


def mma_line():
    """Return the line that issues the MMAs."""
    lines = Path(cutepy.device.product.__file__).read_text().splitlines()
    return f"device/product.py:{next(n for n, line in enumerate(lines, 1) if 'cute.gemm(' in line)}"


def operands():
    torch.manual_seed(3)
    return matrix(128, 256, "float16", True).numpy(), matrix(128, 256, "float16", True).numpy()


def test_the_swizzled_tiles_are_the_operands(inspected):
    run, _, _ = inspected
    config = configuration(stages=4, out_dtype="float16")[0]
    for name, operand in zip(("sA", "sB"), operands(), strict=True):
        staged = run.smem((0, 0, 0), config.smem[name], torch.float16)
        assert staged.shape == (128, 64, 4)
        # The epilogue reuses nothing of the last stage.
        np.testing.assert_array_equal(staged[:, :, 3], operand[:, 192:])


def test_accumulators_at_a_breakpoint(inspected):
    _, hits, _ = inspected
    a, b = operands()
    tiles = [tiles[0] for _, tiles, _ in hits if tiles]
    assert tiles
    partial = [a[:, :k].astype("f4") @ b[:, :k].astype("f4").T for k in range(0, 257, 16)]
    for tile in tiles:
        assert tile.shape in ((1, 2, 64, 128), (1, 1, 64, 128))
        rows = tile.reshape(-1, 128)
        assert any(np.array_equal(rows, p[s : s + len(rows)]) for p in partial for s in (0, 64))


def test_the_operands_cause_no_bank_conflicts_and_waits_are_counted(inspected):
    run, _, _ = inspected
    assert any("stmatrix" in site.instruction.opcode for site in run.conflicts())
    assert sum(site.conflicts for site in run.conflicts()) == 0
    waits = run.waits()
    assert waits[0].waited > 0
    assert all(site.instruction.source.file.endswith(".py") for site in waits)


def test_the_trace_has_copies_mmas_and_stores(inspected):
    run, _, _ = inspected
    events = run.trace()["traceEvents"]
    for kind in ("tma_load", "wgmma", "tma_store"):
        begun = {e["id"]: e["ts"] for e in events if e["ph"] == "b" and e["cat"] == kind}
        ended = {e["id"]: e["ts"] for e in events if e["ph"] == "e" and e["cat"] == kind}
        assert begun.keys() == ended.keys()
        assert begun
        assert all(begun[n] < ended[n] for n in begun)
    assert sum(e["name"].startswith("wgmma m64n128k16") for e in events if e["ph"] == "X") == 8 * 16


class EveryInstruction(Observer):
    def __init__(self):
        self.count = 0

    def on_instruction(self, step):
        self.count += 1


@pytest.mark.integration
def test_stepping_changes_no_result():
    observer = EveryInstruction()
    with simulate(observers=[observer]):
        function, signature = compiled(out_dtype="float16")
        got, expected = multiply(function, signature, 128, 128, 128)
    assert torch.equal(got, expected)
    assert observer.count > 500
