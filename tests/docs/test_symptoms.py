"""The page that leads from a symptom to its cause: each change does to the script what the page shows."""

import io
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "symptoms.md"
pytestmark = [pytest.mark.integration, pytest.mark.dsl]


def blocks(text: str, language: str) -> list[str]:
    """List the blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def sections(page: str) -> dict[str, str]:
    """Return the sections that show a report, by title."""
    parts = page.split("\n## ")[1:]
    return {part.partition("\n")[0]: part for part in parts if "```text" in part}


def changed(script: str, changes: list[str]) -> str:
    """Apply the changes of a section."""
    for change in changes:
        old, new = ("".join(f"{line[1:]}\n" for line in change.splitlines() if line[:1] != gone) for gone in "+-")
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    return script


def printed(section: str, script: str, folder: Path) -> str:
    """Run what a section says, in a folder, which is the working one, and return all that it prints."""
    (folder / "scale.py").write_text(changed(script, blocks(section, "diff")))
    commands = blocks(section, "sh")
    if commands:
        ran = CliRunner().invoke(app, commands[0].split()[1:])
        return ran.output.replace(f"{folder}/", "")
    kept, _, _ = (folder / "scale.py").read_text().partition("\nx = torch")  # without what needs a GPU
    (folder / "scale.py").write_text(kept)
    (folder / "look.py").write_text(blocks(section, "python")[0])
    with redirect_stdout(io.StringIO()) as out:
        runpy.run_path("look.py", run_name="__main__")
    return out.getvalue()


def missing(shown: str, whole: str) -> list[str]:
    """List the lines of an excerpt that are not in the whole, in their order; "..." stands for any."""
    shown, whole = (re.sub(r"0x[0-9a-f]{9,}", "0x...", text) for text in (shown, whole))
    rest = iter(whole.splitlines())
    return [line for line in shown.splitlines() if line.strip() != "..." and line not in rest]


TEXT = PAGE.read_text(encoding="utf-8")
SCRIPT = blocks(TEXT, "python")[0]


@pytest.mark.parametrize("title", sections(TEXT))
def test_the_excerpt_is_of_what_is_printed(title, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("CUTEPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    section = sections(TEXT)[title]
    shown = blocks(section, "text")[0]
    assert shown.strip()
    assert missing(shown, whole := printed(section, SCRIPT, tmp_path)) == [], whole


@pytest.mark.parametrize(
    ("old", "new", "quoted"),
    [
        ("init(full, 1)", "init(full, 2)", ["1 of 2 arrivals have come"]),
        ("expect_tx(full, 256)", "expect_tx(full, 512)", ["256 bytes pending"]),
        ("wait(full, 0)", "wait(full, 1)", ["wait for the phase of parity 1", "in phase 1"]),
    ],
)
def test_the_table_quotes_reports_of_deadlocks(old, new, quoted, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert SCRIPT.count(old) == 1
    (tmp_path / "scale.py").write_text(SCRIPT.replace(old, new))
    report = CliRunner().invoke(app, ["simulate", "scale.py"]).output
    assert "DeadlockError" in report
    for words in quoted:
        assert words in report
        assert f"`{words}`" in TEXT


def test_an_excerpt_that_is_not_there_is_seen():
    assert missing("a\n...\nd\n", "a\nb\nc\nd\n") == []
    assert missing("d\na\n", "a\nd\n") == ["a"]
