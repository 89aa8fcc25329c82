"""cvt: between integers, floats and the packed narrow floats.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: cvt", "cvt.pack".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.emitter import Emitter, instruction, kind_of
from cutepy.sim.translate.floating import narrow, pack, widen_halves
from cutepy.sim.translate.integer import is_integer

_FLOAT8 = ("e4m3x2", "e5m2x2")
_INTEGER_ROUNDINGS = ("rni", "rzi", "rmi", "rpi")


@instruction("cvt")
def _cvt(e: Emitter, i: Instruction) -> None:
    to, source = i.parts[-2], i.parts[-1]
    if i.parts[1] == "pack":
        raise e.unknown("cvt.pack")
    if to in _FLOAT8:
        _to_float8(e, i, to, source)
    elif source in _FLOAT8:
        _from_float8(e, i, to, source)
    elif to.endswith("x2"):
        high, low = (_halved(e, i, e.read(s, "f4"), to.removesuffix("x2")) for s in i.operands[1:3])
        e.write(i.operands[0], pack(low, high), "u4")
    elif is_integer(to) and is_integer(source):
        _integer(e, i, to, source)
    elif is_integer(source):
        _from_integer(e, i, to, source)
    elif is_integer(to):
        rounding = next((p for p in i.parts if p in _INTEGER_ROUNDINGS), "rzi")
        e.write(i.operands[0], f"alu.float_to_int({_float(e, i, source)}, {kind_of(to)!r}, {rounding!r})", kind_of(to))
    else:
        _float_to_float(e, i, to, source)


def _float(e: Emitter, i: Instruction, kind: str) -> str:
    """Return the source as float32 or float64."""
    if kind in ("f32", "f64"):
        value = e.read(i.operands[1], kind_of(kind))
        return f"alu.flush({value})" if "ftz" in i.parts and kind == "f32" else value
    return widen_halves(e, i.operands[1], kind)[0]


def _halved(e: Emitter, i: Instruction, value: str, name: str) -> str:
    """Return the bits of float32 rounded to f16 or bf16, with relu and saturation."""
    if "relu" in i.parts:
        value = f"where(isnan({value}), {value}, alu.maximum({value}, {e.immediate(0, 'f4')}))"
    if "satfinite" in i.parts:
        largest = e.constant(65504.0 if name == "f16" else 3.3895313892515355e38, f"LARGEST_{name}")
        value = f"clip({value}, -{largest}, {largest}).astype(f4)"
    if name == "bf16":
        return f"minifloat.f32_to_bf16({value}, {'rz' if 'rz' in i.parts else 'rn'!r})"
    if "rz" in i.parts:
        raise e.unknown("rounding f16 towards zero")
    return narrow(value, name)


def _to_float8(e: Emitter, i: Instruction, to: str, source: str) -> None:
    name = to.removesuffix("x2")
    if source == "f32":
        high, low = (e.read(s, "f4") for s in i.operands[1:3])
    else:
        low, high = widen_halves(e, i.operands[1], source)
    if "relu" in i.parts:
        zero = e.immediate(0, "f4")
        high, low = f"alu.maximum({high}, {zero})", f"alu.maximum({low}, {zero})"
    codes = [f"minifloat.from_f32({v}, {name!r}).astype(u2)" for v in (low, high)]
    e.write(i.operands[0], f"{codes[0]} | ({codes[1]} << 8)", "u2")


def _from_float8(e: Emitter, i: Instruction, to: str, source: str) -> None:
    if to != "f16x2":
        raise e.unknown()
    name = source.removesuffix("x2")
    bits = e.read(i.operands[1], "u2")
    low, high = (f"minifloat.to_f32({b}, {name!r})" for b in (f"{bits}.astype(u1)", f"({bits} >> 8).astype(u1)"))
    e.write(i.operands[0], pack(narrow(low, "f16"), narrow(high, "f16")), "u4")


def _integer(e: Emitter, i: Instruction, to: str, source: str) -> None:
    value = e.read_wide(i.operands[1], kind_of(source))
    if "sat" in i.parts:
        e.write(i.operands[0], f"alu.clamp_int({value}, {kind_of(to)!r})", kind_of(to))
    else:
        e.write(i.operands[0], f"({value}).astype({kind_of(to)})", kind_of(to))


def _from_integer(e: Emitter, i: Instruction, to: str, source: str) -> None:
    value = e.read_wide(i.operands[1], kind_of(source))
    if to in ("f32", "f64"):
        if "rn" not in i.parts and not (to == "f64" and source[1:] in ("8", "16", "32")):
            raise e.unknown("directed rounding is not implemented")
        e.write(i.operands[0], f"({value}).astype({kind_of(to)})", kind_of(to))
    elif to == "f16":
        e.write(i.operands[0], f"({value}).astype(f2).view(u2)", "u2")
    else:
        e.write(i.operands[0], narrow(f"({value}).astype(f4)", to), "u2")


def _float_to_float(e: Emitter, i: Instruction, to: str, source: str) -> None:
    value = _float(e, i, source)
    rounding = next((p for p in i.parts if p in _INTEGER_ROUNDINGS), None)
    if to == source and rounding:
        value = f"alu.round_to_integral({value}, {rounding!r})"
    if "sat" in i.parts:
        value = f"alu.saturate({value})"
    if to == "tf32":
        if "rna" not in i.parts:
            raise e.unknown("tf32 is rounded by .rna only")
        e.write(i.operands[0], f"minifloat.f32_to_tf32({value})", "u4")
    elif to in ("f16", "bf16"):
        e.write(i.operands[0], _halved(e, i, value, to), "u2")
    else:
        if {"rz", "rm", "rp"} & set(i.parts) and source == "f64":
            raise e.unknown("directed rounding is not implemented")
        text = f"({value}).astype({kind_of(to)})"
        e.write(i.operands[0], f"alu.flush({text})" if "ftz" in i.parts else text, kind_of(to))
