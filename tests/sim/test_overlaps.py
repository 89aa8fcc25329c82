"""Instructions whose destinations are their sources, their guard or each other's operands, in both back ends.

All sources and the guard are read before any destination is written. So an instruction gives what it gives with
destinations of their own, which hold before it what the others held.
"""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

from tests.sim.kernels.launching import launch

# Upper case are destinations, lower case sources: P predicates, H of 16 bits, R of 32, D of 64; a is the address of a
# buffer in global memory and s one in shared memory, g the guard. `|` and braces are PTX's.
FORMS = """
setp.lt.s32 P0|P1, r0, r1;                       setp.lt.and.u32 P0|P1, r0, r1, p0;
setp.eq.or.f32 P0|P1, r0, r1, !p0;               setp.ge.xor.f16x2 P0|P1, r0, r1, p0;
lop3.or.b32 R0|P0, r0, r1, r2, 0x1B, p0;         lop3.b32 R0, r0, r1, r2, 0x6A;
selp.b32 R0, r0, r1, p0;                         selp.b64 D0, d0, d1, p0;
and.pred P0, p0, p1;                             not.pred P0, p0;
mov.pred P0, p0;                                 testp.normal.f32 P0, r0;
isspacep.global P0, d0;                          slct.b32.s32 R0, r0, r1, r2;
mov.b64 {R0, R1}, d0;                            mov.b64 D0, {r0, r1};
mov.b32 {H0, H1}, r0;                            mov.b64 {H0, H1, H2, H3}, d0;
mov.v2.b32 {R0, R1}, {r0, r1};                   mov.v4.b32 {R0, R1, R2, R3}, {r0, r1, r2, r3};
mul.wide.u32 D0, r0, r1;                         mad.wide.s32 D0, r0, r1, d0;
add.cc.u32 R0, r0, r1;                           mad.lo.cc.u32 R0, r0, r1, r2;
bfi.b32 R0, r0, r1, r2, r3;                      prmt.b32 R0, r0, r1, r2;
shf.l.wrap.b32 R0, r0, r1, r2;                   sad.u32 R0, r0, r1, r2;
cvt.rn.f16x2.f32 R0, r0, r1;                     cvt.u64.u32 D0, r0;
cvt.u32.u64 R0, d0;                              div.u32 R0, r0, r1;
fma.rn.f32 R0, r0, r1, r2;                       fma.rm.f32 R0, r0, r1, r2;
fma.rn.bf16x2 R0, r0, r1, r2;                    dp4a.u32.s32 R0, r0, r1, r2;
set.lt.u32.f32 R0, r0, r1;
ld.global.v2.b64 {D0, D1}, [a0+16];              ld.global.b64 D0, [a0];
ld.shared.v4.b32 {R0, R1, R2, R3}, [s0];         ld.shared.v2.b32 {R0, R1}, [s0+8];
ld.global.v4.b32 {R0, R1, R2, R3}, [a0];         ld.shared.b32 R0, [s0+4];
atom.global.cas.b64 D0, [a0], d0, d1;            atom.shared.add.u32 R0, [s0], r0;
atom.global.exch.b64 D0, [a0], d0;               atom.shared.cas.b32 R0, [s0], r0, r1;
shfl.sync.idx.b32 R0|P0, r0, r1, 31, -1;         shfl.sync.up.b32 R0|P0, r0, r1, r2, -1;
shfl.sync.bfly.b32 R0|P0, r0, 5, 31, -1;         vote.sync.ballot.b32 R0, p0, -1;
vote.sync.any.pred P0, p0, -1;                   match.all.sync.b32 R0|P0, r0, -1;
match.any.sync.b32 R0, r0, -1;                   redux.sync.add.u32 R0, r0, -1;
activemask.b32 R0;                               elect.sync R0|P0, -1;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {R0, R1, R2, R3}, [s1];
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {R0, R1, R2, R3}, {r0, r1, r2, r3}, {r0, r1}, {r2, r1, r0, r3};
"""
_FORMS = [form.strip() + ";" for form in FORMS.split(";") if form.strip()]
_COLLECTIVE = ("shfl", "vote", "match", "redux", "elect", "ldmatrix", "mma")
_TYPES = {"p": "pred", "h": "b16", "r": "b32", "d": "b64"}
_OF = {"a": "d", "s": "r", "g": "p"}
_NAME = re.compile(r"\b([PHRDphrdas])([0-3])\b")
_BYTES = 64
_MOST = 4
"""Overlaps that are tried of each instruction under each guard."""


def _overlaps(form: str, guard: str, most: int = _MOST) -> list[dict[str, str]]:
    """Return the ways in which destinations can be sources or the guard: each name of a destination -> its source."""
    names = list(dict.fromkeys(letter + number for letter, number in _NAME.findall(form)))
    destinations = [n for n in names if n[0].isupper()]
    sources = [n for n in names if n[0].islower()] + (["g0"] if guard else [])
    choices = [["", *(s for s in sources if _OF.get(s[0], s[0]) == d[0].lower())] for d in destinations]
    found = []
    for chosen in itertools.product(*choices):
        taken = [c for c in chosen if c]
        if taken and len(set(taken)) == len(taken):
            found.append(dict(zip(destinations, chosen, strict=True)))
    return found if len(found) <= most else random.Random(form).sample(found, most)


def _case(form: str, guard: str, overlap: dict[str, str]) -> tuple[str, int]:
    """Write an instruction with destinations of their own and with these, and store the results of both."""
    names = dict.fromkeys(letter + number for letter, number in _NAME.findall(form))
    text, stored = "", 0
    for apart in (True, False):
        at = {n: f"%{n}" for n in names} | {"g0": "%g0"}
        text += "{ .reg .pred %g0; .reg .b64 %x; .reg .b32 %y;\n"
        for letter, kind in _TYPES.items():
            text += f".reg .{kind} " + ", ".join(f"%{c}{n}" for c in (letter, letter.upper()) for n in range(4)) + ";\n"
        text += ".reg .b64 %a0; .reg .b32 %s0, %s1;\n"
        for n in range(4):
            # Values that differ by lane, and predicates that hold for some.
            text += f"mad.lo.u32 %r{n}, %thread, {0x9E3779B1 + 0x1234567 * n}, {0x3C01F7 * (n + 3)};\n"
            text += f"mul.wide.u32 %d{n}, %r{n}, {0x85EBCA6B + n}; cvt.u16.u32 %h{n}, %r{n};\n"
            text += f"shr.u32 %y, %r{n}, {5 + n}; and.b32 %y, %y, 1; setp.ne.u32 %p{n}, %y, 0;\n"
            for letter in "PHRD":
                text += {
                    "P": f"setp.eq.u32 %P{n}, %y, 0;",
                    "H": f"cvt.u16.u32 %H{n}, %y;",
                    "R": f"add.u32 %R{n}, %y, {n};",
                    "D": f"cvt.u64.u32 %D{n}, %y;",
                }[letter]
            text += "\n"
        text += f"mad.wide.u32 %a0, %thread, {_BYTES}, %base; mad.lo.u32 %s0, %thread, {_BYTES}, %window;\n"
        text += "and.b32 %s1, %thread, 7; mad.lo.u32 %s1, %s1, 16, %window;\n"
        for n in range(_BYTES // 8):
            text += f"st.global.b64 [%a0+{8 * n}], %d{n % 4}; st.shared.b64 [%s0+{8 * n}], %d{3 - n % 4};\n"
        text += "bar.warp.sync -1;\n"
        # The guard holds for some lanes, and for all where a warp acts together.
        text += f"and.b32 %y, %thread, {'4' if guard == '@' else '3'}; "
        condition = "ne" if guard == "@" else "eq"
        if form.startswith(_COLLECTIVE):
            text += f"setp.{'le' if guard == '@' else 'gt'}.u32 %g0, %y, 99;\n"
        else:
            text += f"setp.{condition}.u32 %g0, %y, 0;\n"
        for destination, source in overlap.items():
            if source and apart:
                kind = _TYPES[destination[0].lower()]
                text += f"mov.{kind} {at[destination]}, {at[source]};\n"
            elif source:
                at[destination] = at[source]
        written = _NAME.sub(lambda found, at=at: at[found[0]], form)
        text += f"{f'{guard}%g0 ' if guard else ''}{written}\n"
        for n, destination in enumerate(overlap):
            place = f"[%out+{8 * (stored + n)}]"
            register = at[destination]
            widen = {
                "p": f"selp.b64 %x, 1, 0, {register};",
                "h": f"cvt.u64.u16 %x, {register};",
                "r": f"cvt.u64.u32 %x, {register};",
                "d": f"mov.b64 %x, {register};",
            }[destination[0].lower()]
            text += f"{widen} st.global.b64 {place}, %x;\n"
        stored += len(overlap)
        text += "}\n"
    return text, stored


def _program(
    form: str, guards: tuple[str, ...] = ("", "@", "@!"), most: int = _MOST
) -> tuple[str, list[tuple[str, dict[str, str]]], int]:
    """Write overlaps of an instruction; returns these, and how many results a thread stores."""
    head = ".reg .b32 %thread, %window; .reg .b64 %base, %out;\n.shared .align 16 .b8 inner[2048];\n"
    cases = [(guard, overlap) for guard in guards for overlap in _overlaps(form, guard, most)]
    stride = sum(2 * len(overlap) for _, overlap in cases)
    text = head + "mov.u32 %thread, %tid.x; mov.u32 %window, inner; mov.b64 %base, %rd0;\n"
    text += f"mad.wide.u32 %out, %thread, {8 * stride}, %rd1;\n"
    for guard, overlap in cases:
        case, count = _case(form, guard, overlap)
        text += f"{case}add.u64 %out, %out, {8 * count};\n"
    return text, cases, stride


def _compare(form: str, cases: list[tuple[str, dict[str, str]]], found: np.ndarray) -> None:
    at = 0
    for guard, overlap in cases:
        count = len(overlap)
        apart, together = found[:, at : at + count], found[:, at + count : at + 2 * count]
        assert (apart == together).all(), (guard, form, overlap)
        at += 2 * count


_WITH_OVERLAPS = [form for form in _FORMS if _overlaps(form, "@")]


@pytest.mark.parametrize("form", _WITH_OVERLAPS, ids=lambda form: form.partition(" ")[0] + form[-3:-1])
def test_destinations_may_be_what_is_read(form):
    text, cases, stride = _program(form)
    memory, found = np.zeros(32 * _BYTES // 8, np.uint64), np.full((32, stride), 77, np.uint64)
    launch(text, [memory, found])
    _compare(form, cases, found)
    assert (found != 77).any()


@pytest.mark.dsl
@pytest.mark.parametrize("form", [f for f in _WITH_OVERLAPS if len(_overlaps(f, "")) > 1 and "matrix" not in f])
def test_machine_code_gives_the_same(form, monkeypatch):
    pytest.importorskip("cutlass")
    from tests.sim.native.programs import same

    monkeypatch.setenv("CUTEPY_CACHE", "off")
    text, cases, stride = _program(form, guards=("@",), most=2)  # the compiler takes longer for more
    memory, found = np.zeros(32 * _BYTES // 8, np.uint64), np.zeros((32, stride), np.uint64)
    (_, values), _, _ = same(monkeypatch, text, [memory, found], runs=False)
    _compare(form, cases, np.frombuffer(values, np.uint64).reshape(32, stride))
