"""Undo log of stores: the bytes that a region has replaced, and their restoration, in MLIR's dialect of LLVM.

A record ends with its head: its kind, and above the first byte a size. It is read from its end.
"""

from __future__ import annotations

from cutepy.sim.native.snippets import constants
from cutepy.sim.native.writer import LANES

ROW, LANE = 1, 2
"""So many bytes, and the address where they were; or elements of so many bits, addresses, and the lanes' mask."""

UNDO = f"""module {{
llvm.func @undo(%arguments: !llvm.ptr) {{
{constants(c0=0, c1=1, c2=2, c3=3, c7=7, c8=8, c16=16, lanes=LANES, addresses=8 * LANES, kinds=255)}
%start = llvm.load %arguments : !llvm.ptr -> i64
%endp = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
%end = llvm.load %endp : !llvm.ptr -> i64
llvm.br ^record(%end : i64)
^record(%at: i64):
%some = llvm.icmp "ugt" %at, %start : i64
llvm.cond_br %some, ^one, ^done
^one:
%headat = llvm.sub %at, %c8 : i64
%headp = llvm.inttoptr %headat : i64 to !llvm.ptr
%head = llvm.load %headp : !llvm.ptr -> i64
%kind = llvm.and %head, %kinds : i64
%size = llvm.lshr %head, %c8 : i64
%secondat = llvm.sub %at, %c16 : i64
%secondp = llvm.inttoptr %secondat : i64 to !llvm.ptr
%second = llvm.load %secondp : !llvm.ptr -> i64
%isrow = llvm.icmp "eq" %kind, %c1 : i64
llvm.cond_br %isrow, ^row, ^lanes
^row:
%padded = llvm.add %size, %c7 : i64
%words = llvm.lshr %padded, %c3 : i64
%bytes = llvm.shl %words, %c3 : i64
%dataat = llvm.sub %secondat, %bytes : i64
%data = llvm.inttoptr %dataat : i64 to !llvm.ptr
%to = llvm.inttoptr %second : i64 to !llvm.ptr
"llvm.intr.memcpy"(%to, %data, %size) <{{isVolatile = false}}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
llvm.br ^record(%dataat : i64)
^lanes:
%element = llvm.lshr %size, %c3 : i64
%placesat = llvm.sub %secondat, %addresses : i64
%places = llvm.inttoptr %placesat : i64 to !llvm.ptr
%all = llvm.mul %element, %lanes : i64
%oldsat = llvm.sub %placesat, %all : i64
llvm.br ^lane(%second, %c0 : i64, i64)
^lane(%mask: i64, %n: i64):
%bit = llvm.and %mask, %c1 : i64
%is = llvm.icmp "ne" %bit, %c0 : i64
llvm.cond_br %is, ^put, ^next
^put:
%placep = llvm.getelementptr %places[%n] : (!llvm.ptr, i64) -> !llvm.ptr, i64
%place = llvm.load %placep : !llvm.ptr -> i64
%topl = llvm.inttoptr %place : i64 to !llvm.ptr
%offset = llvm.mul %n, %element : i64
%oldat = llvm.add %oldsat, %offset : i64
%old = llvm.inttoptr %oldat : i64 to !llvm.ptr
"llvm.intr.memcpy"(%topl, %old, %element) <{{isVolatile = false}}> : (!llvm.ptr, !llvm.ptr, i64) -> ()
llvm.br ^next
^next:
%rest = llvm.lshr %mask, %c1 : i64
%n1 = llvm.add %n, %c1 : i64
%more = llvm.icmp "ne" %rest, %c0 : i64
llvm.cond_br %more, ^lane(%rest, %n1 : i64, i64), ^over
^over:
llvm.br ^record(%oldsat : i64)
^done:
llvm.return
}}
}}"""
"""Put back what is in the log from an address up to another, the last first."""
