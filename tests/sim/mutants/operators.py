"""Mutation operators: each takes a statement that synchronises, and gives other texts for it.

A synchronisation is removed, made weaker in its scope, its semantics or its kind, given another count, parity, number
of bytes or of groups, or another barrier, or exchanged with the access or synchronisation that stands next to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tests.sim.mutants.functions import functions
from tests.sim.mutants.statements import Statement, Unit, sequences, statements

_INLINED = re.compile(r", function_name [^\n]*")
_GROUP = re.compile(
    r"(mbarrier|barrier\.cluster|bar|barrier|wgmma|griddepcontrol|membar|elect|tcgen05)\.\w+|fence\.(proxy\.async|proxy|\w+)|setmaxnreg|"
    r"cp\.async\.(bulk\.(commit_group|wait_group|tensor)|bulk|mbarrier|commit_group|wait_group|wait_all)|cp\.async|\w+"
)
_BYTES = 16
_BARRIERS = 16
_WARP = 32


@dataclass(frozen=True)
class Mutant:
    """A kernel with one synchronisation changed.

    Attributes
    ----------
    operator : str
        Such as "removed", or "count".
    what : str
        The statement that was changed, with what became of it.
    line : int
        Its line in the PTX, from 1.
    ptx : str
        The whole module.
    function, source : str
        The function it came from, and that one's line, if they are known.
    """

    operator: str
    what: str
    line: int
    ptx: str
    function: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """A name that is unique among mutants, such as "count at TmaRing.fill: mbarrier.arrive.expect_tx ..."."""
        return f"{self.operator} at {self.function or f'line {self.line}'}: {self.what}"

    @property
    def group(self) -> str:
        """The class of its instruction, for tables."""
        found = _GROUP.match(self.what)
        return found[0] if found else self.what.split()[0]


def mutants(ptx: str, kernel: str) -> list[Mutant]:
    """Return all mutants of a kernel, in the order of its statements; those of one text once."""
    found: dict[str, Mutant] = {}
    for s in statements(ptx, kernel):
        if not s.synchronises:
            continue
        line = ptx.count("\n", 0, s.start) + 1
        for operator, new in _changed(s):
            what = s.body if operator == "removed" else f"{s.body} -> {new}"
            text = ptx[: s.start] + new + ptx[s.end :]
            found.setdefault(text, Mutant(operator, what, line, text))
    for sequence in sequences(ptx, kernel):
        for before, after, text in _exchanged(ptx, sequence):
            line = ptx.count("\n", 0, (before if before.key.synchronises else after).key.start) + 1
            what = f"{before.key.body} <-> {after.key.body}"
            # A place of an inlined call is named by a .loc before it, which may have moved behind it.
            text = _INLINED.sub("", text)
            found.setdefault(text, Mutant("moved", what, line, text))
    of_line = functions(ptx, kernel)
    named = [(m, *of_line.get(m.line, ("", ""))) for m in found.values()]
    return [replace(m, function=function, source=source) for m, function, source in named]


def _changed(s: Statement) -> Iterator[tuple[str, str]]:
    """Yield (operator, other text) for a statement."""
    yield "removed", _without(s)
    for operator, change in (("weakened", _weaker), ("count", _counts), ("barrier", _barriers)):
        for body in change(s.opcode, s.body[len(s.opcode) :].strip(" ;")):
            opcode = s.opcode if body.startswith("{") else body
            yield operator, body.replace(opcode, _guard(s) + opcode, 1) + ("" if body.startswith("{") else ";")


def _guard(s: Statement) -> str:
    return f"{s.text.split()[0]} " if s.guard else ""


def _without(s: Statement) -> str:
    """Give what stands where a statement was: its value, if it had one, as if each lane were chosen, no wait long."""
    operands = s.body[len(s.opcode) :].strip(" ;")
    if "try_wait" in s.opcode or "test_wait" in s.opcode:
        return f"{_guard(s)}setp.eq.u32 {operands.split(',')[0]}, 0, 0;"
    if s.opcode == "elect.sync":
        return f"{_guard(s)}setp.eq.u32 {operands.split(',')[0].split('|')[1]}, 0, 0;"
    return ""


def _weaker(opcode: str, operands: str) -> Iterator[str]:
    """Yield the statement with a narrower scope, without release or acquire, or as a fence of another kind."""
    arrives = re.match(r"mbarrier\.(arrive|arrive_drop)\b", opcode)
    waits = re.match(r"mbarrier\.(try_wait|test_wait)\b", opcode)
    if re.match(r"mbarrier|fence|membar", opcode):
        for wide in (".cluster", ".gpu", ".sys"):
            if wide in opcode.replace("shared::cluster", "") and "mbarrier_init" not in opcode:
                narrow = re.sub(rf"{re.escape(wide)}(?![:\w])", ".cta", opcode)
                yield f"{narrow} {operands}"
    if opcode in ("membar.gl", "membar.sys"):
        yield "membar.cta"
    if arrives or waits:
        weak = re.sub(r"\.(release|acquire)(?=\.)", ".relaxed", opcode)
        if weak == opcode and ".relaxed" not in opcode and "noComplete" not in opcode:
            at = len(re.match(r"mbarrier\.\w+(\.expect_tx|\.parity)?", opcode)[0])  # type: ignore[index]
            weak = f"{opcode[:at]}.relaxed.cta{opcode[at:]}"
        if weak != opcode:
            yield f"{weak} {operands}"
    if opcode.startswith("barrier.cluster.arrive") and ".relaxed" not in opcode:
        yield f"{opcode.replace('arrive.release', 'arrive').replace('arrive', 'arrive.relaxed')} {operands}"
    if opcode.startswith("fence.proxy.async"):
        yield "fence.acq_rel.cta"
        if opcode != "fence.proxy.async.global":
            yield "fence.proxy.async.global"
        if opcode == "fence.proxy.async.global":
            yield "fence.proxy.async.shared::cta"
    if opcode.startswith("fence.mbarrier_init"):
        yield "fence.acq_rel.cta"
    if opcode.startswith("cp.async.bulk.wait_group") and ".read" not in opcode:
        yield f"{opcode}.read {operands}"
    if re.match(r"bar(rier)?(\.cta)?\.sync", opcode) and "," in operands:
        yield f"{opcode.replace('.sync', '.arrive')} {operands}"


def _counts(opcode: str, operands: str) -> Iterator[str]:
    """Yield the statement with another count of arrivals, threads, bytes or groups, or the other parity."""
    parts = [p.strip() for p in operands.split(",")]

    def last(change: int) -> str:
        return f"{opcode} {', '.join((*parts[:-1], str(int(parts[-1], 0) + change)))}"

    constant = bool(re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", parts[-1]))
    if "wait_group" in opcode and constant:
        yield last(1)
    elif "expect_tx" in opcode:
        yield from (_computed(opcode, parts, len(parts) - 1, f"add.s32 MUT, OLD, {d};") for d in (_BYTES, -_BYTES))
    elif opcode.startswith("mbarrier.init"):
        yield from (_computed(opcode, parts, len(parts) - 1, f"add.s32 MUT, OLD, {d};") for d in (1, -1))
    elif "wait.parity" in opcode:
        yield _computed(opcode, parts, 2, "xor.b32 MUT, OLD, 1;")
    elif re.match(r"mbarrier\.arrive", opcode) and len(parts) == 3:
        yield _computed(opcode, parts, 2, "add.s32 MUT, OLD, 1;")
    elif re.match(r"bar(rier)?(\.cta)?\.(sync|arrive)", opcode) and len(parts) == 2 and constant:
        yield from (last(d) for d in (_WARP, -_WARP))
    elif opcode.startswith("setmaxnreg"):
        yield last(8)
        yield last(-8)


def _computed(opcode: str, parts: list[str], place: int, computation: str) -> str:
    """Give the statement with an operand computed from what it was, in a scope that has a register of its own."""
    changed = [*parts[:place], "MUT", *parts[place + 1 :]]
    return f"{{ .reg .b32 MUT; {computation.replace('OLD', parts[place])} {opcode} {', '.join(changed)}; }}"


def _barriers(opcode: str, operands: str) -> Iterator[str]:
    """Yield the statement at another named barrier."""
    if re.match(r"bar(rier)?(\.cta)?\.(sync|arrive)", opcode):
        number, comma, rest = operands.partition(",")
        if number.strip().isdecimal():
            yield f"{opcode} {(int(number) + 1) % _BARRIERS}{comma}{rest}"
        else:
            yield _computed(opcode, [p.strip() for p in operands.split(",")], 0, "add.s32 MUT, OLD, 1;")


def _exchanged(ptx: str, sequence: list[Unit]) -> Iterator[tuple[Unit, Unit, str]]:
    """Yield neighbours that matter, one of which synchronises, and the text where they stand the other way round."""
    which = [n for n, unit in enumerate(sequence) if unit.matters]
    for first, second in pairwise(which):
        before, after = sequence[first], sequence[second]
        both = before.key, after.key
        if not any(s.synchronises for s in both) or all(s.opcode.startswith("mbarrier.init") for s in both):
            continue
        along, left = [after], []
        for unit in reversed(sequence[first + 1 : second]):
            needed = frozenset().union(*(u.read for u in along))
            (along if unit.written & needed else left).insert(0, unit)
        read = frozenset().union(*(u.read for u in along))
        written = frozenset().union(*(u.written for u in along))
        passed = [before, *left]
        if any(u.written & read or u.read & written or u.written & written for u in passed):
            continue
        pieces = [ptx[u.start : u.end] for u in (*along, *passed)]
        yield before, after, ptx[: before.start] + "\n".join(pieces) + ptx[after.end :]
