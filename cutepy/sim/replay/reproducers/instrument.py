"""PTX with delays: some warps sleep before some instructions, as long as a variable of the module says.

A delay is a `nanosleep` under a predicate and no branch, so that code stays convergent, and MMAs are not serialised.
While its variable is 0 it takes a few instructions and no time.

References
----------
PTX ISA, "Miscellaneous Instructions: nanosleep": it sleeps for at most twice the time, and a millisecond is the most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cutepy.sim.ptx.bodies import STATEMENT
from cutepy.sim.ptx.model import Function
from cutepy.sim.ptx.parser import ModuleStatements, without_comments
from cutepy.sim.ptx.reading import StatementReader

VARIABLE = "cutepy_delays"
"""The variable that the host sets: for each delay how long it is, in nanoseconds, u32."""

_HEAD = re.compile(r"^\s*\.address_size\s+64[^\n]*$", re.M)


@dataclass(frozen=True)
class Delay:
    """Instructions to sleep before.

    Attributes
    ----------
    instruction : int
        Before which, by its index.
    warp : int or None
        Warp of a CTA; None for all.
    cta : (int, int, int) or None
        Of which CTA; None for all.
    side : int
        Side of a hazard that it delays.
    """

    instruction: int
    warp: int | None = None
    cta: tuple[int, ...] | None = None
    side: int = 0


def with_delays(ptx: str, function: Function, delays: Sequence[Delay]) -> str:
    """Insert delays into a module.

    Parameters
    ----------
    ptx : str
    function : Function
        Entry, linked with the functions that it calls; indices of instructions are its.
    delays : sequence of Delay
        The n-th sleeps for as many nanoseconds as the n-th element of `VARIABLE` says.

    Returns
    -------
    str
        Without comments, and with lines as they were but for those that delays add.

    Raises
    ------
    ValueError
        If an instruction is not found in the text.

    Examples
    --------
    >>> from cutepy.sim.translate import Kernel
    >>> text = '''.version 8.7
    ... .target sm_90a
    ... .address_size 64
    ... .visible .entry k() { .reg .b32 %r<2>; mov.u32 %r0, 1; bar.sync 0; ret; }'''
    >>> print(with_delays(text, Kernel(text, "k").function, [Delay(1, warp=2)]))  # doctest: +NORMALIZE_WHITESPACE
    .version 8.7
    .target sm_90a
    .address_size 64
    .visible .global .align 4 .b8 cutepy_delays[4];
    .visible .entry k() { .reg .b32 %r<2>; mov.u32 %r0, 1;
    { // cutepy: delay 0
    .reg .pred %cutepy_p<8>; .reg .b32 %cutepy_r<8>;
    setp.eq.u32 %cutepy_p0, 0, 0;
    mov.u32 %cutepy_r0, %tid.x; mov.u32 %cutepy_r1, %ntid.x; mov.u32 %cutepy_r2, %tid.y;
    mov.u32 %cutepy_r3, %ntid.y; mov.u32 %cutepy_r4, %tid.z;
    mad.lo.u32 %cutepy_r2, %cutepy_r4, %cutepy_r3, %cutepy_r2;
    mad.lo.u32 %cutepy_r0, %cutepy_r2, %cutepy_r1, %cutepy_r0; shr.u32 %cutepy_r0, %cutepy_r0, 5;
    setp.eq.and.u32 %cutepy_p0, %cutepy_r0, 2, %cutepy_p0;
    ld.volatile.global.u32 %cutepy_r5, [cutepy_delays+0];
    @%cutepy_p0 nanosleep.u32 %cutepy_r5;
    }
    bar.sync 0; ret; }
    """
    text = without_comments(ptx)
    places = _statements(text)
    insertions: list[tuple[int, str]] = []
    for number, delay in enumerate(delays):
        i = function.instructions[delay.instruction]
        alike = [j for j in function.instructions[: i.index] if (j.line, j.parts[0]) == (i.line, i.parts[0])]
        here = [place for place in places if (place.line, place.operation) == (i.line, i.parts[0])]
        if len(here) <= len(alike):
            raise ValueError(f"there is no `{i.text}` in line {i.line} of the PTX: it is written there by the parser")
        place = here[len(alike)]
        insertions.append((place.offset, _delay(number, delay, place.guard)))
    for offset, inserted in sorted(insertions, reverse=True):
        text = text[:offset] + inserted + text[offset:]
    head = _HEAD.search(text)
    if head is None:
        raise ValueError("a module must have a line .address_size 64")
    variable = f"\n.visible .global .align 4 .b8 {VARIABLE}[{4 * max(1, len(delays))}];"
    return text[: head.end()] + variable + text[head.end() :]


@dataclass(frozen=True)
class _Place:
    """A statement: where it begins, the line of its opcode, the opcode's first part, and its guard as written."""

    offset: int
    line: int
    operation: str
    guard: str


def _statements(text: str) -> list[_Place]:
    """Find the instructions of all functions."""
    found = []
    for _, line, position, end in ModuleStatements(text, StatementReader(text)).bodies:
        counted = position
        while position < end:
            match = STATEMENT.match(text, position, end)
            if match is None:
                break
            position = match.end()
            if match["opcode"] is None:
                continue
            start = match.start() + len(match[0]) - len(match[0].lstrip())
            line += text.count("\n", counted, match.start("opcode"))
            counted = match.start("opcode")
            guard = "" if match["guard"] is None else f"{match['negated']}{match['guard']}"
            found.append(_Place(start, line, match["opcode"].split(".")[0].rstrip(), guard))
    return found


def _delay(number: int, delay: Delay, guard: str) -> str:
    """Write a delay: a predicate of the sleeping threads, the duration, and the sleep."""
    p, r = "%cutepy_p", "%cutepy_r"
    lines = [f"\n{{ // cutepy: delay {number}", f".reg .pred {p}<8>; .reg .b32 {r}<8>;", f"setp.eq.u32 {p}0, 0, 0;"]
    if guard:
        lines.append(f"{'not' if guard[0] == '!' else 'mov'}.pred {p}0, {guard.lstrip('!')};")
    for axis, value in zip("xyz", delay.cta or (), strict=False):
        lines.append(f"mov.u32 {r}6, %ctaid.{axis}; setp.eq.and.u32 {p}0, {r}6, {value}, {p}0;")
    if delay.warp is not None:
        lines += [
            f"mov.u32 {r}0, %tid.x; mov.u32 {r}1, %ntid.x; mov.u32 {r}2, %tid.y;",
            f"mov.u32 {r}3, %ntid.y; mov.u32 {r}4, %tid.z;",
            f"mad.lo.u32 {r}2, {r}4, {r}3, {r}2;",
            f"mad.lo.u32 {r}0, {r}2, {r}1, {r}0; shr.u32 {r}0, {r}0, 5;",
            f"setp.eq.and.u32 {p}0, {r}0, {delay.warp}, {p}0;",
        ]
    lines += [f"ld.volatile.global.u32 {r}5, [{VARIABLE}+{4 * number}];", f"@{p}0 nanosleep.u32 {r}5;", "}\n"]
    return "\n".join(lines)
