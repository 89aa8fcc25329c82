"""Checks of addresses, as `machine.memory` checks them, and counts, as `machine.traffic` counts them.

What fails a check notes so, and touches nothing.
"""

from __future__ import annotations

from cutepy.sim.native.snippets import (
    FAILED,
    I64,
    LAST_REGION,
    NEXT,
    NUMBERS,
    REGION_TABLE,
    REGIONS,
    SHARED_BYTES,
    add,
    cell,
    nonzero,
    steps,
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


MARK = f"""
llvm.func internal @mark(%map: !llvm.ptr, %offset: i64, %size: i64) {{
{NUMBERS}
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


def check_global(name: str, counter: int, map_at: int) -> str:
    """Check and count an access: returns how the addresses step, 0 if the access failed."""
    return f"""
llvm.func internal @{name}(%state: !llvm.ptr, %a: {I64}, %size: i64, %counted: i64) -> i64 {{
{NUMBERS}
{steps("%a")}
%low0 = llvm.extractelement %a[%c0 : i64] : {I64}
%end0 = llvm.extractelement %a[%c31 : i64] : {I64}
%ones = llvm.sub %size, %c1 : i64
%odd0 = llvm.and %low0, %ones : i64
%isodd0 = llvm.icmp "ne" %odd0, %c0 : i64
llvm.cond_br %isodd0, ^fail, ^whole
^whole:
llvm.cond_br %same, ^where(%low0, %end0, %c1, %c1 : i64, i64, i64, i64), ^several
^several:
%less = llvm.icmp "slt" %d, %zeros : {I64}
{nonzero("back", "%less")}
%bits = "llvm.intr.vector.reduce.or"(%a) : ({I64}) -> i64
%odd = llvm.and %bits, %ones : i64
%isodd = llvm.icmp "ne" %odd, %c0 : i64
llvm.cond_br %isodd, ^fail, ^aligned
^aligned:
%unsorted = llvm.icmp "ne" %back, %c0 : i64
llvm.cond_br %unsorted, ^sort, ^count(%a, %moved : {I64}, i64)
^sort:
%s = llvm.call @sorted(%a) : ({I64}) -> {I64}
%snext = llvm.shufflevector %s, %s [{NEXT}] : {I64}
%smoves = llvm.icmp "ne" %snext, %s : {I64}
{nonzero("smoved", "%smoves")}
llvm.br ^count(%s, %smoved : {I64}, i64)
^count(%in: {I64}, %changes: i64):
%first = llvm.extractelement %in[%c0 : i64] : {I64}
%final = llvm.extractelement %in[%c31 : i64] : {I64}
%fives = llvm.mlir.constant(dense<5> : {I64}) : {I64}
%sectors = llvm.lshr %in, %fives : {I64}
%sectorsn = llvm.shufflevector %sectors, %sectors [{NEXT}] : {I64}
%crosses = llvm.icmp "ne" %sectors, %sectorsn : {I64}
{nonzero("crossed", "%crosses")}
%sectorsm = llvm.add %crossed, %c1 : i64
%distinctm = llvm.add %changes, %c1 : i64
llvm.br ^where(%first, %final, %sectorsm, %distinctm : i64, i64, i64, i64)
^where(%low: i64, %last: i64, %sectors1: i64, %distinct: i64):
%high = llvm.add %last, %size : i64
{cell("table", REGION_TABLE)}
%tablep = llvm.inttoptr %tablev : i64 to !llvm.ptr
{cell("number", REGIONS)}
{cell("cached", LAST_REGION)}
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
{add("sum", counter, "%sectorsc")}
{add("total", counter + 1, "%bytesc")}
%mapp = llvm.getelementptr %region[{map_at}] : (!llvm.ptr) -> !llvm.ptr, i64
%map = llvm.load %mapp : !llvm.ptr -> i64
%marks = llvm.icmp "ne" %map, %c0 : i64
llvm.cond_br %marks, ^note, ^done
^note:
%mapptr = llvm.inttoptr %map : i64 to !llvm.ptr
%marked = llvm.select %same, %c1, %c32 : i1, i64
llvm.br ^lane(%c0 : i64)
^lane(%l: i64):
%address = llvm.extractelement %a[%l : i64] : {I64}
%offset = llvm.sub %address, %start : i64
llvm.call @mark(%mapptr, %offset, %size) : (!llvm.ptr, i64, i64) -> ()
%l1 = llvm.add %l, %c1 : i64
%more = llvm.icmp "ult" %l1, %marked : i64
llvm.cond_br %more, ^lane(%l1 : i64), ^done
^done:
llvm.return %way : i64
^fail:
{cell("failed", FAILED)}
llvm.store %c1, %failed : i64, !llvm.ptr
llvm.return %c0 : i64
}}
"""


CHECK_SHARED = f"""
llvm.func internal @check_shared(%state: !llvm.ptr, %a: {I64}, %size: i64) -> i64 {{
{NUMBERS}
{steps("%a")}
{cell("limit", SHARED_BYTES)}
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
{cell("failed", FAILED)}
llvm.store %c1, %failed : i64, !llvm.ptr
llvm.return %c0 : i64
}}
"""
