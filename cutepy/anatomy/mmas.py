"""MMAs of a kernel, grouped by source line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cutepy.anatomy.model import Dim3, Mma, Operand, Site
from cutepy.anatomy.operand_words import WGMMA
from cutepy.anatomy.tensor_core import tensor_mma
from cutepy.anatomy.values import Values
from cutepy.anatomy.watch import SeenMma
from cutepy.sim import UnknownInstructionError
from cutepy.sim.ptx import Function, Instruction
from cutepy.sim.ptx.source_lines import lines
from cutepy.sim.translate.effects import is_wgmma
from cutepy.sim.translate.wgmma_shapes import M, Shape, parse_shape

_WARPS = "an MMA of a warp, whose operands are in registers: those of wgmma and tcgen05 are explained"
"""The reason why other MMAs are not explained."""


def site_of(instructions: Iterable[Instruction]) -> Site:
    """Return the site of instructions of one line."""
    every = list(instructions)
    where = tuple(str(line) for line in lines(every[0].source)) if every else ()
    return Site(where, tuple(sorted({i.line for i in every if i.line})))


def mmas_of(function: Function, values: Values, seen: Mapping[int, SeenMma] | None) -> tuple[Mma, ...]:
    """List the MMAs of a function, those of warps by name only; `seen` has observed launches, if there were any."""
    groups: dict[object, list[tuple[Instruction, Mma]]] = {}
    for i in function.instructions:
        if is_wgmma(i):
            one = _mma(i, values, seen)
            groups.setdefault(_alike(i, one), []).append((i, one))
        elif i.traits.is_tensor_mma:
            one = tensor_mma(i, values, site_of([i]), None if seen is None else seen.get(i.index, SeenMma()))
            groups.setdefault(_alike(i, one), []).append((i, one))
        elif i.traits.is_warp_mma:
            one = Mma(i.opcode, None, "", None, None, 1, None, (), site_of([i]), _WARPS)
            groups.setdefault(_alike(i, one), []).append((i, one))
    return tuple(_joined(group) for group in groups.values())


def _mma(i: Instruction, values: Values, seen: Mapping[int, SeenMma] | None) -> Mma:
    site = site_of([i])
    try:
        shape = parse_shape(i)
    except (UnknownInstructionError, AssertionError, LookupError, ValueError, StopIteration) as error:
        issued = None if seen is None else 0
        reason = str(error) if isinstance(error, UnknownInstructionError) else "its operands are of another form"
        return Mma(i.opcode, None, "", None, None, 1, issued, (), site, reason.partition("\n")[0])
    found = None if seen is None else seen.get(i.index, SeenMma())
    a = _operand(i, 1, shape, values, found.a if found else None)
    b = _operand(i, 2, shape, values, found.b if found else None)
    extents: Dim3 = (M, shape.n, shape.k)
    groups = () if found is None else tuple(sorted(found.warpgroups))
    return Mma(i.opcode, extents, shape.d, a, b, 1, None if found is None else found.issued, groups, site)


def _operand(i: Instruction, at: int, shape: Shape, values: Values, seen: Mapping[int, None] | None) -> Operand:
    dtype, tile = (shape.a, shape.a_tile) if at == 1 else (shape.b, shape.b_tile)
    source = "registers" if at == 1 and shape.from_registers else "shared memory"
    known = Operand(dtype, tile.bits, tile.major, (tile.extent, tile.k), source)
    if source == "registers":
        return known
    return WGMMA.operand(known, i.operands[at], values, seen)


def _alike(i: Instruction, one: Mma) -> object:
    """Return the common facts of a group's instructions."""

    def fields(operand: Operand | None) -> object:
        return operand and (operand.source, operand.lbo, operand.sbo, operand.swizzle, operand.base_offset)

    return one.site.lines, i.opcode, one.remark, fields(one.a), fields(one.b)


def _joined(group: list[tuple[Instruction, Mma]]) -> Mma:
    first = group[0][1]
    counts = [one.issued for _, one in group if one.issued is not None]

    def operand(name: str) -> Operand | None:
        every = [x for x in (getattr(one, name) for _, one in group) if x is not None]
        words = tuple(dict.fromkeys(word for x in every for word in x.descriptors))
        complete = all(x.complete for x in every if x.descriptors)
        return replace(every[0], descriptors=words, complete=complete) if every else None

    return replace(
        first,
        a=operand("a"),
        b=operand("b"),
        instructions=len(group),
        issued=sum(counts) if counts else None,
        warpgroups=tuple(sorted({number for _, one in group for number in one.warpgroups})),
        site=site_of(i for i, _ in group),
    )
