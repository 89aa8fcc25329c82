"""What people call an mbarrier: the object that holds it, and its place there, read from the line that initialised it.

A barrier is an address at run time. The lines that initialise those of a ring say whose they are: `ring.initialise()`
in the kernel, or `loads = PipelineTmaAsync.create(...)`; and where that was inlined, the library's own line which of
its arrays: `mbarrier_init(self.full + stage, 1)`. Barriers of one line are numbered by address, as stages are.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cutepy.sim.ptx.places import distance

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

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
    site = _site(initialised[offset])
    fellows = sorted(other for other, instruction in initialised.items() if _site(instruction) == site)
    place = fellows.index(offset)
    holder, part = _names(site)
    if part == _PIPELINE:
        half = -(-len(fellows) // 2)
        part, place, stages = ("full", "empty")[place // half], place % half, half
    else:
        stages = len(fellows)
    name = ".".join(filter(None, (holder, part)))
    if not name:
        return f"mbarrier {offset:#x}"
    return f"mbarrier {name}{f', stage {place}' if stages > 1 else ''} ({offset:#x})"


def _site(instruction: Instruction) -> tuple[tuple[str, int], ...]:
    """List the lines that an instruction came from, innermost first, the user's before those of libraries."""
    chain = () if instruction.source is None else instruction.source.chain()
    return tuple((line.file, line.line) for line in sorted(chain, key=lambda line: distance(line.file)))


def _names(site: tuple[tuple[str, int], ...]) -> tuple[str, str]:
    """Read who holds a barrier and as what: from the first line of its site, and from the one that initialises it."""
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
    """Give the name of what an address is counted from: of `self.full + stage`, "full"."""
    while isinstance(expression, (ast.BinOp, ast.Subscript)):
        expression = expression.left if isinstance(expression, ast.BinOp) else expression.value
    text = ast.unparse(expression)
    return text.removeprefix("self.")


@cache
def _calls(file: str) -> dict[int, list[tuple[ast.Call, str]]]:
    """List the calls on each line of a file, and the name that each one's result gets; none if it can't be read."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
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
