"""Operands: registers, constants, addresses, vectors of them, and named objects.

References
----------
PTX ISA, "Instruction Operands".
"""

from __future__ import annotations

import re
from functools import lru_cache

from cutepy.sim.ptx.constants import evaluate
from cutepy.sim.ptx.model import (
    Address,
    Immediate,
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
from cutepy.sim.ptx.names import Names
from cutepy.sim.ptx.tokens import PtxSyntaxError

_ADDRESS = re.compile(r"(?P<base>[%A-Za-z_$][\w$%.]*)\s*(?:\+(?P<offset>.*))?$", re.S)
_SUBTRACTED = re.compile(r"[%A-Za-z_$][\w$%.]*\s*-")
_INDEXED = re.compile(r"(?P<name>[A-Za-z_$][\w$]*)\s*(?:\[(?P<index>.*)\]|\+(?P<offset>.*))$", re.S)
_CONSTANT = re.compile(r"(?:[-+~!()\s]|\.[su]64)*(?:\.?\d|WARP_SZ\b)")
_BLANK_BEFORE_ELEMENT = re.compile(r"(?<=\w)\s+(?=\.[xyzwrgba]\b)")
_NO_NAME = frozenset("0123456789[{(-+!~")
"""Characters that begin an operand other than a register's name."""
_MARK = re.compile(r"[\[\]{}(),]")
SPECIAL_VECTORS = frozenset("tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid".split())
"""Special registers of four elements, of which the last is 0."""
SPECIALS = frozenset(
    """laneid warpid nwarpid smid nsmid gridid cluster_ctarank cluster_nctarank is_explicit_cluster clock clock64
    clock_hi globaltimer globaltimer_lo globaltimer_hi lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt
    dynamic_smem_size total_smem_size aggr_smem_size WARP_SZ current_graph_exec reserved_smem_offset_begin
    reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1""".split()
) | {
    *(f"{name}.{axis}" for name in SPECIAL_VECTORS for axis in "xyz"),
    *(f"envreg{n}" for n in range(32)),
    *(f"pm{n}{part}" for n in range(8) for part in ("", "_64")),
}


class Operands:
    """Reads the operands of a function's instructions.

    Parameters
    ----------
    names : Names

    Attributes
    ----------
    spaces : dict of str to str
        The state space of each variable that was named, by the name of its symbol.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self.spaces: dict[str, str] = {}

    def read(self, text: str, opcode: str) -> Operand:
        """Read one operand."""
        if not text:
            raise PtxSyntaxError(f"an operand of {opcode} is missing")
        if "." in text:
            text = _BLANK_BEFORE_ELEMENT.sub("", text)
        first = text[0]
        if first not in _NO_NAME:
            register = self._names.register(text)
            if register is not None:
                return register
        if first == "[" and text[-1] == "]":
            return self._address(text[1:-1].strip(), opcode)
        if _CONSTANT.match(text):
            return _immediate(text)
        if first + text[-1] == "{}" or (first == "(" and text[-1] == ")" and opcode.startswith("call")):
            return Vector(tuple(self.read(part, opcode) for part in split(text[1:-1])))
        if "|" in text:
            left, _, right = text.rpartition("|")
            return Pair(self.read(left.strip(), opcode), self.read(right.strip(), opcode))
        if first == "!":
            negated = text[1:].strip()
            inner = Sink() if negated[:1] == "!" else self.read(negated, opcode)
            if not isinstance(inner, Register) or inner.type != "pred":
                raise PtxSyntaxError(f"! takes a predicate, got {text[:40]} in {opcode}", text)
            return NegatedPredicate(inner)
        if text == "_":
            return Sink()
        if (vector := self._names.vector(text)) is not None:
            return vector
        if (place := self._names.label(text)) is not None:
            return Label(text, place)
        if first == "%":
            stem = text.partition(".")[0]
            if stem != text and self._names.register(stem) is not None:
                reason = f"{stem} is a register here, which has no {text[len(stem) : 80]}; give it another name"
                raise PtxSyntaxError(f"{reason} in {opcode}", stem)
            if text.endswith(".w") and text[1:-2] in SPECIAL_VECTORS:
                return Immediate(0)
            if text[1:] in SPECIALS:
                return Special(text[1:])
            raise PtxSyntaxError(f"unknown register {text[:200]} in {opcode}", text[:200])
        return self._symbol(text, opcode)

    def _symbol(self, text: str, opcode: str) -> Operand:
        """Read the address of a variable: ``a``, ``a+8``, or of an element, ``a[2]``, as loads take it too."""
        match = _INDEXED.match(text)
        name = match["name"] if match else text
        variable = self._names.variable(name)
        if variable is None:
            if opcode.startswith("call") or text in self._names.functions:
                return Symbol(text)
            if text in self._names.kernels:
                return Symbol(text, is_kernel=True)
            raise PtxSyntaxError(f"unknown name {text} in {opcode}", text)
        is_passed = variable.space == "param" and self._names.formals.get(name) is not variable
        if is_passed and opcode.startswith(("mov", "cvta")):
            raise PtxSyntaxError(f"{opcode} takes no address of {name}, which is passed to functions; copy it", name)
        self.spaces[variable.name] = variable.space
        if match is None:
            return Symbol(variable.name)
        if match["offset"] is not None:
            return Symbol(variable.name, _integer(match["offset"]))
        if match["index"].strip()[:1] == "%":
            raise PtxSyntaxError(f"an index in a register, {text} in {opcode}, is not read; compute the address")
        offset = _integer(match["index"]) * variable.element_bytes
        symbol = Symbol(variable.name)
        is_value = opcode.startswith(("mov", "mapa", "getctarank"))
        return Symbol(variable.name, offset) if is_value else Address(symbol, offset)

    def _address(self, text: str, opcode: str) -> Address:
        parts = split(text) if "," in text else (text,)
        if len(parts) == 2:
            base = self._address(parts[0], opcode)
            vector = self.read(parts[1], opcode)
            items = vector.items if isinstance(vector, Vector) else (vector,)
            return Address(base.base, base.offset, items)
        match = _ADDRESS.match(text)
        if match is None:
            if _SUBTRACTED.match(text):
                raise PtxSyntaxError(f"an offset begins with +, such as [a+-4], got [{text}] in {opcode}")
            return Address(_immediate(text))
        operand = self.read(match["base"], opcode)
        if not isinstance(operand, Register | Symbol) or (isinstance(operand, Register) and "." in match["base"]):
            raise PtxSyntaxError(f"cannot read the address [{text}] in {opcode}")
        return Address(operand, _integer(match["offset"]) if match["offset"] is not None else 0)


def split(text: str) -> list[str]:
    """Split operands at the commas that no bracket encloses."""
    if "[" not in text and "{" not in text and "(" not in text:
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts, depth, start = [], 0, 0
    for match in _MARK.finditer(text):
        mark = match[0]
        if mark in "[{(":
            depth += 1
        elif mark in "]})":
            depth -= 1
        elif depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
        if depth < 0:
            break
    if depth:
        raise PtxSyntaxError(f"the brackets of {' '.join(text.split())[:80]!r} do not match")
    parts.append(text[start:].strip())
    return parts


@lru_cache(maxsize=4096)
def _immediate(text: str) -> Immediate:
    return evaluate(text).immediate


def _integer(text: str) -> int:
    value = evaluate(text).value
    if not isinstance(value, int):
        raise PtxSyntaxError(f"expected an integer, got {text.strip()!r}")
    return value
