"""cvt from and to floats, packed narrow floats among them.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.semantics.types import is_integer, kind_of
from cutepy.sim.translate.emitter import Emitter, instruction
from cutepy.sim.translate.floating import narrow, pack, rounding_of, widen_halves, write_halves

_FLOAT8 = ("e4m3x2", "e5m2x2")
_INTEGER_ROUNDINGS = ("rni", "rzi", "rmi", "rpi")
_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}


@instruction("cvt", accepts="rn rz rm rp rna rni rzi rmi rpi ftz sat satfinite relu")
def _cvt(e: Emitter, i: Instruction) -> None:
    to, source = i.parts[-2], i.parts[-1]
    if to in _FLOAT8:
        _to_float8(e, i, to, source)
    elif source in _FLOAT8:
        _from_float8(e, i, to, source)
    elif to in ("f16x2", "bf16x2"):
        high, low = (_halved(e, i, e.read(s, "f4"), to.removesuffix("x2")) for s in i.operands[1:3])
        e.write(i.operands[0], pack(low, high), "u4")
    elif is_integer(source):
        _from_integer(e, i, to, source)
    elif is_integer(to):
        rounding = next((p for p in i.parts if p in _INTEGER_ROUNDINGS), "rzi")
        e.write(
            i.operands[0], f"floats.float_to_int({_float(e, i, source)}, {kind_of(to)!r}, {rounding!r})", kind_of(to)
        )
    else:
        _float_to_float(e, i, to, source)


def _float(e: Emitter, i: Instruction, kind: str) -> str:
    """Return the source as float32 or float64."""
    if kind in ("f32", "f64"):
        value = e.read(i.operands[1], kind_of(kind))
        return f"floats.flush({value})" if "ftz" in i.parts and kind == "f32" else value
    return widen_halves(e, i.operands[1], kind)[0]


def _limited(e: Emitter, i: Instruction, value: str, name: str) -> str:
    """Apply relu and saturation to finite values."""
    if "relu" in i.parts:
        value = f"floats.relu({value})"
    if "satfinite" in i.parts:
        largest = e.constant(_LARGEST[name], f"LARGEST_{name}")
        value = f"clip({value}, -{largest}, {largest}).astype(f4)"
    return value


def _halved(e: Emitter, i: Instruction, value: str, name: str) -> str:
    """Return the bits of a float rounded to f16 or bf16, with relu and saturation."""
    return narrow(_limited(e, i, value, name), name, rounding_of(i))


def _to_float8(e: Emitter, i: Instruction, to: str, source: str) -> None:
    name = to.removesuffix("x2")
    if source == "f32":
        high, low = (e.read(s, "f4") for s in i.operands[1:])
    else:
        low, high = widen_halves(e, i.operands[1], source)
    if "satfinite" not in i.parts or rounding_of(i) != "rn":
        raise e.unknown("8-bit floats are rounded to nearest, with satfinite")
    if "relu" in i.parts:
        high, low = f"floats.relu({high})", f"floats.relu({low})"
    codes = [f"minifloat.from_f32({v}, {name!r}).astype(u2)" for v in (low, high)]
    e.write(i.operands[0], f"{codes[0]} | ({codes[1]} << 8)", "u2")


def _from_float8(e: Emitter, i: Instruction, to: str, source: str) -> None:
    if to != "f16x2":
        raise e.unknown("8-bit floats become f16x2 only")
    name = source.removesuffix("x2")
    bits = e.read_wide(i.operands[1], "u2")
    halves = [f"minifloat.to_f32({b}, {name!r})" for b in (f"({bits}).astype(u1)", f"(({bits}) >> 8).astype(u1)")]
    if "relu" in i.parts:
        halves = [f"floats.relu({h})" for h in halves]
    write_halves(e, i.operands[0], [narrow(h, "f16") for h in halves])


def _from_integer(e: Emitter, i: Instruction, to: str, source: str) -> None:
    value, rounding = e.read_wide(i.operands[1], kind_of(source)), rounding_of(i)
    if to in ("f32", "f64"):
        kind = kind_of(to)
        text = f"({value}).astype({kind})" if rounding == "rn" else f"floats.from_int({value}, {kind!r}, {rounding!r})"
        e.write(i.operands[0], f"floats.saturate({text})" if "sat" in i.parts else text, kind)
    else:
        text = f"floats.from_int({value}, 'odd', 'rn')"
        text = f"floats.saturate({text})" if "sat" in i.parts else text
        e.write(i.operands[0], narrow(text, to, rounding), "u2")


def _float_to_float(e: Emitter, i: Instruction, to: str, source: str) -> None:
    value = _float(e, i, source)
    integral = next((p for p in i.parts if p in _INTEGER_ROUNDINGS), None)
    if integral:
        value = f"floats.round_to_integral({value}, {integral!r})"
    if "sat" in i.parts:
        value = f"floats.saturate({value})"
    if to == "tf32":
        rounding = "rna" if "rna" in i.parts else rounding_of(i)
        value = f"floats.relu({value})" if "relu" in i.parts else value
        text = f"minifloat.f32_to_tf32({value}, {rounding!r})"
        e.write(i.operands[0], f"minifloat.finite_tf32({text})" if "satfinite" in i.parts else text, "u4")
    elif to in ("f16", "bf16"):
        value = e.temporary(value)
        code = _halved(e, i, value, to)
        e.write(i.operands[0], f"minifloat.keep_nan({code}, {value}, {to!r})" if source == "f64" else code, "u2")
    elif to in ("f32", "f64"):
        rounding, flush = rounding_of(i), "ftz" in i.parts and to == "f32"
        value = e.temporary(value) if flush else value
        if rounding == "rn" or to == "f64" or source != "f64":
            text = f"({value}).astype({kind_of(to)})"
            # Measured on an H200: only bf16, f64 and plain copies keep a NaN's bits.
            arithmetic = source == "f16" or (source == "f32" and (integral or "ftz" in i.parts))
            text = f"floats.canonical({text})" if to == "f32" and arithmetic else text
        else:
            text = f"floats.round_to({value}, {kind_of(to)}, {rounding!r})"
        if flush:
            text = (
                f"floats.flush_rounded({text}, {value}, {rounding!r})" if source == "f64" else f"floats.flush({text})"
            )
        e.write(i.operands[0], text, kind_of(to))
    else:
        raise e.unknown()
