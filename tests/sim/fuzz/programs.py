"""Random programs of integers, predicates and control flow, and an interpreter that shares no code with the simulator.

A program is a tree of Python values. `_Writer` writes it as PTX, and `_Thread` executes it on Python's integers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

THREADS, CTAS = 40, 2
_WORDS, _LONGS, _PREDICATES = 6, 3, 4
_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1


def _signed(x: int, bits: int = 32) -> int:
    return x - (1 << bits) if x >> bits - 1 & 1 else x


def _divided(a: int, b: int) -> int:
    """Divide, rounding towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _field(a: int, at: int, count: int) -> int:
    at, count = at & 255, count & 255
    return a >> at & ((1 << count) - 1) if at < 32 else 0


def _permuted(a: int, b: int, selector: int) -> int:
    source, result = (b << 32 | a).to_bytes(8, "little"), 0
    for n in range(4):
        nibble = selector >> 4 * n & 15
        byte = source[nibble & 7]
        result |= ((255 if byte >> 7 else 0) if nibble & 8 else byte) << 8 * n
    return result


def _table(a: int, b: int, c: int, table: int) -> int:
    bits = ((a >> n & 1) << 2 | (b >> n & 1) << 1 | c >> n & 1 for n in range(32))
    return sum((table >> row & 1) << n for n, row in enumerate(bits))


# Each writes one word or long: PTX with a destination and sources, and what it gives. The letters of sources are r for
# words, b for words whose literals are bytes, and d for longs.
_WORD: list[tuple[str, str, Callable[..., int]]] = [
    ("add.u32", "rr", lambda a, b: a + b),
    ("sub.s32", "rr", lambda a, b: a - b),
    ("mul.lo.u32", "rr", lambda a, b: a * b),
    ("mul.hi.u32", "rr", lambda a, b: a * b >> 32),
    ("mul.hi.s32", "rr", lambda a, b: _signed(a) * _signed(b) >> 32),
    ("mad.lo.s32", "rrr", lambda a, b, c: a * b + c),
    ("min.s32", "rr", lambda a, b: min(_signed(a), _signed(b))),
    ("max.u32", "rr", max),
    ("and.b32", "rr", lambda a, b: a & b),
    ("or.b32", "rr", lambda a, b: a | b),
    ("xor.b32", "rr", lambda a, b: a ^ b),
    ("not.b32", "r", lambda a: ~a),
    ("neg.s32", "r", lambda a: -a),
    ("abs.s32", "r", lambda a: abs(_signed(a))),
    ("shl.b32", "rr", lambda a, b: a << b if b < 32 else 0),
    ("shr.u32", "rr", lambda a, b: a >> b if b < 32 else 0),
    ("shr.s32", "rr", lambda a, b: _signed(a) >> min(b, 31)),
    ("popc.b32", "r", lambda a: bin(a).count("1")),
    ("clz.b32", "r", lambda a: 32 - a.bit_length()),
    ("brev.b32", "r", lambda a: int(f"{a:032b}"[::-1], 2)),
    ("bfe.u32", "rbb", _field),
    ("prmt.b32", "rrr", _permuted),
    ("lop3.b32", "rrrt", _table),
    ("sad.u32", "rrr", lambda a, b, c: c + abs(a - b)),
    ("shf.l.wrap.b32", "rrr", lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    ("cvt.u32.u64", "d", lambda a: a),
    ("selp.b32", "rrp", lambda a, b, p: a if p else b),
    ("popc.b64", "d", lambda a: bin(a).count("1")),
]
_LONG: list[tuple[str, str, Callable[..., int]]] = [
    ("add.u64", "dd", lambda a, b: a + b),
    ("sub.s64", "dd", lambda a, b: a - b),
    ("mul.lo.u64", "dd", lambda a, b: a * b),
    ("mul.wide.u32", "rr", lambda a, b: a * b),
    ("mul.wide.s32", "rr", lambda a, b: _signed(a) * _signed(b)),
    ("mad.wide.u32", "rrd", lambda a, b, c: a * b + c),
    ("cvt.s64.s32", "r", _signed),
    ("cvt.u64.u32", "r", lambda a: a),
    ("xor.b64", "dd", lambda a, b: a ^ b),
    ("shl.b64", "dr", lambda a, b: a << b if b < 64 else 0),
    ("shr.s64", "dr", lambda a, b: _signed(a, 64) >> min(b, 63)),
    ("min.u64", "dd", min),
    ("selp.b64", "ddp", lambda a, b, p: a if p else b),
    ("mov.b64", "v", lambda a: a),
]
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_JOIN: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}


@dataclass
class Program:
    """A random program: its tree, and the same as PTX."""

    tree: list[Any]
    text: str = field(repr=False)


class _Maker:
    """Makes trees: tuples whose first says what they are."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def word(self) -> tuple[str, int]:
        """Return a register, or a number."""
        rng = self.rng
        if rng.random() < 0.7:
            return "r", rng.randrange(_WORDS)
        return "i", rng.choice((0, 1, 2, 3, 7, 31, 32, 33, 255, 0x7FFFFFFF, 0x80000000, _M32, rng.randrange(1 << 32)))

    def byte(self) -> tuple[str, int]:
        """Return a register, or a number of 8 bits."""
        kind, value = self.word()
        return kind, value & 255 if kind == "i" else value

    def operand(self, kind: str) -> Any:
        rng = self.rng
        if kind == "r":
            return self.word()
        if kind == "b":
            return self.byte()
        if kind == "d":
            return "d", rng.randrange(_LONGS)
        if kind == "p":
            return "p", rng.randrange(_PREDICATES)
        if kind == "t":
            return "i", rng.randrange(256)
        return "v", [("r", rng.randrange(_WORDS)) for _ in range(2)]

    def guard(self) -> tuple[int, bool] | None:
        rng = self.rng
        return (rng.randrange(_PREDICATES), rng.random() < 0.5) if rng.random() < 0.35 else None

    def statement(self, depth: int) -> tuple[Any, ...]:
        rng = self.rng
        kind = rng.randrange(14)
        guard = self.guard()
        if kind < 5 or (depth == 0 and kind > 9):
            table, letter, count = rng.choice(((_WORD, "r", _WORDS), (_LONG, "d", _LONGS)))
            number = rng.randrange(len(table))
            sources = [self.operand(kind) for kind in table[number][1]]
            return "compute", guard, letter, number, rng.randrange(count), sources
        if kind < 8:
            first, second = rng.sample(range(_PREDICATES), 2)
            join = rng.choice((None, *_JOIN))
            return (
                "compare",
                guard,
                rng.choice(list(_COMPARE)),
                rng.choice("us"),
                join,
                first,
                second if rng.random() < 0.6 else None,
                [self.word(), self.word()],
                (rng.randrange(_PREDICATES), rng.random() < 0.5),
            )
        if kind == 8:
            first, second = rng.sample(range(_WORDS), 2)
            return "split", guard, first, second, rng.randrange(_LONGS)
        if kind == 9:
            return "carry", guard, rng.randrange(_WORDS), rng.randrange(_WORDS), [self.word() for _ in range(4)]
        condition = rng.randrange(_PREDICATES), rng.random() < 0.5
        if kind < 12:
            return "if", condition, self.block(depth - 1), self.block(depth - 1) if rng.random() < 0.6 else None
        if kind == 12:
            return "loop", rng.randrange(_WORDS), self.block(depth - 1), condition if rng.random() < 0.5 else None
        return "switch", rng.randrange(_WORDS), [self.block(depth - 1) for _ in range(rng.randrange(1, 4))]

    def block(self, depth: int) -> list[Any]:
        return [self.statement(depth) for _ in range(self.rng.randrange(1, 5))]


class _Writer:
    """Writes a tree as PTX."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._labels = 0

    def label(self) -> str:
        self._labels += 1
        return f"$L{self._labels}"

    def operand(self, operand: Any) -> str:
        kind, value = operand
        if kind == "v":
            return "{" + ", ".join(map(self.operand, value)) + "}"
        return str(value) if kind == "i" else f"%{kind}{value}"

    def block(self, statements: list[Any], depth: int = 0) -> None:
        for what, *rest in statements:
            getattr(self, what if what not in ("if",) else "branch")(depth, *rest)

    def _line(self, guard: tuple[int, bool] | None, text: str) -> None:
        self.lines.append(("" if guard is None else f"@{'!' if guard[1] else ''}%p{guard[0]} ") + text)

    def compute(self, _: int, guard: Any, letter: str, number: int, to: int, sources: list[Any]) -> None:
        opcode = (_WORD if letter == "r" else _LONG)[number][0]
        self._line(guard, f"{opcode} %{letter}{to}, {', '.join(map(self.operand, sources))};")

    def compare(self, _: int, guard: Any, how: str, sign: str, join: Any, p: int, q: Any, ab: Any, third: Any) -> None:
        destination = f"%p{p}" if q is None else f"%p{p}|%p{q}"
        more = "" if join is None else f", {'!' if third[1] else ''}%p{third[0]}"
        opcode = ".".join(["setp", how, *([join] if join else []), f"{sign}32"])
        self._line(guard, f"{opcode} {destination}, {self.operand(ab[0])}, {self.operand(ab[1])}{more};")

    def split(self, _: int, guard: Any, first: int, second: int, of: int) -> None:
        self._line(guard, f"mov.b64 {{%r{first}, %r{second}}}, %d{of};")

    def carry(self, _: int, guard: Any, low: int, high: int, words: list[Any]) -> None:
        a, b, c, d = map(self.operand, words)
        self._line(guard, f"add.cc.u32 %r{low}, {a}, {b};")
        self._line(guard, f"addc.u32 %r{high}, {c}, {d};")

    def branch(self, depth: int, condition: Any, yes: list[Any], no: list[Any] | None) -> None:
        other, end = self.label(), self.label()
        self._line((condition[0], not condition[1]), f"bra {other};")
        self.block(yes, depth)
        if no is not None:
            self.lines.append(f"bra {end};")
        self.lines.append(f"{other}:")
        self.block(no or [], depth)
        self.lines.append(f"{end}:")

    def loop(self, depth: int, by: int, body: list[Any], leave: Any) -> None:
        start, end, counter = self.label(), self.label(), f"%c{depth}"
        self.lines.append(f"and.b32 {counter}, %r{by}, 3;\n{start}:")
        self.block(body, depth + 1)
        if leave is not None:
            self._line(leave, f"bra {end};")
        self.lines.append(f"setp.eq.u32 %t, {counter}, 0; sub.u32 {counter}, {counter}, 1; @!%t bra {start};\n{end}:")

    def switch(self, depth: int, by: int, cases: list[Any]) -> None:
        names, end, table = [self.label() for _ in cases], self.label(), self.label()
        self.lines.append(f"rem.u32 %s, %r{by}, {len(cases)};\n{table}: .branchtargets {', '.join(names)};")
        self.lines.append(f"brx.idx %s, {table};")
        for name, case in zip(names, cases, strict=True):
            self.lines.append(f"{name}:")
            self.block(case, depth)
            self.lines.append(f"bra {end};")
        self.lines.append(f"{end}:")


class _Thread:
    """Executes a tree for one thread."""

    def __init__(self, words: list[int]) -> None:
        self.r, self.d = list(words), [words[n] * 0x9E3779B97F4A7C15 & _M64 for n in range(_LONGS)]
        self.p = [bool(words[n] >> 3 & 1) for n in range(_PREDICATES)]
        self.carried = False

    def value(self, operand: Any) -> int:
        kind, value = operand
        if kind == "v":
            return self.value(value[0]) | self.value(value[1]) << 32
        return int(value if kind == "i" else {"r": self.r, "d": self.d, "p": self.p}[kind][value])

    def holds(self, condition: Any) -> bool:
        return condition is None or self.p[condition[0]] != condition[1]

    def block(self, statements: list[Any]) -> None:
        for what, *rest in statements:
            getattr(self, what if what not in ("if",) else "branch")(*rest)

    def compute(self, guard: Any, letter: str, number: int, to: int, sources: list[Any]) -> None:
        if self.holds(guard):
            result = (_WORD if letter == "r" else _LONG)[number][2](*map(self.value, sources))
            if letter == "r":
                self.r[to] = result & _M32
            else:
                self.d[to] = result & _M64

    def compare(self, guard: Any, how: str, sign: str, join: Any, p: int, q: Any, ab: Any, third: Any) -> None:
        if not self.holds(guard):
            return
        a, b = map(self.value, ab)
        found = _COMPARE[how](a, b) if sign == "u" else _COMPARE[how](_signed(a), _signed(b))
        pair = found, not found
        if join is not None:
            more = self.p[third[0]] != third[1]
            pair = _JOIN[join](pair[0], more), _JOIN[join](pair[1], more)
        self.p[p] = pair[0]
        if q is not None:
            self.p[q] = pair[1]

    def split(self, guard: Any, first: int, second: int, of: int) -> None:
        if self.holds(guard):
            self.r[first], self.r[second] = self.d[of] & _M32, self.d[of] >> 32

    def carry(self, guard: Any, low: int, high: int, words: list[Any]) -> None:
        if self.holds(guard):
            total = self.value(words[0]) + self.value(words[1])
            self.r[low], self.carried = total & _M32, total > _M32
            self.r[high] = self.value(words[2]) + self.value(words[3]) + self.carried & _M32

    def branch(self, condition: Any, yes: list[Any], no: list[Any] | None) -> None:
        self.block(yes if self.holds(condition) else no or [])

    def loop(self, by: int, body: list[Any], leave: Any) -> None:
        left = self.r[by] & 3
        while True:
            self.block(body)
            if leave is not None and self.holds(leave):
                return
            if left == 0:
                return
            left -= 1

    def switch(self, by: int, cases: list[Any]) -> None:
        self.block(cases[self.r[by] % len(cases)])


def random_program(rng: random.Random) -> Program:
    """Make a program."""
    maker, writer = _Maker(rng), _Writer()
    tree = [maker.statement(3) for _ in range(rng.randrange(4, 12))]
    writer.block(tree)
    body = "\n".join(writer.lines)
    loads = "\n".join(f"ld.global.u32 %r{n}, [%in+{4 * n}];" for n in range(_WORDS))
    longs = "\n".join(f"cvt.u64.u32 %d{n}, %r{n}; mul.lo.u64 %d{n}, %d{n}, 0x9E3779B97F4A7C15;" for n in range(_LONGS))
    predicates = "\n".join(f"and.b32 %s, %r{n}, 8; setp.ne.u32 %p{n}, %s, 0;" for n in range(_PREDICATES))
    stores = [f"st.global.u64 [%out+{8 * n}], %d{n};" for n in range(_LONGS)]
    for n in range(_WORDS):
        stores.append(f"cvt.u64.u32 %d0, %r{n}; st.global.u64 [%out+{8 * (_LONGS + n)}], %d0;")
    for n in range(_PREDICATES):
        stores.append(f"selp.u64 %d0, 1, 0, %p{n}; st.global.u64 [%out+{8 * (_LONGS + _WORDS + n)}], %d0;")
    text = f""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 left) {{
.reg .b32 %r<{_WORDS}>, %c<9>, %s, %i; .reg .b64 %d<{_LONGS}>, %in, %out; .reg .pred %p<{_PREDICATES}>, %t;
ld.param.u64 %in, [given]; ld.param.u64 %out, [left];
mov.u32 %i, %ctaid.x; mov.u32 %s, %tid.x; mad.lo.u32 %i, %i, {THREADS}, %s;
mad.wide.u32 %in, %i, {4 * _WORDS}, %in; mad.wide.u32 %out, %i, {8 * (_LONGS + _WORDS + _PREDICATES)}, %out;
{loads}
{longs}
{predicates}
{body}
{chr(10).join(stores)}
ret;
}}
"""
    return Program(tree, text)


def difference(program: Program, back_end: str = "numpy") -> str:
    """Return where the simulator's results differ from the interpreter's; nothing if they don't.

    Parameters
    ----------
    program : Program
    back_end : str
        "numpy", or "machine code" for all that can be that.
    """
    from cutepy import load_ptx
    from cutepy.sim import translate
    from cutepy.sim.native import compiler, ledger

    count = THREADS * CTAS
    given = np.random.default_rng(7).integers(0, 1 << 32, (count, _WORDS), np.uint64).astype(np.uint32)
    given[::3, 0], given[1::4, 1] = np.arange(len(given[::3])), _M32
    found = np.zeros((count, _LONGS + _WORDS + _PREDICATES), np.uint64)
    with mock.patch.object(ledger, "WORTH", 0):
        if back_end == "numpy":
            with mock.patch.object(compiler, "_provided", []):
                load_ptx(program.text).launch("k", CTAS, THREADS, (given, found))
        else:
            translate._program.cache_clear()
            load_ptx(program.text).launch("k", CTAS, THREADS, (given, found))
    for n, words in enumerate(given.tolist()):
        thread = _Thread(words)
        thread.block(program.tree)
        expected = [*thread.d, *thread.r, *map(int, thread.p)]
        if found[n].tolist() != expected:
            return f"thread {n} has {found[n].tolist()}, expected {expected}"
    return ""
