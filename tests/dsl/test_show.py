"""show and save of the DSL's own values: alive they are drawn as what `from_cute` reads, dead they are refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.dsl

cutlass = pytest.importorskip("cutlass")
cute = pytest.importorskip("cutlass.cute")

from cutlass.cute.nvgpu import OperandMajorMode, warp, warpgroup  # noqa: E402

import cutepy  # noqa: E402
from cutepy.dsl import from_cute  # noqa: E402
from cutepy.layouts.render import picture_of  # noqa: E402
from tests.dsl.test_bridge import traced  # noqa: E402

ROOT = Path(__file__).parents[2]
F16, F32 = cutlass.Float16, cutlass.Float32


def held(grid):
    return {(i, j): grid.cell(i, j).owners for i in range(grid.rows.size) for j in range(grid.columns.size)}


def values():
    """Each kind of a value that is drawn."""
    op = warp.MmaF16BF16Op(F16, F32, (16, 8, 16))
    mma = cute.make_tiled_mma(op, (2, 2, 1), permutation_mnk=(32, 32, 16))
    load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), F16)
    wgmma = warpgroup.MmaF16BF16Op(
        F16, F32, (64, 8, 16), warpgroup.OperandSource.SMEM, OperandMajorMode.K, OperandMajorMode.K
    )
    copy = cute.make_tiled_copy_A(load, mma)
    parts = [mma.get_slice(5), copy.get_slice(3)]
    return [mma, cute.make_tiled_mma(wgmma, (2, 1, 1)), cute.make_mma_atom(wgmma), load, copy, *parts]


def test_tilings_and_atoms_are_drawn_while_they_live():
    live, read = traced(lambda: ([picture_of(x) for x in values()], [picture_of(from_cute(x)) for x in values()]))
    for drawn, expected in zip(live, read, strict=True):
        assert [held(grid) for grid in drawn.grids] == [held(grid) for grid in expected.grids]


def test_so_are_layouts_and_files_and_notebooks(tmp_path, capsys):
    def draw():
        cutepy.show(cute.make_layout((2, 3), stride=(3, 1)))
        cutepy.save(cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 1), F16), tmp_path / "copy.svg")

    traced(draw)
    assert "1 | 3 4 5 |" in capsys.readouterr().out
    assert "each thread's addresses" in (tmp_path / "copy.svg").read_text().replace("&#39;", "'")


DEAD = """
import os
import cutepy
from cutlass import cute
from cutlass.cute.nvgpu import CopyUniversalOp
import cutlass

kept = []

@cute.jit
def made():
    kept.extend([cute.make_layout((8, 8)), cute.make_copy_atom(CopyUniversalOp(), cutlass.Float16)])

cute.compile(made)
for value in kept:
    try:
        cutepy.show(value)
    except RuntimeError as error:
        print(error, flush=True)
os._exit(0)  # the destructors of dead values crash
"""


def test_the_dead_are_refused_untouched(tmp_path):
    script = tmp_path / "dead.py"  # in a process of its own: touching a dead value ends it
    script.write_text(DEAD)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUTE_DSL_ARCH": "sm_90a"}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("the DSL's values end with the function being compiled") == 2
