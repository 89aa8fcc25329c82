"""What functions that access memory are made of, in MLIR's dialect of LLVM.

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

I64 = f"vector<{LANES}xi64>"
PTR = f"vector<{LANES}x!llvm.ptr>"
NEXT = ", ".join(map(str, [*range(1, LANES), LANES - 1]))


def constants(**numbers: int) -> str:
    """Name numbers."""
    return "\n".join(f"%{name} = llvm.mlir.constant({number} : i64) : i64" for name, number in numbers.items())


def cell(name: str, position: int) -> str:
    """Read a number of the state, and name where it is."""
    return (
        f"%{name} = llvm.getelementptr %state[{position}] : (!llvm.ptr) -> !llvm.ptr, i64\n"
        f"%{name}v = llvm.load %{name} : !llvm.ptr -> i64"
    )


def add(name: str, position: int, amount: str) -> str:
    """Add to a number of the state."""
    added = f"%{name}n = llvm.add %{name}v, {amount} : i64"
    return f"{cell(name, position)}\n{added}\nllvm.store %{name}n, %{name} : i64, !llvm.ptr"


def spread(name: str, scalar: str, bits: int = 64) -> str:
    """Put a number into all lanes."""
    kind = f"vector<{LANES}xi{bits}>"
    return (
        f"%{name}u = llvm.mlir.poison : {kind}\n"
        f"%{name}1 = llvm.insertelement {scalar}, %{name}u[%c0 : i64] : {kind}\n"
        f"%{name} = llvm.shufflevector %{name}1, %{name}1 [{', '.join(['0'] * LANES)}] : {kind}"
    )


def nonzero(name: str, lanes: str) -> str:
    """Count the lanes, given as bits."""
    return (
        f"%{name}b = llvm.bitcast {lanes} : vector<{LANES}xi1> to i{LANES}\n"
        f"%{name}c = llvm.intr.ctpop(%{name}b) : (i{LANES}) -> i{LANES}\n"
        f"%{name} = llvm.zext %{name}c : i{LANES} to i64"
    )


def steps(of: str) -> str:
    """Say how the addresses step, and how they can be taken: 1 all the same, 2 one after the other, 3 anyhow."""
    return f"""
%next = llvm.shufflevector {of}, {of} [{NEXT}] : {I64}
%d = llvm.sub %next, {of} : {I64}
%zeros = llvm.mlir.constant(dense<0> : {I64}) : {I64}
%moves = llvm.icmp "ne" %d, %zeros : {I64}
{nonzero("moved", "%moves")}
{spread("step", "%size")}
%goes = llvm.icmp "eq" %d, %step : {I64}
{nonzero("gone", "%goes")}
%same = llvm.icmp "eq" %moved, %c0 : i64
%row = llvm.icmp "eq" %gone, %c31 : i64
%way1 = llvm.select %row, %c2, %c3 : i1, i64
%way = llvm.select %same, %c1, %way1 : i1, i64
"""


NUMBERS = constants(c0=0, c1=1, c2=2, c3=3, c5=5, c7=7, c8=8, c31=31, c32=32, c64=64)
