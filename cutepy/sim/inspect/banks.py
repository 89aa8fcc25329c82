"""Bank conflicts of shared memory, and waits at barriers, by the instruction where they happen.

What a warp's access takes is defined once, in `cutepy.layouts.banks`. Here it is counted for the accesses of many
warps, of which most have patterns seen before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.banks.rule import count_wavefronts
from cutepy.sim.machine.events import Access, BarrierEvent
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.observer import Observer

if TYPE_CHECKING:
    from cutepy.layouts.banks import Kind
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction

_WIDEST = 16
"""Bytes of the widest access of a lane: a step by so many turns the banks, and changes no count."""

_MATRIX_KINDS: tuple[Kind, ...] = ("ldmatrix", "stmatrix")

OFF = -1
"""In place of an address: the lane is off."""


def wavefronts(kind: Kind, size_bytes: int, addresses: Array) -> tuple[int, int]:
    """Count the wavefronts of accesses by warps, and the fewest that any layout gives them.

    Parameters
    ----------
    kind : "ld", "st", "ldmatrix" or "stmatrix"
    size_bytes : int
        Bytes of each lane.
    addresses : array of int, (warps, lanes or rows)
        Byte address of each lane in shared memory; `OFF` where it is off.

    Examples
    --------
    >>> lanes = np.arange(32)[None, :]
    >>> wavefronts("ld", 4, 4 * lanes), wavefronts("ld", 4, 128 * lanes), wavefronts("ld", 4, 0 * lanes)
    ((1, 1), (32, 1), (1, 1))
    >>> wavefronts("st", 16, 16 * lanes), wavefronts("ld", 16, 0 * lanes)
    ((4, 4), (2, 2))
    """
    present = addresses != OFF
    first = np.where(present, addresses, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    patterns = np.where(present, addresses - first // _WIDEST * _WIDEST, OFF)
    taken = fewest = 0
    for pattern, times in Counter(map(bytes, patterns)).items():
        counts = _of_pattern(kind, size_bytes, pattern)
        taken += times * counts[0]
        fewest += times * counts[1]
    return taken, fewest


@lru_cache(maxsize=1 << 14)
def _of_pattern(kind: Kind, size_bytes: int, pattern: bytes) -> tuple[int, int]:
    """Count by the one definition; kernels repeat few patterns."""
    addresses = [None if address == OFF else address for address in np.frombuffer(pattern, np.int64).tolist()]
    return count_wavefronts(kind, size_bytes, addresses)


@dataclass
class AccessSite:
    """An instruction that reads or writes shared memory.

    Attributes
    ----------
    launch : int
        Which of the run's launches.
    instruction : Instruction
        With its line of Python in `instruction.source`.
    warps : int
        How often a warp executed it.
    wavefronts, fewest : int
        Wavefronts that took, and the fewest that any layout of shared memory gives them.
    """

    launch: int
    instruction: Instruction
    warps: int = 0
    wavefronts: int = 0
    fewest: int = 0

    @property
    def conflicts(self) -> int:
        """Wavefronts more than needed."""
        return self.wavefronts - self.fewest

    def __str__(self) -> str:
        i = self.instruction
        return (
            f"{i.source or '?'}: {i.opcode}: {self.warps} by warps, {self.wavefronts} wavefronts, {self.fewest} needed"
        )


@dataclass
class WaitSite:
    """An instruction that waits at a barrier.

    Attributes
    ----------
    launch : int
        Which of the run's launches.
    instruction : Instruction
    warps : int
        How often a warp passed it.
    waited : int
        How often a warp had to wait there, in the simulator's schedule.
    """

    launch: int
    instruction: Instruction
    warps: int = 0
    waited: int = 0

    def __str__(self) -> str:
        i = self.instruction
        return f"{i.source or '?'}: {i.opcode}: passed {self.warps} times by a warp, {self.waited} after waiting"


class Sites(Observer):
    """Count bank conflicts and waits of every site."""

    def __init__(self) -> None:
        self.accesses: dict[tuple[int, int], AccessSite] = {}
        self.waits: dict[tuple[int, int], WaitSite] = {}
        self._launch = -1

    def totals(self) -> dict[str, int]:
        """Return the sums over the sites of accesses, and of waits."""
        sites = self.accesses.values()
        return {
            "shared_accesses": sum(site.warps for site in sites),
            "shared_wavefronts": sum(site.wavefronts for site in sites),
            "bank_conflicts": sum(site.conflicts for site in sites),
            "barrier_waits": sum(site.waited for site in self.waits.values()),
        }

    def clear(self) -> None:
        """Forget all launches."""
        self.accesses.clear()
        self.waits.clear()
        self._launch = -1

    def on_launch(self, launch: Launch) -> None:
        """Begin another launch."""
        self._launch += 1

    def on_access(self, access: Access) -> None:
        """Count the wavefronts of an access to shared memory by threads."""
        if access.space != "shared" or access.proxy != "generic" or access.operation == "atomic":
            return
        if access.size_bytes > _WIDEST:  # a tensor map
            return
        key = self._launch, access.instruction.index
        site = self.accesses.setdefault(key, AccessSite(self._launch, access.instruction))
        threads, addresses = access.threads, access.addresses
        matrices = next((kind for kind in _MATRIX_KINDS if access.instruction.opcode.startswith(kind)), None)
        if matrices:
            # Of these there are rows, eight to a matrix, and not lanes; every warp has all of its lanes.
            lanes = addresses.reshape(access.ctas.count * len(threads.warps), -1)
        else:
            lanes = np.full((access.ctas.count, len(threads.warps) * WARP), OFF, np.int64)
            lanes[:, threads.position] = addresses
            lanes = lanes.reshape(-1, WARP)
        kind: Kind = matrices or ("ld" if access.operation == "read" else "st")
        taken, fewest = wavefronts(kind, access.size_bytes, lanes)
        site.warps += len(lanes)
        site.wavefronts += taken
        site.fewest += fewest

    def on_wait(self, event: BarrierEvent) -> None:
        """Count lanes that have to wait."""
        self._wait(event).waited += len(event.threads.warps) * event.ctas.count

    def on_barrier(self, event: BarrierEvent) -> None:
        """Count lanes that pass a barrier."""
        if event.operation in ("wait", "sync", "cluster_wait"):
            self._wait(event).warps += len(event.threads.warps) * event.ctas.count

    def _wait(self, event: BarrierEvent) -> WaitSite:
        key = self._launch, event.instruction.index
        return self.waits.setdefault(key, WaitSite(self._launch, event.instruction))
