"""Arithmetic where the ISA leaves bits open, or states an error: approximations, NaNs, saturation, zeros of both signs.

What the ISA fixes is covered by the launches of the opcode tests.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.sim.hardware.corpus import Bounds, Case
from tests.sim.opcode_runner import apply

COUNT = 2048
_SIGN_32 = np.uint32(1 << 31)
_SPECIAL_32 = np.array([
    0, 1, 2, 0x7FFFFF, 0x400000, 0x800000, 0x800001, 0x1000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40000000,
    0x34000000, 0x3F000000, 0x3FC00000, 0x42FE0000, 0x43000000, 0x43150000, 0x4B000000, 0x4F000000, 0x5F000000,
    0x7E800000, 0x7E800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7FA12345,
], np.uint32)  # fmt: skip
SPECIAL_32 = np.concatenate([_SPECIAL_32, _SPECIAL_32 | _SIGN_32])
_SPECIAL_16 = {
    "f16": (0, 1, 2, 0x3FF, 0x400, 0x401, 0x3BFF, 0x3C00, 0x3C01, 0x3800, 0x4000, 0x7BFF, 0x7C00, 0x7C01, 0x7E00,
            0x7FFF),
    "bf16": (0, 1, 2, 0x7F, 0x80, 0x81, 0x3F7F, 0x3F80, 0x3F81, 0x3F00, 0x4000, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0,
             0x7FFF),
}  # fmt: skip
SPECIAL_64 = np.array([
    0, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF0000000000000, 0x3FF0000000000001, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
    0x7FF0000000000001, 0x7FF8000000000000, 0x7FF8000012345678,
], np.uint64)  # fmt: skip


def specials_16(kind: str) -> np.ndarray[Any, Any]:
    values = np.array(_SPECIAL_16[kind], np.uint16)
    return np.concatenate([values, values | np.uint16(0x8000)])


def _pairs(values: np.ndarray[Any, Any], arity: int) -> list[np.ndarray[Any, Any]]:
    """Cross special values; of three operands the third walks through them at another pace."""
    n = len(values)
    a, b = np.repeat(values, n), np.tile(values, n)
    return [a, b, np.resize(np.roll(values, 5), n * n)][:arity] if arity > 1 else [values]


# Approximations.

_RANGES = {
    "rcp": (-126, 126),
    "rsqrt": (-126, 127),
    "sqrt": (-126, 127),
    "lg2": (-149, 127),
    "ex2": (-30, 7),
    "tanh": (-20, 4),
    "sin": (-20, 2),
    "cos": (-20, 2),
}


def _operands(name: str) -> np.ndarray[Any, Any]:
    """Return special values, then random ones over the exponents that matter, some subnormal."""
    rng = np.random.default_rng(list(name.encode()))
    low, high = _RANGES[name]
    exponent = rng.integers(low + 127, high + 127, COUNT).clip(0, 254)
    bits = exponent.astype(np.uint32) << np.uint32(23) | rng.integers(0, 1 << 23, COUNT).astype(np.uint32)
    if name not in ("rsqrt", "sqrt", "lg2"):
        bits |= rng.integers(0, 2, COUNT).astype(np.uint32) << np.uint32(31)
    return np.concatenate([SPECIAL_32, bits])


def _approximate(spelling: str) -> None:
    apply(f"{spelling} %d, %a;", _operands(spelling.split(".")[0]).view("f4"), out="f4")


def _approximate_half(spelling: str) -> None:
    """Run an instruction on every 16-bit pattern."""
    apply(f"{spelling} %d, %a;", np.arange(1 << 16, dtype=np.uint16), out="u2")


def _divide(spelling: str) -> None:
    a, b = _pairs(SPECIAL_32, 2)
    rng = np.random.default_rng(11)
    x, y = (rng.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    near = (rng.integers(-8, 8, COUNT) << 23).astype(np.uint32)
    y = np.where(rng.random(COUNT) < 0.7, (x & np.uint32(0x7F800000)) + near ^ y & np.uint32(0x807FFFFF), y)
    apply(f"{spelling} %d, %a, %b;", np.concatenate([a, x]).view("f4"), np.concatenate([b, y]).view("f4"), out="f4")


def _coarse(spelling: str) -> None:
    rng = np.random.default_rng(12)
    values = np.concatenate([SPECIAL_64.view("f8"), np.ldexp(rng.uniform(1, 2, 256), rng.integers(-60, 60, 256))])
    apply(f"{spelling} %d, %a;", values, out="f8")


# The hardware's tables are not the simulator's float64. Largest distances and least shares of equal bits are those that
# an H200 was found to have, shares with room for the sampling; all are within the errors that the ISA states.
_MEASURED = {
    "rcp": Bounds("f32", 1, 0.8),
    "rsqrt": Bounds("f32", 1, 0.7),
    "sqrt": Bounds("f32", 1, 0.7),
    "lg2": Bounds("f32", 2, 0.4, absolute=2.0**-22),
    "ex2": Bounds("f32", 2, 0.6),
    "sin": Bounds("f32", 0, 0.02, absolute=2.0**-21),
    "cos": Bounds("f32", 0, 0.25, absolute=2.0**-21),
}
APPROXIMATE = {f"{op}.approx{ftz}.f32": bounds for op, bounds in _MEASURED.items() for ftz in ("", ".ftz")}
APPROXIMATE["tanh.approx.f32"] = Bounds("f32", 128, 0.3)
HALF = {
    "ex2.approx.f16": Bounds("f16", 1, 0.6),
    "ex2.approx.ftz.bf16": Bounds("bf16", 1, 0.9),
    "tanh.approx.f16": Bounds("f16", 1, 0.65),
    "tanh.approx.bf16": Bounds("bf16", 1, 0.9),
}
# With ftz, what is about the least normal number may be 0.
DIVISION = {f"div.{form}.f32": Bounds("f32", 2, 0.9) for form in ("approx", "full")}
DIVISION |= {f"div.{form}.ftz.f32": Bounds("f32", 2, 0.9, absolute=2.0**-126) for form in ("approx", "full")}
COARSE = {f"{op}.approx.ftz.f64": Bounds("f64", 1 << 32, 0.85) for op in ("rcp", "rsqrt")}


# What is exact, on operands that are not numbers, or barely.


def _f32(spelling: str, arity: int) -> None:
    """Keep the bits of NaNs: the operands and results are moved as integers."""
    names = "abc"[:arity]
    moves = "".join(f"mov.b32 x{n}, %{n};\n" for n in names)
    body = f"{{ .reg .f32 xa, xb, xc, y;\n{moves}{spelling} y, {', '.join(f'x{n}' for n in names)};\nmov.b32 %d, y; }}"
    apply(body, *_pairs(SPECIAL_32, arity), out="u4")


def _f64(spelling: str, arity: int) -> None:
    names = "abc"[:arity]
    moves = "".join(f"mov.b64 x{n}, %{n};\n" for n in names)
    body = f"{{ .reg .f64 xa, xb, xc, y;\n{moves}{spelling} y, {', '.join(f'x{n}' for n in names)};\nmov.b64 %d, y; }}"
    values = np.concatenate([SPECIAL_64, SPECIAL_64 | np.uint64(1 << 63)])
    apply(body, *_pairs(values, arity), out="u8")


def _half(spelling: str, arity: int) -> None:
    kind = spelling.split(".")[-1]
    values = _pairs(specials_16(kind.removesuffix("x2")), arity)
    if kind.endswith("x2"):
        values = [x.view("u4") for x in values]
    apply(f"{spelling} %d, {', '.join(f'%{n}' for n in 'abc'[:arity])};", *values, out="u4" if "x2" in kind else "u2")


def _convert(spelling: str) -> None:
    """Convert special values and random ones, from and to registers of the types' widths."""
    *_, to, source = spelling.split(".")
    width = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[source]
    values = {2: specials_16(source) if width == 2 else None, 4: SPECIAL_32, 8: SPECIAL_64}[width]
    rng = np.random.default_rng(list(spelling.encode()))
    random = rng.integers(0, 1 << 8 * width - 1, 512, dtype=np.uint64).astype(f"u{width}")
    values = np.concatenate([values, random, random | np.array(1 << 8 * width - 1, f"u{width}")])
    bits = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64}.get(to) or max(int(to[1:]), 16)
    operand = values if width == 2 else values.view(f"f{width}")
    if to == "f32":
        apply(f"{{ .reg .f32 y;\n{spelling} y, %a;\nmov.b32 %d, y; }}", operand, out="u4")
    else:
        apply(f"{spelling} %d, %a;", operand, out=f"u{bits // 8}")


def _pack(spelling: str) -> None:
    """Convert pairs of f32 to packed types."""
    apply(f"{spelling} %d, %a, %b;", *(x.view("f4") for x in _pairs(SPECIAL_32, 2)), out=_width_of_packed(spelling))


def _width_of_packed(spelling: str) -> str:
    return "u2" if any(f".{kind}x2" in spelling for kind in ("e4m3", "e5m2")) else "u4"


def _divide_integers(kind: str) -> None:
    bits = int(kind[1:])
    numbers = [0, 1, 2, 7, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1, (1 << bits) - 7]
    a, b = _pairs(np.array(numbers, f"u{bits // 8}"), 2)
    for operation in ("div", "rem"):
        apply(f"{operation}.{kind} %d, %a, %b;", a, b, out=f"u{bits // 8}")


F32 = {"add.f32": 2, "sub.f32": 2, "mul.f32": 2, "fma.rn.f32": 3, "add.ftz.f32": 2, "mul.ftz.f32": 2, "div.rn.f32": 2}
F32 |= {"sqrt.rn.f32": 1, "rcp.rn.f32": 1, "add.rm.f32": 2, "fma.rm.f32": 3, "fma.rn.ftz.f32": 3, "abs.f32": 1}
F32 |= {"div.rn.ftz.f32": 2, "sqrt.rn.ftz.f32": 1, "rcp.rn.ftz.f32": 1, "mul.rz.ftz.f32": 2, "fma.rp.ftz.f32": 3}
F32 |= {"neg.f32": 1, "abs.ftz.f32": 1, "neg.ftz.f32": 1, "copysign.f32": 2}
SATURATED = {"add.sat.f32": 2, "sub.sat.f32": 2, "mul.sat.f32": 2, "fma.rn.sat.f32": 3, "add.ftz.sat.f32": 2}
SATURATED |= {"mul.ftz.sat.f32": 2, "cvt.sat.f32.f32": 1, "cvt.ftz.sat.f32.f32": 1, "cvt.rni.sat.f32.f32": 1}
EXTREMA = {f"{op}{m}.f32": 2 for op in ("min", "max") for m in ("", ".ftz", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")}
F64 = {"add.f64": 2, "mul.f64": 2, "fma.rn.f64": 3, "min.f64": 2, "max.f64": 2, "div.rn.f64": 2, "sqrt.rn.f64": 1}
F64 |= {"sub.f64": 2, "rcp.rn.f64": 1, "neg.f64": 1, "abs.f64": 1, "fma.rz.f64": 3, "mul.rm.f64": 2}
HALVES = {f"{op}.{t}": 2 for op in ("add", "sub", "mul", "min", "max", "min.NaN", "max.NaN") for t in ("f16", "bf16")}
HALVES |= {"fma.rn.f16": 3, "fma.rn.bf16": 3, "fma.rn.relu.f16": 3, "fma.rn.relu.bf16": 3, "add.ftz.f16": 2}
HALVES |= {"add.f16x2": 2, "fma.rn.bf16x2": 3, "max.xorsign.abs.bf16": 2, "min.NaN.xorsign.abs.f16": 2}
HALVES |= {f"{op}.{t}": 1 for op in ("neg", "abs") for t in ("f16", "bf16")} | {"mul.ftz.f16": 2, "fma.rn.ftz.f16": 3}
HALVES_SATURATED = {"add.sat.f16": 2, "mul.sat.f16": 2, "fma.rn.sat.f16": 3, "mul.ftz.sat.f16": 2, "add.sat.f16x2": 2}
FLOAT_CONVERSIONS = [f"cvt.{m}.{to}.f32" for m in ("rn", "rz") for to in ("f16", "bf16")]
FLOAT_CONVERSIONS += ["cvt.rn.relu.f16.f32", "cvt.rn.relu.bf16.f32", "cvt.f32.f16", "cvt.f32.bf16", "cvt.rn.f32.f64"]
FLOAT_CONVERSIONS += ["cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32", "cvt.rn.relu.tf32.f32"]
FLOAT_CONVERSIONS += [f"cvt.{m}.{to}.f64" for m in ("rn", "rz") for to in ("f16", "bf16")] + ["cvt.ftz.f32.f32"]
FLOAT_CONVERSIONS += ["cvt.f64.f32", "cvt.f64.f16", "cvt.rn.bf16.f16", "cvt.f32.f32"]
FLOAT_CONVERSIONS += ["cvt.rna.satfinite.tf32.f32", "cvt.rn.ftz.f16.f32", "cvt.rni.f32.f32", "cvt.rni.ftz.f32.f32"]
INTEGER_CONVERSIONS = [f"cvt.{m}.{to}.f32" for m in ("rni", "rzi") for to in ("s8", "u8", "s16", "u16", "s32", "u32")]
INTEGER_CONVERSIONS += [f"cvt.{m}.{to}.f32" for m in ("rni", "rmi") for to in ("s64", "u64")]
INTEGER_CONVERSIONS += [f"cvt.rni.sat.{to}.f32" for to in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")]
INTEGER_CONVERSIONS += [f"cvt.rni.{to}.{f}" for to in ("s8", "s16", "s32", "u64") for f in ("f16", "f64")]
INTEGER_CONVERSIONS += ["cvt.rni.s32.bf16", "cvt.rzi.ftz.s32.f32", "cvt.rpi.u32.f32"]
PACKED = ["cvt.rn.f16x2.f32", "cvt.rz.bf16x2.f32", "cvt.rn.relu.f16x2.f32", "cvt.rn.relu.satfinite.bf16x2.f32"]
PACKED += [f"cvt.rn.satfinite{m}.{t}x2.f32" for m in ("", ".relu") for t in ("e4m3", "e5m2")]


def cases() -> list[Case]:
    """Return the cases of this module."""
    found = []
    for table, function in (
        (APPROXIMATE, _approximate),
        (HALF, _approximate_half),
        (DIVISION, _divide),
        (COARSE, _coarse),
    ):
        found += [Case(f"approx.{s}", partial(function, s), bounds) for s, bounds in table.items()]
    for family, arities, run in (
        ("f32", F32, _f32),
        ("saturate", SATURATED, _f32),
        ("extrema", EXTREMA, _f32),
        ("f64", F64, _f64),
        ("half", HALVES, _half),
        ("saturate", HALVES_SATURATED, _half),
    ):
        found += [Case(f"{family}.{s}", partial(run, s, arity)) for s, arity in arities.items()]
    found += [Case(f"convert.{s}", partial(_convert, s)) for s in (*FLOAT_CONVERSIONS, *INTEGER_CONVERSIONS)]
    found += [Case(f"convert.{s}", partial(_pack, s)) for s in PACKED]
    found += [Case(f"divide.{t}", partial(_divide_integers, t)) for t in ("s16", "u16", "s32", "u32", "s64", "u64")]
    return found
