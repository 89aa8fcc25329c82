"""Video instructions, against Python's integers, one lane at a time."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cutepy import load_ptx
from cutepy.sim.ptx.tokens import PtxSyntaxError

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_OPERATIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "absdiff": lambda a, b: abs(a - b),
    "min": min,
    "max": max,
    "avrg": lambda a, b: (a + b + (a + b >= 0)) // 2,
}
words = st.lists(
    st.tuples(*[st.integers(0, 2**32 - 1) | st.sampled_from([0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F80FF00])] * 3),
    min_size=1,
    max_size=8,
)
types = st.sampled_from(["u32", "s32"])


def run(instruction, values):
    """Run an instruction of d, a, b and c; the result of each of some values of them."""
    columns = [np.array(column, np.uint32) for column in zip(*values, strict=True)]
    out = np.zeros(len(values), np.uint32)
    loads = "".join(
        f"ld.param.u64 %rd1, [p{n}]; mad.wide.u32 %rd1, %t, 4, %rd1; ld.global.u32 %{name}, [%rd1];\n"
        for n, name in enumerate("abc")
    )
    module = load_ptx(f"""{_HEAD}.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {{
    .reg .b64 %rd<2>; .reg .b32 %t, %a, %b, %c, %d; mov.u32 %t, %tid.x; mov.u32 %d, 0;
    {loads} {instruction};
    ld.param.u64 %rd1, [p3]; mad.wide.u32 %rd1, %t, 4, %rd1; st.global.u32 [%rd1], %d; ret; }}""")
    module.launch("k", 1, len(values), (*columns, out))
    return out.tolist()


def signed(value, bits, kind):
    value %= 1 << bits
    return value - (1 << bits) if kind == "s32" and value >> (bits - 1) else value


def clamped(value, bits, kind):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s32" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def part_of(word, selector, kind):
    if not selector:
        return signed(word, 32, kind)
    bits = {"b": 8, "h": 16}[selector[0]]
    return signed(word >> bits * int(selector[1]), bits, kind)


parts = st.sampled_from(["", "b0", "b1", "b2", "b3", "h0", "h1"])


def dotted(name, selector):
    return f"%{name}.{selector}" if selector else f"%{name}"


@pytest.mark.parametrize("operation", ["add", "sub", "absdiff", "min", "max"])
@settings(max_examples=12)
@given(types, types, types, parts, parts, st.data(), words)
def test_scalar(operation, d, a, b, select_a, select_b, data, values):
    saturate = data.draw(st.booleans())
    second = data.draw(st.sampled_from(["", "add", "min", "max"]))
    into = "" if second else data.draw(parts)
    name = f"v{operation}.{d}.{a}.{b}{'.sat' * saturate}{'.' * bool(second)}{second}"
    operands = [dotted("d", into), dotted("a", select_a), dotted("b", select_b)] + ["%c"] * bool(second or into)
    expected = []
    for x, y, c in values:
        value = _OPERATIONS[operation](part_of(x, select_a, a), part_of(y, select_b, b))
        bits = {"": 32, "b": 8, "h": 16}[into[:1]]
        value = clamped(value, bits, d) if saturate else value
        if second == "add":
            value += c
        elif second:
            value = {"min": min, "max": max}[second](signed(value, 32, d), signed(c, 32, d))
        elif into:
            at = bits * int(into[1])
            mask = ((1 << bits) - 1) << at
            value = (value << at) & mask | c & ~mask
        expected.append(value % 2**32)
    assert run(f"{name} {', '.join(operands)}", values) == expected


@settings(max_examples=40)
@given(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), types, types, parts, parts, words)
def test_set(comparison, a, b, select_a, select_b, values):
    found = run(f"vset.{a}.{b}.{comparison}.add %d, {dotted('a', select_a)}, {dotted('b', select_b)}, %c", values)
    compare = getattr(operator, comparison)
    assert found == [(c + compare(part_of(x, select_a, a), part_of(y, select_b, b))) % 2**32 for x, y, c in values]


@settings(max_examples=40)
@given(st.sampled_from(["shl", "shr"]), types, types, parts, st.sampled_from(["clamp", "wrap"]), words)
def test_shifts(operation, d, a, select, mode, values):
    values = [(x, y % 40, c) for x, y, c in values]
    found = run(f"v{operation}.{d}.{a}.u32.{mode} %d, {dotted('a', select)}, %b", values)
    expected = []
    for x, y, _ in values:
        amount = y % 32 if mode == "wrap" else min(y, 32)
        value = part_of(x, select, a)
        expected.append((value << amount if operation == "shl" else value >> amount) % 2**32)
    assert found == expected


@settings(max_examples=60)
@given(types, types, parts, parts, st.sampled_from(["", "-a", "-b", "-c", "po"]), st.sampled_from([0, 7, 15]), words)
def test_multiply_and_add(a, b, select_a, select_b, change, scale, values):
    operands = [dotted("a", select_a), dotted("b", select_b), "%c"]
    if change.startswith("-"):
        n = "abc".index(change[1])
        operands[n] = "-" + operands[n]
    scaled = f".shr{scale}" if scale else ""
    name = f"vmad.s32.{a}.{b}{'.po' if change == 'po' else ''}.sat{scaled}"
    is_signed = "s32" in (a, b) or change.startswith("-")
    kind = "s32" if is_signed else "u32"
    expected = []
    for x, y, c in values:
        product = part_of(x, select_a, a) * part_of(y, select_b, b)
        addend = signed(c, 32, kind)
        product = -product if change in ("-a", "-b") else product
        addend = -addend if change == "-c" else addend
        expected.append(clamped((product + addend + (change == "po")) >> scale, 32, kind) % 2**32)
    assert run(f"{name} %d, {', '.join(operands)}", values) == expected


@pytest.mark.parametrize("operation", [*_OPERATIONS, "set"])
@pytest.mark.parametrize("lanes", [2, 4])
@settings(max_examples=8)
@given(types, types, types, st.booleans(), st.data(), words)
def test_simd(operation, lanes, d, a, b, accumulated, data, values):
    letter, bits = ("h", 16) if lanes == 2 else ("b", 8)
    chosen = st.none() | st.lists(st.integers(0, 2 * lanes - 1), min_size=lanes, max_size=lanes)
    choice_a, choice_b = data.draw(chosen), data.draw(chosen)
    mask = data.draw(st.none() | st.sets(st.integers(0, lanes - 1), min_size=1))
    saturate = operation != "set" and not accumulated and data.draw(st.booleans())
    if operation == "set":
        kinds, d = f"{a}.{b}.lt", "u32"
    else:
        kinds = f"{d}.{a}.{b}"
    name = f"v{operation}{lanes}.{kinds}{'.sat' * saturate}{'.add' * accumulated}"
    into = "" if mask is None else letter + "".join(str(n) for n in sorted(mask, reverse=True))
    selectors = ["" if x is None else letter + "".join(str(n) for n in x[::-1]) for x in (choice_a, choice_b)]
    operands = [dotted("d", into), dotted("a", selectors[0]), dotted("b", selectors[1]), "%c"]
    expected = []
    for x, y, c in values:
        both = x | y << 32
        result = c
        for lane in range(lanes) if mask is None else mask:
            n, m = (choice_a or list(range(lanes)))[lane], (choice_b or list(range(lanes, 2 * lanes)))[lane]
            left, right = signed(both >> bits * n, bits, a), signed(both >> bits * m, bits, b)
            value = int(left < right) if operation == "set" else _OPERATIONS[operation](left, right)
            value = clamped(value, bits, d) if saturate else value
            if accumulated:
                result += value
            else:
                field = ((1 << bits) - 1) << bits * lane
                result = (value << bits * lane) & field | result & ~field
        expected.append(result % 2**32)
    assert run(f"{name} {', '.join(operands)}", values) == expected


@pytest.mark.parametrize("line", ["vadd.s32.s32 %d, %a, %b", "vset.u32.u32 %d, %a, %b"])
def test_unknown_forms(line):
    with pytest.raises(PtxSyntaxError, match="needs"):
        run(line, [(1, 2, 3)])


def test_lanes_are_added_to_a_third_operand():
    with pytest.raises(PtxSyntaxError, match="takes 4 operands, got 3"):
        run("vadd2.s32.s32.s32 %d, %a, %b", [(1, 2, 3)])
