"""Checks of opcodes against the instruction set: the modifiers of each, in the order of the ISA.

An opcode that is spelled as its row says is one of PTX's, whether it is simulated or not. `spelling.usual` brings
modifiers into the order of the row.

References
----------
PTX ISA, "Instruction Set": the syntax lines of each instruction, for all GPUs: which of them need a later
one, `features` says; what ptxas 13.0 takes of them.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from cutepy.sim.ptx.instruction_set import ROWS, beginning
from cutepy.sim.ptx.tokens import PtxSyntaxError

_EXTENTS = range(8, 257, 8)
"""Of wgmma along N."""
_COLLECTED = ("discard", "fill", "use", "lastuse")
_EXTENTS_OF_INTEGERS = (8, 16, 24, *range(32, 257, 16))


def _scoped(*orders: str) -> str:
    """Return the words of memory orders that need a scope."""
    return "/".join(f"{order}.{scope}" for order in orders for scope in ("cta", "cluster", "gpu", "sys"))


WORDS = {
    "ROUND": "rn/rz/rm/rp",
    "INTEGRAL": "rni/rzi/rmi/rpi",
    "INT": "u16/u32/u64/s16/s32/s64",
    "INTEGER": "u8/s8/INT",
    "WIDE": "u32/s32/u64/s64",
    "WORD": "u32/s32",
    "BYTE": "u8/s8",
    "NIBBLE": "u4/s4",
    "BITS": "b16/b32/b64",
    "HALF": "f16/f16x2",
    "BRAIN": "bf16/bf16x2",
    "FLOAT8": "e4m3/e5m2",
    "FLOAT8TO4": "e4m3/e5m2/e3m2/e2m3/e2m1",
    "MX8": "kind::mxf8f6f4 block_scale scale_vec::1X?",
    "MX4": "kind::mxf4 block_scale scale_vec::2X?",
    "NV4_2X": "kind::mxf4nvf4 block_scale scale_vec::2X",
    "NV4_4X": "kind::mxf4nvf4 block_scale scale_vec::4X",
    "FLOAT8X2": "e4m3x2/e5m2x2",
    "FLOATX4": "e4m3x4/e5m2x4/e2m1x4/e2m3x4/e3m2x4",
    "NARROWX2": "e2m1x2/e2m3x2/e3m2x2",
    "SCALAR": "BITS/INT/f32/f64",
    "MEMORY": "b8/INTEGER/BITS/b128/f32/f64",
    "ORDERED": "eq/ne/lt/le/gt/ge",
    "UNSIGNED": "lo/ls/hi/hs",
    "UNORDERED": "equ/neu/ltu/leu/gtu/geu/num/nan",
    "BOOL": "and/or/xor",
    "REDUCTION": "add/min/max/inc/dec/BOOL",
    "SCOPE": "cta/cluster/gpu/sys",
    "SHARED": "shared/shared::cta",
    "SPACE": "global/SHARED/shared::cluster",
    "PARAM": "param/param::entry/param::func",
    "LOADED_SPACE": "SPACE/const/local/PARAM",
    "MATRIX_SPACE": "global/SHARED",
    "EVICT_L1": "L1::evict_normal/L1::evict_unchanged/L1::evict_first/L1::evict_last/L1::no_allocate",
    "EVICT_L2": "L2::evict_last/L2::evict_normal/L2::evict_first/L2::evict_unchanged",
    "HINT": "L2::cache_hint",
    "PREFETCH": "L2::64B/L2::128B/L2::256B",
    "VECTOR": "v2/v4",
    "LONG": "v8.b32/v8.u32/v8.s32/v8.f32/v4.b64/v4.u64/v4.s64/v4.f64",
    "KEPT_IN_L2": "L2::evict_last/L2::evict_normal/L2::evict_first",
    "ATOM": "relaxed/acquire/release/acq_rel? SCOPE? SPACE?",
    "ATOM_GLOBAL": "relaxed/acquire/release/acq_rel? SCOPE? global?",
    "RED": "relaxed/release? SCOPE? SPACE?",
    "RED_GLOBAL": "relaxed/release? SCOPE? global?",
    "MULTI_LOAD": f"weak/{_scoped('relaxed', 'acquire')}? global?",
    "MULTI_STORE": f"weak/{_scoped('relaxed', 'release')}? global?",
    "MULTI_RED": f"{_scoped('relaxed', 'release')}? global?",
    "ARRIVED": "release.cta/release.cluster/relaxed.cta/relaxed.cluster",
    "WAITED": "acquire.cta/acquire.cluster/relaxed.cta/relaxed.cluster",
    "DIMENSIONS": "1d/2d/3d/4d/5d",
    "COMPLETE": "mbarrier::complete_tx::bytes",
    "MULTICAST": "multicast::cluster",
    "CTA_GROUP": "cta_group::1/cta_group::2",
    "REPEATED": "x1/x2/x4/x8/x16/x32/x64/x128",
    "REDUCED": "x2/x4/x8/x16/x32/x64/x128",
    "REPEATED64": "x1/x2/x4/x8/x16/x32/x64",
    "REPEATED32": "x1/x2/x4/x8/x16/x32",
    "DECOMPRESSED": "b8x16.b6x16_p32/b8x16.b4x16_p64",
    "MMA_KIND": "kind::f16/kind::tf32/kind::f8f6f4/kind::i8",
    "COLLECTOR": "/".join(f"collector::a::{use}" for use in _COLLECTED),
    "COLLECTOR_OF_B": "/".join(f"collector::b{n}::{use}" for n in range(4) for use in _COLLECTED),
    "LAYOUT": "row/col",
    "CUBES": "m16n16k16/m8n32k16/m32n8k16",
    **{f"M64K{k}": "/".join(f"m64n{n}k{k}" for n in _EXTENTS) for k in (8, 16, 32, 64)},
    **{f"M64INTK{k}": "/".join(f"m64n{n}k{k}" for n in _EXTENTS_OF_INTEGERS) for k in (32, 64, 256)},
}
"""Words that stand for a choice of others, or for modifiers in a row."""

_UNSYNCHRONISED = "{opcode} without .sync is for GPUs before sm_70; use {first}.sync with a mask of lanes"
_OF_SEVERAL_DEVICES = "{opcode} is not simulated: multimem instructions need several devices"
_ASYNCHRONOUS = (
    "{opcode} is not simulated: the ISA does not say when it is over for its own thread, which nothing tells; use "
    "{first} without .async"
)
_OF_OTHER_GPUS = [
    (r"(shfl|vote)\.(?!sync)", _UNSYNCHRONISED),
    (r"match\.(?:any|all)\.(?!sync)", _UNSYNCHRONISED),
    (r"multimem\..*\bacc::f16\b", _OF_SEVERAL_DEVICES),
    (r"(st|red)\.async\.(?!.*mbarrier::)(?=.*\b(global|release|gpu|sys|mmio)\b)", _ASYNCHRONOUS),
    (r".*im2col::w", "{opcode} is not simulated: the ISA draws where halo pixels go, and does not say it"),
    (r"(ld|ldu|st)\..*\bv[248]\.b128\b", "{opcode} has a vector of more than 128 bits"),
]  # fmt: skip
"""Patterns of opcodes that are of other GPUs, or of none, and why they are refused."""

_TYPE = re.compile(r"[a-z]+\d+(x\d)?")
SPELLINGS = {name: row.ways for name, row in ROWS.items() if row.ways}
"""By the beginning of an opcode, the ways of what may follow."""


@cache
def _slots(way: str) -> tuple[tuple[tuple[str, ...], bool], ...]:
    """Return of each place of a way the words that may stand there, and whether none of them may."""
    found = []
    for slot in " ".join(WORDS[slot] if " " in WORDS.get(slot, "") else slot for slot in way.split()).split():
        words = slot.removesuffix("?").split("/")
        while any(word in WORDS for word in words):
            words = [inner for word in words for inner in WORDS.get(word, word).split("/")]
        found.append((tuple(words), slot.endswith("?")))
    return tuple(found)


def _pattern(slots: tuple[tuple[tuple[str, ...], bool], ...]) -> str:
    parts = []
    for words, is_optional in slots:
        if words == ("*",):
            parts.append(r"(?:\.[\w:]+)*")
        else:
            parts.append(f"(?:{'|'.join(re.escape('.' + word) for word in words)}){'?' if is_optional else ''}")
    return "".join(parts)


@cache
def _taken(name: str) -> re.Pattern[str]:
    return re.compile("|".join(_pattern(_slots(way)) for way in SPELLINGS[name]))


def is_spelled(opcode: str) -> bool:
    """Return whether an opcode, in the usual order, is one of PTX's.

    Examples
    --------
    >>> is_spelled("add.sat.s32"), is_spelled("add.sat.u32"), is_spelled("fence.proxy.async.shared::cta")
    (True, False, True)
    """
    name = beginning(opcode, SPELLINGS)
    return bool(name) and _taken(name).fullmatch(opcode, len(name)) is not None


@lru_cache(maxsize=4096)
def refused_spelling(opcode: str) -> tuple[str, str]:
    """Return why an opcode is none of PTX's, and the word that it is about; nothing of one that is.

    Examples
    --------
    >>> refused_spelling("add.foo.u32")
    ('add has no modifier .foo', '.foo')
    >>> refused_spelling("shfl.up.b32")[0]
    'shfl.up.b32 without .sync is for GPUs before sm_70; use shfl.sync with a mask of lanes'
    >>> refused_spelling("fma.ftz.f32")
    ('fma.ftz.f32 needs one of .rn .rz .rm .rp', '')
    >>> refused_spelling("add.sat.u32")[0].partition(";")[0]
    'add.sat.u32 has modifiers that do not go together'
    """
    for pattern, reason in _OF_OTHER_GPUS:
        if re.match(pattern, opcode):
            return reason.format(opcode=opcode, first=opcode.partition(".")[0]), ""
    if is_spelled(opcode):
        return "", ""
    name, first = beginning(opcode, SPELLINGS), opcode.partition(".")[0]
    if not any(one == first or one.startswith(first + ".") for one in SPELLINGS):
        return f"PTX has no instruction {first}", first
    family = [one for one in SPELLINGS if one == first or one.startswith(first + ".")]
    known = {part for one in family for part in one.split(".")[1:]} | {
        part
        for one in family
        for way in SPELLINGS[one]
        for words, _ in _slots(way)
        for word in words
        for part in word.split(".")
    }
    parts = opcode.split(".")[1:]
    unknown = next((part for part in parts if part not in known), None)
    if unknown is not None:
        is_type = _TYPE.fullmatch(unknown) or unknown == "pred"
        return f"{first} {'takes no type' if is_type else 'has no modifier'} .{unknown}", f".{unknown}"
    if not name:
        return f"{opcode} needs one of {_dotted(_following(opcode, family))}", ""
    missing = _missing(opcode, name)
    if missing:
        return f"{opcode} needs {_said(missing)}", ""
    ways = [way for way in SPELLINGS[name] if _shares_types(way, parts)] or SPELLINGS[name]
    listed = " or ".join(_syntax(name, way) for way in ways[:3])
    return f"{opcode} has modifiers that do not go together; there is {listed}", ""


def _following(opcode: str, family: list[str]) -> list[str]:
    """Return the words of which one must follow the longest beginning that an opcode shares with names of a family."""
    parts = opcode.split(".")
    names = [one.split(".") for one in family]
    shared = next(n for n in range(len(parts), 0, -1) if any(one[:n] == parts[:n] for one in names))
    return sorted({one[shared] for one in names if one[:shared] == parts[:shared] and len(one) > shared})


def _missing(opcode: str, name: str) -> list[str]:
    """Return the words of which one more would make an opcode one of PTX's."""
    found: list[str] = []
    for way in SPELLINGS[name]:
        slots = _slots(way)
        for n, (words, is_optional) in enumerate(slots):
            if not is_optional and words != ("*",):
                without = _pattern((*slots[:n], *slots[n + 1 :]))
                if re.compile(without).fullmatch(opcode, len(name)):
                    found += words
    return list(dict.fromkeys(word for word in found if "." not in word or word.rpartition(".")[2] not in found))


def _said(words: list[str]) -> str:
    if all(_TYPE.fullmatch(word) for word in words) and len(words) > 1:
        return f"a type more, one of {_dotted(words)}"
    return _dotted(words) if len(words) == 1 else f"one of {_dotted(words)}"


def _dotted(words: list[str]) -> str:
    return " ".join(f".{word}" for word in words)


def _shares_types(way: str, parts: list[str]) -> bool:
    slots = _slots(way)
    return bool(slots) and parts[-1:] != [] and parts[-1] in slots[-1][0]


def _syntax(name: str, way: str) -> str:
    """Write a way as the ISA does: braces around optional parts."""
    text = name
    for words, is_optional in _slots(way):
        choice = "|".join(f".{word}" for word in words)
        choice = f"({choice})" if len(words) > 1 and not is_optional else choice
        text += f"{{{choice}}}" if is_optional else choice
    return text


def check_modifiers(opcode: str) -> None:
    """Refuse an opcode that is none of PTX's.

    Raises
    ------
    PtxSyntaxError
    """
    reason, token = refused_spelling(opcode)
    if reason:
        raise PtxSyntaxError(reason, token)
