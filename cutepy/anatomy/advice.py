"""Resources and advisories of kernels by ptxas, with the source lines that they refer to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from cutepy.anatomy.mmas import site_of
from cutepy.anatomy.model import Advisory, LaunchFacts, RegisterChange, Resources, Site
from cutepy.anatomy.values import Values
from cutepy.binaries.cubin import KernelResources
from cutepy.binaries.ptxas import Advice, Assembly
from cutepy.layouts.sm90.occupancy import occupancy
from cutepy.sim.ptx import Function, Instruction
from cutepy.sim.translate.effects import is_wgmma

_PLACE = re.compile(r" in around line \d+| (?:in|for) (?:the )?function '[^']*'")
"""Part of an advisory's text that its sites replace."""
_SUBJECTS: Mapping[str, Callable[[Instruction], bool]] = {
    "wgmma": is_wgmma,
    "setmaxnreg": lambda i: i.traits.sets_registers,
}
"""Word of an advisory -> the instructions that it refers to."""


def advisories_of(function: Function, assembly: Assembly, kernels: int) -> tuple[Advisory, ...]:
    """List the advisories on a function; those without a function go to each of the module's `kernels` they fit."""
    found: dict[tuple[str, str], dict[Site, None]] = {}
    for advice in assembly.advice:
        if advice.function not in (None, function.name):
            continue
        sites = _sites(function, advice)
        if advice.function is None and not sites and kernels > 1:
            continue
        found.setdefault((advice.code, _PLACE.sub("", advice.text)), {}).update(dict.fromkeys(sites))
    return tuple(Advisory(code, text, _by_line(sites)) for (code, text), sites in found.items())


def _by_line(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Merge the sites of one line."""
    found: dict[object, Site] = {}
    for site in sites:
        before = found.get(site.lines or site, site)
        found[site.lines or site] = Site(site.lines, tuple(sorted({*before.ptx_lines, *site.ptx_lines})))
    return tuple(found.values())


def _sites(function: Function, advice: Advice) -> tuple[Site, ...]:
    """Find the lines of an advisory: the one it names, else those of the instructions it mentions."""
    instructions = function.instructions
    if advice.line is not None:
        before = [i for i in instructions if 0 < i.line <= advice.line]
        inside = before and instructions[-1].line >= advice.line
        return (site_of([max(before, key=lambda i: i.line)]),) if inside else ()
    about = next((test for word, test in _SUBJECTS.items() if word in advice.text), None)
    groups: dict[object, list[Instruction]] = {}
    for i in instructions if about else ():
        if about is not None and about(i):
            groups.setdefault(site_of([i]).lines, []).append(i)
    return tuple(site_of(group) for group in groups.values())


def register_changes(function: Function, values: Values) -> tuple[RegisterChange, ...]:
    """List the setmaxnreg instructions."""
    return tuple(
        RegisterChange(
            next((part for part in i.parts if part in ("inc", "dec")), ""),
            values.always(i.operands[0]) if i.operands else None,
            site_of([i]),
        )
        for i in function.instructions
        if i.traits.sets_registers
    )


def resources_of(
    name: str, kernels: Sequence[KernelResources], assembler: str, launch: LaunchFacts
) -> Resources | None:
    """Return the resources of a kernel; None if it was not assembled."""
    kernel = next((found for found in kernels if found.name == name), None)
    if kernel is None:
        return None
    fits = None
    if launch.block is not None and launch.dynamic_smem_bytes is not None:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        fits = occupancy(kernel.registers, threads, kernel.static_smem_bytes + launch.dynamic_smem_bytes)
    return Resources(
        assembler,
        kernel.registers,
        kernel.spill_store_bytes,
        kernel.spill_load_bytes,
        kernel.frame_bytes,
        kernel.static_smem_bytes,
        fits.ctas_per_sm if fits else None,
        fits.limited_by if fits else (),
    )
