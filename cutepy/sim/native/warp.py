"""Exchange between the lanes of a warp in machine code: shuffles, votes, reductions, elections.

All 32 lanes of the warp must be active. Otherwise numpy executes the instruction for the lanes that its mask names.

References
----------
PTX ISA, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "elect.sync", "bar.warp.sync".
"""

from __future__ import annotations

import numpy as np

from cutepy.sim.mechanisms.warp import source_lane
from cutepy.sim.native.floating import extreme_float, extreme_nan
from cutepy.sim.native.lanes import EVERY, Lanes
from cutepy.sim.native.table import need, of
from cutepy.sim.native.writer import BY_THREAD, LANES, Value
from cutepy.sim.ptx.model import Instruction, Operand, Register
from cutepy.sim.semantics.types import kind_of, split_pair, width


def _need_all(e: Lanes, mask: Operand) -> None:
    """Write an instruction that all lanes of a warp execute together, with masks that name them all."""
    e.need_whole_warp()
    value, w = e.read(mask, "u4"), e.w
    all_ = w.compare("eq", value, w.constant(32, -1))
    whole = w.compare("eq", _ballot(e, all_), w.constant(32, -1)) if all_.axes & BY_THREAD else all_
    e.fail_unless(whole.name)


def _lane(e: Lanes) -> Value:
    """Return each lane's number."""
    lanes = ", ".join(map(str, range(LANES)))
    kind = f"vector<{LANES}xi32>"
    return e.w.new(EVERY, f"llvm.mlir.constant(dense<[{lanes}]> : {kind}) : {kind}", 32)


def _spread(e: Lanes, value: Value) -> Value:
    return Value(e.w.spread(value, EVERY), value.bits, EVERY)


@of("shfl")
def _shfl(e: Lanes, i: Instruction) -> None:
    d, p = split_pair(i.operands[0])
    a, b, c, mask = i.operands[1:]
    _need_all(e, mask)
    w = e.w
    value = e.register(a.index) if isinstance(a, Register) else e.read(a, "u4")
    need(value.bits == 32)
    lane, five = _lane(e), w.constant(32, 31)
    distance, control = e.read(b, "u4"), e.read(c, "u4")
    if distance.number is not None and control.number is not None:
        _fixed(e, d, p, value, i.parts[2], distance.number, control.number)
        return
    clamp, segment = w.binary("and", control, five), w.binary("and", w.binary("lshr", control, w.constant(32, 8)), five)
    by = w.binary("and", distance, five)
    lowest = w.binary("and", lane, segment)
    highest = w.binary("or", lowest, w.binary("and", clamp, e.invert(segment)))
    mode = i.parts[2]
    if mode == "up":
        source = w.binary("sub", lane, by)
        inside = w.compare("sge", source, highest)
    else:
        if mode == "idx":
            source = w.binary("or", lowest, w.binary("and", by, e.invert(segment)))
        else:
            source = w.binary("add" if mode == "down" else "xor", lane, by)
        inside = w.compare("sle", source, highest)
    source = w.select(inside, source, lane)
    e.write(d, _taken(e, value, source))
    if p is not None:
        e.write(p, _spread(e, inside))


def _fixed(e: Lanes, d: Operand, p: Operand | None, value: Value, mode: str, distance: int, control: int) -> None:
    """Shuffle by numbers that are known."""
    sources, inside = source_lane(mode, np.arange(LANES), np.array(distance), np.array(control))
    e.write(d, _permuted(e, value, sources.tolist()))
    if p is not None:
        known, type_ = ", ".join(map(str, inside.tolist())).lower(), f"vector<{LANES}xi1>"
        e.write(p, e.w.new(EVERY, f"llvm.mlir.constant(dense<[{known}]> : {type_}) : {type_}", 1))


def _permuted(e: Lanes, value: Value, sources: list[int]) -> Value:
    """Return the value of other lanes, the same ones at any time."""
    whole, picks = e.w.spread(value, EVERY), ", ".join(map(str, sources))
    return e.w.new(EVERY, f"llvm.shufflevector {whole}, {whole} [{picks}] : vector<{LANES}xi32>", 32)


def _taken(e: Lanes, value: Value, source: Value) -> Value:
    """Return the value of another lane."""
    w, kind = e.w, f"vector<{LANES}xi32>"
    e.buffer = max(e.buffer, 4 * LANES)
    w.lines.append(f"llvm.store {w.spread(value, EVERY)}, %buffer {{alignment = 64 : i64}} : {kind}, !llvm.ptr")
    places = w.emit(
        f"llvm.getelementptr %buffer[{source.name}] : (!llvm.ptr, {kind}) -> vector<{LANES}x!llvm.ptr>, i32"
    )
    none = w.emit(f"llvm.mlir.poison : {kind}")
    return w.new(
        EVERY,
        f"llvm.intr.masked.gather {places}, %every, {none} {{alignment = 4 : i32}} : "
        f"(vector<{LANES}x!llvm.ptr>, vector<{LANES}xi1>, {kind}) -> {kind}",
        32,
    )


def _ballot(e: Lanes, value: Value) -> Value:
    """Return the mask of the lanes in which a predicate holds."""
    return e.w.new(0, f"llvm.bitcast {e.w.spread(value, EVERY)} : vector<{LANES}xi1> to i32", 32)


@of("vote")
def _vote(e: Lanes, i: Instruction) -> None:
    d, a, mask = i.operands
    _need_all(e, mask)
    w = e.w
    ballot = _ballot(e, e.read(a, "pred"))
    all_, none = (w.compare("eq", ballot, w.constant(32, n)) for n in (-1, 0))
    found = {"ballot": ballot, "all": all_, "any": e.invert(none)}
    if i.parts[2] == "uni":
        found["uni"] = w.binary("or", all_, none)
    e.write(d, _spread(e, found[i.parts[2]]))


@of("redux")
def _redux(e: Lanes, i: Instruction) -> None:
    d, a, mask = i.operands
    _need_all(e, mask)
    kind, operation = kind_of(i.parts[-1]), i.parts[2]
    need(width(kind) == 32)
    if kind[0] == "f":
        _extreme(e, i, e.read(a, kind))
        return
    if operation in ("min", "max"):
        operation = ("s" if kind[0] == "i" else "u") + operation
    vector = f"vector<{LANES}xi32>"
    value = e.w.spread(e.read(a, kind), EVERY)
    found = e.w.new(0, f'"llvm.intr.vector.reduce.{operation}"({value}) : ({vector}) -> i32', 32)
    e.write(d, _spread(e, found))


def _extreme(e: Lanes, i: Instruction, value: Value) -> None:
    """Write the least or the greatest float32 of all lanes."""
    function = extreme_nan if "NaN" in i.parts else extreme_float
    if "abs" in i.parts:
        value = e.w.binary("and", value, e.w.constant(32, 0x7FFFFFFF))
    for distance in (16, 8, 4, 2, 1):
        other = _permuted(e, value, [lane ^ distance for lane in range(LANES)])
        value = function(e, i.parts[2], value, other)
    e.write(i.operands[0], value)


@of("match")
def _match(e: Lanes, i: Instruction) -> None:
    d, p = split_pair(i.operands[0])
    a, mask = i.operands[1:]
    need(i.parts[1] == "all")
    _need_all(e, mask)
    w = e.w
    value = _spread(e, e.read(a, kind_of(i.parts[-1])))
    kind = f"vector<{LANES}xi{value.bits}>"
    first = w.new(0, f"llvm.extractelement {value.name}[%n0 : i64] : {kind}", value.bits)
    same = w.compare("eq", _ballot(e, w.compare("eq", value, first)), w.constant(32, -1))
    e.write(d, _spread(e, w.select(same, w.constant(32, -1), w.constant(32, 0))))
    if p is not None:
        e.write(p, _spread(e, same))


@of("elect")
def _elect(e: Lanes, i: Instruction) -> None:
    d, p = split_pair(i.operands[0])
    _need_all(e, i.operands[1])
    e.write(d, e.w.constant(32, 0))
    if p is not None:
        e.write(p, e.w.compare("eq", _lane(e), e.w.constant(32, 0)))


@of("activemask")
def _activemask(e: Lanes, i: Instruction) -> None:
    need(e.full)
    e.write(i.operands[0], Value(e.here()[1], 32, 0))


@of("bar", "barrier")
def _bar_warp(e: Lanes, i: Instruction) -> None:
    need("warp" in i.parts)
    _need_all(e, i.operands[0])
