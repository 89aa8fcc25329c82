"""Write a region as a function that goes over CTAs and warps, each of which takes its own way through the region."""

from __future__ import annotations

from cutepy.sim.native.divergence import DEPTH, go, leave, pop
from cutepy.sim.native.instructions import write_instruction
from cutepy.sim.native.lanes import EVERY, SLOT_STARTS, Lanes, UnsupportedError
from cutepy.sim.native.nodes import Node
from cutepy.sim.native.regions import Region
from cutepy.sim.native.snippets import FAILED, GIVEN_UP, put
from cutepy.sim.native.writer import BY_CTA, BY_THREAD, LANES
from cutepy.sim.ptx.model import Instruction, Register, Special, Symbol
from cutepy.sim.semantics.types import width
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written
from cutepy.sim.translate.emitter import UNIFORM_SPECIALS
from cutepy.sim.translate.memory import space_of

_PATIENCE = 1 << 24
"""Most visits of loop heads by warps of a CTA before numpy tries, which detects endless loops."""


def inputs_of(region: Region, kinds: list[str]) -> list[str]:
    """Return the values that a region reads, as expressions."""
    return list(_written(region, kinds, {}, True, *_axes(region, {}))[0].inputs)


def function(region: Region, kinds: list[str], axes: dict[str, int], full: bool) -> tuple[Lanes, str, dict[int, int]]:
    """Write a region's function.

    Parameters
    ----------
    region : Region
    kinds : list of str
        Canonical kind of each register.
    axes : dict of str to int
        Along which axes each input differs.
    full : bool
        True if all 32 lanes of each warp are here.

    Returns
    -------
    tuple
        Written function, its source, and the axes of each output.

    Raises
    ------
    UnsupportedError
        If threads may come to a barrier without others of their CTA, or collectives lack lanes of a warp.
    """
    parted, of_registers = _axes(region, axes)
    if any(node.number in parted for node in region.barriers):
        raise UnsupportedError
    e, outputs = _written(region, kinds, axes, full, parted, of_registers)
    return e, _assemble(e, region), outputs


def _written(
    region: Region, kinds: list[str], axes: dict[str, int], full: bool, parted: set[int], of_registers: dict[int, int]
) -> tuple[Lanes, dict[int, int]]:
    e = Lanes(kinds, axes, full, of_registers)
    e.constants, e.is_ranked = region.nodes.constants, region.nodes.is_ranked
    frames = e.pointer("frames") if region.barriers else ""
    for index in region.inputs:
        e.prologue(index)
    joins = {n.join for n in region if _parts(n, of_registers)} - {EXIT, region.end}
    w = e.w
    for node in region:
        e.begin(f"^n{node.number}", node.number in parted)
        if node.is_first:
            _count(e, node)
        if node.number in region.headers:
            _limit(e)
        if node.kind == "barrier":
            _wait(e, region, node, frames)
            continue
        for i in node.instructions:
            write_instruction(e, i)
        leave(e, region, node, joins)
    w.begin("^done")
    outputs = {index: e.output(index) for index in region.outputs}
    w.lines.append("llvm.br ^nextwarp")
    for node in region.barriers:
        _resume(e, region, node, joins, frames)
    return e, outputs


def _parts(node: Node, of_registers: dict[int, int]) -> bool:
    """Return whether lanes of a warp may part at a node."""
    return node.condition is not None and bool(of_registers.get(node.condition[0].index, EVERY) & BY_THREAD)


def _axes(region: Region, axes: dict[str, int]) -> tuple[set[int], dict[int, int]]:
    """Return the nodes whose lanes may have parted, and along which axes registers may differ."""
    found = dict.fromkeys((r.index for i in region.instructions for r in written(i)), 0)
    found |= {index: axes.get(f"R[{index}]", EVERY) for index in region.inputs}
    apart: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for node in region:
            for i in node.instructions:
                now = apart.get(node.number, 0) | _differs(i, found, axes, BY_CTA if region.nodes.is_ranked else 0)
                for register in written(i):
                    if now & ~found[register.index]:
                        found[register.index] |= now
                        changed = True
            condition = node.condition
            by = 0 if condition is None else found.get(condition[0].index, EVERY)
            for inner in region.within(node) if by else ():
                if by & ~apart.get(inner, 0):
                    apart[inner] = apart.get(inner, 0) | by
                    changed = True
    return {n for n, by in apart.items() if by & BY_THREAD}, found


def _differs(i: Instruction, found: dict[int, int], axes: dict[str, int], of_symbols: int) -> int:
    """Return along which axes an instruction's results may differ, given those of variables' addresses."""
    if (i.traits.is_atomic and i.traits.has_result) or i.traits.exchanges:
        return EVERY
    by = 0
    for register in read(i):
        by |= found.get(register.index, EVERY)
    for operand in i.operands:
        by |= _of_special(operand) | (of_symbols if isinstance(operand, Symbol) else 0)
    if i.traits.reads_memory and space_of(i) == "shared":
        by |= axes.get(SLOT_STARTS, EVERY)
    return by


def _of_special(operand: object) -> int:
    if isinstance(operand, Special):
        name = operand.name
        return 0 if name in UNIFORM_SPECIALS else BY_CTA if "ctaid" in name or "cluster" in name else EVERY
    if isinstance(operand, Register):
        return 0
    return 0 if not hasattr(operand, "items") else max((_of_special(x) for x in operand.items), default=0)


def _count(e: Lanes, node: Node) -> None:
    """Count that a warp has executed a block."""
    w = e.w
    at = w.emit(f"llvm.getelementptr %counts[{node.block}] : (!llvm.ptr) -> !llvm.ptr, i64")
    more = w.binary("add", w.new(0, f"llvm.load {at} : !llvm.ptr -> i64", 64), w.constant(64, 1))
    w.lines.append(f"llvm.store {more.name}, {at} : i64, !llvm.ptr")


def _limit(e: Lanes) -> None:
    """Give up on a loop that goes on for long."""
    w = e.w
    left = w.binary("sub", w.new(0, "llvm.load %patience : !llvm.ptr -> i64", 64), w.constant(64, 1))
    w.lines.append(f"llvm.store {left.name}, %patience : i64, !llvm.ptr")
    label = w.label()
    w.lines.append(f"llvm.cond_br {w.compare('ne', left, w.constant(64, 0)).name}, {label}, ^fail")
    w.lines.append(f"{label}:")


def _kept(e: Lanes, region: Region, node: Node, frames: str) -> list[tuple[int, str, str]]:
    """Name where the registers that are read after a barrier are kept, with their types."""
    w, found, at = e.w, [], 0
    frame = w.emit("llvm.mul %warp, %framesize : i64")
    start = w.emit(f"llvm.getelementptr {frames}[{frame}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
    for index in sorted(region.nodes.live_in[node.successors[0]] & e.slots.keys()):
        bits, axes = width(e.kinds[index]), e.axes_of(index)
        place = w.emit(f"llvm.getelementptr {start}[{at}] : (!llvm.ptr) -> !llvm.ptr, i8")
        found.append((index, place, w.type(bits, axes)))
        at += max(bits // 8 * (LANES if axes & BY_THREAD else 1), 8)
    e.frame_bytes = max(e.frame_bytes, at)
    return found


def _wait(e: Lanes, region: Region, node: Node, frames: str) -> None:
    """Keep a warp's registers, and let the next warp come to the barrier."""
    w = e.w
    for index, place, kind in _kept(e, region, node, frames):
        value = w.emit(f"llvm.load {e.slot(index)} : !llvm.ptr -> {kind}")
        w.lines.append(f"llvm.store {value}, {place} {{alignment = 8 : i64}} : {kind}, !llvm.ptr")
    w.lines.append(f"llvm.store {w.constant(64, node.number).name}, %reached : i64, !llvm.ptr")
    w.lines.append("llvm.br ^nextwarp")


def _resume(e: Lanes, region: Region, node: Node, joins: set[int], frames: str) -> None:
    """Let a warp go on from a barrier."""
    w = e.w
    w.begin(f"^r{node.number}")
    for index, place, kind in _kept(e, region, node, frames):
        value = w.emit(f"llvm.load {place} {{alignment = 8 : i64}} : !llvm.ptr -> {kind}")
        w.lines.append(f"llvm.store {value}, {e.slot(index)} : {kind}, !llvm.ptr")
    go(e, region, node.successors[0], joins)


def _assemble(e: Lanes, region: Region) -> str:
    """Put the parts of a function together."""
    w = e.w
    every = ", ".join(map(str, range(LANES)))
    resumed = ", ".join(f"{node.number}: ^r{node.number}" for node in region.barriers)
    kind = f"vector<{LANES}xi64>"
    lines = ["llvm.func @run(%arguments: !llvm.ptr) {"]
    lines += [f"%n{n} = llvm.mlir.constant({n} : i64) : i64" for n in (0, 1, 2, 32)]
    names = ("rows", "warps", "columns", "table", "state", "counts")
    for position, name in enumerate(names):
        type_ = "i64" if position < 3 else "!llvm.ptr"
        lines.append(f"%{name}p = llvm.getelementptr %arguments[{position}] : (!llvm.ptr) -> !llvm.ptr, i64")
        lines.append(f"%{name} = llvm.load %{name}p : !llvm.ptr -> {type_}")
    blocks = region.nodes.all[-1].block + 1
    lines.append(f"%splits = llvm.getelementptr %counts[{blocks}] : (!llvm.ptr) -> !llvm.ptr, i64")
    lines.append(f"%room = llvm.mlir.constant({max(e.buffer, 8)} : i64) : i64")
    lines.append("%buffer = llvm.alloca %room x i8 {alignment = 64 : i64} : (i64) -> !llvm.ptr")
    lines.append(f"%entries = llvm.mlir.constant({DEPTH} : i64) : i64")
    lines.append("%stack = llvm.alloca %entries x !llvm.array<3 x i64> : (i64) -> !llvm.ptr")
    for name, type_ in (("depth", "i64"), ("stop", "i64"), ("active", "i32"), ("patience", "i64"), ("reached", "i64")):
        lines.append(f"%{name} = llvm.alloca %n1 x {type_} : (i64) -> !llvm.ptr")
    lines.append(f"%every = llvm.mlir.constant(dense<true> : vector<{LANES}xi1>) : vector<{LANES}xi1>")
    lines.append("%everybits = llvm.mlir.constant(-1 : i32) : i32")
    lines.append(f"%each = llvm.mlir.constant(dense<[{every}]> : {kind}) : {kind}")
    lines.append(f"%limit = llvm.mlir.constant({_PATIENCE} : i64) : i64")
    lines.append("%nowhere = llvm.mlir.constant(-1 : i64) : i64")
    lines.append(f"%framesize = llvm.mlir.constant({e.frame_bytes} : i64) : i64")
    lines += [*w.once, "llvm.br ^row(%n0 : i64)", "^row(%row: i64):"]
    lines.append('%inside = llvm.icmp "ult" %row, %rows : i64')
    lines += ["llvm.cond_br %inside, ^cta, ^leave", "^cta:"]
    lines += [*w.by_cta, "%rowstart = llvm.mul %row, %columns : i64", "%nextrow = llvm.add %row, %n1 : i64"]
    # All warps go up to a barrier, and then on from there.
    lines += ["llvm.store %limit, %patience : i64, !llvm.ptr", "llvm.br ^phase(%nowhere : i64)", "^phase(%from: i64):"]
    lines += ["llvm.store %nowhere, %reached : i64, !llvm.ptr"]
    lines += ["llvm.br ^warp(%n0 : i64)", "^warp(%warp: i64):"]
    lines.append('%is = llvm.icmp "ult" %warp, %warps : i64')
    lines += ["llvm.cond_br %is, ^lanes, ^reach", "^reach:"]
    lines += ["%where = llvm.load %reached : !llvm.ptr -> i64", '%over = llvm.icmp "eq" %where, %nowhere : i64']
    lines += ["llvm.cond_br %over, ^row(%nextrow : i64), ^phase(%where : i64)", "^lanes:"]
    if e.full:
        lines += ["%start = llvm.mul %warp, %n32 : i64", "llvm.store %everybits, %active : i32, !llvm.ptr"]
    else:
        lines += [
            "%pairat = llvm.mul %warp, %n2 : i64",
            "%pair = llvm.getelementptr %table[%pairat] : (!llvm.ptr, i64) -> !llvm.ptr, i64",
            "%start = llvm.load %pair : !llvm.ptr -> i64",
            "%lanesp = llvm.getelementptr %pair[1] : (!llvm.ptr) -> !llvm.ptr, i64",
            "%lanes = llvm.load %lanesp : !llvm.ptr -> i64",
            f"%some = llvm.mlir.poison : {kind}",
            f"%last1 = llvm.insertelement %lanes, %some[%n0 : i64] : {kind}",
            f"%last = llvm.shufflevector %last1, %last1 [{', '.join(['0'] * LANES)}] : {kind}",
            f'%present = llvm.icmp "ult" %each, %last : {kind}',
            f"%presentbits = llvm.bitcast %present : vector<{LANES}xi1> to i32",
            "llvm.store %presentbits, %active : i32, !llvm.ptr",
        ]
    lines += [
        "%position = llvm.add %rowstart, %start : i64",
        "llvm.store %n0, %depth : i64, !llvm.ptr",
        "llvm.store %nowhere, %stop : i64, !llvm.ptr",
        *e.forgotten(),
        *w.by_warp,
        f"llvm.switch %from : i64, ^n{region.entry} [ {resumed} ]" if resumed else f"llvm.br ^n{region.entry}",
        *w.lines,
        "^nextwarp:",
        "%nextwarp = llvm.add %warp, %n1 : i64",
        "llvm.br ^warp(%nextwarp : i64)",
        *pop(e),
        "^fail:",
        f"%why = llvm.mlir.constant({GIVEN_UP} : i64) : i64",
        put(FAILED, "%why"),
        "llvm.br ^leave",
        "^leave:",
        "llvm.return",
        "}",
    ]
    return "\n".join(["module {", *lines, "}"])
