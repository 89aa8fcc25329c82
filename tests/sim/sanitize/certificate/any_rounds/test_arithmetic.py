"""Constants, comparisons and cut-off numbers, computed in advance, against what comes of them."""

import itertools
from types import SimpleNamespace

import pytest

from cutepy.sim.sanitize.certificate.any_rounds import loops
from cutepy.sim.sanitize.certificate.any_rounds.comparisons import _ANOTHER, Comparison, Counting, _differs, _wraps
from cutepy.sim.sanitize.certificate.any_rounds.grid_constants import _made
from cutepy.sim.sanitize.certificate.any_rounds.origins import Origin
from cutepy.sim.translate import translate
from tests.sim.sanitize.certificate.test_steering import TEXT

ORDERS = {
    "lt": int.__lt__,
    "le": int.__le__,
    "gt": int.__gt__,
    "ge": int.__ge__,
    "eq": int.__eq__,
    "ne": int.__ne__,
    "lo": int.__lt__,
    "ls": int.__le__,
    "hi": int.__gt__,
    "hs": int.__ge__,
}
NUMBERS = {
    "mov": lambda a: a,
    "neg": lambda a: -a,
    "abs": abs,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "max": max,
    "shl": lambda a, b: a << b if b < 64 else 0,
}
GIVEN = [-(1 << 63), -(1 << 31), -7, -1, 0, 1, 2, 31, 32, 33, 63, 64, (1 << 31) - 1, (1 << 32) - 1, 1 << 32]
CASES = [
    (name, kind)
    for name in NUMBERS
    for kind in ("s32", "u32", "s64", "u64", "b32", "b64")
    if (kind[0] == "b") == (name in ("and", "or", "xor", "shl")) and not (name in ("abs", "neg") and kind[0] == "u")
]


def instruction(name, operands, kind):
    """Return an instruction of so many operands."""
    register = "%r" if "32" in kind else "%rd"
    registers = [f"{register}{n + 2}" for n in range(operands + 1)]
    if name == "shl":
        registers[2] = "%r4"  # how far is a number of 32 bits
    text = f"{name}.{kind} {', '.join(registers)};"
    return translate(TEXT.format(body=text), "kernel").function.instructions[-2]


def read(number, kind):
    """Return what bits are to an instruction of a type."""
    bits = int(kind[1:])
    number %= 1 << bits
    return number - (1 << bits) if kind[0] == "s" and number >> bits - 1 else number


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_number_that_is_known_is_what_the_instruction_makes(name, kind):
    operands = {"mov": 1, "neg": 1, "abs": 1, "mad.lo": 3}.get(name, 2)
    i, known = instruction(name, operands, kind), 0
    given = GIVEN if operands < 3 else GIVEN[2:6]
    for numbers in itertools.product(given, repeat=operands):
        made = _made(i, list(numbers))
        if made is not None:
            right = NUMBERS[name](*(read(x, kind) for x in numbers))
            assert read(made, kind) == read(right, kind), numbers
            assert -(1 << int(kind[1:]) - 1) <= made < 1 << int(kind[1:]) - 1
            known += 1
        else:
            assert name in ("min", "max", "shl")
            assert min(numbers) < 0 or max(numbers) >= 1 << int(kind[1:]) - 1 or numbers[1] >= int(kind[1:])
    assert known >= len(given) ** operands // 4
    assert _made(i, [None] * operands) is None


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("order", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_a_comparison_that_is_known_is_right(order, kind):
    register = "%r" if "32" in kind else "%rd"
    text = f"setp.{order}.{kind} %p1, {register}2, {register}3;"
    i = translate(TEXT.format(body=text), "kernel").function.instructions[-2]
    for a, b in itertools.product(GIVEN, repeat=2):
        made = _made(i, [a, b])
        if made is None:
            bits = int(kind[1:])
            assert kind[0] == "u"
            assert order not in ("eq", "ne")
            assert any(x % (1 << bits) >> bits - 1 for x in (a, b))
        else:
            assert made == ORDERS[order](read(a, kind), read(b, kind))
    both = translate(TEXT.format(body=text.replace(f".{kind}", f".and.{kind}").replace(";", ", %p2;")), "kernel")
    assert _made(both.function.instructions[-2], [1, 2, 0]) is None


def test_of_a_choice_only_what_is_chosen_matters():
    i = translate(TEXT.format(body="selp.b32 %r2, %r3, %r4, %p1;"), "kernel").function.instructions[-2]
    assert [_made(i, [4, None, 1]), _made(i, [None, 5, 0]), _made(i, [4, None, 0])] == [4, 5, None]
    assert [_made(i, [4, 4, None]), _made(i, [4294967295, 2, 1])] == [None, -1]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_a_comparison_stays_where_no_further_step_turns_it(order, kind):
    one = Comparison(SimpleNamespace(parts=("setp", order, kind)), ())
    is_equality = order in ("eq", "ne")
    for first, second, by, to in itertools.product(range(-3, 4), repeat=4):
        outcomes = {ORDERS[order](first + k * by, second + k * to) for k in range(12)}
        stays = one.stays(first, second, by, to)
        if kind == "u32" and not is_equality and min(first, second, by, to) < 0:
            assert not stays
        elif is_equality and (first - second) * (by - to) < 0:
            assert not stays  # they come to each other, and may meet
        else:
            assert stays == (len(outcomes) == 1), (first, second, by, to)


@pytest.mark.parametrize("order", ORDERS)
def test_the_step_in_which_a_comparison_turns_is_the_first_that_does(order):
    one = Comparison(SimpleNamespace(parts=("setp", order, "s32")), ())
    for first, second, by, to in itertools.product(range(-4, 5), range(-2, 3), range(-3, 4), range(-1, 2)):
        outcomes = [ORDERS[order](first + k * by, second + k * to) for k in range(20)]
        turns = next((k for k in range(20) if outcomes[k] != outcomes[0]), None)
        if order in ("eq", "ne") and first == second:
            turns = None  # it is over: they met before
        assert one.turns_after(first, second, by, to) == turns, (first, second, by, to)


CUTS = [(least, most) for least in (None, -2, 0) for most in (None, 1, 3)]


@pytest.mark.parametrize(("least", "most"), CUTS)
def test_what_comes_from_a_bound_differs_by_as_much_for_each_further_step(least, most):
    def value(bound):
        plain = factor * bound + offset
        plain = plain if most is None else min(plain, most)
        return plain if least is None else max(plain, least)

    for factor, offset, bound, step in itertools.product((-2, -1, 1, 2), (-1, 0, 2), range(-4, 5), (-3, -1, 1, 2)):
        one, now = Origin(factor, offset, 7, least, most), value(bound)
        further = [value(bound + k * step) - now for k in range(20)]
        by = _differs(one, now, bound, step)
        if one.is_cut:
            assert by == (0 if not any(further) else None)
        else:
            assert further == [k * by for k in range(20)]
        assert _differs(one, now + 1, bound, step) == _ANOTHER
        assert _differs(one, now, None, step) == (None if one.is_cut else factor * step)
        assert _differs(one, now, bound, None) is None


def test_what_is_no_multiple_of_a_bound_differs_by_nothing():
    assert _differs(Origin(0, 5, -1), 5, 3, 1) == 0
    assert _differs(Origin(0, 5, -1), 6, 3, 1) == _ANOTHER
    assert _differs(Origin(0, 0, -1, is_known=False), 6, 3, 1) == 0


def test_a_number_wraps_that_leaves_its_bits_in_a_million_rounds():
    million = 1 << 20
    assert [_wraps((1 << 31) - million - n, 1, 32, 1) for n in (0, 1)] == [True, False]
    assert [_wraps((1 << 31) - million // 4 - n, 1, 32, 4) for n in (0, 1)] == [True, False]


LOOP = """{before} ld.param.u32 %r9, [p0]; mov.u32 %r2, 0;
AGAIN: setp.lt.{kind} %p2, {register}, 40; @%p2 bra SKIP; bar.warp.sync -1; SKIP: mbarrier.arrive.shared.b64 _, [%r1];
{count} add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r9; @%p1 bra AGAIN;"""
BEGINS = [
    ("mov.u32 %r3, 7;", "s32", Origin(0, 7, -1)),
    ("mov.u32 %r3, 4294967289;", "s32", Origin(0, -7, -1)),
    ("mov.u64 %rd3, 4294967289;", "s64", Origin(0, 4294967289, -1)),
    ("mov.u32 %r3, %tid.x;", "s32", Origin(0, 0, -1, is_known=False)),
    ("add.u32 %r3, %r1, 4;", "s32", Origin(0, 0, -1, is_known=False)),
    ("mov.u32 %r3, 7; setp.eq.u32 %p3, %r1, 4; @%p3 mov.u32 %r3, 8;", "s32", Origin(0, 0, -1, is_known=False)),
]


def counting_of(before, kind):
    register = "%r3" if "32" in kind else "%rd3"
    count = f"add.{kind} {register}, {register}, 1;"
    body = LOOP.format(before=before, kind=kind, register=register, count=count)
    (found,) = loops.loops(translate(TEXT.format(body=body), "kernel").flow)
    (number,) = (r.index for r in found.counting.registers if r.name == register)
    return found.counting, number


@pytest.mark.parametrize(("before", "kind", "origin"), BEGINS)
def test_where_a_loop_begins_from(before, kind, origin):
    counting, number = counting_of(before, kind)
    assert origin in counting.origins[number]


def test_two_periods_are_enough_and_less_is_not():
    counting, _ = counting_of("mov.u32 %r3, 90;", "s32")
    assert isinstance(counting, Counting)
    held = {"%r2": lambda n: n, "%r3": lambda n: 90 + n, "%r9": lambda n: 40}
    numbers = counting.numbers([[held[r.name](n) for r in counting.registers] for n in range(40)])
    assert counting.window(numbers, 4, 12, 4) == (4, 12)
    assert not isinstance(counting.window(numbers, 4, 11, 4), tuple)
