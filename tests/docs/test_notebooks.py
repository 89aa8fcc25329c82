"""The notebooks run in Jupyter's kernel, are stored without outputs, and become pages."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
TOPICS = ("algebra", "gmma", "swizzles", "read_your_kernel")
PICTURES = {"1_algebra_from_zero": 7, "2_gmma_layouts_and_descriptors": 4, "3_swizzles_and_banks": 3}


def each_notebook():
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.dsl] * ("cutlass" in path.read_text()))
        for path in NOTEBOOKS
    ]


def test_there_is_one_for_each_topic():
    assert len(NOTEBOOKS) == len(TOPICS)
    assert all(topic in path.stem for topic, path in zip(TOPICS, NOTEBOOKS, strict=True))


@pytest.mark.parametrize("path", each_notebook())
def test_a_notebook_is_valid_small_and_without_outputs(path):
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(path, as_version=4))
    stored = json.loads(path.read_text())
    assert [cell["cell_type"] for cell in stored["cells"]][:2] == ["markdown", "code"]
    for cell in stored["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    assert path.stat().st_size < 10_000
    assert path.read_text().endswith("}\n")


@pytest.mark.filterwarnings("default")  # what libraries of Jupyter warn of is theirs
@pytest.mark.parametrize("path", each_notebook())
def test_a_notebook_runs_and_draws(path, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    drawn = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert all("<td" in html for html in drawn)
    assert len(drawn) == PICTURES.get(path.stem, 1)


@pytest.fixture(scope="module")
def pages():
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("notebook_pages", ROOT / "docs" / "notebook_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Of those that need no compiler: the site's build runs all, and their kernels were run above.
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem in PICTURES], ids=lambda path: path.stem)
def test_a_page_has_what_the_notebook_gives(pages, path):
    page = pages.markdown_of(path)
    assert page.startswith(f"# {pages.title(path)}\n\n[This notebook]({path.name})")
    assert page.count("<div data-search-exclude>") == PICTURES[path.stem]
    for kind, source in pages.cells(path):
        assert (f"```python\n{source}\n```" if kind == "code" else source.partition("\n")[2]) in page
    assert re.findall(r"^```(\w+)$", page, re.MULTILINE).count("text") >= 3


def test_a_notebook_whose_libraries_are_missing_is_shown_without_outputs(pages, monkeypatch):
    monkeypatch.setitem(pages.NEEDS, NOTEBOOKS[0].stem, ("there_is_no_such_library",))
    page = pages.markdown_of(NOTEBOOKS[0])
    assert "<div" not in page
    assert "```text" not in page


def test_a_failing_cell_fails_the_page(pages):
    with pytest.raises(ZeroDivisionError):
        pages.run_cell("x = 1\nx / 0", {}, "<cell>")
    assert pages.run_cell("print(1)\n2", {}, "<cell>") == ("1\n", 2)
    assert pages.run_cell("", {}, "<cell>") == ("", None)
