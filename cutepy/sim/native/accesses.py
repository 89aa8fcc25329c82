"""Checked accesses of a warp's lanes to memory, in MLIR's dialect of LLVM.

Addresses are those of 32 lanes; where fewer are here, the others repeat the last. Each access is checked as
`machine.memory` does and counted as `machine.traffic` does; what fails a check notes so, and touches nothing.

The state is an array of 64-bit numbers, of which the constants below are the positions.
"""

from __future__ import annotations

from cutepy.sim.native.writer import LANES

FAILED, SHARED_BYTES, SHARED_BASE, REGIONS, REGION_TABLE, LAST_REGION = range(6)
LOADED, STORED = 6, 8
"""Sectors; the distinct bytes follow."""
STATE_SIZE = 10
REGION_SIZE = 4
"""Numbers of a region: its start, its end, and maps with a bit for each byte that was read, and written; 0 for none."""

_I64 = f"vector<{LANES}xi64>"
_PTR = f"vector<{LANES}x!llvm.ptr>"
_NEXT = ", ".join(map(str, [*range(1, LANES), LANES - 1]))
_COUNTS = (1, 2, 4, 8)


def _constants(**numbers: int) -> str:
    return "\n".join(f"%{name} = llvm.mlir.constant({number} : i64) : i64" for name, number in numbers.items())


def _cell(name: str, position: int) -> str:
    return (
        f"%{name} = llvm.getelementptr %state[{position}] : (!llvm.ptr) -> !llvm.ptr, i64\n"
        f"%{name}v = llvm.load %{name} : !llvm.ptr -> i64"
    )


def _add(name: str, position: int, amount: str) -> str:
    added = f"%{name}n = llvm.add %{name}v, {amount} : i64"
    return f"{_cell(name, position)}\n{added}\nllvm.store %{name}n, %{name} : i64, !llvm.ptr"


def _spread(name: str, scalar: str, bits: int = 64) -> str:
    kind = f"vector<{LANES}xi{bits}>"
    return (
        f"%{name}u = llvm.mlir.poison : {kind}\n"
        f"%{name}1 = llvm.insertelement {scalar}, %{name}u[%c0 : i64] : {kind}\n"
        f"%{name} = llvm.shufflevector %{name}1, %{name}1 [{', '.join(['0'] * LANES)}] : {kind}"
    )


def _nonzero(name: str, lanes: str) -> str:
    """Count the lanes, given as bits."""
    return (
        f"%{name}b = llvm.bitcast {lanes} : vector<{LANES}xi1> to i{LANES}\n"
        f"%{name}c = llvm.intr.ctpop(%{name}b) : (i{LANES}) -> i{LANES}\n"
        f"%{name} = llvm.zext %{name}c : i{LANES} to i64"
    )


def _steps(of: str) -> str:
    """Say how the addresses step, and how they can be taken: 1 all the same, 2 one after the other, 3 anyhow."""
    return f"""
%next = llvm.shufflevector {of}, {of} [{_NEXT}] : {_I64}
%d = llvm.sub %next, {of} : {_I64}
%zeros = llvm.mlir.constant(dense<0> : {_I64}) : {_I64}
%moves = llvm.icmp "ne" %d, %zeros : {_I64}
{_nonzero("moved", "%moves")}
{_spread("step", "%size")}
%goes = llvm.icmp "eq" %d, %step : {_I64}
{_nonzero("gone", "%goes")}
%same = llvm.icmp "eq" %moved, %c0 : i64
%row = llvm.icmp "eq" %gone, %c31 : i64
%way1 = llvm.select %row, %c2, %c3 : i1, i64
%way = llvm.select %same, %c1, %way1 : i1, i64
"""


def _sorted() -> str:
    """Return a function that sorts addresses: a bitonic network."""
    lines = [f"llvm.func internal @sorted(%x0: {_I64}) -> {_I64} {{"]
    at = 0
    width = 2
    while width <= LANES:
        reach = width // 2
        while reach:
            partner = ", ".join(str(n ^ reach) for n in range(LANES))
            takes_less = [bool(n & reach) == bool(n & width) for n in range(LANES)]
            mask = ", ".join("true" if t else "false" for t in takes_less)
            lines.append(f"""
%p{at} = llvm.shufflevector %x{at}, %x{at} [{partner}] : {_I64}
%lo{at} = "llvm.intr.umin"(%x{at}, %p{at}) : ({_I64}, {_I64}) -> {_I64}
%hi{at} = "llvm.intr.umax"(%x{at}, %p{at}) : ({_I64}, {_I64}) -> {_I64}
%m{at} = llvm.mlir.constant(dense<[{mask}]> : vector<{LANES}xi1>) : vector<{LANES}xi1>
%x{at + 1} = llvm.select %m{at}, %lo{at}, %hi{at} : vector<{LANES}xi1>, {_I64}""")
            at += 1
            reach //= 2
        width *= 2
    return "\n".join([*lines, f"llvm.return %x{at} : {_I64}\n}}"])


_NUMBERS = _constants(c0=0, c1=1, c2=2, c3=3, c5=5, c7=7, c8=8, c31=31, c32=32, c64=64)

_MARK = f"""
llvm.func internal @mark(%map: !llvm.ptr, %offset: i64, %size: i64) {{
{_NUMBERS}
%i8mask = llvm.mlir.constant(255 : i64) : i64
%byte = llvm.lshr %offset, %c3 : i64
%shift = llvm.and %offset, %c7 : i64
%one = llvm.shl %c1, %size : i64
%ones = llvm.sub %one, %c1 : i64
%bits = llvm.shl %ones, %shift : i64
%large = llvm.icmp "ugt" %size, %c7 : i64
%at = llvm.getelementptr %map[%byte] : (!llvm.ptr, i64) -> !llvm.ptr, i8
llvm.cond_br %large, ^many(%c0 : i64), ^few
^few:
%mask = llvm.trunc %bits : i64 to i8
%old = llvm.load %at : !llvm.ptr -> i8
%new = llvm.or %old, %mask : i8
llvm.store %new, %at : i8, !llvm.ptr
llvm.return
^many(%k: i64):
%place = llvm.getelementptr %at[%k] : (!llvm.ptr, i64) -> !llvm.ptr, i8
%full = llvm.trunc %i8mask : i64 to i8
llvm.store %full, %place : i8, !llvm.ptr
%k1 = llvm.add %k, %c1 : i64
%done = llvm.shl %k1, %c3 : i64
%more = llvm.icmp "ult" %done, %size : i64
llvm.cond_br %more, ^many(%k1 : i64), ^end
^end:
llvm.return
}}
"""


def _check_global(name: str, counter: int, map_at: int) -> str:
    """Check and count an access: returns how the addresses step, 0 if the access failed."""
    return f"""
llvm.func internal @{name}(%state: !llvm.ptr, %a: {_I64}, %size: i64, %counted: i64) -> i64 {{
{_NUMBERS}
{_steps("%a")}
%low0 = llvm.extractelement %a[%c0 : i64] : {_I64}
%end0 = llvm.extractelement %a[%c31 : i64] : {_I64}
%ones = llvm.sub %size, %c1 : i64
%odd0 = llvm.and %low0, %ones : i64
%isodd0 = llvm.icmp "ne" %odd0, %c0 : i64
llvm.cond_br %isodd0, ^fail, ^whole
^whole:
llvm.cond_br %same, ^where(%low0, %end0, %c1, %c1 : i64, i64, i64, i64), ^several
^several:
%less = llvm.icmp "slt" %d, %zeros : {_I64}
{_nonzero("back", "%less")}
%bits = "llvm.intr.vector.reduce.or"(%a) : ({_I64}) -> i64
%odd = llvm.and %bits, %ones : i64
%isodd = llvm.icmp "ne" %odd, %c0 : i64
llvm.cond_br %isodd, ^fail, ^aligned
^aligned:
%unsorted = llvm.icmp "ne" %back, %c0 : i64
llvm.cond_br %unsorted, ^sort, ^count(%a, %moved : {_I64}, i64)
^sort:
%s = llvm.call @sorted(%a) : ({_I64}) -> {_I64}
%snext = llvm.shufflevector %s, %s [{_NEXT}] : {_I64}
%smoves = llvm.icmp "ne" %snext, %s : {_I64}
{_nonzero("smoved", "%smoves")}
llvm.br ^count(%s, %smoved : {_I64}, i64)
^count(%in: {_I64}, %changes: i64):
%first = llvm.extractelement %in[%c0 : i64] : {_I64}
%final = llvm.extractelement %in[%c31 : i64] : {_I64}
%fives = llvm.mlir.constant(dense<5> : {_I64}) : {_I64}
%sectors = llvm.lshr %in, %fives : {_I64}
%sectorsn = llvm.shufflevector %sectors, %sectors [{_NEXT}] : {_I64}
%crosses = llvm.icmp "ne" %sectors, %sectorsn : {_I64}
{_nonzero("crossed", "%crosses")}
%sectorsm = llvm.add %crossed, %c1 : i64
%distinctm = llvm.add %changes, %c1 : i64
llvm.br ^where(%first, %final, %sectorsm, %distinctm : i64, i64, i64, i64)
^where(%low: i64, %last: i64, %sectors1: i64, %distinct: i64):
%high = llvm.add %last, %size : i64
{_cell("table", REGION_TABLE)}
%tablep = llvm.inttoptr %tablev : i64 to !llvm.ptr
{_cell("number", REGIONS)}
{_cell("cached", LAST_REGION)}
llvm.br ^try(%cachedv, %c0 : i64, i64)
^try(%n: i64, %tried: i64):
%entry = llvm.mul %n, %c32 : i64
%region = llvm.getelementptr %tablep[%entry] : (!llvm.ptr, i64) -> !llvm.ptr, i8
%start = llvm.load %region : !llvm.ptr -> i64
%endp = llvm.getelementptr %region[1] : (!llvm.ptr) -> !llvm.ptr, i64
%end = llvm.load %endp : !llvm.ptr -> i64
%ok1 = llvm.icmp "uge" %low, %start : i64
%ok2 = llvm.icmp "ule" %high, %end : i64
%ok12 = llvm.and %ok1, %ok2 : i1
%ok3 = llvm.icmp "ult" %low, %high : i64
%ok = llvm.and %ok12, %ok3 : i1
llvm.cond_br %ok, ^found, ^other
^other:
%all = llvm.icmp "uge" %tried, %numberv : i64
%n1 = llvm.add %tried, %c1 : i64
llvm.cond_br %all, ^fail, ^try(%tried, %n1 : i64, i64)
^found:
llvm.store %n, %cached : i64, !llvm.ptr
%bytes = llvm.mul %distinct, %size : i64
%sectorsc = llvm.mul %sectors1, %counted : i64
%bytesc = llvm.mul %bytes, %counted : i64
{_add("sum", counter, "%sectorsc")}
{_add("total", counter + 1, "%bytesc")}
%mapp = llvm.getelementptr %region[{map_at}] : (!llvm.ptr) -> !llvm.ptr, i64
%map = llvm.load %mapp : !llvm.ptr -> i64
%marks = llvm.icmp "ne" %map, %c0 : i64
llvm.cond_br %marks, ^note, ^done
^note:
%mapptr = llvm.inttoptr %map : i64 to !llvm.ptr
%marked = llvm.select %same, %c1, %c32 : i1, i64
llvm.br ^lane(%c0 : i64)
^lane(%l: i64):
%address = llvm.extractelement %a[%l : i64] : {_I64}
%offset = llvm.sub %address, %start : i64
llvm.call @mark(%mapptr, %offset, %size) : (!llvm.ptr, i64, i64) -> ()
%l1 = llvm.add %l, %c1 : i64
%more = llvm.icmp "ult" %l1, %marked : i64
llvm.cond_br %more, ^lane(%l1 : i64), ^done
^done:
llvm.return %way : i64
^fail:
{_cell("failed", FAILED)}
llvm.store %c1, %failed : i64, !llvm.ptr
llvm.return %c0 : i64
}}
"""


_CHECK_SHARED = f"""
llvm.func internal @check_shared(%state: !llvm.ptr, %a: {_I64}, %size: i64) -> i64 {{
{_NUMBERS}
{_steps("%a")}
{_cell("limit", SHARED_BYTES)}
%bits = "llvm.intr.vector.reduce.or"(%a) : ({_I64}) -> i64
%last = "llvm.intr.vector.reduce.umax"(%a) : ({_I64}) -> i64
%ones = llvm.sub %size, %c1 : i64
%odd = llvm.and %bits, %ones : i64
%bad1 = llvm.icmp "ne" %odd, %c0 : i64
%bad2 = llvm.icmp "ugt" %last, %limitv : i64
%top = llvm.add %last, %size : i64
%bad3 = llvm.icmp "ugt" %top, %limitv : i64
%bad12 = llvm.or %bad1, %bad2 : i1
%bad = llvm.or %bad12, %bad3 : i1
llvm.cond_br %bad, ^fail, ^done
^done:
llvm.return %way : i64
^fail:
{_cell("failed", FAILED)}
llvm.store %c1, %failed : i64, !llvm.ptr
llvm.return %c0 : i64
}}
"""


def _fetch(bits: int, count: int) -> str:
    """Load elements at checked addresses: `count` vectors, which are written one after the other."""
    kind, whole = f"vector<{LANES}xi{bits}>", f"vector<{LANES * count}xi{bits}>"
    lines = [
        f"llvm.func internal @fetch(%a: {_I64}, %way: i64, %out: !llvm.ptr) {{",
        _NUMBERS,
        f"%first = llvm.extractelement %a[%c0 : i64] : {_I64}",
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
            _spread(f"sw{n}", f"%sv{n}", bits),
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
            f"%ao{n} = llvm.mlir.constant(dense<{n * bits // 8}> : {_I64}) : {_I64}",
            f"%aa{n} = llvm.add %a, %ao{n} : {_I64}",
            f"%ap{n} = llvm.inttoptr %aa{n} : {_I64} to {_PTR}",
            f"%av{n} = llvm.intr.masked.gather %ap{n}, %mask, %pass {{alignment = {bits // 8} : i32}} : "
            f"({_PTR}, vector<{LANES}xi1>, {kind}) -> {kind}",
            f"%ag{n} = llvm.getelementptr %out[{n}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
            f"llvm.store %av{n}, %ag{n} {{alignment = 8 : i64}} : {kind}, !llvm.ptr",
        ]
    return "\n".join([*lines, "llvm.return", "^end:", "llvm.return", "}"])


def _put(bits: int, count: int) -> str:
    """Store elements of the first `%here` lanes at checked addresses, of lanes that hit the same the last one's."""
    kind, whole = f"vector<{LANES}xi{bits}>", f"vector<{LANES * count}xi{bits}>"
    lanes = ", ".join(map(str, range(LANES)))
    lines = [
        f"llvm.func internal @put(%a: {_I64}, %here: i64, %from: !llvm.ptr) {{",
        _NUMBERS,
        f"%size = llvm.mlir.constant({bits // 8 * count} : i64) : i64",
        _steps("%a"),
        f"%first = llvm.extractelement %a[%c0 : i64] : {_I64}",
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
        f"%lane = llvm.mlir.constant(dense<[{lanes}]> : {_I64}) : {_I64}",
        _spread("until", "%here"),
        f'%mask = llvm.icmp "ult" %lane, %until : {_I64}',
    ]
    for n in range(count):
        lines += [
            f"%ao{n} = llvm.mlir.constant(dense<{n * bits // 8}> : {_I64}) : {_I64}",
            f"%aa{n} = llvm.add %a, %ao{n} : {_I64}",
            f"%ap{n} = llvm.inttoptr %aa{n} : {_I64} to {_PTR}",
            f"llvm.intr.masked.scatter %v{n}, %ap{n}, %mask {{alignment = {bits // 8} : i32}} : "
            f"{kind}, vector<{LANES}xi1> into {_PTR}",
        ]
    return "\n".join([*lines, "llvm.return", "}"])


LOAD_TYPE = f"(!llvm.ptr, {_I64}, i64, !llvm.ptr) -> ()"
STORE_TYPE = f"({_I64}, i64, !llvm.ptr) -> ()"


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
        parts.append(_CHECK_SHARED)
        call = f"%way = llvm.call @check_shared(%state, %a, %size) : (!llvm.ptr, {_I64}, i64) -> i64"
    else:
        counter, map_at = (LOADED, 2) if operation == "load" else (STORED, 3)
        parts += [_sorted(), _MARK, _check_global("check", counter, map_at)]
        call = f"%way = llvm.call @check(%state, %a, %size, %counted) : (!llvm.ptr, {_I64}, i64, i64) -> i64"
    body = [
        f"llvm.func @access(%state: !llvm.ptr, %a: {_I64}, %counted: i64, %out: !llvm.ptr) {{",
        f"%size = llvm.mlir.constant({size} : i64) : i64",
        "%c0 = llvm.mlir.constant(0 : i64) : i64",
        call,
    ]
    if operation == "load":
        parts.append(_fetch(bits, count))
        where = "%a"
        if space == "shared":
            # `counted` is where the CTA's shared memory starts.
            body += [_spread("base", "%counted"), f"%absolute = llvm.add %a, %base : {_I64}"]
            where = "%absolute"
        body.append(f"llvm.call @fetch({where}, %way, %out) : ({_I64}, i64, !llvm.ptr) -> ()")
    body += ["llvm.return", "}", _reports("access")]
    return "\n".join(["module {", *parts, *body, "}"])
