"""Every example on a documentation page runs, and prints what the page says."""

import doctest
import re
from pathlib import Path

import pytest

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
    results = doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    return results, "".join(report)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_print_what_the_page_says(path):
    results, report = run(path.read_text(), path.name)
    assert results.failed == 0, report


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_blocks_without_prompts_are_python(path):
    for block in FENCE.finditer(path.read_text()):
        if block[2] == "python" and ">>>" not in block[3]:
            compile(block[3], path.name, "exec")


def test_a_wrong_output_is_seen_with_its_line():
    results, report = run("text\n\n```python\n>>> 1 + 1\n3\n```\n", "page")
    assert results == (1, 1)
    assert "line 4" in report


def test_blocks_share_a_namespace_and_text_between_is_ignored():
    results, _ = run("```python\n>>> a = 1\n```\n>>> b\n```bash\n>>> c\n```\n```python\n>>> a\n1\n```\n", "page")
    assert results == (0, 2)
