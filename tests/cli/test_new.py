"""`cutepy new kernel` writes a kernel whose test passes, and the page that reads it says what it says."""

import importlib
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from textwrap import indent

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.cli.new import FAMILIES, TORCH_NAMESPACES, write_kernel
from tests.docs.hazard_pages import PTXAS, has_ptxas
from tests.messages import pins, refuses

ROOT = Path(__file__).parents[2]

pytest.importorskip("jinja2")


def invoke(*arguments):
    return CliRunner().invoke(app, ["new", "kernel", *map(str, arguments)])


@pytest.fixture(autouse=True)
def path(monkeypatch):
    """Leave out folders that a page, which runs in this process too, has added, with a kernel of a name in them."""
    names = "fused_relu", *(f"my_{family}" for family in FAMILIES)
    kept = [entry for entry in sys.path if not any(Path(entry, f"{name}.py").exists() for name in names)]
    monkeypatch.setattr(sys, "path", kept)


@pytest.fixture(params=FAMILIES)
def family(request, tmp_path):
    result = invoke(f"my_{request.param}", "--like", request.param, "--folder", tmp_path)
    assert result.exit_code == 0, result.output
    return request.param, tmp_path


@pytest.fixture
def written(tmp_path):
    result = invoke("fused_relu", "--folder", tmp_path)
    assert result.exit_code == 0, result.output
    return tmp_path


@pytest.mark.first(1)
@pytest.mark.integration
@pytest.mark.dsl
def test_its_test_passes_in_the_simulator(family):
    name, folder = family
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_my_{name}.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


@pytest.mark.parametrize(("page", "like", "blocks"), [("own_kernel", "gemm", 3), ("own_attention", "attention", 1)])
def test_the_page_reads_what_is_written(page, like, blocks, tmp_path):
    assert invoke("fused_relu", "--like", like, "--folder", tmp_path).exit_code == 0
    code = (tmp_path / "fused_relu.py").read_text()
    text = (ROOT / "docs" / f"{page}.md").read_text()
    shown = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if not block.startswith(">>>")]
    assert len(shown) == blocks
    for block in shown:
        assert block.rstrip() in code or indent(block, "    ").rstrip() in code


WAIT_QK = "        warpgroup.wait_group(1)  # the softmax of S runs beside the second product\n"
WAIT_PV, RELEASE_K, RELEASE_V = (
    f"        {call}\n"
    for call in ("warpgroup.wait_group(0)", "self.k_ring.release(k_state)", "self.v_ring.release(v_state)")
)


@pytest.mark.integration
@pytest.mark.dsl
@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (WAIT_QK, "", {"injected-wgmma-wait"}),
        (WAIT_QK + RELEASE_K, RELEASE_K + WAIT_QK, set()),
        (WAIT_PV + RELEASE_V, RELEASE_V + WAIT_PV, {"unordered-write"}),
        (RELEASE_V, "", {"deadlock"}),
    ],
)
def test_the_page_names_what_is_reported_of_mistakes_in_attention(old, new, kinds, tmp_path, monkeypatch):
    import torch

    import cutepy
    from cutepy.sim import HazardError

    if kinds == {"injected-wgmma-wait"} and not has_ptxas():
        pytest.skip(f"needs ptxas {PTXAS}")
    assert invoke("mistaken", "--like", "attention", "--folder", tmp_path).exit_code == 0
    file = tmp_path / "mistaken.py"
    text, begin, loop = file.read_text().partition("    def attend(")
    assert loop.count(old) == 1
    file.write_text(text + begin + loop.replace(old, new))
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    module = importlib.import_module("mistaken")
    q, k, v = (torch.randn(1, tokens, 1, 128, dtype=torch.bfloat16) for tokens in (128, 600, 600))
    o = torch.empty_like(q)
    with pytest.raises(HazardError) if kinds else nullcontext(), cutepy.simulate(sanitize=True, strict=True) as run:
        module.compiled()(q, k, v, o, 0.1)
    sys.modules.pop("mistaken")
    found = {hazard.kind for hazard in run.hazards}
    assert found >= kinds
    assert bool(found) == bool(kinds)
    page = (ROOT / "docs" / "own_attention.md").read_text().partition("## A state")[0]
    assert all(f"[`{kind}`](hazards/{kind}.md)" in page for kind in kinds)


@pytest.mark.integration
@pytest.mark.dsl
def test_the_replacements_on_the_page_make_a_kernel_with_a_in_registers(tmp_path, monkeypatch):
    import torch

    import cutepy

    page = (ROOT / "docs" / "own_kernel.md").read_text()
    table = page.partition("| old | new |\n| --- | --- |\n")[2].partition("\n\n")[0]
    replacements = re.findall(r"^\| `(.+)` \| `(.+)` \|$", table, re.MULTILINE)
    assert len(replacements) == table.count("\n") + 1 == 9
    assert invoke("int8_relu", "--folder", tmp_path).exit_code == 0
    file = tmp_path / "int8_relu.py"
    text = file.read_text()
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text)
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    module = importlib.import_module("int8_relu")
    weights = torch.randint(-100, 101, (200, 640), dtype=torch.int8)
    b, bias = (torch.randint(-3, 4, shape).half() / 4 for shape in ((136, 640), (136,)))
    with cutepy.simulate(sanitize=True) as run:
        d = module.int8_relu(weights, b, bias)
    sys.modules.pop("int8_relu")
    assert torch.equal(d, module.reference(weights, b, bias))
    assert not run.hazards


@pytest.mark.integration
@pytest.mark.dsl
def test_it_is_exported(family, monkeypatch):
    (like, folder), arguments = (
        family,
        {
            "gemm": "a, Tensor b, Tensor bias",
            "attention": "q, Tensor k, Tensor v, float scale",
            "blackwell": "a, Tensor b",
        },
    )
    name = f"my_{like}"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(ROOT))
    done = CliRunner().invoke(app, ["export", "extension", f"{name}:EXTENSION", "-o", "shipped"])
    sys.modules.pop(name)
    assert done.exit_code == 0, done.output
    signature = arguments.get(like, "x, Tensor weight, float eps")
    assert f"{name}(Tensor {signature}) -> Tensor" in (folder / "shipped" / "README.md").read_text()
    assert len(list((folder / "shipped" / "objects").glob("*.o"))) == 1


def test_another_family_is_refused(tmp_path):
    with refuses(ValueError):
        write_kernel("fresh", tmp_path, like="conv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["1st", "class", "a-b", "_hidden", "", "é", "ﬁx"])
def test_a_name_that_python_lacks_is_refused(name, tmp_path):
    result = invoke(name, "--folder", tmp_path)
    assert result.exit_code != 0
    pins(result.output)
    assert list(tmp_path.iterdir()) == []


IMPORTED = "torch", "cutepy", "cutlass", "json", "sys", "typer"
USED = "cute", "sm90", "reference", "a", "bias", "PLAN"
BUILTIN, NAMESPACES = ("range", "print", "ValueError"), ("aten", "prim", "prims", "quantized")
TESTS = "test_relu", "testing", "Tests"


@pytest.mark.parametrize("name", [*BUILTIN, *IMPORTED, *NAMESPACES, *USED, *TESTS])
def test_a_name_that_means_something_else_is_refused(name, tmp_path):
    result = invoke(name, "--folder", tmp_path)
    assert result.exit_code != 0
    pins(result.output)
    assert f"got {name!r}; use " in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_name_longer_than_files_have_is_refused(tmp_path):
    result = invoke("x" * 101, "--folder", tmp_path)
    assert result.exit_code != 0
    pins(result.output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.dsl
@pytest.mark.integration
def test_all_namespaces_of_torch_are_known():
    code = (
        "import torch, json; names = torch._C._dispatch_get_all_op_names(); "
        "names += [schema.name for schema in torch._C._jit_get_all_schemas()]; "
        "print(json.dumps(sorted({name.split('::')[0] for name in names} | set(dir(torch.ops)))))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "tests")
    public = {name for name in json.loads(told.stdout) if not name.startswith("_")}
    assert {"aten", "prims"} <= public <= TORCH_NAMESPACES


def test_its_own_package_is_known_wherever_it_is_run_from(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert invoke("cutepy", "--folder", tmp_path).exit_code != 0


def test_a_kernel_here_is_no_reason_to_refuse_its_name_elsewhere(written, monkeypatch):
    monkeypatch.chdir(written)
    monkeypatch.syspath_prepend(written)
    assert invoke("fused_relu", "--folder", written / "elsewhere").exit_code == 0


def test_a_folder_of_its_name_would_come_before_it(tmp_path):
    (tmp_path / "fused_relu").mkdir()
    result = invoke("fused_relu", "--folder", tmp_path)
    assert result.exit_code != 0
    pins(result.output)


def test_nothing_is_overwritten(written):
    (written / "test_fused_relu.py").unlink()
    result = invoke("fused_relu", "--folder", written)
    assert result.exit_code != 0
    pins(result.output)
    assert not (written / "test_fused_relu.py").exists()


@pytest.mark.parametrize("inside", ["", "x", "x/y"])
def test_a_file_in_the_path_is_named(tmp_path, inside):
    (tmp_path / "afile").touch()
    with refuses(NotADirectoryError):
        write_kernel("fresh", tmp_path / "afile" / inside)
