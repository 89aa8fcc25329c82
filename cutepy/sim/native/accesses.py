"""Checked accesses of a warp's lanes to memory, in MLIR's dialect of LLVM.

A log keeps the old value of each stored word. If a check fails, the stores are undone, and numpy executes the
instructions again up to the failure.
"""

from __future__ import annotations

from cutepy.sim.native.checks import CHECK_SHARED, HERE, check_global, ways
from cutepy.sim.native.log import LANE, ROW
from cutepy.sim.native.snippets import (
    ATOMIC,
    CHANGED,
    FAILED,
    FULL,
    I1,
    I64,
    LOADED,
    LOG,
    LOG_END,
    LOGS_SHARED,
    NUMBERS,
    PTR,
    READ,
    STORED,
    WRITTEN,
    cell,
    put,
    spread,
)
from cutepy.sim.native.writer import LANES

ACCESS_TYPE = f"(!llvm.ptr, {I64}, i32, i64, !llvm.ptr) -> i64"
"""Of the state, addresses, the lanes that are here, whether to count or where shared memory is, and values."""

_COUNTERS = {"load": (LOADED, [2], READ), "store": (STORED, [3], WRITTEN), "atomic": (ATOMIC, [2, 3], WRITTEN)}


def _fetch(bits: int, count: int) -> str:
    """Load elements at checked addresses: `count` vectors, which are written one after the other."""
    kind, whole = f"vector<{LANES}xi{bits}>", f"vector<{LANES * count}xi{bits}>"
    lines = [
        f"llvm.func internal @touch(%state: !llvm.ptr, %a: {I64}, %mask: i32, %way: i64, %out: !llvm.ptr) -> i64 {{",
        NUMBERS,
        f"%first = llvm.extractelement %a[%c0 : i64] : {I64}",
        "%at = llvm.inttoptr %first : i64 to !llvm.ptr",
        f"%every = llvm.mlir.constant(dense<true> : {I1}) : {I1}",
        f"%pass = llvm.mlir.poison : {kind}",
        "llvm.switch %way : i64, ^end [ 1: ^same, 2: ^row, 3: ^any ]",
        "^same:",
    ]
    for n in range(count):
        lines += [
            f"%sp{n} = llvm.getelementptr %at[{n}] : (!llvm.ptr) -> !llvm.ptr, i{bits}",
            f"%sv{n} = llvm.load %sp{n} {{alignment = {bits // 8} : i64}} : !llvm.ptr -> i{bits}",
            spread(f"sw{n}", f"%sv{n}", bits),
            f"%so{n} = llvm.getelementptr %out[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"llvm.store %sw{n}, %so{n} {{alignment = 8 : i64}} : {kind}, !llvm.ptr",
        ]
    lines += ["llvm.br ^end", "^row:"]
    lines.append(f"%rv = llvm.load %at {{alignment = {bits // 8} : i64}} : !llvm.ptr -> {whole}")
    for n in range(count):
        picks = ", ".join(str(lane * count + n) for lane in range(LANES))
        lines += [
            f"%rw{n} = llvm.shufflevector %rv, %rv [{picks}] : {whole}",
            f"%ro{n} = llvm.getelementptr %out[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"llvm.store %rw{n}, %ro{n} {{alignment = 8 : i64}} : {kind}, !llvm.ptr",
        ]
    lines += ["llvm.br ^end", "^any:"]
    for n in range(count):
        lines += [
            _places(n, bits),
            f"%av{n} = llvm.intr.masked.gather %ap{n}, %every, %pass {{alignment = {bits // 8} : i32}} : "
            f"({PTR}, {I1}, {kind}) -> {kind}",
            f"%ag{n} = llvm.getelementptr %out[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"llvm.store %av{n}, %ag{n} {{alignment = 8 : i64}} : {kind}, !llvm.ptr",
        ]
    return "\n".join([*lines, "llvm.br ^end", "^end:", "llvm.return %way : i64", "}"])


def _places(n: int, bits: int) -> str:
    """Point to the n-th element of each lane."""
    return (
        f"%ao{n} = llvm.mlir.constant(dense<{n * bits // 8}> : {I64}) : {I64}\n"
        f"%aa{n} = llvm.add %a, %ao{n} : {I64}\n%ap{n} = llvm.inttoptr %aa{n} : {I64} to {PTR}"
    )


def _record(most: int) -> str:
    """Make room in the log for a record of a given number of bytes, or fail."""
    return f"""
{cell("log", LOG)}
{cell("until", LOG_END)}
%most = llvm.mlir.constant({most} : i64) : i64
%logged = llvm.add %logv, %most : i64
%fits = llvm.icmp "ule" %logged, %untilv : i64
llvm.cond_br %fits, ^noted, ^full
^full:
%why = llvm.mlir.constant({FULL} : i64) : i64
{put(FAILED, "%why")}
llvm.return %c0 : i64
^noted:
{put(CHANGED, "%c1")}
%record = llvm.inttoptr %logv : i64 to !llvm.ptr
"""


def _noted(name: str, at: int, value: str, kind: str) -> list[str]:
    """Store a part of a record."""
    return [
        f"%{name}{at} = llvm.getelementptr %record[{at}] : (!llvm.ptr) -> !llvm.ptr, i8",
        f"llvm.store {value}, %{name}{at} {{alignment = 8 : i64}} : {kind}, !llvm.ptr",
    ]


def _put(bits: int, count: int, keeps: str) -> str:
    """Store elements of the lanes that are here at checked addresses, of lanes that hit the same the last one's."""
    kind, whole = f"vector<{LANES}xi{bits}>", f"vector<{LANES * count}xi{bits}>"
    row_bytes, lane_bytes = 16 + LANES * count * bits // 8, count * (16 + LANES * 8 + LANES * bits // 8)
    lines = [
        f"llvm.func internal @touch(%state: !llvm.ptr, %a: {I64}, %here: i32, %way: i64, %from: !llvm.ptr) -> i64 {{",
        NUMBERS,
        _record(max(row_bytes, lane_bytes)),
        f"%first = llvm.extractelement %a[%c0 : i64] : {I64}",
        "%at = llvm.inttoptr %first : i64 to !llvm.ptr",
    ]
    for n in range(count):
        lines += [
            f"%p{n} = llvm.getelementptr %from[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"%v{n} = llvm.load %p{n} {{alignment = 8 : i64}} : !llvm.ptr -> {kind}",
        ]
    lines += [
        "%all = llvm.mlir.constant(-1 : i32) : i32",
        '%whole = llvm.icmp "eq" %here, %all : i32',
        '%isrow = llvm.icmp "eq" %way, %c2 : i64',
        "%fast = llvm.and %whole, %isrow : i1",
        "llvm.cond_br %fast, ^row, ^any",
        "^row:",
        f"%head = llvm.mlir.constant({ROW | (row_bytes - 16) << 8} : i64) : i64",
        f"%before = llvm.load %at {{alignment = {bits // 8} : i64}} : !llvm.ptr -> {whole}",
        f"llvm.store %before, %record {{alignment = 8 : i64}} : {whole}, !llvm.ptr",
        *_noted("row", row_bytes - 16, "%first", "i64"),
        *_noted("row", row_bytes - 8, "%head", "i64"),
        f"%rownext = llvm.mlir.constant({row_bytes} : i64) : i64",
        keeps,
        "%rowkept = llvm.and %rownext, %keepsv : i64",
        "%rowto = llvm.add %logv, %rowkept : i64",
        "llvm.store %rowto, %log : i64, !llvm.ptr",
    ]
    names, width = [f"%v{n}" for n in range(count)], LANES
    while len(names) > 1:
        joined = []
        for n in range(0, len(names), 2):
            both = ", ".join(map(str, range(2 * width)))
            name = f"{names[n]}j{width}"
            lines.append(f"{name} = llvm.shufflevector {names[n]}, {names[n + 1]} [{both}] : vector<{width}xi{bits}>")
            joined.append(name)
        names, width = joined, 2 * width
    if count > 1:
        order = ", ".join(str(n * LANES + lane) for lane in range(LANES) for n in range(count))
        lines.append(f"%mixed = llvm.shufflevector {names[0]}, {names[0]} [{order}] : {whole}")
        names = ["%mixed"]
    lines += [
        f"llvm.store {names[0]}, %at {{alignment = {bits // 8} : i64}} : {whole}, !llvm.ptr",
        "llvm.return %way : i64",
        "^any:",
        f"%mask = llvm.bitcast %here : i32 to {I1}",
        "%bits = llvm.zext %here : i32 to i64",
        f"%lanehead = llvm.mlir.constant({LANE | bits << 8} : i64) : i64",
        f"%some = llvm.mlir.poison : {kind}",
    ]
    at = 0
    for n in range(count):
        lines.append(_places(n, bits))
        old = f"%old{n}"
        lines.append(
            f"{old} = llvm.intr.masked.gather %ap{n}, %mask, %some {{alignment = {bits // 8} : i32}} : "
            f"({PTR}, {I1}, {kind}) -> {kind}"
        )
        for value, type_, size in (
            (old, kind, LANES * bits // 8),
            (f"%aa{n}", I64, 8 * LANES),
            ("%bits", "i64", 8),
            ("%lanehead", "i64", 8),
        ):
            lines += _noted("lane", at, value, type_)
            at += size
    for n in range(count):
        lines.append(
            f"llvm.intr.masked.scatter %v{n}, %ap{n}, %mask {{alignment = {bits // 8} : i32}} : {kind}, {I1} into {PTR}"
        )
    lines += [
        f"%lanenext = llvm.mlir.constant({lane_bytes} : i64) : i64",
        keeps.replace("%keeps", "%lanekeeps"),
        "%lanekept = llvm.and %lanenext, %lanekeepsv : i64",
        "%laneto = llvm.add %logv, %lanekept : i64",
        "llvm.store %laneto, %log : i64, !llvm.ptr",
    ]
    return "\n".join([*lines, "llvm.return %way : i64", "}"])


def _combine(operation: str, bits: int, signed: bool, keeps: str) -> str:
    """Apply an atomic operation of the lanes that are here, one after the other; the old values come back."""
    kind = f"vector<{LANES}xi{bits}>"
    size = bits // 8
    return f"""
llvm.func internal @touch(%state: !llvm.ptr, %a: {I64}, %here: i32, %way: i64, %values: !llvm.ptr) -> i64 {{
{NUMBERS}
%room = llvm.mlir.constant({8 * LANES} : i64) : i64
%addresses = llvm.alloca %room x i8 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr
llvm.store %a, %addresses {{alignment = 64 : i64}} : {I64}, !llvm.ptr
%one = llvm.mlir.constant(1 : i32) : i32
%none = llvm.mlir.constant(0 : i32) : i32
%zero = llvm.mlir.constant(0 : i{bits}) : i{bits}
%unit = llvm.mlir.constant(1 : i{bits}) : i{bits}
{_record(24 * LANES).replace(put(CHANGED, "%c1"), "")}
%head = llvm.mlir.constant({ROW | size << 8} : i64) : i64
%seconds = llvm.getelementptr %values[1] : (!llvm.ptr) -> !llvm.ptr, {kind}
%step = llvm.mlir.constant(24 : i64) : i64
llvm.br ^lane(%here, %logv, %zero : i32, i64, i{bits})
^lane(%left: i32, %to: i64, %differs: i{bits}):
%l = "llvm.intr.cttz"(%left) <{{is_zero_poison = false}}> : (i32) -> i32
%less = llvm.sub %left, %one : i32
%rest = llvm.and %left, %less : i32
%ap = llvm.getelementptr %addresses[%l] : (!llvm.ptr, i32) -> !llvm.ptr, i64
%address = llvm.load %ap : !llvm.ptr -> i64
%at = llvm.inttoptr %address : i64 to !llvm.ptr
%xp = llvm.getelementptr %values[%l] : (!llvm.ptr, i32) -> !llvm.ptr, i{bits}
%x = llvm.load %xp : !llvm.ptr -> i{bits}
%yp = llvm.getelementptr %seconds[%l] : (!llvm.ptr, i32) -> !llvm.ptr, i{bits}
%y = llvm.load %yp : !llvm.ptr -> i{bits}
%old = llvm.load %at : !llvm.ptr -> i{bits}
{_combined(operation, bits, signed)}
%r0 = llvm.inttoptr %to : i64 to !llvm.ptr
llvm.store %old, %r0 : i{bits}, !llvm.ptr
%r1 = llvm.getelementptr %r0[1] : (!llvm.ptr) -> !llvm.ptr, i64
llvm.store %address, %r1 : i64, !llvm.ptr
%r2 = llvm.getelementptr %r0[2] : (!llvm.ptr) -> !llvm.ptr, i64
llvm.store %head, %r2 : i64, !llvm.ptr
llvm.store %new, %at : i{bits}, !llvm.ptr
llvm.store %old, %xp : i{bits}, !llvm.ptr
%change = llvm.xor %old, %new : i{bits}
%changed = llvm.or %differs, %change : i{bits}
%next = llvm.add %to, %step : i64
%more = llvm.icmp "ne" %rest, %none : i32
llvm.cond_br %more, ^lane(%rest, %next, %changed : i32, i64, i{bits}), ^end
^end:
{keeps}
%length = llvm.sub %next, %logv : i64
%kept = llvm.and %length, %keepsv : i64
%until2 = llvm.add %logv, %kept : i64
llvm.store %until2, %log : i64, !llvm.ptr
{cell("was", CHANGED)}
%is = llvm.icmp "ne" %changed, %zero : i{bits}
%becomes = llvm.select %is, %c1, %wasv : i1, i64
llvm.store %becomes, %was : i64, !llvm.ptr
llvm.return %way : i64
}}
"""


_RELATIVE = f"""%c24 = llvm.mlir.constant(24 : i64) : i64
%c56 = llvm.mlir.constant(56 : i64) : i64
%low56 = llvm.mlir.constant({(1 << 56) - 1} : i64) : i64
%start = llvm.and %extra, %low56 : i64
%rank = llvm.lshr %extra, %c56 : i64
%field = llvm.shl %rank, %c24 : i64
{spread("own", "%field")}
%relative = llvm.sub %given, %own : {I64}"""
"""Of shared memory `extra` is where the CTA's starts, and from bit 56 on the rank that its addresses have."""


def source(operation: str, space: str, bits: int, count: int) -> str:
    """Return a module with the access of some elements of each lane, and with `where`, which tells its address.

    Parameters
    ----------
    operation : str
        "load" or "store", or an atomic one with its type's letter, such as "add.u".
    space : "global" or "shared"
    bits, count : int
        Of an element, and of how many.
    """
    name, _, letter = operation.partition(".")
    counter, maps, cells = _COUNTERS["atomic" if letter else name]
    # Shared memory may be kept as a whole, and not logged.
    keeps = cell("keeps", LOGS_SHARED) if space == "shared" else "%keepsv = llvm.mlir.constant(-1 : i64) : i64"
    if letter:
        touch = _combine(name, bits, letter == "s", keeps)
    else:
        touch = _fetch(bits, count) if name == "load" else _put(bits, count, keeps)
    check = CHECK_SHARED if space == "shared" else check_global(counter, maps, cells)
    base = f"{spread('base', '%start')}\n%at = llvm.add %a, %base : {I64}" if space == "shared" else ""
    at, given = ("%at", "%relative") if space == "shared" else ("%a", "%given")
    return f"""module {{
{HERE}
{ways(bits // 8 * count)}
{check}
{touch}
llvm.func @access(%state: !llvm.ptr, %given: {I64}, %here: i32, %extra: i64, %values: !llvm.ptr) -> i64 {{
{NUMBERS}
%size = llvm.mlir.constant({bits // 8 * count} : i64) : i64
{_RELATIVE if space == "shared" else ""}
%a = llvm.call @here({given}, %here) : ({I64}, i32) -> {I64}
%way = llvm.call @check(%state, %a, %size, %extra) : (!llvm.ptr, {I64}, i64, i64) -> i64
%good = llvm.icmp "ne" %way, %c0 : i64
llvm.cond_br %good, ^go, ^bad
^go:
{base}
%done = llvm.call @touch(%state, {at}, %here, %way, %values) : (!llvm.ptr, {I64}, i32, i64, !llvm.ptr) -> i64
llvm.return %done : i64
^bad:
llvm.return %c0 : i64
}}
llvm.func @where(%out: !llvm.ptr) {{
%f = llvm.mlir.addressof @access : !llvm.ptr
llvm.store %f, %out : !llvm.ptr, !llvm.ptr
llvm.return
}}
}}"""


def _combined(operation: str, bits: int, signed: bool) -> str:
    """Compute `%new` of `%old`, the operand `%x` and, to compare and swap, the further one `%y`."""
    kind = f"i{bits}"
    if operation in ("add", "and", "or", "xor"):
        return f"%new = llvm.{operation} %old, %x : {kind}"
    if operation in ("min", "max"):
        return f'%new = "llvm.intr.{"s" if signed else "u"}{operation}"(%old, %x) : ({kind}, {kind}) -> {kind}'
    if operation == "exch":
        return f"%new = llvm.or %x, %zero : {kind}"
    if operation == "cas":
        return f'%equal = llvm.icmp "eq" %old, %x : {kind}\n%new = llvm.select %equal, %y, %old : i1, {kind}'
    if operation == "inc":
        return (
            f'%over = llvm.icmp "uge" %old, %x : {kind}\n%up = llvm.add %old, %unit : {kind}\n'
            f"%new = llvm.select %over, %zero, %up : i1, {kind}"
        )
    return (
        f'%least = llvm.icmp "eq" %old, %zero : {kind}\n%above = llvm.icmp "ugt" %old, %x : {kind}\n'
        f"%wraps = llvm.or %least, %above : i1\n%down = llvm.sub %old, %unit : {kind}\n"
        f"%new = llvm.select %wraps, %x, %down : i1, {kind}"
    )
