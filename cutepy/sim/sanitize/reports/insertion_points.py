"""Place of a missing instruction: behind one line of the source and before another.

Two operations of one thread meet in a function that both come from: there the lines are taken, and not within what it
calls. Those of threads that go different ways are taken where they are.
"""

from __future__ import annotations

from collections import deque

from cutepy.sim.ptx.model import Instruction, SourceLine
from cutepy.sim.sanitize.hazards import Hazard, InsertionPoint, Side
from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.sanitize.reports.excerpts import function_line
from cutepy.sim.translate.control_flow import ControlFlow


def between(hazard: Hazard, flow: ControlFlow) -> InsertionPoint | None:
    """Return the place of a hazard's missing operation; None where one line has both sides."""
    first, second = hazard.before, hazard.after
    for near in hazard.near_misses:
        if near.kind == "early-release" and near.side is not None:
            second = near.side  # what is missing belongs before the arrival, and not only before who heard of it
    if first is None or KINDS[hazard.kind].defect in ("either", "place"):
        return None
    if first.instruction is None or second.instruction is None or first.launch is not second.launch:
        lines = _lines(first), _lines(second)
        return InsertionPoint(lines[0][0], lines[1][0]) if all(lines) and lines[0][0] != lines[1][0] else None
    ahead = leads(flow, first.instruction, second.instruction)
    after, before = _meeting(_lines(first), _lines(second), ahead or leads(flow, second.instruction, first.instruction))
    if (after.file, after.line) == (before.file, before.line):
        return None
    is_above = after.file == before.file and before.line < after.line and _function(after) == _function(before)
    if is_above and first.cta != second.cta:
        return None  # there may be no round: of two CTAs neither goes on with what the other did
    return InsertionPoint(after, before, is_above and ahead)


def _lines(side: Side) -> tuple[SourceLine, ...]:
    if side.chain or side.instruction is None:
        return side.chain
    return (SourceLine(side.ptx_file or "the PTX", side.instruction.line),)


def _meeting(
    first: tuple[SourceLine, ...], second: tuple[SourceLine, ...], is_of_one: bool
) -> tuple[SourceLine, SourceLine]:
    """Return the lines of two operations in the innermost call that both are part of, if one thread does both."""
    outer = zip(reversed(first), reversed(second), strict=False)
    for one, other in outer if is_of_one else ():
        if (one.file, one.line) != (other.file, other.line):
            if one.file == other.file and _function(one) == _function(other):
                return one, other
            break
    return first[0], second[0]


def _function(line: SourceLine) -> int:
    return function_line(line.file, line.line)


def leads(flow: ControlFlow, start: Instruction, end: Instruction) -> bool:
    """Return whether a thread may come from one instruction to another."""
    blocks = {i.index: n for n, block in enumerate(flow.blocks) for i in (*block.instructions, block.branch) if i}
    if start.index not in blocks or end.index not in blocks:
        return False
    if blocks[start.index] == blocks[end.index] and start.index < end.index:
        return True
    seen: set[int] = set()
    ahead = deque(flow.blocks[blocks[start.index]].successors)
    while ahead:
        block = ahead.popleft()
        if block >= 0 and block not in seen:
            seen.add(block)
            ahead.extend(flow.blocks[block].successors)
    return blocks[end.index] in seen
