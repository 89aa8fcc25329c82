"""Writes what became of the cases as a table, and lists what did not pass, by reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.sim.foreign import catalogue

OUTCOMES = (
    "passed",
    "wrong",
    "refused",
    "timed out",
    "explained",
    "skipped",
    "not compiled",
    "other hardware",
    "not installed",
)
_MARKS = "<!-- foreign: begin -->", "<!-- foreign: end -->"
_LISTED = ("wrong", "refused", "timed out", "not compiled", "explained")
_NAMED = 3
"""Cases of one reason that are named."""


def lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table, and of the list."""
    told = [_explained(record) for record in records]
    yield f"| | {' | '.join(OUTCOMES)} | seconds |"
    yield "| --- |" + " --- |" * (len(OUTCOMES) + 1)
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in told:
        suites[record["suite"]].append(record)
    for suite, found in sorted(suites.items()):
        counts = Counter(record["outcome"] for record in found)
        cells = [str(counts[outcome] or "") for outcome in OUTCOMES]
        yield f"| {suite} | {' | '.join(cells)} | {sum(record['seconds'] for record in found):.0f} |"
    for outcome in _LISTED:
        reasons: dict[str, list[str]] = defaultdict(list)
        for record in told:
            if record["outcome"] == outcome:
                reason = record["reason"] if outcome == "explained" else _kind_of(record["reason"])
                reasons[reason].append(record["case"])
        if reasons:
            yield from ("", f"**{outcome.capitalize()}**", "")
        for reason, cases in sorted(reasons.items(), key=lambda found: (-len(found[1]), found[0])):
            yield f"- {reason}: {_some(cases)}"


def sanitized(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of hazards, schedules and certificates, and the lists of the first two."""
    watched = [record for record in records if record.get("launches")]
    yield f"| | {' | '.join(_SANITIZED)} |"
    yield "| --- |" + " --- |" * len(_SANITIZED)
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in watched:
        suites[record["suite"]].append(record)
    for suite, found in sorted({**suites, "all": watched}.items(), key=lambda one: (one[0] == "all", one[0])):
        cells = [
            len(found),
            sum(record["launches"] for record in found),
            len({kernel for record in found for kernel in record["kernels"]}),
            sum(record["schedules"] for record in found),
            sum(bool(record["hazards"]) for record in found),
            sum(bool(record["differ"]) for record in found),
            sum(bool(record["reordered"]) for record in found),
            sum(record["certified"] for record in found),
            sum(sum(record["uncertified"].values()) for record in found),
        ]
        yield f"| {suite} | {' | '.join(str(cell or '') for cell in cells)} |"
    for title, lines in (("Hazards", _hazards), ("Differ", _differ), ("Not certified", _uncertified)):
        reasons: dict[str, list[str]] = defaultdict(list)
        for record in watched:
            for reason in lines(record):
                reasons[reason].append(record["case"])
        if reasons:
            yield from ("", f"**{title}**", "")
        for reason, cases in sorted(reasons.items(), key=lambda found: (-len(found[1]), found[0])):
            yield f"- {reason}: {_some(cases)}"


_SANITIZED = (
    *("cases", "launches", "kernels", "schedules", "cases with hazards", "that differ", "by the order of float sums"),
    *("launches certified", "not certified"),
)


def _hazards(record: dict[str, Any]) -> Iterator[str]:
    shown = {one.partition(":")[0] for one in record["witnesses"] if "nothing changes" not in one}
    return (f"{kind}, which a schedule shows" if kind in shown else kind for kind in record["hazards"])


def _differ(record: dict[str, Any]) -> Iterator[str]:
    return iter({_kind_of(one.partition(": ")[2]) for one in record["differ"]})


def _uncertified(record: dict[str, Any]) -> Iterator[str]:
    return iter(record["uncertified"])


def _some(cases: list[str]) -> str:
    named = ", ".join(f"`{case}`" for case in sorted(cases)[:_NAMED])
    return named + (f" and {len(cases) - _NAMED} more" if len(cases) > _NAMED else "")


def write(page: Path, records: Iterable[dict[str, Any]]) -> None:
    """Put the table between the marks of a page.

    Raises
    ------
    ValueError
        If the page has no marks.
    """
    text = page.read_text()
    before, begin, rest = text.partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not (begin and end):
        raise ValueError(f"{page} must have the lines {_MARKS[0]} and {_MARKS[1]}, between which the table goes")
    page.write_text("\n".join([f"{before}{begin}", *lines(records), f"{end}{after}"]))


def _explained(record: dict[str, Any]) -> dict[str, Any]:
    why = catalogue.explained(record["case"])
    return {**record, "outcome": "explained", "reason": why} if why and record["outcome"] != "passed" else record


def _kind_of(reason: str) -> str:
    """Return a reason without what differs from case to case: numbers, addresses, folders."""
    reason = re.sub(r"(?<!\w)[\w.+-]*/(\S+/)*", "", reason)
    short = re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]\d+)?", "N", reason)[:160]
    return short.replace("|", "/").replace("<", "&lt;")
