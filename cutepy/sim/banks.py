"""Bank conflicts of shared memory, and waits at barriers, by the instruction where they happen.

Shared memory has 32 banks of 4 bytes. What a warp reads or writes with one instruction takes one wavefront for each
different word in its busiest bank; accesses of 8 bytes a lane go half a warp at a time, those of 16 a quarter. The
rows of ldmatrix and stmatrix are such accesses of 16 bytes.

References
----------
CUDA C++ Programming Guide, "Compute Capability 5.x": "Shared Memory". CUDA C++ Best Practices Guide, "Shared Memory
and Memory Banks".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.events import Access, BarrierEvent, Observer
from cutepy.sim.lanes import WARP, Array

if TYPE_CHECKING:
    from cutepy.sim.capture import Launch
    from cutepy.sim.ptx.model import Instruction

BANKS = 32
BANK_BYTES = 4
_ROW_BYTES = BANKS * BANK_BYTES


def wavefronts(addresses: Array, lanes: Array, size_bytes: int) -> tuple[int, int]:
    """Count the wavefronts of one access by lanes of a CTA, and the fewest that so many words can take.

    Parameters
    ----------
    addresses : array of int
        Byte address of each lane in shared memory.
    lanes : array of int
        The lanes' linear index in the CTA: 32 make a warp.
    size_bytes : int
        Bytes of each lane.

    Examples
    --------
    >>> lanes = np.arange(32)
    >>> wavefronts(4 * lanes, lanes, 4), wavefronts(128 * lanes, lanes, 4), wavefronts(0 * lanes, lanes, 4)
    ((1, 1), (32, 1), (1, 1))
    >>> wavefronts(16 * lanes, lanes, 16), wavefronts(128 * lanes, lanes, 16)
    ((4, 4), (32, 4))
    """
    words = max(1, size_bytes // BANK_BYTES)
    phase = lanes // min(WARP, max(1, _ROW_BYTES // size_bytes))
    word = addresses[:, None] // BANK_BYTES + np.arange(words)
    pairs = np.unique(np.stack([np.broadcast_to(phase[:, None], word.shape), word]).reshape(2, -1), axis=1)
    _, phases = np.unique(pairs[0], return_inverse=True)
    count = int(phases.max()) + 1
    banks = np.bincount(phases * BANKS + pairs[1] % BANKS, minlength=count * BANKS).reshape(count, BANKS)
    fewest = -(-banks.sum(axis=1) // BANKS)
    return int(banks.max(axis=1).sum()), int(fewest.sum())


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
        Wavefronts that took, and how few they could be for as many words.
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
        """Return the sums over the sites of accesses."""
        sites = self.accesses.values()
        return {
            "shared_accesses": sum(site.warps for site in sites),
            "shared_wavefronts": sum(site.wavefronts for site in sites),
            "bank_conflicts": sum(site.conflicts for site in sites),
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
        key = self._launch, access.instruction.index
        site = self.accesses.setdefault(key, AccessSite(self._launch, access.instruction))
        warps = len(access.threads.warps)
        addresses = access.addresses
        site.warps += warps * access.ctas.count
        if addresses.shape[1] == 1:
            site.wavefronts += warps * access.ctas.count
            site.fewest += warps * access.ctas.count
            return
        # Of ldmatrix and stmatrix there are rows, eight to a matrix, and not lanes.
        rows = addresses.shape[1] != access.threads.count or "matrix" in access.instruction.opcode
        lanes = np.arange(addresses.shape[1]) if rows else access.threads.ids
        steps = addresses - addresses[:1]
        alike = (steps == steps[:, :1]).all() and not (steps[:, 0] % _ROW_BYTES).any()
        times = access.ctas.count if alike else 1
        for row in addresses[:1] if alike else addresses:
            taken, fewest = wavefronts(row, lanes, access.size_bytes)
            site.wavefronts += times * taken
            site.fewest += times * fewest

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
