"""Checks of addresses, as `machine.memory` checks them, and counts, as `machine.activity` counts them.

An access that fails a check sets a flag and accesses nothing. Inactive lanes have the address of an active lane.
"""

from __future__ import annotations

from cutepy.sim.native.snippets import (
    CHECKED,
    FAILED,
    I64,
    NEXT,
    NUMBERS,
    SHARED_BYTES,
    add,
    cell,
    each,
    nonzero,
    put,
    spread,
)
from cutepy.sim.native.writer import LANES


def sort_function() -> str:
    """Return a function that sorts addresses: a bitonic network."""
    lines = [f"llvm.func internal @sorted(%x0: {I64}) -> {I64} {{"]
    at = 0
    width = 2
    while width <= LANES:
        reach = width // 2
        while reach:
            partner = ", ".join(str(n ^ reach) for n in range(LANES))
            takes_less = [bool(n & reach) == bool(n & width) for n in range(LANES)]
            mask = ", ".join("true" if t else "false" for t in takes_less)
            lines.append(f"""
%p{at} = llvm.shufflevector %x{at}, %x{at} [{partner}] : {I64}
%lo{at} = "llvm.intr.umin"(%x{at}, %p{at}) : ({I64}, {I64}) -> {I64}
%hi{at} = "llvm.intr.umax"(%x{at}, %p{at}) : ({I64}, {I64}) -> {I64}
%m{at} = llvm.mlir.constant(dense<[{mask}]> : vector<{LANES}xi1>) : vector<{LANES}xi1>
%x{at + 1} = llvm.select %m{at}, %lo{at}, %hi{at} : vector<{LANES}xi1>, {I64}""")
            at += 1
            reach //= 2
        width *= 2
    return "\n".join([*lines, f"llvm.return %x{at} : {I64}\n}}"])


HERE = f"""
llvm.func internal @here(%a: {I64}, %mask: i32) -> {I64} {{
{NUMBERS}
%all = llvm.mlir.constant(-1 : i32) : i32
%whole = llvm.icmp "eq" %mask, %all : i32
llvm.cond_br %whole, ^same, ^part
^same:
llvm.return %a : {I64}
^part:
%lane = "llvm.intr.cttz"(%mask) <{{is_zero_poison = false}}> : (i32) -> i32
%chosen = llvm.extractelement %a[%lane : i32] : {I64}
{spread("one", "%chosen")}
%lanes = llvm.bitcast %mask : i32 to vector<{LANES}xi1>
%filled = llvm.select %lanes, %a, %one : vector<{LANES}xi1>, {I64}
llvm.return %filled : {I64}
}}
"""
"""Give the lanes that are not here the address of the first that is."""


def ways(size: int) -> str:
    """Return a function that says how addresses can be taken: 1 all the same, 2 one after the other, 3 anyhow."""
    return f"""
llvm.func internal @way(%a: {I64}) -> i64 {{
{NUMBERS}
{each("offsets", size)}
%zeros = llvm.mlir.constant(dense<0> : {I64}) : {I64}
%first = llvm.extractelement %a[%c0 : i64] : {I64}
{spread("base", "%first")}
%d = llvm.sub %a, %base : {I64}
%rows = llvm.icmp "ne" %d, %offsets : {I64}
%rowsb = llvm.bitcast %rows : vector<{LANES}xi1> to i{LANES}
%none = llvm.mlir.constant(0 : i{LANES}) : i{LANES}
%isrow = llvm.icmp "eq" %rowsb, %none : i{LANES}
llvm.cond_br %isrow, ^end(%c2 : i64), ^more
^more:
%moves = llvm.icmp "ne" %d, %zeros : {I64}
%movesb = llvm.bitcast %moves : vector<{LANES}xi1> to i{LANES}
%issame = llvm.icmp "eq" %movesb, %none : i{LANES}
%way = llvm.select %issame, %c1, %c3 : i1, i64
llvm.br ^end(%way : i64)
^end(%found: i64):
llvm.return %found : i64
}}
"""


MARK = f"""
llvm.func internal @mark(%map: !llvm.ptr, %offset: i64, %size: i64) {{
{NUMBERS}
llvm.br ^next(%offset, %size : i64, i64)
^next(%o: i64, %left: i64):
%byte = llvm.lshr %o, %c3 : i64
%shift = llvm.and %o, %c7 : i64
%room = llvm.sub %c8, %shift : i64
%now = "llvm.intr.umin"(%left, %room) : (i64, i64) -> i64
%one = llvm.shl %c1, %now : i64
%ones = llvm.sub %one, %c1 : i64
%bits = llvm.shl %ones, %shift : i64
%mask = llvm.trunc %bits : i64 to i8
%at = llvm.getelementptr %map[%byte] : (!llvm.ptr, i64) -> !llvm.ptr, i8
%old = llvm.load %at : !llvm.ptr -> i8
%new = llvm.or %old, %mask : i8
llvm.store %new, %at : i8, !llvm.ptr
%after = llvm.sub %left, %now : i64
%o1 = llvm.add %o, %now : i64
%more = llvm.icmp "ne" %after, %c0 : i64
llvm.cond_br %more, ^next(%o1, %after : i64, i64), ^end
^end:
llvm.return
}}
"""
"""Set bits of a map."""


def region_function(counter: int, maps: list[int], cells: tuple[int, int, int]) -> str:
    """Return a function that finds the region of an access, or fails, counts the access, and marks its run."""
    regions, table, last_region = cells
    marks = []
    for n, position in enumerate(maps):
        marks.append(f"""
%mapp{n} = llvm.getelementptr %region[{position}] : (!llvm.ptr) -> !llvm.ptr, i64
%map{n} = llvm.load %mapp{n} : !llvm.ptr -> i64
%marks{n} = llvm.icmp "ne" %map{n}, %c0 : i64
llvm.cond_br %marks{n}, ^note{n}, ^done{n}
^note{n}:
%mapptr{n} = llvm.inttoptr %map{n} : i64 to !llvm.ptr
llvm.cond_br %run, ^run{n}, ^lane{n}(%c0 : i64)
^run{n}:
%runat{n} = llvm.sub %low, %start : i64
%runsize{n} = llvm.sub %high, %low : i64
llvm.call @mark(%mapptr{n}, %runat{n}, %runsize{n}) : (!llvm.ptr, i64, i64) -> ()
llvm.br ^done{n}
^lane{n}(%l{n}: i64):
%address{n} = llvm.extractelement %a[%l{n} : i64] : {I64}
%offset{n} = llvm.sub %address{n}, %start : i64
llvm.call @mark(%mapptr{n}, %offset{n}, %size) : (!llvm.ptr, i64, i64) -> ()
%l1{n} = llvm.add %l{n}, %c1 : i64
%more{n} = llvm.icmp "ult" %l1{n}, %c32 : i64
llvm.cond_br %more{n}, ^lane{n}(%l1{n} : i64), ^done{n}
^done{n}:""")
    return f"""
llvm.func internal @found(%state: !llvm.ptr, %a: {I64}, %run: i1, %low: i64, %high: i64, %size: i64, %sectors: i64,
%distinct: i64, %counted: i64) -> i64 {{
{NUMBERS}
{cell("table", table)}
%tablep = llvm.inttoptr %tablev : i64 to !llvm.ptr
{cell("number", regions)}
{cell("cached", last_region)}
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
%sectorsc = llvm.mul %sectors, %counted : i64
%bytesc = llvm.mul %bytes, %counted : i64
{add("sum", counter, "%sectorsc")}
{add("total", counter + 1, "%bytesc")}
{"".join(marks)}
llvm.return %c1 : i64
^fail:
llvm.return %c0 : i64
}}
"""


def check_global(counter: int, maps: list[int], cells: tuple[int, int, int]) -> str:
    """Return functions that check and count an access: they return how addresses can be taken, 0 if it failed."""
    return f"""
{MARK}
{sort_function()}
{region_function(counter, maps, cells)}
llvm.func internal @check(%state: !llvm.ptr, %a: {I64}, %size: i64, %counted: i64) -> i64 {{
{NUMBERS}
%no = llvm.mlir.constant(false) : i1
%yes = llvm.mlir.constant(true) : i1
%ones = llvm.sub %size, %c1 : i64
%way = llvm.call @way(%a) : ({I64}) -> i64
%low0 = llvm.extractelement %a[%c0 : i64] : {I64}
%odd0 = llvm.and %low0, %ones : i64
%isodd0 = llvm.icmp "ne" %odd0, %c0 : i64
llvm.cond_br %isodd0, ^fail, ^whole
^whole:
%any = llvm.icmp "eq" %way, %c3 : i64
llvm.cond_br %any, ^several, ^run
^run:
%isrow = llvm.icmp "eq" %way, %c2 : i64
%lanes = llvm.select %isrow, %c32, %c1 : i1, i64
%runbytes = llvm.mul %lanes, %size : i64
%runend = llvm.add %low0, %runbytes : i64
%runlast = llvm.sub %runend, %c1 : i64
%runfrom = llvm.lshr %low0, %c5 : i64
%runto = llvm.lshr %runlast, %c5 : i64
%runs = llvm.sub %runto, %runfrom : i64
%runsectors = llvm.add %runs, %c1 : i64
llvm.br ^where(%yes, %low0, %runend, %runsectors, %lanes : i1, i64, i64, i64, i64)
^several:
%bits = "llvm.intr.vector.reduce.or"(%a) : ({I64}) -> i64
%odd = llvm.and %bits, %ones : i64
%isodd = llvm.icmp "ne" %odd, %c0 : i64
llvm.cond_br %isodd, ^fail, ^aligned
^aligned:
%next = llvm.shufflevector %a, %a [{NEXT}] : {I64}
%less = llvm.icmp "slt" %next, %a : {I64}
{nonzero("back", "%less")}
%unsorted = llvm.icmp "ne" %back, %c0 : i64
llvm.cond_br %unsorted, ^sort, ^count(%a : {I64})
^sort:
%s = llvm.call @sorted(%a) : ({I64}) -> {I64}
llvm.br ^count(%s : {I64})
^count(%in: {I64}):
%following = llvm.shufflevector %in, %in [{NEXT}] : {I64}
%steps = llvm.icmp "ne" %following, %in : {I64}
{nonzero("moved", "%steps")}
%first = llvm.extractelement %in[%c0 : i64] : {I64}
%final = llvm.extractelement %in[%c31 : i64] : {I64}
%fives = llvm.mlir.constant(dense<5> : {I64}) : {I64}
%sectors = llvm.lshr %in, %fives : {I64}
%sectorsn = llvm.shufflevector %sectors, %sectors [{NEXT}] : {I64}
%crosses = llvm.icmp "ne" %sectors, %sectorsn : {I64}
{nonzero("crossed", "%crosses")}
%sectorsm = llvm.add %crossed, %c1 : i64
%distinctm = llvm.add %moved, %c1 : i64
%high = llvm.add %final, %size : i64
llvm.br ^where(%no, %first, %high, %sectorsm, %distinctm : i1, i64, i64, i64, i64)
^where(%isrun: i1, %low: i64, %top: i64, %sectors1: i64, %distinct: i64):
%ok = llvm.call @found(%state, %a, %isrun, %low, %top, %size, %sectors1, %distinct, %counted)
: (!llvm.ptr, {I64}, i1, i64, i64, i64, i64, i64, i64) -> i64
%isok = llvm.icmp "ne" %ok, %c0 : i64
llvm.cond_br %isok, ^done, ^fail
^done:
llvm.return %way : i64
^fail:
%why = llvm.mlir.constant({CHECKED} : i64) : i64
{put(FAILED, "%why")}
llvm.return %c0 : i64
}}
"""


CHECK_SHARED = f"""
llvm.func internal @check(%state: !llvm.ptr, %a: {I64}, %size: i64, %counted: i64) -> i64 {{
{NUMBERS}
{cell("limit", SHARED_BYTES)}
%way = llvm.call @way(%a) : ({I64}) -> i64
%bits = "llvm.intr.vector.reduce.or"(%a) : ({I64}) -> i64
%last = "llvm.intr.vector.reduce.umax"(%a) : ({I64}) -> i64
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
%why = llvm.mlir.constant({CHECKED} : i64) : i64
{put(FAILED, "%why")}
llvm.return %c0 : i64
}}
"""
