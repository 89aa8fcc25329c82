"""Meaning of integer instructions, evaluated on integers and arrays and with constants, against Python's integers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.sim.ptx.model import Immediate, Instruction, Register
from cutepy.sim.semantics.evaluation import Evaluator, results_of
from tests.sim.opcode_runner import apply
from tests.sim.operands import integers
from tests.sim.test_opcodes_integer import CASES

COUNT = 64


def evaluated(opcode, operands, bits=32):
    """Return what an opcode makes of (bits, value), ints or arrays; None for what is unknown."""
    sources = [Register(f"%r{n}", f"b{width}", n) for n, (width, _) in enumerate(operands)]
    target = Register("%d", f"b{bits}", len(sources))
    values = dict(zip(sources, (value for _, value in operands), strict=True))
    ((operand, found),) = results_of(Instruction(0, opcode, (target, *sources)), values.get)
    assert operand == target
    return found.data


def drawn(case):
    """Draw operands as `test_arithmetic` does: (bits, signed numbers) of each."""
    spelling, kinds, _, _ = case
    operands = [integers(kind, COUNT, spelling, n) for n, kind in enumerate(kinds)]
    if spelling.startswith(("shl", "shr", "shf", "szext", "bmsk")):
        operands[-1] = np.arange(COUNT, dtype=np.uint32)
    elif spelling.startswith(("bfe.", "bfi.")):
        operands[-2:] = [np.random.default_rng(n).integers(0, 80, COUNT).astype(np.uint32) for n in range(2)]
    elif spelling.startswith("fns"):
        operands[1:] = [operands[1] % np.uint32(32), operands[2] % np.int32(12)]
    return operands


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_integers_and_arrays(case):
    spelling, _, out, function = case
    operands, bits = drawn(case), 8 * np.dtype(out).itemsize
    widths = [8 * x.itemsize for x in operands]
    expected = [function(*xs) & (1 << bits) - 1 for xs in zip(*(x.tolist() for x in operands), strict=True)]
    words = [x.view(f"u{x.itemsize}").astype(np.uint64) for x in operands]
    one_by_one = zip(*(x.tolist() for x in words), strict=True)
    assert [evaluated(spelling, list(zip(widths, xs, strict=True)), bits) for xs in one_by_one] == expected
    assert evaluated(spelling, list(zip(widths, words, strict=True)), bits).tolist() == expected


@given(st.sampled_from([8, 16, 32, 64]), st.booleans())
def test_bits_that_a_number_decides_need_no_operation(bits, is_first):
    """A value is unknown here: what an operation makes of it is another one."""
    made = Evaluator(lambda operand: None)
    value, none, all_ = (
        made.read(Register("%r", "b64", 0), f"u{bits // 8}"),
        made.constant(bits, 0),
        made.constant(bits, -1),
    )
    other = made.read(Register("%s", "b64", 1), f"u{bits // 8}")

    def apply(operation, number):
        return made.logic(operation, *((number, value) if is_first else (value, number)))

    for operation, of_none, of_all in (("and", none, value), ("or", value, all_), ("xor", value, None)):
        assert apply(operation, none) is of_none
        if of_all is not None:
            assert apply(operation, all_) is of_all
        assert apply(operation, other).sources == value.sources | other.sources
    assert (apply("and", value), apply("or", value)) == (value, value)
    assert apply("xor", value).number == 0


@pytest.mark.parametrize("case", [case for case in CASES if len(case[1]) > 1], ids=lambda case: case[0])
def test_constants_of_the_source(case):
    """Constants folded in the source equal results of registers; `bfe` and `bfi` take positions of 8 bits."""
    spelling, _, out, function = case
    operands, bits = drawn(case), 8 * np.dtype(out).itemsize
    for n in range(0, COUNT, 40):
        constants = [x.tolist()[n] for x in operands[1:]]
        got = apply(f"{spelling} %d, %a, {', '.join(map(str, constants))};", operands[0], out=out)
        expected = [function(x, *constants) & (1 << bits) - 1 for x in operands[0].tolist()]
        assert got.view(f"u{got.itemsize}").tolist() == expected, constants


def test_all_truth_tables():
    rng = random.Random(1)
    for table in range(256):
        a, b, c = (rng.getrandbits(32) for _ in range(3))
        expected = sum((table >> (4 * (a >> n & 1) + 2 * (b >> n & 1) + (c >> n & 1)) & 1) << n for n in range(32))
        target, *sources = (Register(f"%r{n}", "b32", n) for n in range(4))
        i = Instruction(0, "lop3.b32", (target, *sources, Immediate(table)))
        ((_, found),) = results_of(i, dict(zip(sources, (a, b, c), strict=True)).get)
        assert found.data == expected, table


@given(st.integers(0, 2**32 - 1), st.integers(0, 31), st.integers(-33, 33))
def test_the_nth_bit_that_is_set_is_found_upwards_and_downwards(mask, base, offset):
    """PTX ISA, "fns": from the base on, which counts itself; the base alone for 0; all ones where there is none."""
    step = -1 if offset < 0 else 1
    left, place = abs(offset) or 1, base
    while 0 <= place < 32 and (left := left - (mask >> place & 1)) > 0 and offset != 0:
        place += step
    expected = place if left == 0 else 0xFFFFFFFF
    assert evaluated("fns.b32", [(32, mask), (32, base), (32, offset & 0xFFFFFFFF)]) == expected


@pytest.mark.parametrize(
    ("opcode", "operands", "expected"),
    [
        ("setp.lt.s32", (0xFFFFFFFF, 1), 1),
        ("setp.lt.u32", (0xFFFFFFFF, 1), 0),
        ("setp.hs.u32", (0xFFFFFFFF, 1), 1),
        ("setp.ge.s64", ((1 << 64) - 1, 0), 0),
        ("set.ne.s32.u32", (1, 0), 0xFFFFFFFF),
        ("set.eq.f32.u32", (1, 1), 0x3F800000),
        ("slct.b32.s32", (5, 6, 0xFFFFFFFF), 6),
        ("cvt.u16.u32", (0x12345,), 0x2345),
        ("cvt.s32.s16", (0xFFFF,), 0xFFFFFFFF),
        ("cvt.sat.u8.s32", (0xFFFFFFFF,), 0),
        ("cvt.sat.s32.u64", ((1 << 64) - 1,), 0x7FFFFFFF),
        ("cvt.pack.sat.u8.s32.b32", (0x1000, 0xFFFFFFFF, 7), 7 << 16 | 0xFF00),
        ("cvta.to.shared.u64", ((1 << 56) + 16,), 16),
        ("and.b32", (None, 0), 0),
        ("or.b32", (None, 0xFFFFFFFF), 0xFFFFFFFF),
        ("mul.lo.s32", (0, None), 0),
        ("mad.lo.s32", (0, None, 7), 7),
        ("add.s32", (None, 0), None),
        ("shl.b32", (None, 32), 0),
        ("prmt.b32", (5, None, 0x3210), 5),
    ],
)
def test_comparisons_conversions_and_operands_that_decide(opcode, operands, expected):
    wide = 64 if "64" in opcode else 32
    assert evaluated(opcode, [(wide, x) for x in operands], 64 if opcode.startswith("cvta") else 32) == expected


def test_results_of_floats_are_unknown_and_have_sources():
    d, a = Register("%d", "f32", 0), Register("%a", "f32", 1)
    ((_, found),) = results_of(Instruction(0, "add.f32", (d, a, Immediate(0x3F800000, 32))), {a: 1}.get)
    assert (found.data, found.sources) == (None, {a})


@pytest.mark.parametrize(("opcode", "operands"), [("add.s32", 1), ("fma.rz.relu.bf16", 4), ("ld.u32", 2)])
def test_another_form_has_no_results(opcode, operands):
    registers = tuple(Register(f"%r{n}", "b32", n) for n in range(operands))
    assert results_of(Instruction(0, opcode, registers), {}.get) == []


def test_the_operands_that_decide_are_the_sources():
    a, b, p = Register("%a", "b32", 0), Register("%b", "b32", 1), Register("%p", "pred", 2)
    i = Instruction(0, "selp.b32", (Register("%d", "b32", 3), a, b, p))
    ((_, found),) = results_of(i, {p: 1}.get)
    assert found.sources == {a}
    ((_, found),) = results_of(i, {}.get)
    assert found.sources == {a, b, p}
