"""MMAs of a kernel, grouped by source line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cutepy.anatomy.model import Dim3, Mma, Operand, Site
from cutepy.anatomy.values import Values
from cutepy.anatomy.watch import SeenMma
from cutepy.layouts.sm90.arch import GMMA_LAYOUT_TYPE, SwizzleMode
from cutepy.sim import UnknownInstructionError
from cutepy.sim.ptx import Function, Instruction
from cutepy.sim.ptx.places import lines
from cutepy.sim.translate.effects import is_wgmma
from cutepy.sim.translate.wgmma_shapes import M, Shape, parse_shape

_SWIZZLES: dict[int, SwizzleMode] = {value: mode for mode, value in GMMA_LAYOUT_TYPE.items()}
_WARPS = "an MMA of a warp, whose operands are in registers: wgmma alone is explained"
_OTHERS = {"mma": _WARPS, "wmma": _WARPS, "tcgen05": "an MMA of Blackwell: wgmma alone is explained"}
"""First parts of the opcodes of other MMAs, with the reason why they are not explained."""
_FIELDS = {"lbo": (16, 0x3FFF, 16), "sbo": (32, 0x3FFF, 16), "base_offset": (49, 7, 1), "layout_type": (62, 3, 1)}
"""Fields of a descriptor: lowest bit, mask, and unit in bytes."""


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
        elif i.parts[0] in _OTHERS and "mma" in i.parts[:2]:
            one = Mma(i.opcode, None, "", None, None, 1, None, (), site_of([i]), _OTHERS[i.parts[0]])
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
    if seen:
        return with_descriptors(known, tuple(seen), complete=True)
    if seen is None and (first := values.first(i.operands[at])) is not None:
        return with_descriptors(known, (first,), complete=values.always(i.operands[at]) is not None)
    fields = {name: values.always(i.operands[at], _reader(name)) for name in _FIELDS}
    return _with_fields(known, fields)


def with_descriptors(operand: Operand, words: tuple[int, ...], *, complete: bool) -> Operand:
    """Return an operand with descriptors; fields in which these differ are unknown."""
    fields = {}
    for name in _FIELDS:
        found = {_reader(name)(word) for word in words}
        fields[name] = found.pop() if len(found) == 1 else None
    return replace(_with_fields(operand, fields), descriptors=words, complete=complete)


def _reader(name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    shift, mask, unit = _FIELDS[name]
    return lambda word: (word >> shift & mask) * unit


def _with_fields(operand: Operand, fields: Mapping[str, int | None]) -> Operand:
    layout_type = fields["layout_type"]
    return replace(
        operand,
        lbo=fields["lbo"],
        sbo=fields["sbo"],
        base_offset=fields["base_offset"],
        swizzle=None if layout_type is None else _SWIZZLES[layout_type],
    )


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
