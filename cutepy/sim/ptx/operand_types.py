"""The types of instructions' operands: which registers, constants and special registers each one takes.

An instruction of untyped bits takes every register of its width. An instruction of integers takes registers of
integers and of bits, an instruction of floats takes registers of that float and of bits. bf16, tf32 and the 8-bit
formats have no registers of their own, and use registers of bits. Loads, stores and conversions take wider registers,
too.

References
----------
PTX ISA, "Type Information for Instructions and Operands", "Operand Size Exceeding Instruction-Type Size"; what ptxas
13.0 takes of each type of register in each place.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cutepy.sim.ptx.instruction_set import ROWS, beginning, traits
from cutepy.sim.ptx.model import (
    Immediate,
    NegatedPredicate,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
    type_bits,
)
from cutepy.sim.ptx.tokens import PtxSyntaxError

_NOT_WIDENED = re.compile(r"^cvt\..*(bf16|tf32|e[2345]m[123]|ue8m0)")
"""Conversions that take registers of their own widths only, as ptxas has it."""
_PAIRED = frozenset(("setp", "shfl", "elect", "lop3", "match"))
_UNREGISTERED = re.compile("bf16(x2)?|tf32|f32x2|e[2345]m[123](x[24])?|ue8m0x2")
_TYPE = re.compile(r"[bus](8|16|32|64|128)|b?f16(x2)?|[us]16x2|tf32|f32(x2)?|f64|e[2345]m[123](x[24])?|ue8m0x2|pred")
_WIDE_SPECIALS = re.compile(r"clock64|globaltimer|current_graph_exec|pm\d_64")

_OF_INTEGERS = frozenset(("count", "state", "integer", "ignored", "pred"))
_PREDICATE_SPECIAL = "is_explicit_cluster"


_BY_OPCODE = {name: row.types for name, row in ROWS.items() if row.types}


@lru_cache(maxsize=4096)
def operand_types(opcode: str) -> tuple[str, ...]:
    """Return the types of an opcode's operands, "" for one that is not told; nothing of an unknown opcode.

    Examples
    --------
    >>> operand_types("shf.l.wrap.b32"), operand_types("cvt.rn.f16.f32")
    (('b32', 'b32', 'b32', 'count'), ('f16', 'f32', 'f32'))
    """
    first, *parts = opcode.split(".")
    types = [part for part in parts if _TYPE.fullmatch(part)]
    if first == "atom" and "cas" not in parts:
        kind = _of_vectors(first, parts, types[-1])
        return (kind, "", kind)
    if first == "cp" and "L2::cache_hint" in parts:
        return ()  # the policy may be in the place of the bytes
    if "wide" in parts or (first in ("ld", "st", "ldu") and not types):
        return ()
    name = beginning(opcode, _BY_OPCODE)
    if first == "mbarrier" and "parity" in parts and not name.endswith("parity"):
        name += ".parity"
    if types and first in ("atom", "red", "multimem"):
        types = [_of_vectors(first, parts, types[-1])]
    places = {"T": types[-1] if types else "", "U": types[0] if types else "", "-": ""}
    return tuple(places.get(word, word) for word in _BY_OPCODE.get(name, ()))


def _of_vectors(first: str, parts: list[str], kind: str) -> str:
    """Return the type of registers that an atomic operation takes: of some floats ptxas checks the width alone."""
    is_vector = not {"v2", "v4", "v8"}.isdisjoint(parts)
    if not (is_vector or first == "multimem"):
        return kind
    bits = ("f16",) if first != "multimem" or parts[0] == "red" else ("f16", "bf16", "bf16x2")
    return f"b{type_bits(kind)}" if kind in bits else kind


def check_operand_types(opcode: str, operands: tuple[Operand, ...]) -> None:
    """Refuse registers and constants of another type than an instruction takes.

    Parameters
    ----------
    opcode : str
    operands : tuple of Operand

    Raises
    ------
    PtxSyntaxError
    """
    first = opcode.partition(".")[0]
    _check_pairs(opcode, first, operands)
    if first in ("mma", "wmma", "wgmma"):
        _check_products(opcode, first, operands)
    kinds = operand_types(opcode)
    is_wide = "widens" in traits(opcode).qualities and _NOT_WIDENED.search(opcode) is None
    for kind, operand in zip(kinds, operands, strict=False):
        if kind in ("", "tensor"):
            continue
        one = operand.first if isinstance(operand, Pair) else operand
        items = one.items if isinstance(one, Vector) else (one,)
        if len(items) > 1 and (first == "mov" or kind == "b128"):
            kind = f"b{type_bits(kind) // len(items)}"
        if first in ("ld", "ldu", "st", "atom", "red", "multimem") and len(items) > 1:
            types = {item.type for item in items if isinstance(item, Register)}
            is_of_integers = kind in ("f32", "f64") and types <= {f"{sign}{kind[1:]}" for sign in "us"}
            if len(types) > 1 or is_of_integers:
                kind = f"b{type_bits(kind)}"  # of integers, and of registers of several types, the width alone counts
        for item in items:
            if isinstance(item, Immediate) and first in ("atom", "red", "multimem") and opcode.endswith(("f16", "f32")):
                kind = opcode.rpartition(".")[2]
            if not _takes(kind, item, is_wide, first == "cvt"):
                what = {"count": "an integer of 32 bits", "state": "an integer of 64 bits", "integer": "an integer"}
                what["ignored"] = "an integer of 32 bits or a predicate"
                said = what.get(kind, f"a value of type .{kind}")
                raise PtxSyntaxError(f"{opcode} takes {said} there, got {typed(item)}", _name(item))


_ELEMENTS = re.compile(r"f16|bf16|tf32|f32|f64|[su]32|[su][48]|b1|e[2345]m[123]")


def _check_products(opcode: str, first: str, operands: tuple[Operand, ...]) -> None:
    """Refuse registers and numbers of other types than the matrices of a product, or the one of a load or a store."""
    kinds, matrices = [part for part in opcode.split(".") if _ELEMENTS.fullmatch(part)], "dabc"
    if first == "wmma" and ".mma" not in opcode:
        kinds, matrices = kinds[-1:], opcode.split(".")[2]
        operands = operands[:1] if ".load" in opcode else operands[1:2]
        if kinds == ["f64"] or (".load" in opcode and isinstance(operands[0], Vector) and len(operands[0].items) == 1):
            return
    elif ".mma" not in opcode and first != "mma":
        return
    if first == "wmma" and len(kinds) == 2:
        kinds = [kinds[0], "f16", "f16", kinds[1]]  # of d and c
    if ".sp" in opcode:
        metadata = operands[4 if first == "mma" else 3]
        if not isinstance(metadata, Register) or metadata.bits != 32 or metadata.type == "pred":
            raise PtxSyntaxError(f"{opcode} takes a register of 32 bits there, got {typed(metadata)}", _name(metadata))
    for matrix, kind, operand in zip(matrices, kinds, operands, strict=False):
        items = operand.items if isinstance(operand, Vector) else (operand,)
        if first == "wgmma" and matrix != "d" and not isinstance(operand, Vector):
            continue  # a descriptor
        is_summed = matrix in "dc"
        if first == "mma" and ".sp" in opcode and kind in ("bf16", "tf32"):
            kind = "e4m3"  # of these, too, the width alone counts
        numbers = [item for item in items if isinstance(item, Immediate)]
        if numbers and ".store" not in opcode:
            if matrix == "d" or not _takes_numbers(kind, is_summed, numbers, len(items)):
                raise PtxSyntaxError(f"{opcode} takes registers there, got {typed(numbers[0])}")
        registers = [item for item in items if isinstance(item, Register)]
        types = {register.type for register in registers}
        bits = 64 if kind == "f64" else 32
        wrong = [register for register in registers if register.type == "pred" or register.bits != bits]
        if not wrong and not _takes_matrix(first, kind, is_summed, types):
            wrong = [register for register in registers if not _takes_matrix(first, kind, is_summed, {register.type})]
        if wrong:
            reason = f"{opcode} takes a register of {bits} bits for .{kind} there, got {typed(wrong[0])}"
            raise PtxSyntaxError(reason, wrong[0].name)


def _takes_matrix(first: str, kind: str, is_summed: bool, types: set[str]) -> bool:
    """Return whether registers of some types hold a matrix: of several types ptxas checks the widths alone."""
    if kind == "f64" or (len(types) > 1 and first == "wmma"):
        return True
    if is_summed and kind == "f32":
        return types <= {"b32", "f32"}
    if (is_summed and kind == "s32") or (first == "wmma" and kind[0] in "us"):
        return types <= {"b32", "s32", "u32"}
    if kind in ("f16", "bf16", "tf32") and len(types) == 1:
        return types <= ({"b32", "f16x2"} if kind == "f16" else {"b32"})
    return True


def _takes_numbers(kind: str, is_summed: bool, numbers: list[Immediate], count: int) -> bool:
    if kind == "f64":
        return True
    if is_summed and kind in ("f32", "s32"):
        return all(bool(number.float_bits) == (kind == "f32") for number in numbers)
    return len(numbers) < count or (kind not in ("f16", "bf16", "tf32") and all(n.float_bits == 32 for n in numbers))


def _check_pairs(opcode: str, first: str, operands: tuple[Operand, ...]) -> None:
    result = operands[0] if operands else None
    is_pair = isinstance(result, Pair)
    sets_carry = ".cc." in opcode
    if isinstance(result, Pair) and sets_carry:
        is_pair = isinstance(result.first, Pair)
        if isinstance(result.first, Sink):
            raise PtxSyntaxError(f"{opcode} takes a register for its result, got _", "_")
    may_pair = first in _PAIRED and not (first == "setp" and opcode.endswith(("f16", ".bf16")))
    if is_pair and not may_pair:
        raise PtxSyntaxError(f"{opcode} has one result, got two with | between them")
    if first == "elect" and not is_pair:
        raise PtxSyntaxError(f"{opcode} has two results, a register and a predicate, such as %r1|%p1")


def _takes(kind: str, operand: Operand, is_wide: bool, is_converted: bool) -> bool:
    if isinstance(operand, NegatedPredicate):
        operand = operand.operand
    if isinstance(operand, Register):
        return _takes_register(kind, operand.type, is_wide)
    if isinstance(operand, Immediate) and operand.float_bits:
        if kind in _OF_INTEGERS:
            return False
        if _is_half(kind):
            return False
        return operand.float_bits == type_bits(kind) if kind[0] == "b" and kind[1] != "f" else kind[0] not in "us"
    if isinstance(operand, Symbol):
        return kind not in ("count", "state", "integer") and not _UNREGISTERED.fullmatch(kind)
    if isinstance(operand, Immediate):
        return kind not in ("f32", "f64", "s16x2", "u16x2") and not _is_half(kind)
    if isinstance(operand, Special):
        if operand.name == _PREDICATE_SPECIAL:
            return kind == "pred"
        bits = 64 if _WIDE_SPECIALS.fullmatch(operand.name) else 32
        is_chopped = is_converted and type_bits(kind) < bits
        return kind[0] in "bus" and (type_bits(kind) in (bits, 8, 16) or is_chopped or operand.name == "gridid")
    return True


def _is_half(kind: str) -> bool:
    return kind in ("f16", "f16x2") or _UNREGISTERED.fullmatch(kind) is not None


def _takes_register(kind: str, register: str, is_wide: bool) -> bool:
    if kind == "ignored":
        return register == "pred" or _takes_register("count", register, is_wide=False)
    if kind == "pred" or register == "pred":
        return kind == register
    is_bits, is_integer = register[0] == "b", register[0] in "us"
    bits, width = {"count": 32, "state": 64, "integer": 0}.get(kind) or 0, type_bits(register)
    if kind in ("count", "state", "integer"):
        return (is_bits or is_integer) and bits in (0, width)
    bits = type_bits(kind)
    if _UNREGISTERED.fullmatch(kind):
        return is_bits and width == bits
    if kind in ("s16x2", "u16x2"):
        return width == bits and (is_bits or register == "f16x2")
    if width < bits or (width > bits and not is_wide):
        return False
    if kind[0] == "f":
        return is_bits or register == kind
    return kind[0] == "b" or is_bits or is_integer or register == "f16x2"


def typed(operand: Operand) -> str:
    """Name an operand with its type, as an error does."""
    if isinstance(operand, Immediate):
        return "a float" if operand.float_bits else f"the integer {operand.value}"
    if isinstance(operand, Register):
        return f"{operand.name} of type .{operand.type}"
    return _name(operand) or "another operand"


def _name(operand: Operand) -> str:
    if isinstance(operand, Register):
        return operand.name
    if isinstance(operand, NegatedPredicate):
        return f"!{operand.operand.name}"
    return f"%{operand.name}" if isinstance(operand, Special) else ""
