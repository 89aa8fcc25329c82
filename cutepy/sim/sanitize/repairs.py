"""Advisories of the assembler: register hazards that it repairs by waits, spills, and other costs in time.

ptxas knows which registers MMAs use. Where something else uses them too early it puts a wait, or makes MMAs wait for
each other, and where wgmma.fence is missing it puts one; its remarks say so, by number and line of the PTX. Where there
is no ptxas only this is taken as made good: moves that take the two halves of an accumulator of 16 bits apart, or put
them together, which compilers write between MMAs.

References
----------
ptxas 13.0: (C7519) "warpgroup.arrive is injected in around line ...", (C7517) "warpgroup.wait is injected ...",
(C7510) to (C7516) "wgmma.mma_async instructions are serialized due to ...", (C7508) "'setmaxnreg' ignored".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple

from cutepy.layouts.sm90.arch import WARPGROUP_THREADS
from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import REGISTERS, Place
from cutepy.sim.ptx.model import Instruction, Vector
from cutepy.sim.sanitize.assembler import Remark, Resources, SpillAccess, assembly_of
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.sanitize.registers import RegisterHazard
from cutepy.sim.translate import Kernel
from cutepy.sim.translate.control_flow import ControlFlow

MADE_GOOD = "injected-wgmma-fence", "injected-wgmma-wait"
_FENCE, _WAITS = "C7519", ("C7517", "C7518")
_SERIALISED = re.compile(r"C751[0-6]")
_IGNORED = "C7508"

Advisory = tuple[str, Place, None, Side, Diagnosis]
"""An advisory: its kind, where it is, nothing, the instruction, and what it costs."""


def judged(kernel: Kernel, found: Sequence[RegisterHazard], flow: ControlFlow) -> list[RegisterHazard]:
    """Return the hazards of a kernel's registers; those that the assembler makes good by their advisory's kind."""
    if not found:
        return []
    advice = _advice(kernel)
    begins = {i.index: block.instructions[0].line for block in flow.blocks for i in block.instructions}
    return [replace(hazard, kind=_kind(hazard, advice, begins)) for hazard in found]


def _kind(hazard: RegisterHazard, advice: tuple[Remark, ...] | None, begins: Mapping[int, int]) -> str:
    is_fence = hazard.kind == "missing-wgmma-fence"
    if advice is None:
        good = _takes_apart(hazard.before if is_fence else hazard.after)
    elif is_fence:
        # One fence is for all MMAs that follow in its block.
        first, last = begins[hazard.after.index], hazard.after.line
        put = any(a.code == _FENCE and a.line is not None and first <= a.line <= last for a in advice)
        good = put or any(_SERIALISED.fullmatch(a.code) for a in advice)
    else:
        good = any(a.code in _WAITS or _SERIALISED.fullmatch(a.code) for a in advice)
    if not good:
        return hazard.kind
    return MADE_GOOD[not is_fence]


def _takes_apart(i: Instruction | None) -> bool:
    """Return whether an instruction moves the halves of a register apart, or together."""
    return i is not None and i.traits.renames and any(isinstance(operand, Vector) for operand in i.operands)


def remarks(kernel: Kernel) -> Iterator[Advisory]:
    """Yield the costs of a kernel that ptxas reports; it is asked about kernels with MMAs or `setmaxnreg`."""
    instructions = kernel.instructions
    # Numbered remarks of ptxas are about instructions of a warpgroup; MMAs need many registers.
    asked = [i for i in instructions if i.traits.threads == WARPGROUP_THREADS or i.traits.is_warp_mma]
    assembly = assembly_of(kernel.ptx) if asked else None
    if assembly is None:
        return
    mma = next((i for i in asked if {"mma", "mma_async"} & {*i.parts[:2]}), None)
    first = mma or instructions[0]
    for advice in _advice(kernel) or ():
        if _SERIALISED.fullmatch(advice.code):
            kind = "serialised-wgmma"
            yield kind, REGISTERS, None, Side("wgmma", "all warpgroups", first), _reason(advice, kind)
        elif advice.code == _IGNORED:
            kind, site = "ignored-setmaxnreg", next((i for i in instructions if i.traits.sets_registers), first)
            yield kind, REGISTERS, None, Side("setmaxnreg", "all warps", site), _reason(advice, kind)
    for resources in assembly.resources:
        if resources.name == kernel.name and resources.spill_store_bytes + resources.spill_load_bytes:
            found = assembly.spills(kernel.name)
            spills = None if found is None else _spilled_at(found, instructions, first)
            cost = _cost(resources, spills, Diagnosis("fewer-values" if mma is None else "smaller-tile"))
            site = first if spills is None else spills.site
            yield "spilled-registers", REGISTERS, None, Side("spill", "all warps", site), cost


_LINES = 3
"""Lines of the source that are named."""


class _Spills(NamedTuple):
    """Spills of a kernel in its innermost loops: 0 are in no loop, 1 in a loop, 2 in a loop with MMAs."""

    site: Instruction
    loop: int
    size_bytes: int
    lines: str


def _cost(resources: Resources, found: _Spills | None, remedy: Diagnosis) -> Diagnosis:
    stored, loaded = resources.spill_store_bytes, resources.spill_load_bytes
    if found is None:
        return Diagnosis("spills", stored=stored, loaded=loaded, remedy=remedy)
    if not found.loop:
        return Diagnosis("spills-in-no-loop", stored=stored, loaded=loaded, lines=found.lines, remedy=remedy)
    return Diagnosis(
        "spills-in-a-loop" if found.loop == 1 else "spills-in-a-loop-with-mmas",
        stored=stored,
        loaded=loaded,
        inside=found.size_bytes,
        lines=found.lines,
        remedy=remedy,
    )


def _spilled_at(found: Sequence[SpillAccess], instructions: Sequence[Instruction], first: Instruction) -> _Spills:
    """Return the lines that spill most, those of a main loop if it spills."""
    by_line: dict[str, tuple[Instruction, int]] = {}
    loop = max((spill.is_in_loop + spill.is_with_mmas for spill in found), default=0)
    for spill in found:
        if spill.is_in_loop + spill.is_with_mmas == loop:
            # What was put between two instructions has the line of one of them.
            before = [i for i in instructions if spill.line is not None and i.line <= spill.line]
            site = before[-1] if before else first
            line = _named(site)
            site, size = by_line.get(line, (site, 0))
            by_line[line] = site, size + spill.stored_bytes + spill.loaded_bytes
    most = sorted(by_line.items(), key=lambda one: -one[1][1])
    total = sum(size for _, (_, size) in most)
    lines = [f"{size} at {line}" for line, (_, size) in most[:_LINES]] + ["..."] * (len(most) > _LINES)
    return _Spills(most[0][1][0] if most else first, loop, total, ", ".join(lines))


def _named(i: Instruction) -> str:
    chain = Side("", "", i).chain
    return f"{PurePath(chain[0].file).name}:{chain[0].line}" if chain else f"line {i.line} of the PTX"


def _reason(advice: Remark, kind: str) -> Diagnosis:
    text = re.sub(r" (?:in|for) (?:the )?function '[^']*'.*", "", advice.text).removeprefix(
        "Potential Performance Loss: "
    )
    return Diagnosis("assembler-remark", remark=text.rstrip("."), code=advice.code, otherwise=KINDS[kind].diagnosis)


def _advice(kernel: Kernel) -> tuple[Remark, ...] | None:
    assembly = assembly_of(kernel.ptx)
    if assembly is None:
        return None
    return tuple(a for a in assembly.advice if a.function is None or kernel.name.startswith(a.function))
