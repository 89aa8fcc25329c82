"""The pages on hazards: each has a kernel, what is reported of it, and the lines that mend it.

A page is ``docs/hazards/KIND.md``. Its first block of Python is a script that simulates a kernel, and names its file in
its first line. The first block of text is the excerpt of the sanitizer's report (`excerpt`). The block marked ``diff``
changes the script, after which there are no hazards. A page without a script names the page that has it, and may change
that script by its first diff. No run fails by an advisory: the script of one prints its hazards, even if there are
none. ``python -m tests.docs.hazard_pages`` writes the reports, and the table of the index.

What ptxas says decides some advisories: pages in ``ASSEMBLED`` are run with one, all others without, whatever there is.
"""

import io
import re
import runpy
import sys
import tempfile
import warnings
from contextlib import chdir, nullcontext, redirect_stdout
from pathlib import Path
from unittest import mock

from cutepy.binaries.ptxas import AssemblyError, assemble
from cutepy.binaries.sass import DisassemblyError, find_nvdisasm
from cutepy.sim.sanitize import AdvisoryWarning, HazardError
from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.sanitize.reports.collection import Hazards

FOLDER = Path(__file__).parents[2] / "docs" / "hazards"
INDEX = FOLDER / "index.md"
SANITIZER, SHOWN = FOLDER.parent / "sanitizer.md", "missing-proxy-fence"
"""The page that shows the whole report of one of them."""
PTXAS = "13.0"
"""The release whose remarks the pages show."""
ASSEMBLED = (
    "injected-wgmma-fence",
    "injected-wgmma-wait",
    "serialised-wgmma",
    "spilled-registers",
    "ignored-setmaxnreg",
)
_EMPTY = ".version 8.0\n.target sm_90a\n.address_size 64\n"
_SCRIPT = re.compile(r"```python\n(# (\w+\.py)\n.*?)```", re.DOTALL)
_REPORT = re.compile(r"(```text\n)(.*?)\n?```", re.DOTALL)
_CHANGE = re.compile(r"```diff\n(.*?)```", re.DOTALL)
_SHARED = re.compile(r"the\skernel\sof\s\[([a-z-]+)\]\(\1\.md\)")
_LEFT_OUT = re.compile(r" *--> |.*\^\^\^|$")
"""Lines of a report that an excerpt lacks: files, carets with threads, and empty ones."""
_PLACE = re.compile(r" \((after|before) line \d+[^()]*\)$")
"""The place of the missing instruction, which an excerpt lacks."""
_ROWS = re.compile(r"(\| --- \| --- \|\n).*?(?=\n\n|\Z)", re.DOTALL)


def pages() -> dict[str, str]:
    """Read the pages, by kind."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")) if path != INDEX}


def script(page: str) -> tuple[str, str]:
    """Return the script of a page, and the name of its file; of a page without one, that of the page that it names."""
    if found := _SCRIPT.search(page):
        return found[1], found[2]
    text, name = script(_named(page))
    return changed(text, _CHANGE.findall(page)[:1]), name


def mended(page: str) -> str:
    """Return the script with its changes; of a page that only names another one, the mended script of that one."""
    changes = _CHANGE.findall(page)
    if _SCRIPT.search(page) is None:  # the first change makes the mistake
        if not changes:
            return mended(_named(page))
        del changes[0]
    assert changes, "a page needs a block marked diff: lines with a space as they are, - to go, + to come"
    return changed(script(page)[0], changes)


def _named(page: str) -> str:
    """Return the page that has the script of this one."""
    named = _SHARED.search(page)
    assert named, (
        "a page needs a block of Python that begins with `# NAME.py`, or the words: the kernel of [NAME](NAME.md)"
    )
    return pages()[named[1]]


def changed(text: str, changes: list[str]) -> str:
    """Apply blocks marked diff to a script; a line "..." stands between parts of one block."""
    for part in [part for change in changes for part in re.split(r"^\.\.\.\n", change, flags=re.MULTILINE)]:
        lines = part.splitlines()
        assert all(line[:1] in (" ", "-", "+", "") for line in lines), part
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line[:1] != gone) for gone in "+-")
        assert text.count(old) == 1, f"these lines must be once in the script:\n{old}"
        text = text.replace(old, new)
    return text


def excerpt(said: str, kind: str) -> str:
    """Return the first finding of a kind in a report: its line, the lines of code, and the lines of advice."""
    for finding in re.split(r"\n\n|(?<=hazard)\n|(?<=hazards)\n|(?<=advisory)\n|(?<=advisories)\n", said):
        if re.match(f"(advisory: )?{kind}: ", finding):
            return "\n".join(_PLACE.sub("", line) for line in finding.splitlines() if not _LEFT_OUT.match(line))
    return ""


def report(page: str) -> str:
    """Return the report that a page has."""
    found = _REPORT.search(page)
    assert found, "a page needs a block of text: the report, as python -m tests.docs.hazard_pages writes it"
    return found[2]


def has_ptxas() -> bool:
    """Tell whether the ptxas is here that the pages are written with, and a disassembler of what it writes."""
    try:
        find_nvdisasm()
        return assemble(_EMPTY).version.startswith(PTXAS)
    except (AssemblyError, DisassemblyError):
        return False


def said_of(text: str, name: str, asks: bool = False) -> str:
    """Run a script in a folder of its own, with ptxas or without, and return the sanitizer's report, "" without one."""
    ptxas = nullcontext() if asks else mock.patch("cutepy.frontends.contexts.ask_ptxas", return_value=None)
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        ptxas,
        redirect_stdout(io.StringIO()) as printed,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", AdvisoryWarning)  # the script prints them
        Path(name).write_text(text, encoding="utf-8")
        try:
            runpy.run_path(name, run_name="__main__")
        except HazardError as found:
            return str(found)
    said = printed.getvalue().strip()
    return "" if said == str(Hazards()) else said


def table() -> str:
    """Write the rows of the index: every kind, with its page if it has one."""
    links = {name: f"[`{name}`]({name}.md)" if name in pages() else f"`{name}`" for name in KINDS}
    rows = [f"| {links[kind.name]} | {kind.gist}{_severity(kind.severity)} |" for kind in KINDS.values()]
    return "\n".join(rows)


def _severity(severity: str) -> str:
    return "" if severity == "hazard" else f" ({severity})"


def with_report(page: str, said: str) -> str:
    """Return a page with its report."""
    return _REPORT.sub(lambda found: f"{found[1]}{said}\n```", page, count=1)


def with_table(text: str) -> str:
    """Return the index with its rows."""
    return _ROWS.sub(lambda found: found[1] + table(), text)


if __name__ == "__main__":
    for kind, page in pages().items():
        if sys.argv[1:] and kind not in sys.argv[1:]:
            continue
        if kind in ASSEMBLED and not has_ptxas():
            print(f"{kind}: left as it is, for want of ptxas {PTXAS} or nvdisasm")
            continue
        text, name = script(page)
        said = said_of(text, name, kind in ASSEMBLED)
        rest = said_of(mended(page), name, kind in ASSEMBLED)
        print(f"{kind}: {said.partition(chr(10))[0] or 'NOTHING FOUND'}; mended: {rest or 'no hazards'}")
        (FOLDER / f"{kind}.md").write_text(with_report(page, excerpt(said, kind)), encoding="utf-8")
        if kind == SHOWN:
            SANITIZER.write_text(with_report(SANITIZER.read_text(encoding="utf-8"), said), encoding="utf-8")
    INDEX.write_text(with_table(INDEX.read_text(encoding="utf-8")), encoding="utf-8")
