"""Links to the glossary: on each page the first use of a term links to its entry.

Running text counts: code, headings, pictures and links to other pages have no uses. Other inflections than the plural
are no uses.
"""

import re

import pytest

from tests.docs.test_pages import PAGES, ROOT, anchor, headings, name

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = {
    term.lower(): anchor(heading)
    for heading in headings(GLOSSARY)
    if f"\n### {heading}\n" in GLOSSARY
    for term in heading.split(", ")
}
"""Term in lower case -> anchor of its entry. A heading names one term, or several with commas."""


def plural(term: str) -> str:
    """Write the plural of a term."""
    if term.endswith("y"):
        return f"{term[:-1]}ies"
    return f"{term}es" if term.endswith("s") else f"{term}s"


FORMS = {form: term for term in TERMS for form in (term, plural(term))}
USE = re.compile(rf"\b(?:{'|'.join(sorted(FORMS, key=len, reverse=True))})\b".replace(" ", r"\s+"), re.IGNORECASE)
NO_TEXT = re.compile(
    r"^( *)(```|~~~).*?^\1\2\s*?$"  # blocks of code
    r"|^(?: {4})*#+ .*?$"  # headings
    r"|<!--.*?-->|<[a-z/][^>]*>"  # HTML
    r"|(?<!`)(`+)(?!`).*?(?<!`)\3(?!`)"  # code
    r"|!\[[^\]]*\]\([^)]*\)"  # pictures
    r"|^ *:::.*?(?=\n\n)",  # docstrings
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\](?:\(([^)\s]*)\))")
EVERYDAY = {
    "banks.md": {"major"},  # row-major
    "linear_layouts.md": {"generation"},  # code generation
    "pytorch.md": {"mode"},  # forward mode of autograd
    "simulator.md": {"cooperative"},  # CUDA's cooperative groups
    "simulator_reference.md": {"cooperative"},
}
"""Page -> terms that have another meaning there, wherever the page has them."""
LINKING = [path for path in PAGES if path.stem != "glossary" and path.parent.name != "changelog.d"]


def blank(found: re.Match[str]) -> str:
    """Replace all but line breaks, so that positions stay."""
    return re.sub(r"[^\n]", " ", found[0])


def first_uses(page: str, everyday: frozenset[str] = frozenset()) -> dict[str, tuple[int, str]]:
    """Map each term of a page to its first use in running text: line, and target of the link around it or ''."""
    text = NO_TEXT.sub(lambda found: blank(found).replace(" ", "`"), page)
    targets = [(*found.span(1), found[2], found.span()) for found in LINK.finditer(text)]
    found: dict[str, tuple[int, str]] = {}
    for use in USE.finditer(text):
        around = next((link for link in targets if link[3][0] <= use.start() < link[3][1]), None)
        target = around[2] if around else ""
        if around and "glossary.md#" not in target:
            continue  # the text or the target of a link that leads elsewhere
        if around and use.end() > around[1]:
            continue  # within a target
        term = FORMS[re.sub(r"\s+", " ", use[0]).lower()]
        if term not in everyday and term not in found:
            found[term] = page.count("\n", 0, use.start()) + 1, target
    return found


def unlinked(page: str, everyday: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    """List (term, line) of first uses that do not link to the term's entry."""
    return [
        (term, line)
        for term, (line, target) in first_uses(page, everyday).items()
        if not target.endswith(f"glossary.md#{TERMS[term]}")
    ]


@pytest.mark.parametrize("path", LINKING, ids=name)
def test_the_first_use_of_a_term_links_to_its_entry(path):
    assert unlinked(path.read_text(encoding="utf-8"), frozenset(EVERYDAY.get(name(path), ()))) == []


@pytest.mark.parametrize(("page", "term"), [(page, term) for page, terms in EVERYDAY.items() for term in terms])
def test_a_word_of_another_meaning_is_on_its_page(page, term):
    assert term in dict(unlinked((ROOT / "docs" / page).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("page", "terms"),
    [
        ("A phase, and a phase.", [("phase", 1)]),
        ("A [phase](glossary.md#phase), and a phase.", []),
        ("A phase, and a [phase](glossary.md#phase).", [("phase", 1)]),
        ("A [phase](../glossary.md#generation).", [("phase", 1)]),
        ("A [phase](gemm.md).\n\nMore phases.", [("phase", 3)]),
        ("# Phase\n\n`phase`\n\n```text\nphase\n```\n\n![phase](phase.svg)\n", []),
        ("| `a` | [rings](glossary.md#stage-ring) of\n| `b` | stages |", [("stage", 2)]),
        ("A [tensor\nmap](glossary.md#tensor-map-descriptor).", []),
        ("An epilogue\nsubtile", [("epilogue subtile", 1)]),
        ("Proxies, advisories and witnesses.", [("proxy", 1), ("advisory", 1), ("witness", 1)]),
    ],
)
def test_first_uses_are_found_in_running_text(page, terms):
    assert unlinked(page) == terms
