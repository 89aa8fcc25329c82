"""Names of mbarriers: the object that holds one, and its index there, read from the line that initialised it.

A barrier is an address at run time. The lines that initialise those of a ring say whose they are: `ring.initialise()`
in the kernel, or `loads = PipelineTmaAsync.create(...)`; and where that was inlined, the library's own line which of
its arrays: `mbarrier_init(self.full + stage, 1)`. Barriers of one line are numbered by address, as stages are. Where
a loop over several rings initialises them, `for ring in rings:`, those beside each other are one ring: `rings[1]`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from cutepy.sim.ptx.model import Instruction, SourceLine
from cutepy.sim.ptx.source_lines import distance, user_lines

_BYTES = 8
_INITIALISES = "mbarrier_init"
_PIPELINE = "create"
"""The method by which the DSL's pipelines are made; their barriers are the full ones, then as many empty ones."""


def barrier_name(offset: int, initialised: Mapping[int, Instruction]) -> str:
    """Name a barrier, as "mbarrier ring.full, stage 2 (0x410)".

    Parameters
    ----------
    offset : int
        Its shared address.
    initialised : mapping
        By address, the instruction that initialised each barrier of the CTA.
    """
    name, place, stages = stage_of(offset, initialised)
    if not name:
        return f"mbarrier {offset:#x}"
    return f"mbarrier {name}{f', stage {place}' if stages > 1 else ''} ({offset:#x})"


def stage_of(offset: int, initialised: Mapping[int, Instruction]) -> tuple[str, int, int]:
    """Return the source's name of a ring of barriers ("" if it has none), the index of one, and their number."""
    fellows, holder, part = _group(offset, initialised)
    stages = _stages(fellows, part)
    number, place = divmod(fellows.index(offset), stages)
    if part == _PIPELINE:
        part = ("full", "empty")[number]
    return ".".join(filter(None, (holder, part))), place, stages


def holder_name(offset: int, initialised: Mapping[int, Instruction]) -> str:
    """Return the source's name of the object that holds a barrier, or of the barrier itself without such an object."""
    _, holder, part = _group(offset, initialised)
    return holder or part or f"{offset:#x}"


def made_at(offset: int, initialised: Mapping[int, Instruction]) -> SourceLine | None:
    """Return the line that makes the object which holds a barrier, such as ``ring = TmaRing(...)``, if that is seen.

    It has what the barrier's count and bytes come from, where the object's own code initialises the barrier.
    """
    chain = user_lines(initialised[offset].source)
    site = _site(initialised[offset])
    holder = _names(site)[0]
    holder = _iterated(site, holder) or holder
    for line in chain if holder.isidentifier() else ():
        made = [at for at in _assignments(line.file).get(holder, ()) if at < line.line]
        if made:
            return SourceLine(line.file, made[-1])
    return None


def ring(offset: int, initialised: Mapping[int, Instruction]) -> list[int]:
    """List the addresses of the ring of barriers that one is of, as stages are numbered: see `barrier_name`."""
    fellows, _, part = _group(offset, initialised)
    stages = _stages(fellows, part)
    start = fellows.index(offset) // stages * stages
    return fellows[start : start + stages]


def _stages(fellows: list[int], part: str) -> int:
    """Count the stages of the barriers of one line: a pipeline has a full and an empty one for each."""
    return -(-len(fellows) // 2) if part == _PIPELINE else len(fellows)


def _group(offset: int, initialised: Mapping[int, Instruction]) -> tuple[list[int], str, str]:
    """Return the addresses of the barriers with one name in the source, their holder, and their role in it."""
    site = _site(initialised[offset])
    if not site:
        return [offset], "", ""
    fellows = sorted(other for other, instruction in initialised.items() if _site(instruction) == site)
    holder, part = _names(site)
    rings = _iterated(site, holder)
    if not rings:
        return fellows, holder, part
    begins = [n for n, at in enumerate(fellows) if n == 0 or at != fellows[n - 1] + _BYTES]
    each = [fellows[begin:end] for begin, end in pairwise((*begins, len(fellows)))]
    each.sort(key=lambda addresses: initialised[addresses[0]].index)  # as the loop goes
    number = next(n for n, addresses in enumerate(each) if offset in addresses)
    return each[number], f"{rings}[{number}]", part


def _iterated(site: tuple[tuple[str, int], ...], holder: str) -> str:
    """Return the iterable of a loop around a site, if it names each item like the holder; "" without one."""
    for file, line in site:
        for loop in _loops(file):
            names = {name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name)}
            if holder in names and loop.lineno <= line <= (loop.end_lineno or loop.lineno):
                return ast.unparse(loop.iter) if isinstance(loop.iter, (ast.Name, ast.Attribute)) else holder
    return ""


def _site(instruction: Instruction) -> tuple[tuple[str, int], ...]:
    """List the lines that an instruction came from, innermost first, the user's before those of libraries."""
    chain = () if instruction.source is None else instruction.source.chain()
    return tuple((line.file, line.line) for line in sorted(chain, key=lambda line: distance(line.file)))


def _names(site: tuple[tuple[str, int], ...]) -> tuple[str, str]:
    """Read the holder of a barrier and the barrier's role, from the first line of its site and that of its init."""
    holder = part = ""
    for file, line in site:
        for call, target in _calls(file).get(line, ()):
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            if method == _INITIALISES and call.args:
                part = _base(call.args[0])
            elif method == _PIPELINE and target:
                holder, part = target, _PIPELINE
            elif holder in ("", "self") and isinstance(call.func, ast.Attribute):
                holder = _base(call.func.value)
    return (holder, part) if part else ("", "")


def _base(expression: ast.expr) -> str:
    """Return the name of an address's base: of `self.full + stage`, "full"."""
    while isinstance(expression, (ast.BinOp, ast.Subscript)):
        expression = expression.left if isinstance(expression, ast.BinOp) else expression.value
    text = ast.unparse(expression)
    return text.removeprefix("self.")


@cache
def _assignments(file: str) -> dict[str, list[int]]:
    """List the lines that assign results of a call, or of several, to each name of a file."""
    found: dict[str, list[int]] = {}
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Assign) and any(isinstance(inner, ast.Call) for inner in ast.walk(node.value)):
            call = next(inner for inner in ast.walk(node.value) if isinstance(inner, ast.Call))
            for target in (name for one in node.targets for name in ast.walk(one)):
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(call.lineno)
    return {name: sorted(lines) for name, lines in found.items()}


@cache
def _tree(file: str) -> ast.Module:
    """Parse a file; one that can't be read is empty."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


@cache
def _loops(file: str) -> list[ast.For]:
    """List the loops of a file."""
    return [node for node in ast.walk(_tree(file)) if isinstance(node, ast.For)]


@cache
def _calls(file: str) -> dict[int, list[tuple[ast.Call, str]]]:
    """List the calls on each line of a file, and the name that each one's result gets; none if it can't be read."""
    tree = _tree(file)
    targets = {
        id(node.value): ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1
    }
    found: dict[int, list[tuple[ast.Call, str]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found.setdefault(line, []).append((node, targets.get(id(node), "")))
    return found
