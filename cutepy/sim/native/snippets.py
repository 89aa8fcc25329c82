"""Templates of functions that access memory, in MLIR's dialect of LLVM.

The state is an array of 64-bit numbers, of which the constants below are the positions.
"""

from __future__ import annotations

from cutepy.sim.native.writer import LANES

FAILED, SHARED_BYTES, REGIONS, REGION_TABLE, LAST_REGION, CHANGED, LOG, LOG_END, LOGS_SHARED = range(9)
LOADED, STORED, ATOMIC = 9, 11, 13
"""Sectors; the distinct bytes follow."""
READ, WRITTEN = (REGIONS, REGION_TABLE, LAST_REGION), (15, 16, 17)
"""Places of the number, the table and the last of the regions, for loads, and for stores and atomics."""
STATE_SIZE = 18
REGION_SIZE = 4
"""Numbers of a region: its start, its end, and maps with a bit for each byte that was read, and written; 0 for none."""

KEPT = -1
"""Of LOGS_SHARED: what is stored in shared memory is logged, if it is this, and not if it is 0."""

CHECKED, FULL, GIVEN_UP = 1, 2, 3
"""Why a function failed: a check, a log that is full, or a loop that goes on for long and lanes that are missing."""

I64 = f"vector<{LANES}xi64>"
I1 = f"vector<{LANES}xi1>"
PTR = f"vector<{LANES}x!llvm.ptr>"
NEXT = ", ".join(map(str, [*range(1, LANES), LANES - 1]))
_ZEROS = ", ".join(["0"] * LANES)


def constants(**numbers: int) -> str:
    """Name numbers."""
    return "\n".join(f"%{name} = llvm.mlir.constant({number} : i64) : i64" for name, number in numbers.items())


def each(name: str, step: int) -> str:
    """Name a vector of multiples of a number."""
    values = ", ".join(str(step * n) for n in range(LANES))
    return f"%{name} = llvm.mlir.constant(dense<[{values}]> : {I64}) : {I64}"


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


def put(position: int, value: str) -> str:
    """Set a number of the state."""
    name = f"%at{position}{value.strip('%')}"
    return (
        f"{name} = llvm.getelementptr %state[{position}] : (!llvm.ptr) -> !llvm.ptr, i64\n"
        f"llvm.store {value}, {name} : i64, !llvm.ptr"
    )


def spread(name: str, scalar: str, bits: int = 64) -> str:
    """Put a number into all lanes."""
    kind = f"vector<{LANES}xi{bits}>"
    return (
        f"%{name}u = llvm.mlir.poison : {kind}\n"
        f"%{name}1 = llvm.insertelement {scalar}, %{name}u[%c0 : i64] : {kind}\n"
        f"%{name} = llvm.shufflevector %{name}1, %{name}1 [{_ZEROS}] : {kind}"
    )


def nonzero(name: str, lanes: str) -> str:
    """Count the lanes, given as bits."""
    return (
        f"%{name}b = llvm.bitcast {lanes} : {I1} to i{LANES}\n"
        f"%{name}c = llvm.intr.ctpop(%{name}b) : (i{LANES}) -> i{LANES}\n"
        f"%{name} = llvm.zext %{name}c : i{LANES} to i64"
    )


NUMBERS = constants(c0=0, c1=1, c2=2, c3=3, c5=5, c7=7, c8=8, c31=31, c32=32, c64=64, c255=255)
