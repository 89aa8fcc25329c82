"""The table of kinds: well-formed, and what the documentation says of each."""

import re
from pathlib import Path

import pytest

from cutepy.sim.sanitize.kinds import KINDS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_entries_are_well_formed(kind):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.name)
    for text in (kind.meaning, kind.missing):
        assert text
        assert not text.endswith(".")
        assert "\n" not in text
    assert kind.meaning[0].islower()
    assert kind.section
    assert kind.severity in ("hazard", "advisory")


def test_the_documentation_lists_them():
    page = (ROOT / "docs" / "hazards" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[?`([a-z-]+)`(?:\]\(\1\.md\))? \| (.+?)(?: \(advisory\))? \|$", page, flags=re.MULTILINE)
    assert rows == [(kind.name, kind.gist) for kind in KINDS.values()], "run `make docs-hazards`"
