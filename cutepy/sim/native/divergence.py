"""Divergence and reconvergence of lanes in a function of a region: a stack of those that wait.

An entry of the stack is a node, the lanes that run it next, and the node where they reconverge with others. A branch
that all lanes of a warp take alike costs no more than in any program.

References
----------
Levinthal and Porter: "Chap - a SIMD graphics processor", of stacks of masks; Fung et al.: "Dynamic Warp Formation and
Scheduling for Efficient GPU Control Flow", of where lanes meet.
"""

from __future__ import annotations

from cutepy.sim.native.lanes import Lanes
from cutepy.sim.native.nodes import Node
from cutepy.sim.native.regions import Region
from cutepy.sim.native.writer import BY_THREAD, LANES
from cutepy.sim.translate.control_flow import EXIT

DEPTH = 3 * LANES
"""Entries of the stack: of each lane that parts from others, itself, and where it meets them."""


def leave(e: Lanes, region: Region, node: Node, joins: set[int]) -> None:
    """Go on to a node's successors."""
    w = e.w
    targets = node.successors
    if node.condition is None:
        e.end()
        go(e, region, targets[0], joins)
        return
    register, negated = node.condition
    value = e.register(register.index)
    holds = e.invert(value) if negated else value
    if not value.axes & BY_THREAD:
        e.end()
        first, second = w.label(), w.label()
        w.lines.append(f"llvm.cond_br {holds.name}, {first}, {second}")
        for label, place in ((first, targets[0]), (second, targets[1])):
            w.lines.append(f"{label}:")
            go(e, region, place, joins)
        return
    here = w.emit("llvm.load %active : !llvm.ptr -> i32")
    bits = w.emit(f"llvm.bitcast {holds.name} : vector<{LANES}xi1> to i32")
    taken = w.emit(f"llvm.and {here}, {bits} : i32")
    other = w.emit(f"llvm.xor {here}, {taken} : i32")
    e.end()
    none = w.constant(32, 0).name
    some, all_, mixed, first, second = (w.label() for _ in range(5))
    is_all = w.emit(f'llvm.icmp "eq" {other}, {none} : i32')
    w.lines.append(f"llvm.cond_br {is_all}, {first}, {some}")
    w.lines.append(f"{some}:")
    is_none = w.emit(f'llvm.icmp "eq" {taken}, {none} : i32')
    w.lines.append(f"llvm.cond_br {is_none}, {second}, {mixed}")
    w.lines.append(f"{mixed}:")
    _part(e, region, node, joins, here, taken, other)
    w.lines.append(f"llvm.br {all_}")
    for label, place in ((first, targets[0]), (second, targets[1])):
        w.lines.append(f"{label}:")
        go(e, region, place, joins)
    w.lines.append(f"{all_}:")
    w.lines.append(f"llvm.store {taken}, %active : i32, !llvm.ptr")
    go(e, region, targets[0], joins)


def _part(e: Lanes, region: Region, node: Node, joins: set[int], here: str, taken: str, other: str) -> None:
    """Let the lanes that do not take a branch wait, and all of them meet at the node's join."""
    w = e.w
    splits = w.emit("llvm.load %splits : !llvm.ptr -> i64")
    more = w.emit(f"llvm.add {splits}, %n1 : i64")
    w.lines.append(f"llvm.store {more}, %splits : i64, !llvm.ptr")
    second = node.successors[1]
    if node.join in joins:
        join = w.constant(64, node.join).name
        stop = w.emit("llvm.load %stop : !llvm.ptr -> i64")
        push, on = w.label(), w.label()
        arrived = w.emit(f'llvm.icmp "eq" {stop}, {join} : i64')
        w.lines.append(f"llvm.cond_br {arrived}, {on}, {push}")
        w.lines.append(f"{push}:")
        _push(e, node.join, here, stop)
        w.lines.append(f"llvm.store {join}, %stop : i64, !llvm.ptr")
        w.lines.append(f"llvm.br {on}")
        w.lines.append(f"{on}:")
    if second not in (node.join, EXIT, region.end):
        stop = w.emit("llvm.load %stop : !llvm.ptr -> i64")
        if second in joins:
            # The others may be where they wait already.
            push, on = w.label(), w.label()
            at = w.constant(64, second).name
            arrived = w.emit(f'llvm.icmp "eq" {stop}, {at} : i64')
            w.lines.append(f"llvm.cond_br {arrived}, {on}, {push}")
            w.lines.append(f"{push}:")
            _push(e, second, other, stop)
            w.lines.append(f"llvm.br {on}")
            w.lines.append(f"{on}:")
        else:
            _push(e, second, other, stop)


def _push(e: Lanes, node: int, mask: str, stop: str) -> None:
    w = e.w
    e.waiting.add(node)
    depth = w.emit("llvm.load %depth : !llvm.ptr -> i64")
    top = w.emit(f"llvm.getelementptr %stack[{depth}] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.array<3 x i64>")
    wide = w.emit(f"llvm.zext {mask} : i32 to i64")
    for n, value in enumerate((w.constant(64, node).name, wide, stop)):
        at = w.emit(f"llvm.getelementptr {top}[{n}] : (!llvm.ptr) -> !llvm.ptr, i64")
        w.lines.append(f"llvm.store {value}, {at} : i64, !llvm.ptr")
    deeper = w.emit(f"llvm.add {depth}, %n1 : i64")
    w.lines.append(f"llvm.store {deeper}, %depth : i64, !llvm.ptr")


def go(e: Lanes, region: Region, place: int, joins: set[int]) -> None:
    """Go to a node, or wait there for others."""
    w = e.w
    if place in (EXIT, region.end):
        w.lines.append("llvm.br ^pop")
    elif place in joins:
        stop = w.emit("llvm.load %stop : !llvm.ptr -> i64")
        arrived = w.emit(f'llvm.icmp "eq" {stop}, {w.constant(64, place).name} : i64')
        w.lines.append(f"llvm.cond_br {arrived}, ^pop, ^n{place}")
    else:
        w.lines.append(f"llvm.br ^n{place}")


def pop(e: Lanes) -> list[str]:
    """Let others go on."""
    targets = ", ".join(f"{n}: ^n{n}" for n in sorted(e.waiting))
    return [
        "^pop:",
        "%d0 = llvm.load %depth : !llvm.ptr -> i64",
        '%empty = llvm.icmp "eq" %d0, %n0 : i64',
        "llvm.cond_br %empty, ^done, ^resume",
        "^resume:",
        "%d1 = llvm.sub %d0, %n1 : i64",
        "llvm.store %d1, %depth : i64, !llvm.ptr",
        "%top = llvm.getelementptr %stack[%d1] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.array<3 x i64>",
        "%tonode = llvm.load %top : !llvm.ptr -> i64",
        "%maskp = llvm.getelementptr %top[1] : (!llvm.ptr) -> !llvm.ptr, i64",
        "%maskw = llvm.load %maskp : !llvm.ptr -> i64",
        "%maskb = llvm.trunc %maskw : i64 to i32",
        "llvm.store %maskb, %active : i32, !llvm.ptr",
        "%stopp = llvm.getelementptr %top[2] : (!llvm.ptr) -> !llvm.ptr, i64",
        "%stopv = llvm.load %stopp : !llvm.ptr -> i64",
        "llvm.store %stopv, %stop : i64, !llvm.ptr",
        f"llvm.switch %tonode : i64, ^done [ {targets} ]",
    ]
