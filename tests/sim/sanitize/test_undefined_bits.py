"""Bits that lack a value, against all values of the operands' undefined bits."""

from __future__ import annotations

import itertools
import operator
import random

import numpy as np
import pytest

from cutepy.sim.ptx.model import Immediate, Instruction, Register
from cutepy.sim.sanitize.undefined_bits import Bits, Definedness
from cutepy.sim.semantics import meaning_of
from cutepy.sim.semantics.evaluation import results_of
from tests.sim.test_opcodes_integer import CASES

ORDERS = [f"setp.{relation}.{sign}32" for relation in ("lt", "le", "gt", "ge") for sign in "us"]
EXACT = ["and.b32", "or.b32", "xor.b32", "not.b32", "lop3.b32", "shl.b32", "cvt.s64.s32", "selp.b32", *ORDERS]
"""Opcodes of which no bit is said to lack a value that has one, unless an amount lacks its own."""
OTHERS = ["setp.eq.s32", "slct.b32.s32", "cvt.sat.s16.s32", "cvt.u32.u64", "mov.b32"]
WIDTHS = {"selp.b32": (32, 32, 1), "lop3.b32": (32, 32, 32), **dict.fromkeys(("setp.eq.s32", *ORDERS), (32, 32))}
WIDTHS |= {"slct.b32.s32": (32, 32, 32), "cvt.sat.s16.s32": (32,), "cvt.u32.u64": (64,), "mov.b32": (32,)}
WIDTHS |= {"cvt.s64.s32": (32,)}
WIDTHS |= {"add.u32": (32, 32), "sub.s32": (32, 32)}
BITS = {**dict.fromkeys(("setp.eq.s32", *ORDERS), 1), "cvt.sat.s16.s32": 16, "cvt.s64.s32": 64}
WIDTHS |= {case[0]: tuple(8 * int(kind[1:]) for kind in case[1]) for case in CASES}
BITS |= {case[0]: 8 * int(case[2][1:]) for case in CASES}


class Given:
    """Operands with values and masks."""

    def __init__(self, values, masks):
        self.values, self.masks = values, masks

    def value(self, operand):
        return np.array([[self.values[operand]]], np.uint64)

    def mask(self, operand):
        return np.array([[self.masks[operand]]], np.uint64)

    def knows(self, operand):
        return True


def lacking(opcode, rng):
    """Return which bits of a random case are said to lack a value, and which do."""
    widths, bits = WIDTHS[opcode], BITS.get(opcode, 32)
    sources = [Register(f"%r{n}", "pred" if w == 1 else f"b{w}", n) for n, w in enumerate(widths)]
    target = Register("%d", "pred" if bits == 1 else f"b{bits}", 9)
    values = {
        r: rng.choice([rng.getrandbits(w), rng.getrandbits(6) % (1 << w)]) for r, w in zip(sources, widths, strict=True)
    }
    places = rng.sample([(r, n) for r, w in zip(sources, widths, strict=True) for n in range(w)], rng.randrange(1, 6))
    masks = {r: sum(1 << n for x, n in places if x is r) for r in sources}
    table = (Immediate(rng.getrandbits(8)),) if opcode == "lop3.b32" else ()
    i = Instruction(0, opcode, (target, *sources, *table))
    found = set()
    for chosen in itertools.product((0, 1), repeat=len(places)):
        tried = {r: v & ~masks[r] for r, v in values.items()}
        for bit, (r, n) in zip(chosen, places, strict=True):
            tried[r] |= bit << n
        found.add(results_of(i, tried.get)[0][1].data)
    b = Definedness(Given(values, masks))
    meaning_of(i)(b, i)
    differing = 0
    for one in found:
        differing |= one ^ next(iter(found))
    return int(b.lacks[target].max()), differing


@pytest.mark.parametrize("opcode", [*EXACT, *OTHERS, *(case[0] for case in CASES if case[0] not in EXACT)])
def test_what_depends_on_undefined_bits_lacks_a_value(opcode):
    rng = random.Random(opcode)
    for _ in range(12):
        said, differing = lacking(opcode, rng)
        assert differing & ~said == 0
        if opcode in EXACT and (opcode != "shl.b32" or said != 0xFFFFFFFF):
            assert said == differing


@pytest.mark.parametrize("opcode", ["add.u32", "sub.s32"])
def test_sums_have_values_below_the_lowest_bit_without_one(opcode):
    rng = random.Random(7)
    for _ in range(100):
        said, differing = lacking(opcode, rng)
        assert said & -said == differing & -differing, opcode


@pytest.mark.parametrize(
    ("opcode", "widths", "bits", "undefined", "lacks"),
    [
        ("add.f32x2", (64, 64), 64, 1 << 3, 0xFFFFFFFF),
        ("fma.rn.ftz.f32x2", (64, 64, 64), 64, 1 << 40, 0xFFFFFFFF << 32),
        ("add.f32.bf16", (16, 32), 32, 1, 0xFFFFFFFF),
        ("max.NaN.f32", (32, 32, 32), 32, 1, 0xFFFFFFFF),
        ("cvt.rn.satfinite.e2m1x2.f16x2", (32,), 8, 1, 0x0F),
        ("cvt.rn.satfinite.e2m1x2.f16x2", (32,), 8, 1 << 16, 0xF0),
        ("cvt.rn.f16x2.e2m1x2", (8,), 32, 1 << 4, 0xFFFF0000),
        ("cvt.rn.f16x2.e3m2x2", (16,), 32, 1, 0xFFFF),
        ("cvt.rz.ue8m0x2.f32", (32, 32), 16, 1 << 31, 0),
        ("cvt.rz.ue8m0x2.bf16x2", (32,), 16, 1 << 23, 0xFF00),
        ("cvt.rn.bf16x2.ue8m0x2", (16,), 32, 1, 0xFFFF),
    ],
)
def test_halves_of_pairs_lack_values_by_themselves(opcode, widths, bits, undefined, lacks):
    sources = [Register(f"%r{n}", f"b{w}", n) for n, w in enumerate(widths)]
    target = Register("%d", f"b{bits}", 9)
    b = Definedness(Given(dict.fromkeys(sources, 0), {r: undefined * (n == 0) for n, r in enumerate(sources)}))
    i = Instruction(0, opcode, (target, *sources))
    meaning_of(i)(b, i)
    assert int(b.lacks[target].max()) == lacks


FLOATS = [0.0, -0.0, 1.0, -1.5, 3.0e38, 1e-40, float("inf"), float("-inf"), float("nan")]
RELATIONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("lacks", [0, 1])
def test_comparisons_of_known_floats_are_known(bits, lacks):
    """Ordered relations hold of no NaN, unordered ones of each; bits that have no value leave none to the result."""
    x, y = (np.array(values, f"f{bits // 8}") for values in zip(*itertools.product(FLOATS, repeat=2), strict=True))
    given = [Bits(bits, each.view(f"u{bits // 8}").astype(np.uint64), np.uint64(lacks)) for each in (x, y)]
    unordered = np.isnan(x) | np.isnan(y)
    expected = {"ord": ~unordered, "uno": unordered, "one": (x != y) & ~unordered, "une": (x != y) | unordered}
    for name, relation in RELATIONS.items():
        expected |= {f"o{name}": relation(x, y) & ~unordered, f"u{name}": relation(x, y) | unordered}
    for name, wanted in expected.items():
        found = object.__new__(Definedness)._apply_floats("compare", 1, tuple(given), (name,))
        assert found.is_known
        assert (found.data == wanted).all(), name
        assert (found.lacks == lacks).all()
        for unknown in ((given[0], given[1]._replace(is_known=False)), (given[0]._replace(is_known=False), given[1])):
            assert not object.__new__(Definedness)._apply_floats("compare", 1, unknown, (name,)).is_known
