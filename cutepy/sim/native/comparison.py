"""Comparison and selection.

References
----------
PTX ISA, "Comparison and Selection Instructions".
"""

from __future__ import annotations

from cutepy.sim.native.floating import flushed
from cutepy.sim.native.lanes import Lanes
from cutepy.sim.native.table import need, of
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.comparison import _BOOLEANS, _OPERATORS, _UNSIGNED
from cutepy.sim.translate.emitter import kind_of, split_pair
from cutepy.sim.translate.integer import is_integer

_LOGIC = {"and": "and", "or": "or", "xor": "xor"}


_RELATIONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


@of("setp")
def _setp(e: Lanes, i: Instruction) -> None:
    destination, a, b, *more = i.operands
    p, q = split_pair(destination)
    kind, w = i.parts[-1], e.w
    operation = i.parts[1]
    if kind == "f32":
        x, y = e.read(a, "f4"), e.read(b, "f4")
        if "ftz" in i.parts:
            x, y = flushed(e, x), flushed(e, y)
        if operation in ("num", "nan"):
            value = w.compare_floats("ord" if operation == "num" else "uno", x, y)
        elif operation in _OPERATORS:
            value = w.compare_floats("o" + operation, x, y)
        else:
            need(operation.endswith("u") and operation[:-1] in _OPERATORS)
            value = w.compare_floats("u" + operation[:-1], x, y)
    else:
        need(is_integer(kind))
        operation = _UNSIGNED.get(operation, operation)
        need(operation in _RELATIONS)
        x, y = e.read(a, kind_of(kind)), e.read(b, kind_of(kind))
        letter = "" if operation in ("eq", "ne") else "s" if kind_of(kind)[0] == "i" else "u"
        value = w.compare(letter + operation, x, y)
    other = e.invert(value) if q is not None else value
    if more:
        need(i.parts[2] in _BOOLEANS)
        third = e.read(more[0], "pred")
        value, other = (w.binary(_LOGIC[i.parts[2]], v, third) for v in (value, other))
    e.write(p, value)
    if q is not None:
        e.write(q, other)


@of("selp")
def _selp(e: Lanes, i: Instruction) -> None:
    kind = kind_of(i.parts[-1])
    d, a, b, p = i.operands
    e.write(d, e.w.select(e.read(p, "pred"), e.read(a, kind), e.read(b, kind)))
