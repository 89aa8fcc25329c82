"""First lines of docstrings begin with a noun or a verb, not with a question word (CONTRIBUTING.md, Style)."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTION_WORDS = {"What", "Whether", "Who", "Which", "Where", "When", "How"}
CANDIDATE = re.compile(rf"[\"'](?:\s|\\\n)*(?:{'|'.join(sorted(QUESTION_WORDS))})\b")
"""A quote and a question word: a source without them is not parsed."""


def sources():
    """List the Python files of the repository; the links in the package would give some twice."""
    folders = [ROOT / "layouts", ROOT / "kernels", ROOT / "tests", ROOT / "docs"]
    folders += [path for path in (ROOT / "cutepy").iterdir() if path.is_dir() and not path.is_symlink()]
    return sorted([*(ROOT / "cutepy").glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))])


def docstrings(tree):
    """Yield (line, first line) of docstrings: of modules, classes, functions, names below their values; and of help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
            yield node.value.lineno, str(node.value.value).partition("\n")[0]
        is_named = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for above, here in zip([None, *node.body], node.body, strict=False) if is_named else ():
            is_text = isinstance(here, ast.Expr) and isinstance(getattr(here.value, "value", None), str)
            if is_text and (above is None or isinstance(above, ast.Assign | ast.AnnAssign)):
                yield here.lineno, here.value.value.strip().partition("\n")[0]


def questions(text):
    """List the docstrings in a source that begin with a question word."""
    found = docstrings(ast.parse(text)) if CANDIDATE.search(text) else ()
    return [(line, first) for line, first in found if first.split(" ")[0].rstrip(".:,") in QUESTION_WORDS]


@pytest.mark.integration
def test_no_first_line_begins_with_a_question_word():
    files = sources()
    assert len(files) > 1200
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {first}" for path in files for line, first in questions(path.read_text())
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""What it holds."""', [1]),
        ('"""A box."""\nSIZE = 3\n"""How many there are."""', [3]),
        ('class A:\n    """Whether: so."""\n    x: int\n    """Which one."""', [2, 4]),
        ('def f():\n    """Who calls.\n\n    More.\n    """', [2]),
        ('async def f():\n    """When."""', [2]),
        ('option(help="Which problems.")\noption(help="Problems.")', [1]),
        (
            '"""Whatever is passed."""\n\n\ndef f():\n    """Return where it is."""\n    x = "What"\n    print("How")',
            [],
        ),
    ],
)
def test_question_words_are_found_in_first_lines_only(text, lines):
    assert [line for line, _ in questions(text)] == lines
