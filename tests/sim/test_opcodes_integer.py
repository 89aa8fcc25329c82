"""Integer instructions, each against Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.opcode_runner import apply, launch
from tests.sim.operands import KINDS, integers

COUNT = 512


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - quotient(a, b) * b


def clamped(value: int, kind: str) -> int:
    info = np.iinfo(kind)
    return min(max(value, info.min), info.max)


def shift_left(a: int, n: int, bits: int) -> int:
    return 0 if n >= bits else a << n


def shift_right(a: int, n: int, bits: int) -> int:
    return a >> min(n, bits)


def bfe(a: int, position: int, length: int, bits: int, is_signed: bool) -> int:
    """Follow the ISA's own pseudo-code."""
    msb = bits - 1
    pos, n = position & 0xFF, length & 0xFF
    a &= (1 << bits) - 1
    sbit = 0 if not is_signed or n == 0 else a >> min(pos + n - 1, msb) & 1
    d = 0
    for i in range(bits):
        d |= (a >> pos + i & 1 if i < n and pos + i <= msb else sbit) << i
    return d


def bfi(a: int, b: int, position: int, length: int, bits: int) -> int:
    pos, n = position & 0xFF, length & 0xFF
    f = b & (1 << bits) - 1
    for i in range(n):
        if pos + i < bits:
            f = f & ~(1 << pos + i) | (a >> i & 1) << pos + i
    return f


def prmt(a: int, b: int, selector: int) -> int:
    data = (a | b << 32).to_bytes(8, "little")
    out = []
    for n in range(4):
        s = selector >> 4 * n & 15
        out.append((0xFF if data[s & 7] & 0x80 else 0) if s & 8 else data[s & 7])
    return int.from_bytes(bytes(out), "little")


def prmt_mode(mode: str, a: int, b: int, control: int) -> int:
    data, n = (a | b << 32).to_bytes(8, "little"), control & 3
    index = {
        "f4e": [n, n + 1, n + 2, n + 3],
        "b4e": [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8],
        "rc8": [n] * 4,
        "ecl": [max(i, n) for i in range(4)],
        "ecr": [min(i, n) for i in range(4)],
        "rc16": [2 * (n & 1) + (i & 1) for i in range(4)],
    }[mode]
    return int.from_bytes(bytes(data[i] for i in index), "little")


def funnel(low: int, high: int, n: int, direction: str, mode: str) -> int:
    n = min(n, 32) if mode == "clamp" else n & 31
    pair = high << 32 | low
    return (pair << n >> 32 if direction == "l" else pair >> n) & 0xFFFFFFFF


def bfind(a: int, bits: int, shift: bool) -> int:
    a = ~a if a < 0 else a
    found = a.bit_length() - 1
    return 0xFFFFFFFF if found < 0 else bits - 1 - found if shift else found


def dot(a: int, b: int, c: int, widths: tuple[int, int], first: int, counts: int, types: tuple[str, str]) -> int:
    total = c
    for n in range(counts):
        x, y = a >> widths[0] * n & (1 << widths[0]) - 1, b >> widths[1] * n + first & (1 << widths[1]) - 1
        total += (signed(x, widths[0]) if types[0] == "s32" else x) * (signed(y, widths[1]) if types[1] == "s32" else y)
    return total


def fns(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [p for p in places if mask >> p & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF


def szext(a: int, n: int, mode: str, kind: str) -> int:
    n = min(n, 32) if mode == "clamp" else n & 31
    low = a & (1 << n) - 1
    return signed(low, n) if kind == "s32" and n else low


def bmsk(a: int, n: int, mode: str) -> int:
    if mode == "wrap":
        a, n = a & 31, n & 31
    return ((1 << min(n, 32)) - 1) << min(a, 32)


Case = tuple[str, tuple[str, ...], str, Any]
CASES: list[Case] = []
for t in ("s16", "u16", "s32", "u32", "s64", "u64"):
    k, bits = KINDS[t], int(t[1:])
    CASES += [
        (f"add.{t}", (k, k), k, lambda a, b: a + b),
        (f"sub.{t}", (k, k), k, lambda a, b: a - b),
        (f"mul.lo.{t}", (k, k), k, lambda a, b: a * b),
        (f"mul.hi.{t}", (k, k), k, lambda a, b, bits=bits: a * b >> bits),
        (f"mad.lo.{t}", (k, k, k), k, lambda a, b, c: a * b + c),
        (f"mad.hi.{t}", (k, k, k), k, lambda a, b, c, bits=bits: (a * b >> bits) + c),
        (f"div.{t}", (k, k), k, quotient),
        (f"rem.{t}", (k, k), k, remainder),
        (f"min.{t}", (k, k), k, min),
        (f"max.{t}", (k, k), k, max),
        (f"sad.{t}", (k, k, k), k, lambda a, b, c: c + abs(a - b)),
        (f"shr.{t}", (k, "u4"), k, lambda a, n, bits=bits: shift_right(a, n, bits)),
    ]
    if bits < 64:
        w = k[0] + str(2 * int(k[1:]))
        CASES += [
            (f"mul.wide.{t}", (k, k), w, lambda a, b: a * b),
            (f"mad.wide.{t}", (k, k, w), w, lambda a, b, c: a * b + c),
        ]
    if t[0] == "s":
        CASES += [(f"neg.{t}", (k,), k, lambda a: -a), (f"abs.{t}", (k,), k, abs)]
    if bits > 16:
        CASES += [
            (f"bfe.{t}", (k, "u4", "u4"), k, lambda a, p, n, b=bits, s=t[0] == "s": bfe(a, p, n, b, s)),
            (f"bfind.{t}", (k,), "u4", lambda a, bits=bits: bfind(a, bits, False)),
            (f"bfind.shiftamt.{t}", (k,), "u4", lambda a, bits=bits: bfind(a, bits, True)),
        ]
for t in ("b16", "b32", "b64"):
    k, bits = KINDS[t], int(t[1:])
    CASES += [
        (f"and.{t}", (k, k), k, lambda a, b: a & b),
        (f"or.{t}", (k, k), k, lambda a, b: a | b),
        (f"xor.{t}", (k, k), k, lambda a, b: a ^ b),
        (f"not.{t}", (k,), k, lambda a: ~a),
        (f"cnot.{t}", (k,), k, lambda a: int(a == 0)),
        (f"shl.{t}", (k, "u4"), k, lambda a, n, bits=bits: shift_left(a, n, bits)),
        (f"shr.{t}", (k, "u4"), k, lambda a, n, bits=bits: shift_right(a, n, bits)),
    ]
    if bits > 16:
        CASES += [
            (f"popc.{t}", (k,), "u4", lambda a: a.bit_count()),
            (f"clz.{t}", (k,), "u4", lambda a, bits=bits: bits - a.bit_length()),
            (f"brev.{t}", (k,), k, lambda a, bits=bits: int(f"{a:0{bits}b}"[::-1], 2)),
            (f"bfi.{t}", (k, k, "u4", "u4"), k, lambda a, b, p, n, bits=bits: bfi(a, b, p, n, bits)),
        ]
for direction in "lr":
    for mode in ("clamp", "wrap"):
        CASES.append(
            (
                f"shf.{direction}.{mode}.b32",
                ("u4", "u4", "u4"),
                "u4",
                lambda a, b, n, d=direction, m=mode: funnel(a, b, n, d, m),
            )
        )
for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
    CASES.append((f"prmt.b32.{mode}", ("u4", "u4", "u4"), "u4", lambda a, b, c, m=mode: prmt_mode(m, a, b, c)))
for mode in ("clamp", "wrap"):
    CASES += [
        (f"szext.{mode}.s32", ("i4", "u4"), "i4", lambda a, n, m=mode: szext(a, n, m, "s32")),
        (f"szext.{mode}.u32", ("u4", "u4"), "u4", lambda a, n, m=mode: szext(a, n, m, "u32")),
        (f"bmsk.{mode}.b32", ("u4", "u4"), "u4", lambda a, n, m=mode: bmsk(a, n, m)),
    ]
for x in ("s32", "u32"):
    for y in ("s32", "u32"):
        out = "u4"
        CASES += [
            (f"dp4a.{x}.{y}", ("u4", "u4", "u4"), out, lambda a, b, c, t=(x, y): dot(a, b, c, (8, 8), 0, 4, t)),
            (f"dp2a.lo.{x}.{y}", ("u4", "u4", "u4"), out, lambda a, b, c, t=(x, y): dot(a, b, c, (16, 8), 0, 2, t)),
            (f"dp2a.hi.{x}.{y}", ("u4", "u4", "u4"), out, lambda a, b, c, t=(x, y): dot(a, b, c, (16, 8), 16, 2, t)),
        ]
CASES += [
    ("add.sat.s32", ("i4", "i4"), "i4", lambda a, b: clamped(a + b, "i4")),
    ("sub.sat.s32", ("i4", "i4"), "i4", lambda a, b: clamped(a - b, "i4")),
    ("min.relu.s32", ("i4", "i4"), "i4", lambda a, b: max(min(a, b), 0)),
    ("max.relu.s32", ("i4", "i4"), "i4", lambda a, b: max(a, b, 0)),
    ("prmt.b32", ("u4", "u4", "u4"), "u4", prmt),
    ("mul24.lo.s32", ("i4", "i4"), "i4", lambda a, b: signed(a, 24) * signed(b, 24)),
    ("mul24.lo.u32", ("u4", "u4"), "u4", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ("mad24.lo.s32", ("i4", "i4", "i4"), "i4", lambda a, b, c: signed(a, 24) * signed(b, 24) + c),
    ("fns.b32", ("u4", "u4", "i4"), "u4", fns),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_arithmetic(case):
    spelling, kinds, out, function = case
    operands = [integers(kind, COUNT, spelling, n) for n, kind in enumerate(kinds)]
    if spelling.startswith(("shl", "shr", "shf", "szext", "bmsk")):
        operands[-1] = np.resize(np.arange(70, dtype=np.uint32), COUNT)
    elif spelling.startswith(("bfe.", "bfi.")):
        rng = np.random.default_rng(1)
        operands[-2:] = [rng.integers(0, 80, COUNT).astype(np.uint32) for _ in range(2)]
    elif spelling.startswith("fns"):
        operands[1] = operands[1] % np.uint32(32)
        operands[2] = operands[2] % np.int32(12)
    got = apply(f"{spelling} %d, {', '.join(f'%{name}' for name in 'abce'[: len(kinds)])};", *operands, out=out)
    mask = (1 << 8 * np.dtype(out).itemsize) - 1
    expected = [function(*xs) & mask for xs in zip(*(x.tolist() for x in operands), strict=True)]
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), np.array(expected, f"u{got.itemsize}"))


@pytest.mark.parametrize("operation", ["add", "min", "max", "min.relu", "max.relu"])
@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_packed(operation, kind):
    if "relu" in operation and kind[0] == "u":
        pytest.skip("relu is for signed numbers")
    a, b = (integers("u4", COUNT, operation, n) for n in range(2))
    base, _, relu = operation.partition(".")
    spelling = f"{base}.{relu}.{kind}" if relu else f"{base}.{kind}"
    got = apply(f"{spelling} %d, %a, %b;", a, b)
    part = "i2" if kind[0] == "s" else "u2"
    x, y = a.view(part).astype(np.int64), b.view(part).astype(np.int64)
    value = {"add": x + y, "min": np.minimum(x, y), "max": np.maximum(x, y)}[base]
    expected = (np.maximum(value, 0) if relu else value).astype(np.uint16).view(np.uint32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("table", [0x00, 0x80, 0xE8, 0x96, 0x6A, 0xB8, 0x01, 0xFF])
def test_lop3(table):
    a, b, c = (integers("u4", COUNT, "lop3", n) for n in range(3))
    got = apply(f"lop3.b32 %d, %a, %b, %c, {table};", a, b, c)
    expected = np.zeros(COUNT, np.uint32)
    for bit in range(32):
        row = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
        expected |= (table >> row & 1).astype(np.uint32) << np.uint32(bit)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("boolean", ["or", "and"])
def test_lop3_with_predicate(boolean):
    a, b, q = np.arange(64, dtype=np.uint32) % 4, np.arange(64, dtype=np.uint32) // 4 % 4, np.arange(64) >= 32
    d, p = apply(f"lop3.{boolean}.b32 %d0|%d1, %a, %b, 0, 0xC0, %c;", a, b, q, out=("u4", "pred"))
    np.testing.assert_array_equal(d, a & b)
    np.testing.assert_array_equal(p, ((a & b) != 0) | q if boolean == "or" else ((a & b) != 0) & q)


def test_long_addition_and_subtraction():
    a, b = (integers("u8", COUNT, "carry", n) for n in range(2))
    head = "{ .reg .b32 x0, x1, y0, y1, z0, z1;\nmov.b64 {x0, x1}, %a;\nmov.b64 {y0, y1}, %b;\n"
    tail = "mov.b64 %d, {z0, z1};\n}"
    add = apply(f"{head}add.cc.u32 z0, x0, y0;\naddc.u32 z1, x1, y1;\n{tail}", a, b, out="u8")
    np.testing.assert_array_equal(add, a + b)
    sub = apply(f"{head}sub.cc.u32 z0, x0, y0;\nsubc.u32 z1, x1, y1;\n{tail}", a, b, out="u8")
    np.testing.assert_array_equal(sub, a - b)


def test_the_carry_of_a_difference_says_that_nothing_was_borrowed():
    """A difference before a sum, as in nvcc's division of 128-bit numbers, and a sum before a difference."""
    a, b = (integers("u4", COUNT, "mixed carry", n) for n in range(2))
    of_difference = apply("sub.cc.u32 %d, %a, %b;\naddc.u32 %d, 0, 0;", a, b)
    np.testing.assert_array_equal(of_difference, a >= b)
    of_sum = apply("add.cc.u32 %d, %a, %b;\nsubc.u32 %d, 7, 0;", a, b)
    np.testing.assert_array_equal(of_sum, 6 + (a.astype(np.uint64) + b >> 32))


def test_long_multiplication():
    """128-bit products by mad.cc and madc, as compilers make them."""
    a, b = (integers("u8", COUNT, "mulcc", n) for n in range(2))
    body = """{ .reg .b64 x0, x1, y0, y1, low, high, t;
        and.b64 x0, %a, 0xffffffff;
        shr.u64 x1, %a, 32;
        mul.lo.u64 low, %a, %b;
        mad.lo.cc.u64 t, %a, %b, low;
        madc.hi.u64 high, %a, %b, 0;
        mov.b64 %d, high; }"""
    got = apply(body, a, b, out="u8")
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        low = x * y & (1 << 64) - 1
        expected.append(((x * y >> 64) + (low + low >> 64)) & (1 << 64) - 1)
    np.testing.assert_array_equal(got, np.array(expected, np.uint64))
    longer = "{ .reg .b64 t;\nadd.cc.u64 t, %a, %b;\naddc.cc.u64 t, %a, %b;\nmadc.lo.cc.u64 %d, %a, 3, %b;\n}"
    got = apply(longer, a, b, out="u8")
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        first = x + y >> 64
        second = x + y + first >> 64
        expected.append((x * 3 + y + second) & (1 << 64) - 1)
    np.testing.assert_array_equal(got, np.array(expected, np.uint64))


def test_constants_of_every_form():
    a = integers("u4", COUNT, "constants")
    forms = {
        "0x7fffffff": 0x7FFFFFFF,
        "-1": -1,
        "017": 15,
        "0b101": 5,
        "4294967295": 2**32 - 1,
        "-2147483648": -(2**31),
    }
    for text, value in forms.items():
        got = apply(f"add.s32 %d, %a, {text};", a)
        np.testing.assert_array_equal(got, (a.astype(np.int64) + value).astype(np.uint32), err_msg=text)


def test_a_carry_crosses_branches_and_guards():
    """Words of long numbers are added in a loop, with the carry of the one before; then half of the lanes set it."""
    rng = np.random.default_rng(5)
    words = 5
    a, b = (rng.choice([0, 1, 2**31, 2**32 - 1], (words, 64)).astype(np.uint32) for _ in range(2))
    total = np.zeros((words + 1, 64), np.uint32)
    launch(
        f"""mov.u32 %r1, %tid.x;
        ld.param.u64 %rd1, [p0];
        ld.param.u64 %rd2, [p1];
        ld.param.u64 %rd3, [p2];
        mad.wide.u32 %rd1, %r1, 4, %rd1;
        mad.wide.u32 %rd2, %r1, 4, %rd2;
        mad.wide.u32 %rd3, %r1, 4, %rd3;
        mov.u32 %r2, 0;
        add.cc.u32 %r9, 0, 0;
        NEXT:
        ld.global.u32 %r3, [%rd1];
        ld.global.u32 %r4, [%rd2];
        addc.cc.u32 %r5, %r3, %r4;
        st.global.u32 [%rd3], %r5;
        add.u64 %rd1, %rd1, 256;
        add.u64 %rd2, %rd2, 256;
        add.u64 %rd3, %rd3, 256;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, {words};
        @%p1 bra NEXT;
        setp.ge.u32 %p2, %r1, 32;
        @%p2 add.cc.u32 %r9, 0xffffffff, 2;
        addc.u32 %r5, 0, 0;
        st.global.u32 [%rd3], %r5;""",
        a,
        b,
        total,
        block=64,
    )
    for lane in range(64):
        x, y, z = (sum(int(w) << 32 * n for n, w in enumerate(array[:words, lane])) for array in (a, b, total))
        assert z == (x + y) % (1 << 32 * words)
        assert total[words, lane] == (1 if lane >= 32 else x + y >> 32 * words)
