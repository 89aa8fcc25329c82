"""Cost of memory accesses (wavefronts of shared, sectors of global memory) and waits at barriers, by instruction.

`cutepy.layouts.banks` defines the wavefronts of one warp's access. This module counts accesses of many warps, most of
which have patterns seen before.

References
----------
CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory": a warp asks for 32-byte sectors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from cutepy.layouts.banks.rule import count_wavefronts
from cutepy.sim.machine.activity import SECTOR_BYTES
from cutepy.sim.machine.events import PASSES, Access, BarrierEvent
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.observer import Observer
from cutepy.sim.machine.wait_sources import WaitBegins
from cutepy.sim.ptx.source_lines import line_of

if TYPE_CHECKING:
    from cutepy.layouts.banks import Kind
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction

_WIDEST = 16
"""Bytes of the widest access of a lane to shared memory: a step by so many turns the banks, and changes no count."""

_HOST_ALIGNMENT = 16
"""Bytes to which numpy aligns arrays."""

OFF = -1
"""In place of an address: the lane is off."""


def wavefronts(kind: Kind, size_bytes: int, addresses: Array) -> tuple[int, int]:
    """Count the wavefronts of accesses by warps, and the fewest that any layout gives them.

    Parameters
    ----------
    kind : "ld", "st", "atom", "cas", "ldmatrix" or "stmatrix"
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


def sectors(size_bytes: int, addresses: Array) -> tuple[int, int]:
    """Count the sectors of global memory that warps access, and the fewest sectors that hold as many bytes.

    A sector has 32 bytes. Host arrays are aligned to 16 bytes only, the GPU's arrays to 256. An array may therefore
    begin at a sector or at the middle of one, and each access counts at the alignment that takes fewer sectors.

    Parameters
    ----------
    size_bytes : int
        Bytes of each lane, at most a sector; addresses are multiples of them.
    addresses : array of int, (warps, lanes)
        Byte address of each lane; `OFF` where it is off.

    Examples
    --------
    >>> lanes = np.arange(32)[None, :]
    >>> sectors(4, 4 * lanes), sectors(4, 128 * lanes), sectors(4, 0 * lanes), sectors(4, 4 + 4 * lanes)
    ((4, 4), (32, 4), (1, 1), (5, 4))
    """
    rising = np.sort(addresses, axis=1)
    present = rising != OFF
    first = present & ~np.pad(present, ((0, 0), (1, 0)))[:, :-1]
    distinct = np.count_nonzero(first | (present & _is_new(rising)), axis=1)
    asked = [
        np.count_nonzero(first | (present & _is_new((rising + shift) // SECTOR_BYTES)), axis=1)
        for shift in (0, _HOST_ALIGNMENT)
    ]
    return int(np.minimum(*asked).sum()), int((-(-distinct * size_bytes // SECTOR_BYTES)).sum())


def _is_new(rising: Array) -> Array:
    """Mark the elements of sorted rows that differ from their predecessor."""
    return np.pad(np.diff(rising, axis=1) != 0, ((0, 0), (1, 0)))


class Cost(NamedTuple):
    """Cost of one access: wavefronts of shared memory, or sectors of global memory.

    Attributes
    ----------
    space : "shared" or "global"
    warps : int
        Warps that executed the instruction.
    taken, fewest : int
        Wavefronts or sectors that the access took, and the fewest that any addresses of as many bytes take.
    """

    space: Literal["shared", "global"]
    warps: int
    taken: int
    fewest: int


def cost_of(access: Access) -> Cost | None:
    """Return the cost of an access by threads; None for copies and for local memory."""
    if access.space == "local" or access.proxy != "generic":
        return None
    if access.size_bytes > SECTOR_BYTES:  # a tensor map
        return None
    threads = access.threads
    matrices: Kind | None = None
    if access.instruction.traits.takes_rows:
        matrices = "ldmatrix" if access.operation == "read" else "stmatrix"
    if matrices:
        # Of these there are rows, eight to a matrix, and not lanes; every warp has all of its lanes.
        lanes = access.addresses.reshape(access.ctas.count * len(threads.warps), -1)
    else:
        lanes = np.full((access.ctas.count, len(threads.warps) * WARP), OFF, np.int64)
        lanes[:, threads.position] = access.addresses
        lanes = lanes.reshape(-1, WARP)
    if access.space == "global":
        return Cost("global", len(lanes), *sectors(access.size_bytes, lanes))
    kind = matrices or _kind_of(access)
    return Cost("shared", len(lanes), *wavefronts(kind, access.size_bytes, lanes))


def _kind_of(access: Access) -> Kind:
    if access.operation == "atomic":
        return "cas" if "cas" in access.instruction.opcode.split(".") else "atom"
    return "ld" if access.operation == "read" else "st"


@dataclass
class _MemorySite:
    """An instruction that accesses memory, and the cost of its accesses, in units of that memory."""

    launch: int
    instruction: Instruction
    warps: int = 0
    taken: int = 0
    fewest: int = 0
    unit: ClassVar[str]

    @property
    def excess(self) -> int:
        """Units more than needed."""
        return self.taken - self.fewest

    def __str__(self) -> str:
        i = self.instruction
        return f"{line_of(i)}: {i.opcode}: {self.warps} by warps, {self.taken} {self.unit}, {self.fewest} needed"


class AccessSite(_MemorySite):
    """An instruction that reads or writes shared memory.

    Attributes
    ----------
    launch : int
        Number of the launch in the run.
    instruction : Instruction
        With its line of Python in `instruction.source`.
    warps : int
        Times that a warp executed it.
    wavefronts, fewest : int
        Wavefronts that took, and the fewest that any layout of shared memory gives them.
    conflicts : int
        Wavefronts more than needed.
    """

    unit = "wavefronts"

    @property
    def wavefronts(self) -> int:
        """Wavefronts that the accesses took."""
        return self.taken

    @property
    def conflicts(self) -> int:
        """Wavefronts more than needed."""
        return self.excess


class SectorSite(_MemorySite):
    """An instruction that reads or writes global memory.

    Attributes
    ----------
    launch : int
        Number of the launch in the run.
    instruction : Instruction
        With its line of Python in `instruction.source`.
    warps : int
        Times that a warp executed it.
    sectors, fewest : int
        Sectors of 32 bytes that warps asked for, and the fewest that hold their bytes.
    excess : int
        Sectors more than needed.
    """

    unit = "sectors"

    @property
    def sectors(self) -> int:
        """Sectors that warps asked for."""
        return self.taken


@dataclass
class WaitSite:
    """An instruction that waits at a barrier.

    Attributes
    ----------
    launch : int
        Number of the launch in the run.
    instruction : Instruction
    warps : int
        Times that a warp passed it.
    waited : int
        Times that a warp had to wait there, in the simulator's schedule.
    """

    launch: int
    instruction: Instruction
    warps: int = 0
    waited: int = 0

    def __str__(self) -> str:
        i = self.instruction
        return f"{line_of(i)}: {i.opcode}: passed {self.warps} times by a warp, {self.waited} after waiting"


class Sites(Observer):
    """Count bank conflicts, sectors and waits of every site."""

    def __init__(self) -> None:
        self.accesses: dict[tuple[int, int], AccessSite] = {}
        self.sectors: dict[tuple[int, int], SectorSite] = {}
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
        self.sectors.clear()
        self.waits.clear()
        self._launch = -1

    def on_launch(self, launch: Launch) -> None:
        """Begin another launch."""
        self._launch += 1

    def on_access(self, access: Access) -> None:
        """Count the wavefronts or sectors of an access by threads."""
        cost = cost_of(access)
        if cost is None:
            return
        key = self._launch, access.instruction.index
        site: AccessSite | SectorSite
        if cost.space == "shared":
            site = self.accesses.setdefault(key, AccessSite(self._launch, access.instruction))
        else:
            site = self.sectors.setdefault(key, SectorSite(self._launch, access.instruction))
        site.taken += cost.taken
        site.warps += cost.warps
        site.fewest += cost.fewest

    def on_wait(self, event: WaitBegins) -> None:
        """Count lanes that have to wait."""
        self._wait(event).waited += len(event.threads.warps) * event.ctas.count

    def on_barrier(self, event: BarrierEvent) -> None:
        """Count lanes that pass a barrier."""
        if isinstance(event, PASSES):
            self._wait(event).warps += len(event.threads.warps) * event.ctas.count

    def _wait(self, event: BarrierEvent) -> WaitSite:
        key = self._launch, event.instruction.index
        return self.waits.setdefault(key, WaitSite(self._launch, event.instruction))
