"""Each page on a hazard has a kernel that shows it, its report word for word, and the lines that mend it."""

import re

import pytest

from cutepy.sim.sanitize.kinds import KINDS
from tests.docs import hazard_pages
from tests.docs.hazard_pages import (
    ASSEMBLED,
    INDEX,
    PTXAS,
    SANITIZER,
    SHOWN,
    excerpt,
    has_ptxas,
    mended,
    pages,
    report,
    said_of,
    script,
    with_table,
)
from tests.messages import refuses

pytestmark = [pytest.mark.integration, pytest.mark.dsl]

PAGES = pages()


@pytest.fixture(autouse=True)
def compiled_here(monkeypatch, tmp_path):
    """Kernels of a page are cached outside the user's cache."""
    pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path))


def _skip_without_ptxas(kind):
    if kind in ASSEMBLED and not has_ptxas():
        pytest.skip(f"needs ptxas {PTXAS}")


@pytest.mark.parametrize("kind", PAGES)
def test_the_report_is_the_one_on_the_page(kind):
    _skip_without_ptxas(kind)
    said = said_of(*script(PAGES[kind]), kind in ASSEMBLED)
    assert excerpt(said, kind) == report(PAGES[kind])
    assert re.match(f"(advisory: )?{kind}: ", report(PAGES[kind]))
    assert kind != SHOWN or said == report(SANITIZER.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", PAGES)
def test_the_change_mends_it(kind):
    _skip_without_ptxas(kind)
    _, name = script(PAGES[kind])
    assert said_of(mended(PAGES[kind]), name, kind in ASSEMBLED) == ""


def test_every_kind_has_a_page():
    """Write docs/hazards/KIND.md: a script, an empty block of text, a diff; `make docs-hazards` does the rest."""
    assert KINDS.keys() == PAGES.keys()


def test_the_index_lists_every_kind():
    text = INDEX.read_text(encoding="utf-8")
    assert with_table(text) == text


@pytest.mark.parametrize("kind", PAGES)
def test_pages_are_named_by_their_kind(kind):
    assert PAGES[kind].startswith(f"# {kind}\n")
    if "```python\n# " in PAGES[kind]:
        assert script(PAGES[kind])[1] == f"{kind.replace('-', '_')}.py"


def test_an_excerpt_is_the_first_finding_of_its_kind():
    other = "unordered-read: y\n   --> a.py:1\n  1 | c\n    = d"
    said = f"2 hazards\n{other}\n\nearly-wait: x\n   --> a.py:3 in k\n  3 | b\n    | ^^^ wait by warp 1\n    = e"
    assert excerpt(said, "early-wait") == "early-wait: x\n  3 | b\n    = e"
    assert excerpt(f"1 hazard\n{other}", "early-wait") == ""


def test_a_change_that_does_not_fit_is_refused():
    page = "```python\n# x.py\na = 1\nb = 2\n```\n```diff\n-{}\n+a = 3\n```\n"
    assert mended(page.format("a = 1")) == "# x.py\na = 3\nb = 2\n"
    with refuses(AssertionError):
        mended(page.format("c = 1"))


def test_the_refresher_writes_what_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(hazard_pages, "FOLDER", tmp_path)
    assert hazard_pages.table().startswith(f"| `{next(iter(KINDS))}` |")  # no page, no link


@pytest.mark.parametrize("kind", pages())
def test_blocks_of_a_page_end(kind):
    fences = re.findall(r"^```(\w*)$", pages()[kind], re.MULTILINE)
    assert all(bool(name) != bool(n % 2) for n, name in enumerate(fences)), fences
