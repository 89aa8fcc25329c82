"""The site has the tutorial's chapters, with their pictures, answers folded."""

import importlib.util
import re
from pathlib import Path

import pytest

from cutepy.cli.tutorial.chapter import Drawing, load, titles

pytest.importorskip("mkdocs")

pytestmark = pytest.mark.integration
PATH = Path(__file__).parents[2] / "docs" / "tutorial_pages.py"
SPEC = importlib.util.spec_from_file_location("tutorial_pages", PATH)
pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pages)


@pytest.mark.parametrize("number", range(1, len(titles()) + 1))
def test_a_page_has_all_of_its_chapter(number):
    chapter = load(number)
    page, pictures = pages.markdown_of(chapter)
    assert page.startswith(f"# {number}. {chapter.title}\n")
    shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", page)
    assert [name for _, name in shown] == list(pictures)
    assert len(pictures) == sum(isinstance(part, Drawing) for part in chapter.parts)
    assert all(svg.startswith("<svg") and len(svg) < 100_000 for svg in pictures.values())
    for question in chapter.questions:
        assert f'!!! question "Question {question.number}"\n    {question.ask}\n' in page
        assert f'    ??? success "Answer"\n        **{question.answer_text}**.' in page
    assert page.count("```") % 2 == 0
