"""Reports as text or HTML, in the manner of compilers: both source lines, marked, with the lanes and the missing step.

Text is lines of pieces, each with a style of rich, so that a terminal, a notebook and a plain file show the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from html import escape

from cutepy.sim.sanitize.hazards import Hazard, NearMiss, Side
from cutepy.sim.sanitize.reports.allowances import Allowance
from cutepy.sim.sanitize.reports.excerpts import excerpt, excerpt_of

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""

_MARGIN = 5


def visible(text: str) -> str:
    r"""Return a text of one line, with escapes for control characters of a terminal, and spaces for tabs.

    Examples
    --------
    >>> visible("a\tb\x1b[31m")
    'a    b\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " * 4 if c == "\t" else ascii(c)[1:-1] for c in text)


def _cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me") for c in text)


def shown(lines: Sequence[Line]) -> list[Line]:
    """Return lines with all that is in them `visible`."""
    return [[(visible(piece), style) for piece, style in line] for line in lines]


def plain(lines: Sequence[Line]) -> str:
    """Return lines as text without styles."""
    return "\n".join("".join(piece for piece, _ in line).rstrip() for line in lines)


def lines_of(
    hazards: Sequence[Hazard], advisories: Sequence[Hazard], allowed: Sequence[Hazard], unused: Sequence[Allowance]
) -> list[Line]:
    """Write a report: the number of hazards, each hazard, and the allowances."""
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
    """Return the number of hazards, in a line.

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
    kind = hazard.kind
    yield [(f"{before}{kind}", style), (hazard.title.removeprefix(kind), "bold")]
    for sides in _by_line(hazard.sides):
        yield from _sides(sides, style)
    wrong, wanted = hazard.advice
    yield _note(wrong, "")
    yield from _waits(hazard)
    if hazard.made_at is not None:
        made = excerpt_of(hazard.made_at)
        yield _note(f"{hazard.holder} is made at {made}: {made.text.strip()}", "")
    for near in hazard.near_misses:
        yield _note(f"near miss: {_said(near)}", "")
    yield [*_note(wanted, "bold green"), (_where(hazard), "")]
    if hazard.witness is not None:
        yield _note(f"witness: {' '.join(hazard.witness.said.split())}", "")
        if hazard.witness.schedule:
            yield _note(f'to play it: cutepy.simulate(policy="{hazard.witness.schedule}")', "dim")


def _waits(hazard: Hazard) -> Iterator[Line]:
    """List the waits of a deadlock: they are numbered, and name each other."""
    if len(hazard.waits) < 2:
        return
    numbers = {wait.at: number for number, wait in enumerate(hazard.waits, 1)}
    for number, wait in enumerate(hazard.waits, 1):
        who = " and ".join(f"{side.who} at {_line(side)}" for side in wait.sides)
        come = {
            f"{side.who} {'would' if sure else 'may'} come at {_line(side)} after wait {numbers[at]}": None
            for (side, at), sure in zip(wait.bringers, wait.are_sure, strict=True)
        }
        yield _note("; ".join([f"wait {number}: {who} for {wait.at}: {wait.lacks}", *come]), "")


def _said(near: NearMiss) -> str:
    """Describe an operation: its place, its threads, and the reason why it does not count."""
    return near.why if near.side is None else f"{near.side.operation} at {_line(near.side)}: {near.why}"


def _line(side: Side) -> str:
    """Name the line of an operation, and the nearest one that called it."""
    found = excerpt(side)
    called = "".join(f", called at {excerpt_of(line)}" for line in side.chain[1:2])
    return f"{side.line if found is None else found}{called}"


def _allowed(hazard: Hazard) -> Iterator[Line]:
    yield [("allowed: ", "bold green"), (hazard.title, "")]
    for side in hazard.sides:
        found = excerpt(side)
        yield [("   --> ", "blue"), (f"{found}: " if found else "", ""), (side.operation, "dim")]
    yield _note(hazard.allowed, "bold green")


def _note(text: str, style: str) -> Line:
    return [(" " * _MARGIN + "= ", "blue"), (text, style)]


def _by_line(sides: tuple[Side, ...]) -> list[tuple[Side, ...]]:
    """Part operations by the shown line: both together, if they are of one line with the same callers."""
    shown = {(excerpt(side), side.chain) for side in sides}
    return [sides] if len(shown) == 1 and (None, ()) not in shown else [(side,) for side in sides]


def _sides(sides: tuple[Side, ...], style: str) -> Iterator[Line]:
    """Show a line, and the operations there."""
    found = excerpt(sides[0])
    bar = (" " * _MARGIN + "| ", "blue")
    if found is None:
        yield [("   --> ", "blue"), (sides[0].operation, "bold")]
        return
    within = f" in {found.function}" if found.function else ""
    yield [("   --> ", "blue"), (f"{found}{within}", "")]
    marks = ""
    if found.text:
        indent = " " * (4 if "\t" in found.text[: found.start] else min(found.start, 4))
        text = indent + visible(found.text[found.start :])
        yield [(f"{found.line:>{_MARGIN - 1}} | ", "blue"), (text, ""), (f" {found.rest}" if found.rest else "", "dim")]
        marks = indent + "^" * _cells(visible(found.text[found.start : found.end])) + " "
    for number, side in enumerate(sides, 1):
        before = marks if number == 1 else " " * len(marks) + "and "
        yield [bar, (before + side.operation + "," * (number < len(sides)), style)]
    for line in sides[0].chain[1:]:
        caller = excerpt_of(line)
        within = f" in {caller.function}" if caller.function else ""
        yield [bar, (f"called at {caller}{within}: {caller.text[caller.start : caller.end]}".rstrip(": "), "dim")]


def _where(hazard: Hazard) -> str:
    """Name the place of the missing operation; nothing where one line has both sides."""
    if hazard.between is None:
        return ""
    after, before = excerpt_of(hazard.between.after), excerpt_of(hazard.between.before)
    if after.file == before.file:
        again = " of the next round" if hazard.between.is_next_round else ""
        return f" (after line {after.line}, before line {before.line}{again})"
    return f" (after {after}, before {before})"


_CSS = {
    "bold red": "color:#c62828;font-weight:bold",
    "bold yellow": "color:#b26a00;font-weight:bold",
    "bold green": "color:#2e7d32;font-weight:bold",
    "blue": "color:#1565c0",
    "bold": "font-weight:bold",
    "dim": "opacity:.6",
}
"""Readable on white and on black."""


def as_html(lines: Sequence[Line]) -> str:
    """Return lines as preformatted text."""
    text = "\n".join("".join(_span(escape(piece), style) for piece, style in line) for line in lines)
    return f'<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{text}</pre>'


def _span(text: str, style: str) -> str:
    return f'<span style="{_CSS[style]}">{text}</span>' if style else text
