"""Random statements, each in a small module: of real files or spelled by the instruction set, then changed.

A small module takes ptxas some 20 ms, so that thousands are compared in a few minutes.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from cutepy.sim.ptx.features import lacking
from cutepy.sim.ptx.instruction_set import ROWS, traits
from cutepy.sim.ptx.model import type_bits
from cutepy.sim.ptx.modifiers import WORDS
from cutepy.sim.ptx.operand_types import operand_types

_REGISTERS = """.reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .f32 %f<8>; .reg .f64 %g<4>;
.reg .u16 %uh<4>; .reg .s16 %sh<4>; .reg .u32 %u<4>; .reg .s32 %i<4>; .reg .u64 %ud<4>; .reg .s64 %sd<4>;
.reg .f16 %hf<4>; .reg .f16x2 %hx<4>; .reg .b8 %b<4>; .reg .b128 %q<4>; .reg .v2 .f32 v; .reg .v4 .u32 w;
.param .u32 pr, pa; .param .align 8 .b8 pc[16]; .local .align 16 .b8 l[64];"""
_OUTSIDE = """.version 9.0
.target sm_90a
.address_size 64
.global .align 64 .u32 g[32]; .shared .align 128 .b8 s[1024]; .const .align 64 .b8 c[128];
.func (.param .u32 r) f(.param .u32 a) { st.param.u32 [r], 1; ret; }
"""
_BY_BITS = {
    1: ["%p0", "%p1"],
    8: ["%b0", "%h0", "%r0"],
    16: ["%h0", "%h1", "%uh0", "%sh0", "%hf0"],
    32: ["%r0", "%r1", "%u0", "%i0", "%f0", "%hx0"],
    64: ["%d0", "%d1", "%ud0", "%sd0", "%g0"],
    128: ["%q0", "%q1"],
}
_FLOATS = {"f32": ["%f0", "%f1"], "f64": ["%g0", "%g1"]}
_ADDRESSES = ["[s]", "[g]", "[%d0]", "[%r0]", "[g+4]", "[%d1+16]", "[%r1+-8]", "[c]", "[l]", "[x]", "[pc]", "[map]"]
_ODD = """
%p0 !%p0 %b0 %h0 %r0 %u0 %i0 %d0 %ud0 %f0 %g0 %hf0 %hx0 %q0 %uh0 %sh0 %sd0 v w v.x v.y w.w 0 1 -1 2 3 4 5 8 16
31 32 33 64 128 255 256 65535 65536 0x7fffffff 0xffffffff -2147483648 0xffffffffffffffff 1.0 -0.5 0f3F800000
0d3FF0000000000000 _ {%r0} {%r0,%r1} {%r0,%r1,%r2,%r3} {%f0,%f1} {%f0,%f1,%f2,%f3} {%h0,%h1} {%h0,%h1,%h2,%h3}
{%d0,%d1} {%g0,%g1} {_,%r1} {%r0,%f0} {1,2} {%p0,%p1} {%b0,%b1} {%u0,%u1} {} %r0|%p0 %r0|_ _|%p0 %p0|%p1 %p0|_
%r0|%r1 s g c l x map f k L nosuch %tid.x %laneid %clock64 %is_explicit_cluster WARP_SZ [s] [g] [c] [l] [x]
[pr] [pc] [%d0] [%r0] [%h0] [%f0] [%p0] [%q0] [s+4] [%d0+4] [%d0+-4] [%d0-4] [5] [0x10] [f] [nosuch]
[%d0,{%r0,%r1}] [%d0,{%r0}] [%d0,%r0] g+4 s[2] (1+2) ~0 !0 1U -1.0 (%r0) pr pa
""".split()
_GUARDS = ["", "", "", "", "@%p0 ", "@!%p1 ", "@%r0 ", "@!%nosuch ", "@%h0 ", "@ ! %p0 "]
_MODIFIERS = sorted(
    {
        word
        for told in (*WORDS.values(), *(way for row in ROWS.values() for way in row.ways))
        for word in re.split(r"[\s/?.]", told)
        if word.upper() != word
    }
    | {"nosuch", "b256", "v8"}
)


def module(statement: str) -> str:
    """Return a module with a statement in its kernel."""
    return f"""{_OUTSIDE}.visible .entry k(.param .u64 x, .param .align 64 .b8 map[128])
{{ {_REGISTERS}
{statement}
L: ret; }}
"""


def _spelled(rng: random.Random, name: str, way: str) -> str:
    """Spell an opcode in one of the ways of a row."""
    found = [name]

    def put(slot: str) -> None:
        if " " in WORDS.get(slot, ""):
            for inner in WORDS[slot].split():
                put(inner)
            return
        if slot.endswith("?") and rng.random() < 0.5:
            return
        word = rng.choice(slot.removesuffix("?").split("/"))
        if word in WORDS:
            put(WORDS[word])
        elif word != "*":
            found.append(word)

    for slot in way.split():
        put(slot)
    return ".".join(found)


def _operand(rng: random.Random, word: str, kind: str, parts: list[str], opcode: str) -> str:
    if word == "address":
        return rng.choice(_ADDRESSES)
    if word == "target":
        return "L"
    bits = {"count": 32, "state": 64, "integer": 64, "ignored": 32, "": 32}.get(kind) or type_bits(kind)
    pool = _FLOATS.get(kind) or _BY_BITS.get(bits, _BY_BITS[32])
    if word == "policy":
        return "%d1"
    count = next((int(p[1:]) for p in parts if p in ("v2", "v4", "v8", "x1", "x2", "x4")), 0)
    if count and word in ("result", "value"):
        return "{" + ",".join(rng.choice(pool) for _ in range(count)) + "}"
    if word != "result" and rng.random() < 0.3 and kind != "pred":
        return rng.choice(["1", "0", "32", "16", "-1", "128", "1.0" if kind[:1] == "f" else "8"])
    return rng.choice(pool)


def generated(rng: random.Random) -> str:
    """Write a statement that the instruction set spells, and sm_90a has, with operands that may fit."""
    names = [one for one, row in ROWS.items() if row.ways and not one.startswith("%")]
    opcode = ""
    while not opcode or lacking(opcode, (9, 0), "sm_90a"):
        name = rng.choice(names)
        opcode = _spelled(rng, name, rng.choice(ROWS[name].ways))
    form, kinds, parts = traits(opcode).form, operand_types(opcode), opcode.split(".")
    words = list(form.words if form is not None else ())
    if form is not None and form.optional and rng.random() < 0.5:
        del words[len(words) - rng.randint(1, form.optional) :]
    operands = [_operand(rng, word, kinds[n] if n < len(kinds) else "", parts, opcode) for n, word in enumerate(words)]
    return f"{opcode} {', '.join(operands)};"


def split(statement: str) -> tuple[str, str, list[str]]:
    """Split a statement into its guard, its opcode and its operands."""
    match = re.match(r"\s*(@\s*!?\s*[\w%$]+\s+)?([\w.:]+)\s*(.*);", statement, re.S)
    if match is None:
        return "", statement, []
    operands, depth, one = [], 0, ""
    for letter in match[3]:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and not depth:
            operands.append(one.strip())
            one = ""
        else:
            one += letter
    return match[1] or "", match[2], [*operands, one.strip()] if one.strip() or operands else []


def changed_once(rng: random.Random, statement: str) -> str:
    """Change a modifier or an operand of a statement."""
    guard, opcode, operands = split(statement)
    first, *parts = opcode.split(".")
    kind = rng.randrange(12)
    at = rng.randrange(len(parts)) if parts else 0
    if kind == 0 and parts:
        del parts[at]
    elif kind in (1, 2) and parts:
        parts[at] = rng.choice(_MODIFIERS)
    elif kind == 3:
        parts.insert(at, rng.choice(_MODIFIERS))
    elif kind == 4 and parts:
        other = rng.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    elif kind == 5:
        guard = rng.choice(_GUARDS)
    elif operands:
        n = rng.randrange(len(operands))
        if kind == 6:
            del operands[n]
        elif kind == 7:
            operands.insert(n, rng.choice(_ODD))
        elif kind == 8:
            other = rng.randrange(len(operands))
            operands[n], operands[other] = operands[other], operands[n]
        elif kind == 9 and (names := re.findall(r"%[a-z]+\d", operands[n])):
            operands[n] = operands[n].replace(rng.choice(names), rng.choice(_ODD[:22]), 1)
        else:
            operands[n] = rng.choice(_ODD)
    else:
        operands.append(rng.choice(_ODD))
    return f"{guard}{'.'.join((first, *parts))} {', '.join(operands)};"


def changed(rng: random.Random, seeds: Sequence[str]) -> str:
    """Return a statement, one of seeds or a generated one, and change it up to twice."""
    found = rng.choice(seeds) if seeds and rng.random() < 0.5 else generated(rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        found = changed_once(rng, found)
    return found


_DECLARED = re.compile(r"\.reg\s+\.(\w+)\s+([^;]+);")
_STATEMENT = re.compile(
    r"^\s*(?:@!?%?\w+\s+)?([a-z][\w.:]*\.[\w.:]*)\s+([^;{}]*(?:\{[^;{}]*\}[^;{}]*)*);", re.MULTILINE
)
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*(?:\.\w+)?")
_OF_TYPES = {"pred": "p", "b16": "h", "b32": "r", "b64": "d", "f32": "f", "f64": "g", "u16": "uh", "s16": "sh"}
_OF_TYPES |= {"u32": "u", "s32": "i", "u64": "ud", "s64": "sd", "f16": "hf", "f16x2": "hx", "b8": "b", "b128": "q"}
_MOST_OF_AN_OPCODE = 3


def of_files(files: Iterable[str]) -> list[str]:
    """Return statements of real files, a few of each opcode, with the registers and variables of `module`."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for text in files:
        text = re.sub(r"//[^\n]*", "", text)
        stems = {
            name.strip().split("<")[0]: kind for kind, names in _DECLARED.findall(text) for name in names.split(",")
        }
        for opcode, operands in _STATEMENT.findall(text):
            if len(found[opcode]) < _MOST_OF_AN_OPCODE:
                found[opcode].add(f"{opcode} {_renamed(opcode, operands, stems)};")
    return sorted(one for some in found.values() for one in some)


def _renamed(opcode: str, operands: str, stems: dict[str, str]) -> str:
    counts: Counter[str] = Counter()
    known: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        letter = _OF_TYPES.get(stems.get(match[0].rstrip("0123456789")) or stems.get(match[0], ""))
        if letter is None:
            return match[0]
        if match[0] not in known:
            known[match[0]] = f"%{letter}{counts[letter] % 4}"
            counts[letter] += 1
        return known[match[0]]

    space = "x" if ".param" in opcode else "s" if "shared" in opcode else "g"
    return " ".join(re.sub(r"\[[A-Za-z_$][\w$]*", f"[{space}", _NAME.sub(name, operands)).split())
