"""The public call that each reference vector pins, and its answer in the vectors' own notation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cutepy.layouts as cl
from cutepy.layouts import parse, to_text
from cutepy.layouts.layout import raw_layout
from tests.golden.calls_sm100 import CALLS as CALLS_SM100

HERE = Path(__file__).parent
Operand = int | str
Vector = dict[str, Any]

_BITS = {"int8_t": 8, "uint8_t": 8, "float_e4m3_t": 8, "float_e5m2_t": 8, "half_t": 16, "bfloat16_t": 16}
_BITS |= {"uint16_t": 16, "tfloat32_t": 32, "float": 32, "uint32_t": 32, "uint64_t": 64, "uint128_t": 128}
_SWIZZLE_BITS = {"INTER": 0, "SW32": 1, "SW64": 2, "SW128": 3}
TILED_MMA = re.compile(r"(thrfrg|partition|partition_shape|fragment)_([ABC])|get_layout[ABC]_TV")


def vectors(name: str) -> list[Vector]:
    """The rows of one file of reference vectors."""
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


def operand(value: Operand) -> Any:
    """A JSON operand as the argument of a call: numbers stay, text is parsed."""
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[(\d,)]*-[-(\d,)]*:[-(\d,)]*", value):
        # CuTe makes negative extents of negative strides, and goes on with them; as text they are refused.
        return raw_layout(*map(parse, value.split(":")))
    return parse(value)


def written(result: Any) -> Any:
    """A result as the vectors write it: numbers, booleans and lists bare, all else in the notation."""
    return result if isinstance(result, bool | int | list) else to_text(result)


def call(op: str, operands: Sequence[Operand]) -> Any:
    """Compute one vector's answer with `cutepy.layouts`."""
    if op in _SPECIAL:
        return _SPECIAL[op](*operands)
    if op in CALLS_SM100:
        return CALLS_SM100[op](*operands)
    if TILED_MMA.fullmatch(op):
        return _tiled_mma(op, operands)
    if operands and operands[0] in ("MN", "K"):
        return _sm90(op, *operands)
    name, _, template = op.partition("<")
    arguments = [operand(x) for x in operands]
    if template:
        arguments += [int(x) if x.isdigit() else _BITS[x] for x in template.rstrip(">").split(",")]
    return written(getattr(cl, name)(*arguments))


def agrees(got: Any, expected: Any) -> bool:
    """Return True if an answer has every field of the vector; a descriptor's tile is the input that made it."""
    if isinstance(expected, dict):
        answers = {key: value for key, value in expected.items() if key not in ("tile", "u128")}
        return isinstance(got, dict) and all(got.get(key) == value for key, value in answers.items())
    return type(got) is type(expected) and bool(got == expected)


def mismatches(rows: Sequence[Vector]) -> list[str]:
    """One line for each vector whose answer differs or whose call raises."""
    found = []
    for row in rows:
        try:
            got = call(row["op"], row["in"])
        except Exception as error:  # a wrong error is a mismatch like any other
            got = f"{type(error).__name__}: {error}"
        if not agrees(got, row["out"]):
            found.append(f"{row['op']}({', '.join(map(str, row['in']))}): expected {row['out']}, got {got}")
    return found


# --------------------------------------------------------------------------------------------------------------------
# Evaluation, atoms, shared-memory operands and descriptors


def _eval(layout: str) -> list[int]:
    f = parse(layout)
    return [f(i) for i in range(cl.size(f))]


def _swizzle_apply(swizzle: str) -> list[int]:
    f = parse(swizzle)
    return [f(i) for i in range(1 << (f.bits + f.base + abs(f.shift)))]


def _smem(major: str, swizzle: str, bits: int, shape: str, order: str = "") -> Any:
    atom = cl.sm90.gmma_layout_atom(major, swizzle, bits, pointer_swizzle=True)
    return cl.tile_to_shape(atom, parse(shape), *([parse(order)] if order else []))


def _sm90(op: str, major: str, swizzle: str, kind: str, *rest: Any) -> Any:
    if op.startswith("gmma_atom"):
        pointer = op != "gmma_atom_position_independent"
        return to_text(cl.sm90.gmma_layout_atom(major, swizzle, rest[0], pointer_swizzle=pointer))
    shape, _, order = rest[0].partition(";order=")
    if op == "tile_to_shape":
        order = rest[1] if len(rest) > 1 else ""
    smem = _smem(major, swizzle, _BITS[kind], shape, order)
    if op in ("tile_to_shape", "smem_layout"):
        return to_text(smem)
    operand_of = {"major": major, "bits": _BITS[kind], "mma_shape": (rest[1], rest[2])}
    if op == "desc_iterator_layout":
        return to_text(cl.sm90.GmmaDescriptorIterator(smem, **operand_of).layout)
    iterator = cl.sm90.GmmaDescriptorIterator(smem, **operand_of, base_address=int(rest[6], 16))
    value = int(iterator[rest[3], rest[4], rest[5]])
    return {"desc": f"0x{value:016x}", **_descriptor_fields(value)}


def _descriptor_fields(value: int) -> dict[str, int]:
    """The raw bit fields, in 16-byte units as the vectors record them."""
    fields = {"start_address_": (0, 14), "leading_byte_offset_": (16, 14), "stride_byte_offset_": (32, 14)}
    fields |= {"base_offset_": (49, 3), "layout_type_": (62, 2)}
    return {name: (value >> low) & ((1 << width) - 1) for name, (low, width) in fields.items()}


def descriptor_of_tile(major: str, swizzle: str, kind: str, out: dict[str, Any]) -> str:
    """The descriptor that `make_gmma_desc` builds from a vector's recorded tile alone."""
    bits = _BITS[kind]
    in_bytes = cl.Swizzle(_SWIZZLE_BITS[swizzle], 4, 3)
    layout = cl.ComposedLayout(cl.recast_layout(in_bytes, 8, bits), 0, parse(out["tile"]))
    made = cl.sm90.make_gmma_desc(layout, major=major, bits=bits, start_address=16 * out["start_address_"])
    return f"0x{int(made):016x}"


# --------------------------------------------------------------------------------------------------------------------
# MMA atoms and tiled MMAs


def _traits(name: str) -> Any:
    return cl.sm90.wgmma_traits(name) if name.startswith("SM90_64x") else cl.sm80.mma_traits(name)


def _mma_traits(name: str) -> dict[str, str]:
    traits = _traits(name)
    return {
        "Shape_MNK": to_text(traits.shape_mnk),
        "ThrID": to_text(traits.thr_id),
        "ALayout": to_text(traits.a_layout),
        "BLayout": to_text(traits.b_layout),
        "CLayout": to_text(traits.c_layout),
    }


def tiled_mma(atom: str, atom_layout: str) -> Any:
    """The tiled MMA of an atom's name and a layout of atoms, after a semicolon a permutation."""
    layout, _, permutation = atom_layout.partition(";")
    return cl.sm90.TiledMMA(_traits(atom), parse(layout), *([parse(permutation)] if permutation else []))


def _tiled_mma(op: str, operands: Sequence[Any]) -> Any:
    method = getattr(tiled_mma(operands[0], operands[1]), op)
    if not re.fullmatch("partition_[ABC]", op):
        return written(method(*map(operand, operands[2:])))
    tensor, thread = parse(operands[2]), operands[3]
    layout, offset = method(tensor, thread)
    found = {"layout": to_text(layout), "offset": offset}
    if op == "partition_C":
        coordinates, origin = method(cl.make_identity_layout(tensor.shape), thread)
        found |= {"identity_layout": to_text(coordinates), "identity_origin": to_text(origin)}
        found["coords"] = [to_text(_sum(origin, coordinates(i))) for i in range(cl.size(coordinates))]
    return found


def _sum(origin: tuple[int, ...], step: Any) -> tuple[int, ...]:
    """Move a coordinate; a step is an integer, a scaled basis or a tuple."""
    steps = step if isinstance(step, tuple) else cl.as_arithmetic_tuple(step)
    return tuple(a + b for a, b in zip(origin, (*steps, *[0] * (len(origin) - len(steps))), strict=True))


# --------------------------------------------------------------------------------------------------------------------
# Copy atoms and tiled copies


def copy_atom(name: str, bits: int) -> Any:
    """A copy atom by C++'s name of the operation."""
    matrices = re.fullmatch(r"SM\d+_U(16|32)x(\d)_(LDSM|STSM)_[NT]", name)
    if matrices:
        transpose = matrices[1] == "16"
        make = cl.sm90.ldmatrix_traits if matrices[3] == "LDSM" else cl.sm90.stmatrix_traits
        traits = make(int(matrices[2]) // (2 if transpose else 1), transpose=transpose)
    else:
        width = int(re.search(r"<uint(\d+)_t>", name)[1])
        level = re.match("SM80_CP_ASYNC_CACHE(ALWAYS|GLOBAL)", name)
        traits = cl.sm80.cp_async(width, cache=level[1]) if level else cl.sm90.universal_copy(width)
    assert traits.name == name
    return cl.sm90.make_copy_atom(traits, bits)


def tiled_copy(atom: str, bits: int, kind: str, first: str, second: str, third: str) -> Any:
    """The tiled copy that the vectors' operands describe: see `tests.oracle.statements.tiled_copy`."""
    made = copy_atom(atom, bits)
    if kind == "tv":
        return cl.sm90.make_tiled_copy(made, parse(first), parse(second))
    if kind in ("S", "D"):
        base = cl.sm90.make_tiled_copy(copy_atom(first, bits), parse(second), parse(third))
        return getattr(cl.sm90, f"make_tiled_copy_{kind}")(made, base)
    return getattr(cl.sm90, f"make_tiled_copy_{kind}")(made, tiled_mma(first, second))


def _of_copy(name: str) -> Callable[..., str]:
    fields = {"TiledLayout_TV": "layout_tv", "Tiler_MN": "tiler_mn"}

    def ask(*operands: Any) -> str:
        copy = tiled_copy(*operands[:6])
        found = getattr(copy, fields.get(name, name))
        return to_text(found if name in fields else found(*map(parse, operands[6:])))

    return ask


_COPY = ("TiledLayout_TV", "Tiler_MN", "get_layoutS_TV", "get_layoutD_TV", "tidfrg_S", "tidfrg_D", "retile")

_SPECIAL: dict[str, Callable[..., Any]] = {
    "eval": _eval,
    "swizzle_apply": _swizzle_apply,
    "mma_traits": _mma_traits,
    "thr_layout_vmnk": lambda atom, layout: to_text(tiled_mma(atom, layout).thr_layout_vmnk),
    "tile_shape": lambda atom, layout: to_text(tiled_mma(atom, layout).tile_shape),
    "thr_size": lambda atom, layout: tiled_mma(atom, layout).thr_size,
    **{name: _of_copy(name) for name in _COPY},
}
