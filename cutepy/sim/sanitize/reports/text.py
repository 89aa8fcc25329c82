"""Reports as text, as compilers write them: both lines of the source, marked, with who did what, and what is missing.

Text is lines of pieces, each with a style of rich, so that a terminal, a notebook and a plain file show the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cutepy.sim.sanitize.reports.excerpts import excerpt, excerpt_of

if TYPE_CHECKING:
    from cutepy.sim.sanitize.hazards import Hazard, Side
    from cutepy.sim.sanitize.reports.allowances import Allowance

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""

_MARGIN = 5


def plain(lines: Sequence[Line]) -> str:
    """Return lines as text without styles."""
    return "\n".join("".join(piece for piece, _ in line).rstrip() for line in lines)


def lines_of(
    hazards: Sequence[Hazard], advisories: Sequence[Hazard], allowed: Sequence[Hazard], unused: Sequence[Allowance]
) -> list[Line]:
    """Write a report: how many there are, each of them, and what is allowed."""
    lines: list[Line] = [[(summary(hazards, advisories, allowed), "bold red" if hazards else "bold green")]]
    for hazard in hazards:
        lines += [*_hazard(hazard, "bold red"), []]
    for hazard in advisories:
        lines += [*_hazard(hazard, "bold yellow", "advisory: "), []]
    for hazard in allowed:
        lines += [*_allowed(hazard), []]
    lines += [[(f"nothing needs {allowance}: remove it", "bold yellow")] for allowance in unused]
    return lines if lines[-1] else lines[:-1]


def summary(hazards: Sequence[Hazard], advisories: Sequence[Hazard], allowed: Sequence[Hazard]) -> str:
    """Return how many there are, in a line.

    Examples
    --------
    >>> summary([], [], [])
    '0 hazards'
    """
    counts = [f"{len(hazards)} hazard{'s' * (len(hazards) != 1)}"]
    if advisories:
        counts.append(f"{len(advisories)} advisor{'y' if len(advisories) == 1 else 'ies'}")
    if allowed:
        counts.append(f"{len(allowed)} allowed")
    return ", ".join(counts)


def _hazard(hazard: Hazard, style: str, before: str = "") -> Iterator[Line]:
    kind, _, rest = hazard.title.partition(": ")
    yield [(f"{before}{kind}", style), (f": {rest}", "bold")]
    for side in hazard.sides:
        yield from _side(side, style)
    wrong, wanted = hazard.advice
    yield _note(wrong, "")
    yield [*_note(wanted, "bold green"), (_between(hazard), "")]


def _allowed(hazard: Hazard) -> Iterator[Line]:
    yield [("allowed: ", "bold green"), (hazard.title, "")]
    for side in hazard.sides:
        found = excerpt(side)
        yield [("   --> ", "blue"), (f"{found}: " if found else "", ""), (side.deed, "dim")]
    yield _note(hazard.allowed, "bold green")


def _note(text: str, style: str) -> Line:
    return [(" " * _MARGIN + "= ", "blue"), (text, style)]


def _side(side: Side, style: str) -> Iterator[Line]:
    found = excerpt(side)
    bar = (" " * _MARGIN + "| ", "blue")
    if found is None:
        yield [("   --> ", "blue"), (side.deed, "bold")]
        return
    within = f" in {found.function}" if found.function else ""
    yield [("   --> ", "blue"), (f"{found}{within}", "")]
    if found.text:
        indent = min(found.start, 4)
        text = found.text[found.start - indent :]
        yield [(f"{found.line:>{_MARGIN - 1}} | ", "blue"), (text, ""), (f" {found.rest}" if found.rest else "", "dim")]
        marks = "^" * (found.end - found.start)
        yield [bar, (" " * indent + marks, style), (f" {side.deed}", style)]
    else:
        yield [bar, (side.deed, style)]
    for line in side.chain[1:]:
        caller = excerpt_of(line)
        within = f" in {caller.function}" if caller.function else ""
        yield [bar, (f"called at {caller}{within}: {caller.text[caller.start : caller.end]}".rstrip(": "), "dim")]


def _between(hazard: Hazard) -> str:
    """Say where what is missing belongs; nothing where one line says it all."""
    if hazard.before is None:
        return ""
    before, after = excerpt(hazard.before), excerpt(hazard.after)
    if before is None or after is None or (before.file, before.line) == (after.file, after.line):
        return ""
    if before.file == after.file:
        loops = before.function == after.function and after.line < before.line
        return f" (after line {before.line}, before line {after.line}{' of the next round' * loops})"
    return f" (after {before}, before {after})"
