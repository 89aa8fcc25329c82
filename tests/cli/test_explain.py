"""`cutepy explain`: PTX and scripts, as text, page and JSON; what goes wrong is said."""

import json
import re
import sys

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from tests.anatomy.kernels import HEAD, RING
from tests.messages import pins

pytestmark = pytest.mark.dsl

SCRIPT = """
import sys
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def shift(x: cute.Tensor, out: cute.Tensor):
    i = cute.arch.thread_idx()[0]
    tile = cute.make_tensor(cute.arch.alloc_smem(cutlass.Float32, 64, alignment=128), cute.make_layout(64))
    tile[i] = x[i]
    cute.arch.sync_threads()
    out[i] = tile[63 - i]


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    shift(x, out).launch(grid=[1, 1, 1], block=[64, 1, 1])


x, out = torch.arange(64.0, device="cuda"), torch.zeros(64, device="cuda")
print("arguments", *sys.argv[1:])
if "--idle" not in sys.argv:
    launch(from_dlpack(x), from_dlpack(out))
if "--break" in sys.argv:
    raise SystemExit(5)
"""


@pytest.fixture
def ring(tmp_path):
    file = tmp_path / "ring.ptx"
    file.write_text(RING)
    return file


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "shift.py"
    file.write_text(SCRIPT)
    return file


def invoke(*arguments):
    return CliRunner().invoke(app, ["explain", *map(str, arguments)])


@pytest.mark.parametrize("width", [80, 140])
def test_text_is_as_wide_as_the_terminal(ring, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    result = invoke(ring, "--no-ptxas")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= width
    assert "m64n8k16, f32 += f16 x f16" in result.output
    assert "\x1b" not in result.output


def test_options_stand_before_or_after_the_file(ring, tmp_path):
    page = tmp_path / "page.html"
    assert invoke("--no-ptxas", "--width", 100, ring).output == invoke(ring, "--width", 100, "--no-ptxas").output
    result = invoke(ring, "--html", page, "--no-ptxas")
    assert (result.exit_code, result.output) == (0, "")
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_colours_are_for_terminals_and_no_color_is_heeded(ring, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    painted = invoke(ring, "--no-ptxas", "--width", 90).output
    assert "\x1b[" in painted
    monkeypatch.setenv("NO_COLOR", "1")
    plain = invoke(ring, "--no-ptxas", "--width", 90).output
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain


def test_json_is_json(ring):
    told = json.loads(invoke(ring, "--json", "--no-ptxas").stdout)
    assert told["kernels"][0]["name"] == "ring"
    assert told["kernels"][0]["launch"]["dynamic_smem_bytes"] is None


def test_a_script_is_run_and_its_launch_explained(script):
    result = invoke(script, "--json", "--no-ptxas", "--mine", "3", "--", "--width", "5")
    assert result.exit_code == 0, result.stderr
    assert "arguments --mine 3 --width 5" in result.stderr
    told = json.loads(result.stdout)
    (kernel,) = told["kernels"]
    assert kernel["launch"] | {"cluster": None} == {
        "launches": 1,
        "grids": [[1, 1, 1]],
        "block": [64, 1, 1],
        "cluster": None,
        "static_smem_bytes": kernel["launch"]["static_smem_bytes"],
        "dynamic_smem_bytes": kernel["launch"]["dynamic_smem_bytes"],
        "max_threads": None,
    }
    (region,) = [region for region in kernel["regions"] if region["writers"]]
    assert region["bytes"] == 4 * 64
    lines = SCRIPT.splitlines()
    written, read = (n for n, line in enumerate(lines, 1) if "tile[" in line)
    assert region["writers"] == [f"st at shift.py:{written}"]
    assert region["readers"] == [f"ld at shift.py:{read}"]
    (barrier,) = kernel["barriers"]
    (party,) = barrier["parties"]
    assert (barrier["name"], party["threads"], party["times"]) == ("bar 0", "warps 0,1", 2)


def test_the_exit_code_is_the_scripts(script):
    assert invoke(script, "--no-ptxas", "--break").exit_code == 5


def test_ptx_is_explained_for_the_gpu_of_its_target(ring):
    assert invoke(ring, "--no-ptxas", "--arch", "sm_90a").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.ptx"], "there is no file nothing.ptx"),
        (["RING", "--html", "page.txt"], "--html takes a file that ends in .html, got 'page.txt'"),
        (["RING", "--arch", "sm_100a"], "which is for .target sm_90a; leave out --arch"),
        (["RING", "--arch", "sm_90"], "the architecture must be one of sm_90a"),
        (["RING", "--bogus", "3"], "only a script, FILE.py, takes arguments"),
        (["SCRIPT", "--idle"], "shift.py launched no kernel"),
        (["BROKEN"], "broken.py ended with exit code 1 before it launched a kernel"),
    ],
)
def test_what_is_wrong_is_said(ring, script, arguments, said, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    names = {"RING": ring, "SCRIPT": script, "BROKEN": tmp_path / "broken.py"}
    result = invoke("--no-ptxas", *(names.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2
    assert said in result.output + result.stderr


def test_ptx_without_a_kernel_is_refused(tmp_path):
    (tmp_path / "empty.ptx").write_text(HEAD)
    pins(invoke(tmp_path / "empty.ptx").stderr)


def test_a_page_needs_jinja2(ring, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = invoke(ring, "--no-ptxas", "--html", tmp_path / "page.html")
    assert result.exit_code == 2
    pins(result.stderr)
