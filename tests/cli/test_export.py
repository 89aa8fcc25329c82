import json
import re
import sys

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from tests.aot.building import EXAMPLE
from tests.messages import pins

pytestmark = pytest.mark.dsl
SPEC = f"{EXAMPLE}/my_export.py:EXTENSION"


def invoke(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.mark.parametrize(("form", "file"), [("extension", "setup.py"), ("c", "CMakeLists.txt")])
def test_a_file_is_exported(form, file, tmp_path):
    result = invoke(form, SPEC, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {tmp_path / 'out'}; its README.md says how to build it\n"
    assert result.stderr.splitlines()[0] == "1 of 5: example_ops_scale_half"
    assert (tmp_path / "out" / file).is_file()
    again = invoke(form, SPEC, "-o", tmp_path / "out")
    assert (again.exit_code, again.stdout) == (2, "")
    pins(again.stderr)
    assert "overwrite" not in again.stderr
    assert invoke(form, SPEC, "-o", tmp_path / "out", "--force").exit_code == 0


@pytest.mark.parametrize(("form", "folder"), [("extension", "csrc"), ("c", "src")])
def test_a_file_is_exported_for_blackwell(form, folder, tmp_path):
    result = invoke(form, SPEC, "-o", tmp_path / "out", "--arch", "sm_103a")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    assert json.loads((out / "objects/kernels.json").read_text())["arch"] == "sm_103a"
    runtime = (out / folder / "runtime.cpp").read_text()
    assert "kernels for sm_103a (compute capability 10.3, Blackwell), and device" in runtime
    assert "major == 10 && minor == 3" in runtime
    for image in (out / "objects").glob("*.o"):
        assert b"sm_103a" in image.read_bytes()
        assert b"sm_90a" not in image.read_bytes()
    for file in out.rglob("*"):
        if file.is_file() and file.suffix != ".o":
            assert not {"Hopper", "90a", "(9, 0)"} & set(re.findall(r"Hopper|90a|\(9, 0\)", file.read_text())), file


def test_the_gemm_is_exported_with_options(tmp_path):
    options = ("--name", "tiny", "--dtype", "bfloat16", "--out-dtype", "float32", "--majors", "mn", "--tile", "64x112")
    result = invoke("extension", "gemm", "-o", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    assert result.stderr == "1 of 1: tiny_gemm_bfloat16_mn_64x112x64_cluster1x2_split2\n"
    readme = (tmp_path / "out/README.md").read_text()
    assert "d: float32 (m, n):(d_pitch, 1), n and d_pitch multiples of 4" in readme
    assert "Compute D = A B^T, fp32 inside" in readme
    for text in (readme, (tmp_path / "out/src/tiny/__init__.pyi").read_text()):
        assert "bias" not in text
        assert "activation" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("c", "nothing.py:X"), "there is no file nothing.py"),
        (("c", "x:Y", "--dtype", "float16", "--bias"), "--dtype, --bias are for gemm; x:Y says such things itself"),
        (("extension", "foo"), "what to export must be gemm, the GEMM that comes with cutepy, or MODULE:NAME or"),
        (("extension", "gemm", "--activation", "tanh"), "activation must be one of relu, gelu"),
        (("extension", "gemm", "--tile", "128"), "--tile must be such as 128x256, got '128'"),
        (("extension", "gemm", "--tile", "1x2"), "tiles must be of"),
        (
            ("c", "gemm", "--dtype", "float16", "--dtype", "float16"),
            "gemm: labels of variants must differ, got float16_kk",
        ),
        (("extension", "gemm", "--majors", "xy"), "majors must be kk, kn, mk or mn, got 'xy'"),
        (("c", "gemm", "--arch", "sm_100a"), "gemm is for Hopper (sm_90a), got --arch sm_100a; export a cutepy.aot"),
        (
            ("c", SPEC, "--arch", "sm_100"),
            "example_ops: the architecture must be one of sm_90a, sm_100a, sm_103a, sm_120a, got",
        ),
    ],
)
def test_what_cannot_be_exported_is_refused(arguments, message, tmp_path):
    result = invoke(*arguments, "-o", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_told_in_a_line():
    result = invoke("c", SPEC, "-o", "/proc/cutepy_export")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: [Errno 2] No such file or directory: '/proc/")


def test_a_package_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = invoke("c", SPEC, "-o", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: cutepy export c needs jinja2, which is not installed: pip install 'cutepy[dsl]'\n"


def test_nothing_is_left_of_an_export_that_fails_on_the_way(tmp_path):
    text = (EXAMPLE / "my_export.py").read_text()
    (tmp_path / "failing_export.py").write_text(text.replace('label="single_small"', 'label="s", options="--bogus"'))
    (tmp_path / "my_kernels.py").write_text((EXAMPLE / "my_kernels.py").read_text())
    spec = f"{tmp_path}/failing_export.py:EXTENSION"
    result = invoke("c", spec, "-o", tmp_path / "made" / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "1 of 5: example_ops_scale_half" in result.stderr
    assert "error: scale: the DSL can't compile example_ops_scale_s with the options '--bogus'" in result.stderr
    assert list((tmp_path / "made").iterdir()) == []
