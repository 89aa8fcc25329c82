"""Form of the pages: first sentences, headings, links to the glossary, paths of the architecture, names of blocks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INCLUDED = ("contributing", "changelog")
PAGES = [path for path in sorted((ROOT / "docs").glob("**/*.md")) if path.stem not in (*INCLUDED, "README")]
GUIDES = [path for path in PAGES if path.parent.name == "docs"]
PATH = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`")


def name(path: Path) -> str:
    """Name a page by its path in docs."""
    return path.relative_to(ROOT / "docs").as_posix()


def headings(page: str) -> list[str]:
    """List a page's headings, without their signs and anchors."""
    found = re.findall(r"^#+ (.+)$", FENCE.sub("", page), re.MULTILINE)
    return [re.sub(r" \{#[\w-]+\}$", "", each) for each in found]


def anchor(heading: str) -> str:
    """Return the anchor that MkDocs makes of a heading."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


@pytest.mark.parametrize("path", GUIDES, ids=name)
def test_a_page_begins_with_the_use_of_it(path):
    assert re.match(r"# .+\n\nAfter this page you (can|have)", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_headings_name_their_subject(path):
    asking = [
        each for each in headings(path.read_text(encoding="utf-8")) if re.match(r"(What|Whether|Who|Which)\b", each)
    ]
    assert asking == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_terms_are_in_the_glossary(path):
    terms = {anchor(each) for each in headings((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))}
    linked = set(re.findall(r"glossary\.md#([\w-]+)", path.read_text(encoding="utf-8")))
    assert linked <= terms


def test_the_architecture_names_files_that_exist():
    files = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for folder in ("cutepy", "layouts", "kernels", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = set(PATH.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    assert len(named) > 30
    assert [each for each in sorted(named) if not any(file.endswith(f"/{each}") for file in files)] == []


BLOCKS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "cutepy" / "device").glob("*.py")}
del BLOCKS["mma"]  # pages name PTX's mma.sync


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_blocks_that_a_page_names_exist(path):
    named = set(re.findall(r"`([a-z_]+)\.([A-Za-z_]+)[`(]", path.read_text(encoding="utf-8")))
    blocks = {(module, block) for module, block in named if module in BLOCKS and block != "py"}
    assert [each for each in sorted(blocks) if not re.search(rf"\b{each[1]}\b", BLOCKS[each[0]])] == []


def test_the_architecture_has_each_room():
    rooms = set(
        re.findall(r"^\| `([a-z]+)` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    folders = {path.name for path in (ROOT / "cutepy").iterdir() if (path / "__init__.py").exists()}
    assert folders <= rooms


def test_a_question_as_heading_is_seen():
    assert headings("# Which way?\n\n```text\n# not one\n```\n\n## Ways {#way}\n") == ["Which way?", "Ways"]
