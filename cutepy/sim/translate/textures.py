"""Textures and surfaces.

References
----------
PTX ISA, "Texture Instructions": tex, tld4, txq, istypep; "Surface Instructions": suld, sust, suq.
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Address, Instruction, Operand, Register
from cutepy.sim.translate.emitter import Emitter, instruction, kind_of, split_pair

_DIMENSIONS = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2}
_OUTSIDE = ("trap", "clamp", "zero")
_QUERIES = "width height depth array_size num_mipmap_levels normalized_coords"


def _object(e: Emitter, operand: Operand) -> str:
    """Return the expression of the object that an operand names."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Register):
        raise e.refused("textures and surfaces are known by objects only, not by .texref or .surfref variables")
    return e.address(Address(operand.base, operand.offset))


def _coordinates(e: Emitter, i: Instruction, operand: Operand, kind: str) -> tuple[str, str]:
    """Return the expressions of coordinates, and of the layer."""
    geometry = next((p for p in i.parts if p in _DIMENSIONS), None)
    if geometry is None:
        raise e.refused(f"{i.opcode}: cubemaps and multisampled textures are not simulated")
    if not isinstance(operand, Address) or operand.coordinates is None:
        raise e.unknown("coordinates must be given")
    items = list(operand.coordinates)
    layer = e.read(items.pop(0), "u4") if geometry[0] == "a" else "None"
    dimensions = _DIMENSIONS[geometry]
    if len(items) not in (dimensions, 4 if dimensions > 2 else dimensions, dimensions + 1):
        raise e.unknown(f"{dimensions} coordinates must be given")
    return f"[{', '.join(e.read(x, kind) for x in items[:dimensions])}]", layer


@instruction("tex", accepts="base level grad 1d 2d 3d a1d a2d cube acube 2dms a2dms v4")
def _tex(e: Emitter, i: Instruction) -> None:
    """Fetch; levels of detail do not matter where there is one."""
    kind, of = (kind_of(p) for p in i.parts[-2:])
    at, layer = _coordinates(e, i, i.operands[1], of)
    d, residency = split_pair(i.operands[0])
    result = e.temporary(f"m.textures.fetch(g, {e.site}, {_object(e, i.operands[1])}, {at}, {layer}, {kind!r})")
    for position, item in enumerate(e.items(d)):
        e.write(item, f"{result}[{position}]", kind)
    if residency is not None:
        e.write(residency, e.immediate(1, "pred"), "pred")


@instruction("tld4", accepts="r g b a 2d a2d cube acube v4")
def _tld4(e: Emitter, i: Instruction) -> None:
    if i.parts[2] != "2d" or i.parts[-1] != "f32":
        raise e.refused(f"{i.opcode}: tld4 is simulated in two dimensions only")
    kind = kind_of(i.parts[-2])
    at, _ = _coordinates(e, i, i.operands[1], "f4")
    d, residency = split_pair(i.operands[0])
    channel = "rgba".index(i.parts[1])
    result = e.temporary(f"m.textures.gather(g, {e.site}, {_object(e, i.operands[1])}, {at}, {channel}, {kind!r})")
    for position, item in enumerate(e.items(d)):
        e.write(item, f"{result}[{position}]", kind)
    if residency is not None:
        e.write(residency, e.immediate(1, "pred"), "pred")


@instruction("txq", "suq", accepts=_QUERIES)
def _query(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], f"m.textures.query(g, {e.site}, {_object(e, i.operands[1])}, {i.parts[1]!r})", "u4")


@instruction("istypep", accepts="texref samplerref surfref")
def _istypep(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], f"m.textures.is_kind({e.read(i.operands[1], 'u8')}, {i.parts[1]!r})", "pred")


_SURFACES = "1d 2d 3d a1d a2d v2 v4 trap clamp zero ca cg cs cv wb wt"


@instruction("suld.b", accepts=_SURFACES)
def _suld(e: Emitter, i: Instruction) -> None:
    d, place = i.operands
    width, outside = i.parts[-2:]
    if outside not in _OUTSIDE:
        raise e.unknown("what is done outside of a surface must be said")
    kind, items = kind_of(width), e.items(d)
    at, layer = _coordinates(e, i, place, "i4")
    found = f"{_object(e, place)}, {at}, {layer}, {kind!r}, {len(items)}, {outside!r}"
    result = e.temporary(f"m.textures.load(g, {e.site}, {found})")
    for position, item in enumerate(items):
        e.write(item, f"{result}[{position}]", kind)


@instruction("sust.b", accepts=_SURFACES)
def _sust(e: Emitter, i: Instruction) -> None:
    place, source = i.operands
    width, outside = i.parts[-2:]
    if outside not in _OUTSIDE:
        raise e.unknown("what is done outside of a surface must be said")
    values = ", ".join(e.read_wide(item, kind_of(width)) for item in e.items(source))
    at, layer = _coordinates(e, i, place, "i4")
    e.emit(f"m.textures.store(g, {e.site}, {_object(e, place)}, {at}, {layer}, ({values},), {outside!r})")
