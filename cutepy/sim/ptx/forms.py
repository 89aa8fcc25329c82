"""Checks of operands against the instruction set: their number, kinds, types, and the lengths of vectors.

References
----------
PTX ISA, "Instruction Set": the syntax line of each instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from cutepy.layouts.sm100.tmem_copy import SHAPES
from cutepy.sim.ptx.immediates import check_numbers, limits
from cutepy.sim.ptx.instruction_set import Form
from cutepy.sim.ptx.model import (
    Address,
    FrameSlot,
    Immediate,
    Instruction,
    Label,
    NegatedPredicate,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from cutepy.sim.ptx.modifiers import check_modifiers
from cutepy.sim.ptx.operand_types import check_operand_types, operand_types, typed
from cutepy.sim.ptx.tokens import PtxSyntaxError

_RESULTS = (Register, Vector, Pair, Sink)
_VALUES = (Register, Immediate, Special, Symbol, Vector, NegatedPredicate, FrameSlot)
_KINDS: dict[str, tuple[type, ...]] = {
    "result": _RESULTS,
    "address": (Address,),
    "target": (Label,),
    "matrix": (Address, *_VALUES),  # in tensor memory, or by the descriptor of shared memory
}
_SAID = {"result": "a register", "address": "an address in brackets", "target": "a label"}
_MOST_KNOWN = 1 << 16


class Checks:
    """Checks of instructions' operands, each once for an opcode and the kinds and types of its operands.

    Parameters
    ----------
    also : callable, optional
        Further check of an instruction: an error, or nothing.
    """

    def __init__(self, also: Callable[[Instruction], str] | None = None) -> None:
        self._also = also
        self._known: set[tuple[str, tuple[object, ...]]] = set()

    def check(self, i: Instruction) -> None:
        """Refuse an opcode that is none of PTX's, and operands that an instruction does not take.

        Raises
        ------
        PtxSyntaxError
            If there are too many operands or too few, one is of another kind, or a vector has another length.
        """
        operands = i.operands
        if limits(i.opcode):
            check_numbers(i.opcode, operands[:-1] if "red" in i.parts else operands)  # without the predicate
        if i.opcode.startswith("tcgen05.mma.") and len(operands) > _FEWEST_OF_MMA:
            _check_mma_of_tensor_core(i)
        shape = i.opcode, tuple([o.type if type(o) is Register else _shape_of(o) for o in operands])
        if shape in self._known:
            return
        check_modifiers(i.opcode)
        form = i.traits.form
        if form is not None and i.parts[0] != "call":
            _check_operands(i.opcode, form, operands)
            _check_lengths(i.opcode, form, operands)
            if ".wide." in i.opcode:
                _check_wide(i.opcode, operands)
            _check_registers(i.opcode, form, operands)
            check_operand_types(i.opcode, operands)
            _check_elements(i.opcode, operands)
        if self._also is not None and (reason := self._also(i)):
            raise PtxSyntaxError(reason)
        if len(self._known) < _MOST_KNOWN:
            self._known.add(shape)


def _shape_of(operand: Operand) -> object:
    """Return all of an operand that decides whether an instruction takes it."""
    kind = type(operand)
    if kind is Immediate:
        return operand.float_bits, operand.value >> 63 == 1  # type: ignore[union-attr]
    if kind is Special:
        return operand
    if kind is Address:
        base, coordinates = operand.base, operand.coordinates  # type: ignore[union-attr]
        of_base = base.type if type(base) is Register else _shape_of(base)  # type: ignore[arg-type]
        return kind, of_base, None if coordinates is None else tuple(map(_shape_of, coordinates))
    if isinstance(operand, Register):
        return operand.type
    if isinstance(operand, Vector):
        return operand.is_wide, tuple([o.type if type(o) is Register else _shape_of(o) for o in operand.items])
    if isinstance(operand, Pair):
        return kind, _shape_of(operand.first), _shape_of(operand.second)
    return kind


def _check_operands(opcode: str, form: Form, operands: tuple[Operand, ...]) -> None:
    words = _present(form, operands)
    if opcode.startswith(("addc", "subc", "madc")):
        operands = operands[:-1]  # the carry, which the parser names
    most, least = len(words), len(words) - form.optional
    if opcode.startswith("wgmma.mma_async"):
        most = least = _count_of_wgmma(opcode.split("."), operands)
    if opcode.startswith(("max", "min")):
        is_of_three = opcode.endswith(".f32") and ".xorsign" not in opcode
        most, least = most - (not is_of_three), least + (is_of_three and ".abs" in opcode)
    if not least <= len(operands) <= most:
        count = f"{most}" if least == most else f"{least} to {most}"
        raise PtxSyntaxError(f"{opcode} takes {count} operand{'s' * (count != '1')}, got {len(operands)}")
    for word, operand in zip(words, operands, strict=False):
        if not isinstance(operand, _KINDS.get(word, _VALUES)):
            said = _SAID.get(word, "a value")
            raise PtxSyntaxError(f"{opcode} takes {said} there, got {spelled(operand)}", spelled(operand))
    _check_shapes(opcode, words, operands)


_ARRIVALS = ("mbarrier.arrive", "mbarrier.arrive_drop")
_MAY_DISCARD = frozenset(("atom", "mbarrier.arrive", "mbarrier.arrive_drop", "setp"))
_IN_GENERAL_MEMORY = frozenset("ld ldu st atom red multimem prefetch prefetchu mbarrier applypriority discard".split())
_NARROW_SPACES = ("shared", "local", "const", "param")


def _check_shapes(opcode: str, words: tuple[str, ...], operands: tuple[Operand, ...]) -> None:
    """Refuse special registers, discarded results, pairs and addresses of a form that an instruction does not take."""
    first, *parts = opcode.split(".")
    kinds = operand_types(opcode)
    takes_specials = first == "mov" or (first == "cvt" and "pack" not in parts and not _is_float(parts))
    for n, (word, operand) in enumerate(zip(words, operands, strict=False)):
        for one in operand.items if isinstance(operand, Vector) else (operand,):
            if isinstance(one, Special) and not takes_specials:
                reason = (
                    f"{opcode} takes no special register, got {spelled(one)}; only mov and cvt of integers read one"
                )
                raise PtxSyntaxError(reason, spelled(one))
            if isinstance(operand, Vector) and isinstance(one, Symbol):
                raise PtxSyntaxError(f"{opcode} takes no address of a variable in a vector, got {one.name}", one.name)
            if (
                isinstance(one, Sink)
                and isinstance(operand, Vector)
                and (word != "result" or first == "wgmma" or not _is_any(operand))
            ):
                raise PtxSyntaxError(f"{opcode} takes a register in the vector, got _", "_")
        if opcode.startswith(_ARRIVALS) and "shared::cluster" in parts and n == 0 and not isinstance(operand, Sink):
            reason = f"{opcode} arrives in another CTA, of which no state is known; write _, got {spelled(operand)}"
            raise PtxSyntaxError(reason, spelled(operand))
        if isinstance(operand, Sink) and not {first, f"{first}.{parts[0]}" if parts else ""} & _MAY_DISCARD:
            raise PtxSyntaxError(
                f"{opcode} takes a register for its result, got _; only {' '.join(sorted(_MAY_DISCARD))} discard one",
                "_",
            )
        if isinstance(operand, Pair) and first in _PREDICATE_LAST and isinstance(operand.second, Sink):
            raise PtxSyntaxError(f"{opcode} takes a predicate behind |, got _", "_")
        if (
            isinstance(operand, Pair)
            and isinstance(operand.first, Sink)
            and (first == "shfl" or isinstance(operand.second, Sink))
        ):
            raise PtxSyntaxError(f"{opcode} takes a register before |, got _", "_")
        if isinstance(operand, Pair) and (opcode.startswith("match.any") or (first == "lop3" and len(parts) < 2)):
            raise PtxSyntaxError(f"{opcode} has one result, got {spelled(operand)}")
        if isinstance(operand, Address):
            _check_address(opcode, first, parts, operand, kinds[n] if n < len(kinds) else "")
            if operand.coordinates is not None and (operand.offset or isinstance(operand.base, Immediate)):
                reason = f"{opcode} takes a tensor map at a register or a variable there, without an offset"
                raise PtxSyntaxError(f"{reason}, got {spelled(operand)}")
            if "tensor" in parts and (operand.coordinates is None) == (n == _map_at(parts)):
                expected = "coordinates" if n == _map_at(parts) else "no coordinates"
                raise PtxSyntaxError(f"{opcode} takes {expected} there, got {spelled(operand)}")
    vectors = [one for one in operands if isinstance(one, Vector) and not one.is_wide]
    if first == "mov" and len(vectors) > 1:
        raise PtxSyntaxError(f"{opcode} takes one vector, got two", spelled(vectors[1]))
    if first == "mov" and vectors and parts[-1][0] != "b" and parts[1] not in ("v2", "v4"):
        raise PtxSyntaxError(f"{opcode} takes no vector, got {spelled(vectors[0])}; mov.b32 and the like take one")
    if first == "cvt" and "pack" not in parts:
        count = (3 if parts[-1] == "f32" and parts[-2].endswith("x2") else 2) + ("rs" in parts)
        if len(operands) != count:
            raise PtxSyntaxError(f"{opcode} takes {count} operands, got {len(operands)}")


_PREDICATE_LAST = frozenset(("elect", "lop3"))


def _is_any(operand: Vector) -> bool:
    """Return whether a result keeps one of its registers at least."""
    return any(not isinstance(item, Sink) for item in operand.items)


def _is_float(parts: list[str]) -> bool:
    return any(part.startswith(("f", "bf", "tf", "e")) and part[-1].isdigit() for part in parts)


def _map_at(parts: list[str]) -> int:
    """Return which operand of a tensor copy is the tensor map with coordinates."""
    spaces = [part for part in parts if part.startswith(("shared", "global"))]
    return 1 if len(spaces) == 2 and spaces[1] == "global" else 0


def _check_address(opcode: str, first: str, parts: list[str], operand: Address, kind: str) -> None:
    base = operand.base
    if operand.coordinates is not None and "tensor" not in parts:
        raise PtxSyntaxError(f"{opcode} takes an address without coordinates, got {spelled(operand)}")
    if isinstance(base, Immediate) and "local" not in parts:
        raise PtxSyntaxError(f"{opcode} takes an address that is a number in local memory only, got {spelled(operand)}")
    if isinstance(base, Immediate) and base.float_bits:
        raise PtxSyntaxError(f"{opcode} takes an address of integers, got {typed(base)}")
    for item in operand.coordinates or ():
        if not _is_coordinate(item):
            raise PtxSyntaxError(f"{opcode} takes coordinates that are integers of 32 bits, got {typed(item)}")
    if isinstance(base, Register):
        if base.type == "pred" or base.type[0] == "f":
            raise PtxSyntaxError(
                f"{opcode} takes an address of integers, got {base.name} of type .{base.type}", base.name
            )
        if base.bits not in (widths := _address_bits(first, parts, kind)):
            said = " or ".join(map(str, sorted(widths & {32, 64})))
            reason = f"{opcode} takes an address of {said} bits, got {base.name} of type .{base.type}"
            raise PtxSyntaxError(reason, base.name)


def _address_bits(first: str, parts: list[str], kind: str) -> frozenset[int]:
    """Return the widths of registers that an address may be in, by its type in the row of the instruction."""
    if kind == "tensor":
        return frozenset((32,))
    if kind == "wide":
        return frozenset((64,))
    if kind == "pointer" or (kind == "generic" and not any(_SPACE.fullmatch(part) for part in parts)):
        return frozenset((32, 64))
    is_narrow = any(part.startswith(_NARROW_SPACES) for part in parts)
    return frozenset((8, 16, 64) if first in _IN_GENERAL_MEMORY and not is_narrow else (8, 16, 32, 64))


def _is_coordinate(operand: Operand) -> bool:
    if isinstance(operand, Immediate):
        return not operand.float_bits and operand.value < 1 << 63
    return isinstance(operand, Register) and operand.type in ("b32", "u32", "s32")


def _present(form: Form, operands: tuple[Operand, ...]) -> tuple[str, ...]:
    """Return the roles of the operands that are given."""
    words = form.words
    if form.optional and words[-1] == "policy" and len(operands) < len(words):
        words = (*words[: len(operands) - 1], "policy")  # in the place of the bytes that are missing
    return words


_VECTORS_ONLY = frozenset(("ldmatrix", "stmatrix"))
"""Instructions that take vectors even of one register."""


def _check_lengths(opcode: str, form: Form, operands: tuple[Operand, ...]) -> None:
    parts = opcode.split(".")
    for n, (word, operand) in enumerate(zip(_present(form, operands), operands, strict=False)):
        lengths = _lengths(parts, word, n)
        _check_wide_registers(opcode, parts[0], word, operand)
        if isinstance(operand, Address):
            dimensions = next((int(p[0]) for p in parts if re.fullmatch("[1-5]d", p)), 0)
            if not {"tile::gather4", "tile::scatter4"}.isdisjoint(parts):
                dimensions = 5  # a column, and four rows
            if operand.coordinates is not None and parts[0] == "cp" and len(operand.coordinates) != dimensions:
                raise PtxSyntaxError(f"{opcode} takes {dimensions} coordinates, got {len(operand.coordinates)}")
        elif lengths is not None:
            got = len(operand.items) if isinstance(operand, Vector) else 1
            is_vector = parts[0] in _VECTORS_ONLY or (parts[0] == "mma" and n < 4) or _is_of_tensor_memory(parts, n)
            is_vector = is_vector or (parts[0] == "wmma" and word in ("result", "value"))
            if got not in lengths or (is_vector and not isinstance(operand, Vector)):
                said = " or ".join(
                    f"a vector of {x}" if x != 1 or is_vector else "one register" for x in sorted({*lengths})
                )
                found = f"one of {got}" if isinstance(operand, Vector) else spelled(operand)
                raise PtxSyntaxError(f"{opcode} takes {said} there, got {found}")


_ANSWER = ("clusterlaunchcontrol", "result")
"""Result of an opcode that ends with the type of its operand."""


def _check_wide_registers(opcode: str, first: str, word: str, operand: Operand) -> None:
    """Refuse a register of 128 bits for a narrower value, which loads, stores and conversions would extend or cut."""
    if not isinstance(operand, Vector):
        return
    is_wide = opcode.endswith(".b128") and word in ("result", "value") and (first, word) != _ANSWER
    if is_wide and first != "mov" and not operand.is_wide:
        raise PtxSyntaxError(f"{opcode} takes a register of 128 bits there, got {spelled(operand)}")
    for one in (*(() if is_wide else (operand,)), *operand.items):
        if isinstance(one, Vector) and one.is_wide:
            reason = f"{opcode} takes a register of at most 64 bits there, got {spelled(one)}; the simulator extends"
            raise PtxSyntaxError(f"{reason} no value to 128 bits and cuts none of 128 bits", spelled(one))


def _lengths(parts: list[str], word: str, n: int) -> tuple[int, ...] | None:
    """Return how many registers an operand may be, 1 for one that is no vector; None if that is not told here."""
    first, last = parts[0], parts[-1]
    if first == "call" or word in ("address", "target"):
        return None
    if first == "wmma":
        return _of_wmma(parts, n) if word in ("result", "value") else (1,)
    if first in ("ld", "ldu", "st", "atom", "red", "multimem") and word in ("result", "value"):
        count = next((int(p[1]) for p in parts if p in ("v2", "v4", "v8")), 2 if last == "b128" else 1)
        return (count,)
    if first == "clusterlaunchcontrol":
        return (4,) if "v4" in parts and word == "result" else (1,) if word == "result" else (2,)
    if first == "mov":
        return {"b16": (1, 2), "b32": (1, 2, 4), "b64": (1, 2, 4), "b128": (2,)}.get(last, (1,))
    if first in ("ldmatrix", "stmatrix"):
        return ((1 + ("m16n16" in parts)) * next((int(p[1]) for p in parts if p in ("x1", "x2", "x4")), 1),)
    if first == "mma":
        return _of_mma(parts, n)
    if first == "wgmma":
        return _of_wgmma(parts, word, n)
    if first == "tcgen05":
        return _of_tcgen05(parts, word, n)
    if first == "cvt":
        return (4,) if word == "value" and n == 1 and "rs" in parts and parts[-2].endswith("x4") else (1,)
    if first == "cp" and word == "mask":
        dimensions = next((int(p[0]) for p in parts if re.fullmatch("[3-5]d", p)), 0)
        return (dimensions - 2, 1) if "im2col" in parts else (1,)
    return (1,)


def _check_wide(opcode: str, operands: tuple[Operand, ...]) -> None:
    """Refuse operands of mul.wide and mad.wide of another class than integers, or of another width."""
    kind = opcode.rpartition(".")[2]
    bits = int(kind[1:])
    for n, one in enumerate(operands):
        width = bits if n in (1, 2) else 2 * bits
        if not _agrees(one, kind[0], width) or (isinstance(one, Register) and one.bits != width):
            raise PtxSyntaxError(f"{opcode} takes an integer of {width} bits there, got {typed(one)}")


def _check_mma_of_tensor_core(i: Instruction) -> None:
    """Refuse lanes without output and a scale of D that the opcode has not, and a shift of an A in shared memory."""
    lanes = next((one for one in i.operands if isinstance(one, Vector)), None)
    if lanes is not None and not {"ws", "block_scale"}.isdisjoint(i.parts):
        raise PtxSyntaxError(f"{i.opcode} disables the output of no lanes, got {spelled(lanes)}; leave the vector out")
    if "ws" in i.parts:
        return
    if "ashift" in i.parts and not isinstance(i.operands[1], Address):
        raise PtxSyntaxError(f"{i.opcode} shifts an A in tensor memory, got {spelled(i.operands[1])}")
    scale, enables = i.operands[-1], i.operands[-2]
    if isinstance(enables, Register) and enables.type == "pred":
        if not {"kind::f16", "kind::tf32"}.intersection(i.parts):
            raise PtxSyntaxError(
                f"{i.opcode} has no scale of D, which kind::f16 and kind::tf32 have, got {spelled(scale)}"
            )
        if not isinstance(scale, Immediate) or not 0 <= scale.value <= _MOST_SCALED:
            raise PtxSyntaxError(
                f"{i.opcode} takes a number for the scale of D from 0 to {_MOST_SCALED}, got {spelled(scale)}"
            )


_FEWEST_OF_MMA, _MOST_SCALED = 4, 15
_OF_GENERIC = ("global", "shared", "local")
"""State spaces with generic addresses, which instructions take that name no state space: constants have none."""
_OTHER_GENERIC = {
    "atom": ("global", "shared"),
    "mbarrier": ("shared",),
    "prefetchu": ("global",),
    "fence": (*_OF_GENERIC, "const", "param"),
}
"""State spaces that other instructions take instead."""
_SPACE = re.compile("(global|shared|local|const|param)(?:::.*)?")
_TAKES_NAMES = frozenset("cvta mapa getctarank call".split())
"""Instructions that take the address of a variable as a value, beside mov of integers and bits."""


def check_spaces(opcode: str, operands: tuple[Operand, ...], spaces: Mapping[str, str]) -> None:
    """Refuse the address of a variable of another state space than the instruction names.

    Parameters
    ----------
    opcode : str
    operands : tuple of Operand
    spaces : mapping of str to str
        The state space of each variable, by name.

    Raises
    ------
    PtxSyntaxError
    """
    named = [o for o in operands if type(o) is Symbol or (type(o) is Address and type(o.base) is Symbol)]
    if not named:
        return
    first, *parts = opcode.split(".")
    for operand in named:
        if not isinstance(operand, Symbol):
            continue
        if operand.name not in spaces:
            if first == "cvta" and "to" not in parts:
                raise PtxSyntaxError(f"{opcode} takes a variable, and {operand.name} is a function", operand.name)
            continue
        if first == "mov" and parts[-1][1:] == "32" and spaces[operand.name] == "global" and not operand.offset:
            plain = operand.name.partition("'")[0]
            raise PtxSyntaxError(f"the address of {plain} has 64 bits, and {opcode} moves 32; write mov.u64", plain)
        if first == "cvta" and "to" not in parts and spaces[operand.name] != parts[0].partition("::")[0]:
            plain = operand.name.partition("'")[0]
            reason = f"{opcode} takes a variable in .{parts[0]}, and {plain} is in .{spaces[operand.name]}"
            raise PtxSyntaxError(reason, plain)
        if first in ("mapa", "getctarank") and spaces[operand.name] != "shared":
            plain = operand.name.partition("'")[0]
            raise PtxSyntaxError(
                f"{opcode} takes a variable in .shared, and {plain} is in .{spaces[operand.name]}", plain
            )
        is_moved = first == "mov" and parts[-1][0] not in "fp"
        if not is_moved and (first not in _TAKES_NAMES or (first == "cvta" and "to" in parts)):
            plain = operand.name.partition("'")[0]
            raise PtxSyntaxError(
                f"{opcode} takes no address of a variable as a value; move {plain} to a register", plain
            )
    told = [found[1] for found in map(_SPACE.fullmatch, parts) if found is not None]
    addresses = [o for o in operands if isinstance(o, Address)]
    for n, operand in enumerate(addresses):
        if not isinstance(operand.base, Symbol):
            continue
        name = operand.base.name
        space = spaces.get(name)
        if space is None:
            raise PtxSyntaxError(f"{opcode} takes the address of a variable, and {name} is a function", name)
        if len(told) == 2:
            takes = (*told, "shared")[n : n + 1]
            if operand.coordinates is not None:
                takes = ("global",)  # of a tensor map: others are at generic addresses, in registers
        elif told:
            takes = (told[0],)
        else:
            takes = _OTHER_GENERIC.get(first, _OF_GENERIC)
        if space not in takes:
            said = " or ".join(f".{one}" for one in takes)
            plain = name.partition("'")[0]
            reason = f"{opcode} takes a variable in {said} there, and {plain} is in .{space}"
            raise PtxSyntaxError(
                reason if told != ["param"] else f"{opcode} takes a parameter, and {plain} is none", plain
            )


_REGISTER_BITS = {"policy": 64, "descriptor": 64, "matrix": 64, "mask": 16, "bytes": 32, "barrier": 32, "stride": 32}
"""Of the registers that an operand may be, by what it is for; none of these operands is a float."""
_REGISTERS_ONLY = frozenset(("stackrestore", "stmatrix", "movmatrix"))
"""Instructions that take no numbers."""


def _check_registers(opcode: str, form: Form, operands: tuple[Operand, ...]) -> None:
    """Refuse registers of another width or class for counts, waits, masks and policies."""
    first, *parts = opcode.split(".")
    if "red" in parts and first in ("bar", "barrier"):
        predicate, operands = operands[-1], operands[:-1]
        if isinstance(predicate, Immediate) and predicate.float_bits:
            raise PtxSyntaxError(f"{opcode} takes a predicate there, got {typed(predicate)}")
    for word, one in zip(_present(form, operands), operands, strict=False):
        for item in one.items if isinstance(one, Vector) else (one,):
            is_float = isinstance(item, Immediate) and item.float_bits and first != "tensormap"
            if is_float and word in _REGISTER_BITS and not (word == "descriptor" and isinstance(one, Vector)):
                raise PtxSyntaxError(f"{opcode} takes an integer there, got {typed(item)}")
            if isinstance(item, Symbol) and first in _REGISTERS_ONLY:
                raise PtxSyntaxError(f"{opcode} takes a register there, got {item.name}", item.name)
            is_alone = not (isinstance(one, Vector) and any(isinstance(other, Register) for other in one.items))
            if isinstance(item, Immediate) and first in _REGISTERS_ONLY and item.float_bits != 32 and is_alone:
                raise PtxSyntaxError(f"{opcode} takes a register there, got {typed(item)}")
            if word == "mask" and first == "tcgen05" and isinstance(item, Immediate):
                raise PtxSyntaxError(f"{opcode} takes a mask in a register of 16 bits, got {typed(item)}")
            if word in ("mask", "selector") and isinstance(item, Register) and (item.bits != 16 or item.type[0] == "f"):
                raise PtxSyntaxError(f"{opcode} takes an integer of 16 bits there, got {typed(item)}")
        bits = _REGISTER_BITS.get(word, 32 if first == "nanosleep" else 0)
        if (word == "bytes" and "bulk" not in parts) or (word == "descriptor" and isinstance(one, Vector)):
            continue
        if word == "barrier" and {"test_wait", "try_wait"} & {*parts} and "parity" not in parts:
            continue  # the state has 64 bits, a time 32
        if bits and isinstance(one, Register) and (one.bits != bits or one.type[0] == "f"):
            raise PtxSyntaxError(f"{opcode} takes an integer of {bits} bits there, got {typed(one)}")


def _check_elements(opcode: str, operands: tuple[Operand, ...]) -> None:
    """Refuse vectors of registers of several widths, which loads and stores would extend or cut, and of classes."""
    for operand in operands:
        if not isinstance(operand, Vector):
            continue
        registers = [one for one in operand.items if isinstance(one, Register)]
        if len({one.bits for one in registers}) > 1:
            raise PtxSyntaxError(f"{opcode} takes a vector of registers of one width, got {spelled(operand)}")
        if not opcode.startswith(_OF_MATRICES):
            # ptxas compares each element with the one before it; bits go with all.
            classes = [_class_of(one) for one in operand.items]
            if any(one and other and one != other for one, other in pairwise(classes)):
                raise PtxSyntaxError(f"{opcode} takes a vector of integers or one of floats, got {spelled(operand)}")


def _class_of(operand: Operand) -> str:
    """Return the class of an element: integers, or the type of a float; nothing of bits."""
    if isinstance(operand, Register) and operand.type[0] in "usf":
        return operand.type if operand.type[0] == "f" else "integer"
    return "integer" if isinstance(operand, Immediate) and not operand.float_bits else ""


_OF_MATRICES = ("mma", "wmma.mma", "wgmma")


def _agrees(operand: Operand, letter: str, bits: int) -> bool:
    if isinstance(operand, Immediate):
        is_float = bool(operand.float_bits)
        return {"f": is_float and bits > 16, "b": not is_float or operand.float_bits == bits}.get(
            letter, not is_float and letter in "us"
        )
    if isinstance(operand, Register) and operand.type[0] in "usf":
        return letter == "b" or (operand.type[0] == "f") == (letter not in "us")
    return True


_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_BITS = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "b1": 1}
_BITS |= dict.fromkeys(("s8", "u8", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"), 8)


def _shape(parts: list[str]) -> tuple[int, int, int] | None:
    match = next((m for m in map(_SHAPE.fullmatch, parts) if m is not None), None)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def _of_mma(parts: list[str], n: int) -> tuple[int, ...] | None:
    shape, types = _shape(parts), [p for p in parts if p in _BITS]
    if shape is None or len(types) != 4:
        return None
    (rows, columns, depth), sparse = shape, any(p.startswith("sp") for p in parts)
    if n > 3:  # metadata and a selector; scale factors, and which byte and which thread of a quad give them
        return (2,) if n - 2 * sparse in (5, 7) else (1,)
    elements = (rows * columns, rows * depth // (1 + sparse), depth * columns, rows * columns)[n]
    if shape == (8, 8, 4) and types[1] == "f16":
        elements *= 4  # four products, one of each quad pair
    bits = 4 if "e2m1" in types[n] and not {"kind::mxf4", "kind::mxf4nvf4"}.isdisjoint(parts) else _BITS[types[n]]
    count = max(elements * bits // (32 * max(bits, 32)), 1)
    return (count, 1) if count == 1 else (count,)


def _of_wmma(parts: list[str], n: int) -> tuple[int, ...] | None:
    shape, types = _shape(parts), [p for p in parts if p in _BITS]
    if shape is None or not types:
        return None
    matrix = "dabc"[n] if parts[1] == "mma" else parts[2]
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    kind = types["dabc".index(matrix)] if parts[1] == "mma" else types[-1]
    if kind == "f16" and matrix in "ab":
        return (8,)  # each element is there twice
    rows, columns, depth = shape
    elements = {"a": rows * depth, "b": depth * columns}.get(matrix, rows * columns)
    return (max(elements * _BITS[kind] // (32 * max(_BITS[kind], 32)), 1),)


def _count_of_wgmma(parts: list[str], operands: tuple[Operand, ...]) -> int:
    """Return how many operands a product of a warpgroup has: integers no scales, and only halves transpositions."""
    a, b = [part for part in parts if part in _BITS][1:3]
    count = 4 + 2 * ("sp" in parts) + 2 * (_BITS[a] > 8 or a[0] == "e")
    is_transposed = b in ("f16", "bf16")
    return count + is_transposed * (1 if len(operands) > 1 and isinstance(operands[1], Vector) else 2)


def _of_wgmma(parts: list[str], word: str, n: int) -> tuple[int, ...] | None:
    shape, types = _shape(parts), [p for p in parts if p in _BITS]
    if shape is None or not types:
        return (1,)
    if word == "result":
        return (shape[1] // (4 if types[0] == "f16" else 2),)
    return (1, 4) if word == "descriptor" and n == 1 else (1,)


def _is_of_tensor_memory(parts: list[str], n: int) -> bool:
    """Return whether an operand is the registers that tensor memory is loaded to or stored from."""
    return parts[0] == "tcgen05" and (parts[1], n) in (("ld", 0), ("st", 1 + ("16x32bx2" in parts)))


def _of_tcgen05(parts: list[str], word: str, n: int) -> tuple[int, ...] | None:
    if parts[1] == "mma":
        # A vector has lanes whose output is not written.
        return (1, 4 * (1 + ("cta_group::2" in parts))) if word == "value" else (1,)
    if not _is_of_tensor_memory(parts, n):
        return (1,)
    shape = next((part for part in parts if part in SHAPES), None)
    if shape is None:
        raise PtxSyntaxError(f"{'.'.join(parts)} needs the layout of its shape; add it to layouts/sm100/tmem_copy.py")
    repeated = next(int(part[1:]) for part in parts if part[0] == "x" and part[1:].isdigit())
    return (repeated * SHAPES[shape].registers_of_one,)


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
    if isinstance(operand, Vector) and operand.is_wide:
        return spelled(operand.items[0]).removesuffix(".x")
    if isinstance(operand, Vector):
        return "{" + ", ".join(map(spelled, operand.items)) + "}"
    if isinstance(operand, Pair):
        return f"{spelled(operand.first)}|{spelled(operand.second)}"
    if isinstance(operand, Address):
        return f"[{spelled(operand.base)}{f'{operand.offset:+}' if operand.offset else ''}]"
    if isinstance(operand, NegatedPredicate):
        return f"!{spelled(operand.operand)}"
    return "_" if isinstance(operand, Sink) else str(operand)
