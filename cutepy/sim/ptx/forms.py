"""The operands of each instruction: how many there are, what each is, and of how many registers vectors are.

One description of each instruction's form: the parser refuses other operands by it, and the analyses read from it which
operand is a result, an address, or decides something (`translate.deciding`).

References
----------
PTX ISA, "Instruction Set": the syntax line of each instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from cutepy.sim.ptx.model import (
    Address,
    FrameSlot,
    Immediate,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from cutepy.sim.ptx.tokens import PtxSyntaxError


def _each(opcodes: str, form: str) -> dict[str, str]:
    return dict.fromkeys(opcodes.split(), form)


_COMPLETION = "mbarrier::complete_tx::bytes"
_MULTICAST = "mask@multicast::cluster"
_POLICY = "policy@L2::cache_hint"

PLAIN_FORMS: dict[str, str] = {
    **_each("abs bfind brev clz cnot cos cvta ex2 getctarank isspacep lg2 mov neg not", "result value"),
    **_each("popc rcp rsqrt sin sqrt tanh testp", "result value"),
    **_each("add addc and bmsk copysign div mapa mul mul24 or rem shl shr sub subc szext xor", "result value*2"),
    **_each("max min", "result value*2 value?"),  # three on newer GPUs
    **_each("bfe dp2a dp4a fma fns mad mad24 madc prmt sad selp shf slct", "result value*3"),
    **_each("set setp", "result value*2 value@and/or/xor"),
    "bfi": "result value*4",
    "lop3": "result value*4 value@and/or",
    "cvt": "result value value?",
    "cvt.pack": "result value*2 value@b32",
    "createpolicy": "result value?",
    "createpolicy.range": "result address value*2",
    "alloca": "result value value?",
    "stacksave": "result",
    "stackrestore": "value",
    "bra": "target",
    **_each("exit ret", ""),
    **_each("nanosleep pmevent", "value"),
}  # fmt: skip
"""The instructions that give results and decide nothing, whoever executes them; branches are ends of blocks."""

FORMS: dict[str, str] = PLAIN_FORMS | {
    "ld": f"result address {_POLICY}",
    "ldu": "result address",
    "st": f"address value {_POLICY}",
    "atom": f"result address value value@cas {_POLICY}",
    "red": f"address value {_POLICY}",
    "ldmatrix": "result address",
    "stmatrix": "address value",
    "st.bulk": "address value*2",
    "wmma.load": "result address stride?",
    "wmma.store": "address value stride?",
    **_each("prefetch prefetchu", "address"),
    **_each("applypriority discard", "address value"),
    "activemask": "result",
    **_each("bar barrier", "barrier barrier?"),
    **_each("bar.arrive bar.cta.arrive barrier.arrive barrier.cta.arrive", "barrier*2"),
    **_each("bar.red bar.cta.red barrier.red barrier.cta.red", "result barrier barrier? value"),
    "bar.warp": "barrier",
    "barrier.cluster": "",
    "%beyond": "branch value",
    "brkpt": "",
    "brx": "branch branch",
    "call": "branch value? value? value?",
    "cp.async.bulk": f"address address bytes address@{_COMPLETION} {_MULTICAST} {_POLICY}",
    "cp.async.bulk.commit_group": "",
    "cp.async.bulk.prefetch": f"address bytes {_POLICY}",
    "cp.async.bulk.prefetch.tensor": f"address mask@im2col {_POLICY}",
    "cp.async.bulk.tensor": f"address address address@{_COMPLETION} mask@im2col {_MULTICAST} {_POLICY}",
    "cp.async.bulk.wait_group": "barrier",
    **_each("cp.async.ca cp.async.cg", f"address address bytes bytes? {_POLICY}"),
    "cp.async.commit_group": "",
    "cp.async.mbarrier": "address",
    "cp.async.wait_all": "",
    "cp.async.wait_group": "barrier",
    "cp.reduce.async.bulk": f"address address bytes address@{_COMPLETION} {_POLICY}",
    "cp.reduce.async.bulk.tensor": f"address address {_POLICY}",
    "elect": "result lanes",
    "fence": "address? bytes?",
    "griddepcontrol": "",
    "match": "result value lanes",
    "mbarrier": "result? address barrier? barrier?",
    "mbarrier.init": "address barrier",
    "mbarrier.inval": "address",
    **_each("mbarrier.arrive mbarrier.arrive_drop", "result? address barrier?"),
    **_each("mbarrier.arrive.expect_tx mbarrier.arrive_drop.expect_tx", "result? address barrier"),
    **_each("mbarrier.arrive.noComplete mbarrier.arrive_drop.noComplete", "result? address barrier"),
    **_each("mbarrier.expect_tx mbarrier.complete_tx", "address barrier"),
    **_each("mbarrier.test_wait mbarrier.try_wait", "result address barrier barrier?"),
    "mbarrier.pending_count": "result value",
    "membar": "",
    "mma": "result value*3",
    **_each("mma.sp mma.sp::ordered_metadata", "result value*5"),
    "movmatrix": "result value",
    "red.async": "address value address",
    "redux": "result value lanes",
    "setmaxnreg": "barrier",
    "shfl": "result value lanes*2 lanes@sync",
    "st.async": "address value address",
    "tensormap.cp_fenceproxy": "address address bytes",
    "tensormap.replace": "address bytes bytes?",
    "tensormap.replace.tile.global_address": "address elsewhere",
    "trap": "",
    "vote": "result value lanes@sync",
    "wgmma.commit_group": "",
    "wgmma.fence": "",
    "wgmma.mma_async": "result descriptor*2 alike value? value? value? value?",
    "wgmma.mma_async.sp": "result descriptor*2 value*2 alike value? value? value? value?",
    "wgmma.wait_group": "barrier",
    "wmma.mma": "result value*3",
}
"""By the longest beginning of an opcode, its operands.

``result`` and ``address`` are what they say, ``policy`` is a cache policy, ``target`` a label; the others name what a
value is for. ``value*2`` stands for two, ``value?`` for one that may be missing, ``value@and/or`` for one that is there
if, and only if, the opcode has one of these modifiers.
"""

_WORD = re.compile(r"(?P<name>\w+)(?:\*(?P<count>\d))?(?P<optional>\?)?(?:@(?P<modifiers>\S+))?")


class Form(NamedTuple):
    """The operands of an opcode.

    Attributes
    ----------
    words : tuple of str
        What each is.
    optional : int
        How many of them may be missing, beside the result.
    may_lack_result : bool
        Whether the result may be missing.
    """

    words: tuple[str, ...]
    optional: int
    may_lack_result: bool = False


@lru_cache(maxsize=4096)
def form_of(opcode: str) -> Form | None:
    """Return the form of an opcode; None of one that has none here.

    Examples
    --------
    >>> form_of("setp.lt.and.u32").words, form_of("ld.global.L2::cache_hint.u32").words
    (('result', 'value', 'value', 'value'), ('result', 'address', 'policy'))
    >>> form_of("cp.async.ca.shared.global")
    Form(words=('address', 'address', 'bytes', 'bytes'), optional=1, may_lack_result=False)
    """
    parts = opcode.split(".")
    form = next((FORMS[n] for n in (".".join(parts[:k]) for k in range(len(parts), 0, -1)) if n in FORMS), None)
    if form is None:
        return None
    words: list[str] = []
    optional = 0
    for match in map(_WORD.fullmatch, form.split()):
        assert match is not None
        if match["modifiers"] is None or not {*match["modifiers"].split("/")}.isdisjoint(parts):
            words += [match["name"]] * int(match["count"] or 1)
            optional += match["optional"] is not None and match["name"] != "result"
    return Form(tuple(words), optional, form.startswith("result?"))


_RESULTS = (Register, Vector, Pair, Sink)
_VALUES = (Register, Immediate, Special, Symbol, Vector, Negated, Sink, FrameSlot)
_KINDS: dict[str, tuple[type, ...]] = {"result": _RESULTS, "address": (Address,), "target": (Label,)}
_SAID = {"result": "a register", "address": "an address in brackets", "target": "a label"}
_MOST_KNOWN = 1 << 16


class Checks:
    """Checks of instructions' operands, each once for an opcode and the kinds and types of its operands.

    Parameters
    ----------
    also : callable, optional
        What else is wrong with an instruction, or nothing.
    """

    def __init__(self, also: Callable[[Instruction], str] | None = None) -> None:
        self._also = also
        self._known: set[tuple[str, tuple[object, ...]]] = set()

    def check(self, i: Instruction) -> None:
        """Refuse operands that an instruction does not take; of an unknown one nothing is said.

        Raises
        ------
        PtxSyntaxError
            If there are too many or too few, one is of another kind, or a vector has another length.
        """
        operands = i.operands
        if i.parts[0] in _LIMITED:
            _check_values(i.opcode, i.parts, operands)
        shape = i.opcode, tuple([o.type if type(o) is Register else _shape_of(o) for o in operands])
        if shape in self._known:
            return
        form = form_of(i.opcode)
        if form is not None and i.parts[0] != "call":
            _check_modifiers(i.opcode)
            _check_operands(i.opcode, form, operands)
            _check_lengths(i.opcode, form, operands)
            _check_types(i.opcode, form, operands)
        if self._also is not None and (reason := self._also(i)):
            raise PtxSyntaxError(reason)
        if len(self._known) < _MOST_KNOWN:
            self._known.add(shape)


def _shape_of(operand: Operand) -> object:
    """Return all of an operand that decides whether an instruction takes it."""
    kind = type(operand)
    if kind is Immediate:
        return operand.float_bits  # type: ignore[union-attr]
    if kind is Special:
        return operand
    if kind is Address:
        coordinates = operand.coordinates  # type: ignore[union-attr]
        return type(operand.base), None if coordinates is None else len(coordinates)  # type: ignore[union-attr]
    if isinstance(operand, Register):
        return operand.type
    if isinstance(operand, Vector):
        return tuple([o.type if type(o) is Register else _shape_of(o) for o in operand.items])
    if isinstance(operand, Pair):
        return _shape_of(operand.first), _shape_of(operand.second)
    return kind


def _check_operands(opcode: str, form: Form, operands: tuple[Operand, ...]) -> None:
    words = _present(form, operands)
    if opcode.startswith(("addc", "subc", "madc")):
        operands = operands[:-1]  # the carry, which the parser names
    most, least = len(words), len(words) - form.optional
    if not least <= len(operands) <= most:
        count = f"{most}" if least == most else f"{least} to {most}"
        raise PtxSyntaxError(f"{opcode} takes {count} operand{'s' * (count != '1')}, got {len(operands)}")
    for word, operand in zip(words, operands, strict=False):
        if not isinstance(operand, _KINDS.get(word, _VALUES)):
            said = _SAID.get(word, "a value")
            raise PtxSyntaxError(f"{opcode} takes {said} there, got {spelled(operand)}", spelled(operand))


def _present(form: Form, operands: tuple[Operand, ...]) -> tuple[str, ...]:
    """Leave out a result that is not there, as that of an arrival."""
    is_absent = form.may_lack_result and operands and isinstance(operands[0], Address)
    return form.words[1:] if is_absent else form.words


def _check_lengths(opcode: str, form: Form, operands: tuple[Operand, ...]) -> None:
    parts = opcode.split(".")
    for n, (word, operand) in enumerate(zip(_present(form, operands), operands, strict=False)):
        lengths = _lengths(parts, word, n)
        if isinstance(operand, Address):
            dimensions = next((int(p[0]) for p in parts if re.fullmatch("[1-5]d", p)), 0)
            if operand.coordinates is not None and parts[0] == "cp" and len(operand.coordinates) != dimensions:
                raise PtxSyntaxError(f"{opcode} takes {dimensions} coordinates, got {len(operand.coordinates)}")
        elif lengths is not None:
            got = len(operand.items) if isinstance(operand, Vector) else 1
            if got not in lengths:
                said = " or ".join(f"a vector of {x}" if x != 1 else "one register" for x in sorted({*lengths}))
                found = f"one of {got}" if isinstance(operand, Vector) else spelled(operand)
                raise PtxSyntaxError(f"{opcode} takes {said} there, got {found}")


def _lengths(parts: list[str], word: str, n: int) -> tuple[int, ...] | None:
    """Return how many registers an operand may be, 1 for one that is no vector; None if that is not told here."""
    first, last = parts[0], parts[-1]
    if first in ("wmma", "call") or word in ("address", "target"):
        return None
    if first in ("ld", "ldu", "st", "atom", "red") and word in ("result", "value"):
        count = next((int(p[1]) for p in parts if p in ("v2", "v4", "v8")), 2 if last == "b128" else 1)
        return (count,)
    if first == "mov":
        return {"b16": (1, 2), "b32": (1, 2, 4), "b64": (1, 2, 4), "b128": (2,)}.get(last, (1,))
    if first in ("ldmatrix", "stmatrix"):
        return (next((int(p[1]) for p in parts if p in ("x1", "x2", "x4")), 1),)
    if first == "mma":
        return _of_mma(parts, n)
    if first == "wgmma":
        return _of_wgmma(parts, word, n)
    if first == "cp" and word == "mask":
        dimensions = next((int(p[0]) for p in parts if re.fullmatch("[3-5]d", p)), 0)
        return (dimensions - 2, 1) if "im2col" in parts else (1,)
    return (1,)


_TYPE = re.compile(r"(?P<letter>[busf]|bf|tf)(?P<bits>\d+)(?:x(?P<count>\d))?")
_TYPES = frozenset(
    """b1 b8 b16 b32 b64 b128 b1024 u2 u4 u8 u16 u32 u64 s2 s4 s8 s16 s32 s64 f16 f32 f64 bf16 tf32 f16x2 bf16x2 f32x2
    u16x2 s16x2 u8x4 s8x4""".split()
)
_WIDE_SPECIALS = re.compile(r"clock64|globaltimer|current_graph_exec|pm\d_64")
_OF_ONE_TYPE = frozenset(
    """abs add and atom bfi brev cnot copysign cos div ex2 fma ld ldu lg2 mad max min mov mul neg not or rcp red rem
    rsqrt sad selp setp sin sqrt st sub tanh xor""".split()
)
"""Instructions whose operands are of the type that their opcodes name, if that is one."""


def _check_types(opcode: str, form: Form, operands: tuple[Operand, ...]) -> None:
    """Refuse integers for floats and floats for integers; untyped bits may be either."""
    first, *parts = opcode.split(".")
    types = [p for p in parts if _TYPE.fullmatch(p)]
    unknown = next((p for p in types if p not in _TYPES), "")
    if unknown:
        raise PtxSyntaxError(f"{opcode} names a type .{unknown}, which there is not", f".{unknown}")
    if not types or first == "createpolicy" or "wide" in parts:
        return
    is_alike = first in _OF_ONE_TYPE and len(types) == 1
    if not is_alike and any("f" in p for p in types):
        return
    if first in ("selp", "set", "setp") and isinstance(operands[-1], Symbol | Special | FrameSlot):
        if first == "selp" or len(operands) > 3:
            raise PtxSyntaxError(f"{opcode} takes a predicate there, got {spelled(operands[-1])}")
    match = _TYPE.fullmatch(types[-1])
    assert match is not None
    letter, bits = match["letter"], int(match["bits"])
    words = _present(form, operands)[: 3 if first in ("selp", "setp") else None]
    for word, operand in zip(words, operands, strict=False):
        if word not in ("result", "value") or (word == "result" and first == "setp"):
            continue
        if is_alike and isinstance(operand, Special) and operand.name != "gridid" and bits in (32, 64):
            if bool(_WIDE_SPECIALS.fullmatch(operand.name)) != (bits == 64):
                raise PtxSyntaxError(f"{opcode} takes a value of {bits} bits there, got {spelled(operand)}")
        for one in operand.items if isinstance(operand, Vector) else (operand,):
            if (is_alike or isinstance(one, Immediate)) and not _agrees(one, letter, bits):
                raise PtxSyntaxError(f"{opcode} takes a value of type .{types[-1]} there, got {_typed(one)}")


def _agrees(operand: Operand, letter: str, bits: int) -> bool:
    if isinstance(operand, Immediate):
        is_float = bool(operand.float_bits)
        return {"f": is_float and bits > 16, "b": not is_float or operand.float_bits == bits}.get(
            letter, not is_float and letter in "us"
        )
    if isinstance(operand, Register) and operand.type[0] in "usf":
        return letter == "b" or (operand.type[0] == "f") == (letter not in "us")
    return True


def _typed(operand: Operand) -> str:
    if isinstance(operand, Immediate):
        return "a float" if operand.float_bits else f"the integer {operand.value}"
    return f"{spelled(operand)} of type .{operand.type}" if isinstance(operand, Register) else spelled(operand)


_ATOMS = "and or xor add inc dec min max exch cas"
_COMPARISONS = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"
_ONE_OF = {
    "atom": _ATOMS,
    "red": _ATOMS,
    "fence": "cta cluster gpu sys proxy mbarrier_init",
    "match": "any all",
    "membar": "cta gl sys proxy",
    "redux": "add min max and or xor",
    "set": _COMPARISONS,
    "setp": _COMPARISONS,
    "shfl": "up down bfly idx",
    "vote": "all any uni ballot",
}
"""Modifiers of which an instruction must have one."""
_ROUNDINGS = "rn rz rm rp"
_OF_FLOATS = {
    **_each("fma mad", _ROUNDINGS),
    **_each("rcp sqrt", f"{_ROUNDINGS} approx"),
    "div": f"{_ROUNDINGS} approx full",
    **_each("rsqrt sin cos lg2 ex2 tanh", "approx"),
}
"""Modifiers of which an instruction on floats must have one."""
_INTEGRAL = "rni rzi rmi rpi"
_TYPED = frozenset("ld ldu st atom red mov".split())
_OF_PREDICATES = frozenset("and or xor not mov vote bar barrier".split())
_OF_TF32 = frozenset("cvt mma wgmma wmma".split())
_SCOPES = "cta cluster gpu sys"
_SIGNIFICANT = {"f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8}
"""Bits of a float's significand."""


@lru_cache(maxsize=4096)
def _check_modifiers(opcode: str) -> None:
    """Refuse an opcode that lacks a modifier, or has a type that its instruction does not take."""
    first, *parts = opcode.split(".")
    one_of = _ONE_OF.get(first)
    if one_of is not None:
        _need(opcode, parts, one_of)
    if first == "fence" and "tensormap::generic" in parts:
        _need(opcode, parts, _SCOPES)
    if first in _OF_FLOATS and _is_float(parts[-1:]):
        _need(opcode, parts, _OF_FLOATS[first])
    if first in _TYPED and not (parts and (parts[-1] == "pred" or _TYPE.fullmatch(parts[-1]))):
        if not {"async", "bulk"} & {*parts}:
            raise PtxSyntaxError(f"{opcode} must end in a type, such as .b32")
    if "pred" in parts and first not in _OF_PREDICATES:
        raise PtxSyntaxError(f"{opcode} takes no type .pred", ".pred")
    if "tf32" in parts and first not in _OF_TF32:
        raise PtxSyntaxError(f"{opcode} takes no type .tf32", ".tf32")
    if first in ("st", "atom", "red") and "const" in parts:
        raise PtxSyntaxError(f"{opcode} writes to constant memory, which kernels may only read", ".const")
    if first == "cvt" and parts[:1] != ["pack"]:
        _check_conversion(opcode, parts)


def _check_conversion(opcode: str, parts: list[str]) -> None:
    if len(parts) < 2 or not all(_CONVERTED.fullmatch(part) for part in parts[-2:]):
        raise PtxSyntaxError(f"{opcode} must end in two types, that of the result and that of the value")
    to, source = parts[-2:]
    if _is_float([to]) and not _is_float([source]):
        _need(opcode, parts, _ROUNDINGS)
    elif _is_float([source]) and not _is_float([to]):
        if to in _WHOLE:
            _need(opcode, parts, _INTEGRAL)
    elif to in _SIGNIFICANT and source in _SIGNIFICANT and _SIGNIFICANT[to] < _SIGNIFICANT[source] and source != "f16":
        _need(opcode, parts, f"{_ROUNDINGS} rna rs {_INTEGRAL}")


_CONVERTED = re.compile(r"[us](8|16|32|64)|b?f16(x2)?|f(32|64)|tf32|(e\dm\d|ue8m0)(x[24])?")
_WHOLE = frozenset(f"{letter}{bits}" for letter in "us" for bits in (8, 16, 32, 64))


def _is_float(types: list[str]) -> bool:
    return any(t in _SIGNIFICANT or t in ("f16x2", "bf16x2") for t in types)


def _need(opcode: str, parts: list[str], modifiers: str) -> None:
    if {*modifiers.split()}.isdisjoint(parts):
        one = "one of " if " " in modifiers else ""
        raise PtxSyntaxError(f"{opcode} needs {one}{' '.join(f'.{m}' for m in modifiers.split())}")


_LIMITED = frozenset("bfe bfi cp wgmma".split())


def _check_values(opcode: str, parts: tuple[str, ...], operands: tuple[Operand, ...]) -> None:
    """Refuse immediates beyond what an instruction takes."""
    values = [o.value if isinstance(o, Immediate) else None for o in operands]
    if parts[0] in ("bfe", "bfi"):
        for value in values[-2:]:
            if value is not None and not 0 <= value <= 255:
                raise PtxSyntaxError(f"{opcode} takes a position and a length from 0 to 255, got {value}")
    elif parts[:3] in (("cp", "async", "ca"), ("cp", "async", "cg")) and len(values) > 2:
        sizes = (4, 8, 16) if parts[2] == "ca" else (16,)
        if values[2] not in sizes:
            said = " or ".join(map(str, sizes))
            raise PtxSyntaxError(f"{opcode} copies {said} bytes, got {spelled(operands[2])}")
    elif parts[:2] == ("wgmma", "wait_group") and values[:1] and not 0 <= (values[0] or 0) < 1 << 31:
        raise PtxSyntaxError(f"{opcode} takes a number of groups from 0 on, got {spelled(operands[0])}")


_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BITS = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "b1": 1}
_BITS |= dict.fromkeys(("s8", "u8", "e4m3", "e5m2"), 8)


def _shape(parts: list[str]) -> tuple[int, int, int] | None:
    match = next((m for m in map(_SHAPE.fullmatch, parts) if m is not None), None)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def _of_mma(parts: list[str], n: int) -> tuple[int, ...] | None:
    shape, types = _shape(parts), [p for p in parts if p in _BITS]
    if shape is None or len(types) != 4:
        return None
    (rows, columns, depth), sparse = shape, any(p.startswith("sp") for p in parts)
    if n > 3:
        return (1,)
    elements = (rows * columns, rows * depth // (1 + sparse), depth * columns, rows * columns)[n]
    if shape == (8, 8, 4) and types[1] == "f16":
        elements *= 4  # four products, one of each quad pair
    bits = _BITS[types[n]]
    count = max(elements * bits // (32 * max(bits, 32)), 1)
    return (count, 1) if count == 1 else (count,)


def _of_wgmma(parts: list[str], word: str, n: int) -> tuple[int, ...] | None:
    shape, types = _shape(parts), [p for p in parts if p in _BITS]
    if shape is None or not types:
        return (1,)
    if word == "result":
        return (shape[1] // (4 if types[0] == "f16" else 2),)
    return (1, 4) if word == "descriptor" and n == 1 else (1,)


def spelled(operand: Operand) -> str:
    """Return an operand as PTX writes it, roughly.

    Examples
    --------
    >>> spelled(Vector((Register("%r1", "b32", 0), Immediate(5)))), spelled(Address(Symbol("a"), 4))
    ('{%r1, 5}', '[a+4]')
    """
    if isinstance(operand, Register | Label | Symbol):
        return operand.name
    if isinstance(operand, Special):
        return f"%{operand.name}"
    if isinstance(operand, Immediate):
        return str(operand.value)
    if isinstance(operand, Vector):
        return "{" + ", ".join(map(spelled, operand.items)) + "}"
    if isinstance(operand, Pair):
        return f"{spelled(operand.first)}|{spelled(operand.second)}"
    if isinstance(operand, Address):
        return f"[{spelled(operand.base)}{f'{operand.offset:+}' if operand.offset else ''}]"
    if isinstance(operand, Negated):
        return f"!{spelled(operand.operand)}"
    return "_" if isinstance(operand, Sink) else str(operand)
