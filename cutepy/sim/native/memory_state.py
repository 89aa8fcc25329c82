"""Memory of a machine as machine code sees it: regions, counts, and the bytes that its stores replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.native import compiler
from cutepy.sim.native.log import UNDO
from cutepy.sim.native.snippets import (
    ATOMIC,
    CHANGED,
    FAILED,
    KEPT,
    LOADED,
    LOG,
    LOG_END,
    LOGS_SHARED,
    READ,
    REGION_SIZE,
    SHARED_BYTES,
    STATE_SIZE,
    STORED,
    WRITTEN,
)

if TYPE_CHECKING:
    from cutepy.sim.engine import Engine

_LOG_BYTES = 1 << 28
"""Of the log: address space, of which what is used becomes memory."""

_KINDS = (("load", LOADED), ("store", STORED), ("atomic", ATOMIC))
_log: list[Any] = []


def address_of(array: Any) -> int:  # noqa: ANN401
    """Return the address of an array."""
    return int(array.__array_interface__["data"][0])


class MemoryState:
    """Array of 64-bit numbers that describes the memory of a machine to compiled functions.

    Attributes
    ----------
    address : int
        Address of the array.
    counts : array of int
        Executions of each block, counted in warps; the last element counts divergences of a warp.
    """

    def __init__(self, m: Engine) -> None:
        self._traffic, self._shared = m.activity.traffic, m.memory.shared
        if not _log:
            _log.append(np.empty(_LOG_BYTES, np.uint8))
        self._numbers = np.zeros(STATE_SIZE, np.int64)
        self.address = address_of(self._numbers)
        self.counts = np.zeros(len(m.program.blocks) + 1, np.int64)
        self.counts_address = address_of(self.counts)
        ranges = m.memory.known.ranges()
        self._regions = np.zeros((max(1, len(ranges)), REGION_SIZE), np.int64)
        self._maps = [m.activity.traffic.maps(start, end) for start, end in ranges]
        for n, (start, end) in enumerate(ranges):
            self._regions[n] = start, end, *(0 if x is None else address_of(x) for x in self._maps[n])
        self._writable = self._regions if not m.memory.known.inputs else self._parts(m.memory.known.writable())
        for table, (number, place, _) in ((self._regions, READ), (self._writable, WRITTEN)):
            self._numbers[number] = len(table)
            self._numbers[place] = address_of(table)
        self._numbers[SHARED_BYTES] = m.memory.used_bytes
        self._kept: Any = None
        self._log_start = address_of(_log[0])
        self._numbers[LOG] = self._log_start
        self._numbers[LOG_END] = self._log_start + _LOG_BYTES

    def _parts(self, parts: list[tuple[int, int, int]]) -> Any:  # noqa: ANN401
        """Return regions of which each is a part of a known one, from a byte on at which a byte of its maps begins."""
        known = {int(region[0]): region for region in self._regions}
        found = [(0,) * REGION_SIZE]  # there is one at least
        for start, end, first in parts:
            skipped = -(-(start - first) // 8)  # what is stored to the bytes before that is left to numpy
            maps = [int(at) and int(at) + skipped for at in known[first][2:]]
            found.append((first + 8 * skipped, end, *maps))
        return np.array(found, np.int64)

    def is_of(self, m: Engine) -> bool:
        """Return whether the machine's memory is still the same."""
        return self._traffic is m.activity.traffic and self._shared is m.memory.shared

    def begin(self, keeps_shared: bool) -> None:
        """Keep shared memory as a whole, and not the stores to it, or the other way round."""
        self._kept = self._shared.copy() if keeps_shared else None
        self._numbers[LOGS_SHARED] = 0 if keeps_shared else KEPT

    def take(self, m: Engine) -> int:
        """Adopt the effects that a function noted, or undo them if it failed; return the reason, or 0."""
        numbers = self._numbers
        failed = int(numbers[FAILED])
        if failed:
            self._undo()
            if self._kept is not None:
                self._shared[...] = self._kept
        else:
            for kind, at in _KINDS:
                if numbers[at]:
                    m.activity.traffic.add(kind, int(numbers[at]), int(numbers[at + 1]))  # type: ignore[arg-type]
            m.activity.changes += int(numbers[CHANGED])
            executed = m.schedule.executed
            for block in self.counts.nonzero()[0].tolist():
                if block < len(executed):
                    executed[block] += int(self.counts[block])
                else:
                    m.activity.stats["splits"] += int(self.counts[block])
        self.counts.fill(0)
        numbers[FAILED] = numbers[CHANGED] = 0
        numbers[LOADED : ATOMIC + 2] = 0
        numbers[LOG] = self._log_start
        return failed

    def _undo(self) -> None:
        """Restore the old contents of stored places, the last first."""
        span = np.array([self._log_start, self._numbers[LOG]], np.int64)
        compiler.compiled(UNDO).function("undo")(address_of(span))


def state_of(m: Engine) -> MemoryState:
    """Return the part of a machine's memory that machine code knows."""
    state: MemoryState | None = m.native_state
    if state is None or not state.is_of(m):
        state = m.native_state = MemoryState(m)
    return state
