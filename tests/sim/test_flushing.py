"""Flushing (.ftz) next to the smallest normal number, in both back ends: an H200's results, and exact fractions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import cutepy.frontends  # noqa: F401  brings the compiler
from cutepy.sim import translate
from cutepy.sim.native import compiler, ledger, machine_code
from tests.sim.opcode_runner import apply
from tests.sim.operands import FORMATS, KINDS, flushed, generator, power_of_two, round_bits, value_of

RECORDED = {
    spelling: [row.split("=") for row in rows.split(", ")]
    for spelling, _, rows in (
        line.partition(": ") for line in Path(__file__).with_name("flushed_by_h200.txt").read_text().splitlines()[1:]
    )
}
ROUNDINGS = ("rn", "rz", "rm", "rp")
SPELLINGS = [f"{op}.{m}.ftz{sat}.f32" for op in ("mul", "fma") for m in ROUNDINGS for sat in ("", ".sat")]
SPELLINGS += [f"{op}.{m}.ftz.f32" for op in ("div", "rcp", "add") for m in ROUNDINGS]
SPELLINGS += [f"cvt.{m}.ftz.f32.f64" for m in ROUNDINGS]
SPELLINGS += ["mul.ftz.f16", "mul.ftz.sat.f16", "fma.rn.ftz.f16", "fma.rn.ftz.relu.f16", "fma.rn.ftz.sat.f16"]
COUNT = 500


@pytest.fixture(params=["numpy", "machine code"])
def back_end(request, monkeypatch):
    runs = []
    run = machine_code._Compiled.run

    def counted(self, *arguments):
        runs.append(run(self, *arguments))
        return runs[-1]

    monkeypatch.setenv("CUTEPY_CACHE", "off")
    monkeypatch.setattr(machine_code._Compiled, "run", counted)
    monkeypatch.setattr(ledger, "WORTH", 0)
    if request.param == "numpy":
        monkeypatch.setattr(compiler, "_provided", [])
    translate._program.cache_clear()
    yield request.param
    translate._program.cache_clear()
    assert any(runs) == (request.param == "machine code")


def executed(spelling, columns):
    """Execute an instruction on the bits of its operands; returns the bits of its results."""
    kind, source = spelling.split(".")[-1], spelling.split(".")[-2]
    if source == "f32":  # a conversion
        return apply(f"{spelling} %d, %a;", np.array(columns[0], "u8").view("f8"), out="f4").view("u4").tolist()
    operands = [np.array(column, KINDS[kind]) for column in columns]
    operands = [x.view("f4") if kind == "f32" else x for x in operands]
    text = f"{spelling} %d, {', '.join(f'%{x}' for x in 'abc'[: len(operands)])};"
    return apply(text, *operands, out=operands[0].dtype.str[1:]).view(KINDS[kind]).tolist()


@pytest.mark.parametrize("spelling", RECORDED)
def test_results_of_an_h200(spelling, back_end):
    rows = RECORDED[spelling]
    columns = zip(*([int(word, 16) for word in given.split()] for given, _ in rows), strict=True)
    assert [f"{x:0{len(rows[0][1])}x}" for x in executed(spelling, list(columns))] == [found for _, found in rows]


def expected(spelling, lane):
    """Round to the format's precision without bounds of the exponent, then flush, then clamp."""
    name, *modifiers, kind = spelling.split(".")
    if name == "cvt":
        kind, operand_kind = "f32", "f64"
        modifiers.pop()
    else:
        operand_kind = kind
        lane = [flushed(x, kind) for x in lane]
    mode = next((m for m in modifiers if m in ROUNDINGS), "rn")
    a, *rest = (Fraction(value_of(x, operand_kind)) for x in lane)
    exact = {
        "mul": lambda: a * rest[0],
        "fma": lambda: a * rest[0] + rest[1],
        "add": lambda: a + rest[0],
        "div": lambda: a / rest[0],
        "rcp": lambda: 1 / a,
        "cvt": lambda: a,
    }[name]()
    if exact == 0:
        return None  # the sign of such zeros is no matter of flushing
    exponent_bits, mantissa_bits = FORMATS[kind]
    smallest = power_of_two(2 - (1 << exponent_bits - 1))
    sign = 1 << exponent_bits + mantissa_bits if exact < 0 else 0
    if abs(exact) < smallest:
        step = smallest / power_of_two(mantissa_bits)
        while abs(exact) < step * power_of_two(mantissa_bits):
            step /= 2
        whole, rest_of_it = divmod(abs(exact), step)
        up = {
            "rn": 2 * rest_of_it > step or (2 * rest_of_it == step and whole % 2 == 1),
            "rz": False,
            "rm": sign and rest_of_it,
            "rp": not sign and rest_of_it,
        }[mode]
        result = sign | (1 << mantissa_bits if (whole + bool(up)) * step >= smallest else 0)
    else:
        result = round_bits(exact, kind, mode)
    if sign and ("sat" in modifiers or "relu" in modifiers):
        return 0
    return min(result, round_bits(Fraction(1), kind)) if "sat" in modifiers else result


def near_the_smallest(spelling):
    """Return operands whose exact result is next to the smallest normal number, on both sides, ties among them."""
    name, *_, kind = spelling.split(".")
    rng = generator(spelling)
    if name == "cvt":
        tiny = np.float64(2.0**-126).view("u8")
        offsets = rng.integers(-3, 4, COUNT) * (1 << rng.integers(24, 31, COUNT)) + rng.integers(-1, 2, COUNT)
        return [(tiny.astype("i8") + offsets).astype("u8") | rng.integers(0, 2, COUNT).astype("u8") << np.uint64(63)]
    exponent_bits, mantissa_bits = FORMATS[kind]
    bias, one = (1 << exponent_bits - 1) - 1, 1 << mantissa_bits
    signs = rng.integers(0, 2, (3, COUNT)) << exponent_bits + mantissa_bits
    small = rng.integers(0, 4, COUNT)
    # (1 - s * 2**-p) * (1 + t * 2**-p) * 2**smallest: the product of the significands is next to a power of two.
    power = rng.integers(1, bias - 1, COUNT)
    first = (power + 1 << mantissa_bits) - rng.integers(0, 6, COUNT)
    second = (bias - power + rng.integers(0, 2, COUNT) << mantissa_bits) + rng.integers(0, 6, COUNT)
    if name == "mul":
        return [first | signs[0], second | signs[1]]
    if name == "div":
        return [first | signs[0], (bias + power << mantissa_bits) - rng.integers(-4, 5, COUNT) | signs[1]]
    if name == "rcp":
        return [(2 * bias - 1 << mantissa_bits) + rng.integers(-6, 7, COUNT) | signs[0]]
    if name == "add":
        return [one + small | signs[0], 2 * one - small | signs[0] ^ 1 << exponent_bits + mantissa_bits]
    # A tiny product taken from the smallest normal number, or one next to it that a tiny number is added to.
    far = rng.integers(0, 2, COUNT).astype(bool)
    tiny = (bias - mantissa_bits - 1 - rng.integers(-3, 4, COUNT) << mantissa_bits) + small
    first, second = np.where(far, tiny, first), np.where(far, one, second)
    third = np.where(far, one + small // 3, rng.integers(0, 3, COUNT) << mantissa_bits - 1)
    return [first | signs[0], second | signs[1], third | signs[2]]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_flushing_is_decided_after_rounding(spelling, back_end):
    columns = [column.tolist() for column in near_the_smallest(spelling)]
    found = executed(spelling, columns)
    smallest = 1 << (23 if ".f32" in spelling else 10)
    wanted = [expected(spelling, lane) for lane in zip(*columns, strict=True)]
    wrong = [
        (spelling, [hex(x) for x in lane], hex(x), hex(y))
        for *lane, x, y in zip(*columns, found, wanted, strict=True)
        if y is not None and x != y
    ]
    assert not wrong, f"{len(wrong)} wrong, such as {wrong[:5]}"
    magnitudes = {x & (2 * smallest * 128 - 1) for x in found}
    assert 0 in magnitudes  # both sides are there
    assert "rcp" in spelling or smallest in magnitudes
