"""Checked accesses of a warp's lanes to memory, in MLIR's dialect of LLVM.

Addresses are those of 32 lanes; where fewer are here, the others repeat the last.
"""

from __future__ import annotations

from cutepy.sim.native.checks import CHECK_SHARED, MARK, check_global, sort_function
from cutepy.sim.native.snippets import I64, LOADED, NUMBERS, PTR, STORED, spread, steps
from cutepy.sim.native.writer import LANES

LOAD_TYPE = f"(!llvm.ptr, {I64}, i64, !llvm.ptr) -> ()"
STORE_TYPE = f"({I64}, i64, !llvm.ptr) -> ()"


def _fetch(bits: int, count: int) -> str:
    """Load elements at checked addresses: `count` vectors, which are written one after the other."""
    kind, whole = f"vector<{LANES}xi{bits}>", f"vector<{LANES * count}xi{bits}>"
    lines = [
        f"llvm.func internal @fetch(%a: {I64}, %way: i64, %out: !llvm.ptr) {{",
        NUMBERS,
        f"%first = llvm.extractelement %a[%c0 : i64] : {I64}",
        "%at = llvm.inttoptr %first : i64 to !llvm.ptr",
        f"%mask = llvm.mlir.constant(dense<true> : vector<{LANES}xi1>) : vector<{LANES}xi1>",
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
    lines += ["llvm.return", "^row:"]
    lines.append(f"%rv = llvm.load %at {{alignment = {bits // 8} : i64}} : !llvm.ptr -> {whole}")
    for n in range(count):
        picks = ", ".join(str(lane * count + n) for lane in range(LANES))
        lines += [
            f"%rw{n} = llvm.shufflevector %rv, %rv [{picks}] : {whole}",
            f"%ro{n} = llvm.getelementptr %out[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"llvm.store %rw{n}, %ro{n} {{alignment = 8 : i64}} : {kind}, !llvm.ptr",
        ]
    lines += ["llvm.return", "^any:"]
    for n in range(count):
        lines += [
            f"%ao{n} = llvm.mlir.constant(dense<{n * bits // 8}> : {I64}) : {I64}",
            f"%aa{n} = llvm.add %a, %ao{n} : {I64}",
            f"%ap{n} = llvm.inttoptr %aa{n} : {I64} to {PTR}",
            f"%av{n} = llvm.intr.masked.gather %ap{n}, %mask, %pass {{alignment = {bits // 8} : i32}} : "
            f"({PTR}, vector<{LANES}xi1>, {kind}) -> {kind}",
            f"%ag{n} = llvm.getelementptr %out[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"llvm.store %av{n}, %ag{n} {{alignment = 8 : i64}} : {kind}, !llvm.ptr",
        ]
    return "\n".join([*lines, "llvm.return", "^end:", "llvm.return", "}"])


def _put(bits: int, count: int) -> str:
    """Store elements of the first `%here` lanes at checked addresses, of lanes that hit the same the last one's."""
    kind, whole = f"vector<{LANES}xi{bits}>", f"vector<{LANES * count}xi{bits}>"
    lanes = ", ".join(map(str, range(LANES)))
    lines = [
        f"llvm.func internal @put(%a: {I64}, %here: i64, %from: !llvm.ptr) {{",
        NUMBERS,
        f"%size = llvm.mlir.constant({bits // 8 * count} : i64) : i64",
        steps("%a"),
        f"%first = llvm.extractelement %a[%c0 : i64] : {I64}",
        "%at = llvm.inttoptr %first : i64 to !llvm.ptr",
    ]
    for n in range(count):
        lines += [
            f"%p{n} = llvm.getelementptr %from[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"%v{n} = llvm.load %p{n} {{alignment = 8 : i64}} : !llvm.ptr -> {kind}",
        ]
    lines += [
        '%whole = llvm.icmp "eq" %here, %c32 : i64',
        '%isrow = llvm.icmp "eq" %way, %c2 : i64',
        "%fast = llvm.and %whole, %isrow : i1",
        "llvm.cond_br %fast, ^row, ^any",
        "^row:",
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
        "llvm.return",
        "^any:",
        f"%lane = llvm.mlir.constant(dense<[{lanes}]> : {I64}) : {I64}",
        spread("until", "%here"),
        f'%mask = llvm.icmp "ult" %lane, %until : {I64}',
    ]
    for n in range(count):
        lines += [
            f"%ao{n} = llvm.mlir.constant(dense<{n * bits // 8}> : {I64}) : {I64}",
            f"%aa{n} = llvm.add %a, %ao{n} : {I64}",
            f"%ap{n} = llvm.inttoptr %aa{n} : {I64} to {PTR}",
            f"llvm.intr.masked.scatter %v{n}, %ap{n}, %mask {{alignment = {bits // 8} : i32}} : "
            f"{kind}, vector<{LANES}xi1> into {PTR}",
        ]
    return "\n".join([*lines, "llvm.return", "}"])


def _reports(name: str) -> str:
    """Return a function that tells where another one is."""
    return (
        f"llvm.func @where(%out: !llvm.ptr) {{\n%f = llvm.mlir.addressof @{name} : !llvm.ptr\n"
        "llvm.store %f, %out : !llvm.ptr, !llvm.ptr\nllvm.return\n}"
    )


def source(operation: str, space: str, bits: int, count: int) -> str:
    """Return a module with the access of some elements of each lane, and with `where`, which tells its address.

    Parameters
    ----------
    operation : "load", "check_store" or "store"
        A store is checked for all lanes before any is done.
    space : "global", "const" or "shared"
    bits, count : int
        Of an element, and of how many.
    """
    size = bits // 8 * count
    if operation == "store":
        return f"module {{\n{_put(bits, count)}\n{_reports('put')}\n}}"
    parts = []
    if space == "shared":
        parts.append(CHECK_SHARED)
        call = f"%way = llvm.call @check_shared(%state, %a, %size) : (!llvm.ptr, {I64}, i64) -> i64"
    else:
        counter, map_at = (LOADED, 2) if operation == "load" else (STORED, 3)
        parts += [sort_function(), MARK, check_global("check", counter, map_at)]
        call = f"%way = llvm.call @check(%state, %a, %size, %counted) : (!llvm.ptr, {I64}, i64, i64) -> i64"
    body = [
        f"llvm.func @access(%state: !llvm.ptr, %a: {I64}, %counted: i64, %out: !llvm.ptr) {{",
        f"%size = llvm.mlir.constant({size} : i64) : i64",
        "%c0 = llvm.mlir.constant(0 : i64) : i64",
        call,
    ]
    if operation == "load":
        parts.append(_fetch(bits, count))
        where = "%a"
        if space == "shared":
            # `counted` is where the CTA's shared memory starts.
            body += [spread("base", "%counted"), f"%absolute = llvm.add %a, %base : {I64}"]
            where = "%absolute"
        body.append(f"llvm.call @fetch({where}, %way, %out) : ({I64}, i64, !llvm.ptr) -> ()")
    body += ["llvm.return", "}", _reports("access")]
    return "\n".join(["module {", *parts, *body, "}"])
