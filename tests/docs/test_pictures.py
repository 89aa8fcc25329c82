"""The documentation's pictures are what the library draws."""

import importlib.util
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("docs_pictures", ROOT / "docs" / "pictures.py")
pictures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pictures)


@pytest.mark.parametrize("name", sorted(pictures.PICTURES))
def test_a_picture_is_drawn_again(name):
    drawn = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.draw(name), "run python docs/pictures.py"


def test_every_picture_is_shown_and_described():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {}
    for page in pages:
        for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]*\.svg)\)", page.read_text()):
            assert len(words) > 20
            shown[(page.parent / path).resolve()] = words
    files = {path.resolve() for path in (ROOT / "docs" / "pictures").iterdir()}
    assert files == set(shown)
    assert {path.stem for path in files} == set(pictures.PICTURES)


def test_the_readme_opens_with_a_picture():
    before, _, _ = (ROOT / "README.md").read_text().partition("\n## ")
    assert "](docs/pictures/swizzle.svg)" in before


ILLUSTRATED = (
    "banks", "blackwell", "from_cuda", "from_triton", "gemm", "hopper_smem", "hopper_tma", "hopper_wgmma", "index",
    "layout_algebra", "linear_layouts", "notation", "pycute", "questions", "show",
)  # fmt: skip


@pytest.mark.parametrize("page", ILLUSTRATED)
def test_pages_on_layouts_and_hopper_have_pictures(page):
    assert re.search(r"^!\[.*\]\(pictures/\w+\.svg\)$", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE)


def test_pictures_are_small():
    assert max(path.stat().st_size for path in (ROOT / "docs" / "pictures").iterdir()) < 80_000
