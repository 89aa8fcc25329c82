"""Every example on a documentation page runs, and prints what the page says."""

import doctest
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def python_blocks(page: str) -> str:
    """Blank everything on a page but its python blocks, so that line numbers stay the page's."""
    kept = [""] * (page.count("\n") + 1)
    for block in FENCE.finditer(page):
        if block[2] in ("python", "pycon"):
            start = page.count("\n", 0, block.start(3))
            for offset, line in enumerate(block[3].splitlines()):
                kept[start + offset] = line
    return "\n".join(kept)


def run(page: str, name: str) -> tuple[doctest.TestResults, str]:
    """Run the examples of a page in one namespace."""
    examples = doctest.DocTestParser().get_doctest(python_blocks(page), {"__name__": "__main__"}, name, name, 0)
    report: list[str] = []
    before = set(sys.modules)
    results = doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    # A page may show how to put one module in another's place; that ends with the page.
    for alias in [new for new in set(sys.modules) - before if sys.modules[new].__name__ != new]:
        del sys.modules[alias]
    return results, "".join(report)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """Kernels of a page are cached outside the user's cache; a terminal is as wide as a page."""
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_print_what_the_page_says(path):
    results, report = run(path.read_text(), path.name)
    assert results.failed == 0, report


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_blocks_without_prompts_are_python(path):
    for block in FENCE.finditer(path.read_text()):
        if block[2] == "python" and ">>>" not in block[3]:
            compile(block[3], path.name, "exec")


def sessions(page: str) -> list[tuple[list[str], str]]:
    """List the shell blocks that begin with `$ cutepy ...`, each as arguments and printed text."""
    blocks = [block[3] for block in FENCE.finditer(page) if block[2] == "bash" and block[3].startswith("$ cutepy ")]
    return [(shlex.split(block.partition("\n")[0])[2:], block.partition("\n")[2]) for block in blocks]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_print_what_the_page_says(path):
    for arguments, printed in sessions(path.read_text()):
        assert CliRunner().invoke(app, arguments).output == printed


def test_some_page_shows_a_command():
    assert any(sessions(path.read_text()) for path in PAGES)


def test_a_wrong_output_is_seen_with_its_line():
    results, report = run("text\n\n```python\n>>> 1 + 1\n3\n```\n", "page")
    assert results == (1, 1)
    assert "line 4" in report


def test_blocks_share_a_namespace_and_text_between_is_ignored():
    results, _ = run("```python\n>>> a = 1\n```\n>>> b\n```bash\n>>> c\n```\n```python\n>>> a\n1\n```\n", "page")
    assert results == (0, 2)


def test_a_module_under_another_name_ends_with_its_page():
    run("```python\n>>> import sys, json\n>>> sys.modules['not_json'] = json\n```\n", "page")
    assert "not_json" not in sys.modules
