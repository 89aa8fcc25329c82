"""Access records of global memory: one instruction's accesses in all CTAs in lockstep, and conflicts of two.

Where an instruction touches the same bytes again, shifted by one distance for all lanes, as in most loops, only the
distance is kept: the pattern is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.memory_order import CTA, GPU, WEAK, overlap_completely, unit_bytes

if TYPE_CHECKING:
    from cutepy.sim.machine.address_patterns import AddressPattern
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.hazards import AccessKind


_OFTEN = 2
"""Accesses of one pattern from which on it pays to know its granules."""


@dataclass(eq=False, slots=True)
class Pattern:
    """Address pattern of an access: offsets of its lanes from the lowest address.

    Attributes
    ----------
    starts : array of int, (entry,)
    lanes : array of int, (entry,)
        CTA times lanes of a CTA, plus lane.
    size : int
        Bytes of each entry.
    addresses : AddressPattern or None
        The pattern of the machine's addresses that this one was made of, which knows its granules.
    """

    starts: Array
    lanes: Array
    size: int
    addresses: AddressPattern | None = None
    _sorted: tuple[Array, Array] | None = None
    _twice: Array | None = None

    def cells(self, granule: int) -> Array | slice | None:
        """Return the granules from the lowest address on, each once; None if they are not known to be few."""
        if self.addresses is None or self.addresses.uses < _OFTEN:
            return None
        return self.addresses.cells(self.size, granule)

    def end(self) -> int:
        """Return the distance of the end of the last entry from the lowest address."""
        return self.size + (int(self.starts.max()) if self.addresses is None else self.addresses.highest)

    def sorted(self) -> tuple[Array, Array]:
        """Return the starts in order, and the entries."""
        if self._sorted is None:
            order = np.argsort(self.starts, kind="stable")
            self._sorted = self.starts[order], order
        return self._sorted

    def twice(self) -> Array:
        """Return pairs of entries of different lanes that touch the same bytes, neighbours in order, (pair, 2)."""
        if self._twice is None:
            if (np.diff(self.starts) >= self.size).all():
                self._twice = np.zeros((0, 2), np.intp)
            else:
                starts, order = self.sorted()
                at = np.flatnonzero((np.diff(starts) < self.size) & (np.diff(self.lanes[order]) != 0))
                self._twice = np.stack([order[at], order[at + 1]], axis=1)
        return self._twice


@dataclass(eq=False, slots=True)
class GlobalAccessRecord:
    """Accesses of an instruction, or of an asynchronous operation, to global memory.

    Attributes
    ----------
    name : str
        The instruction or the copy, such as "TMA store".
    access : "read", "write" or "atomic"
    instruction : Instruction
    writes, modifies : bool
        True if it writes, and if the written value follows from the read one, as one operation.
    proxy : "generic", "async", "nc", "tensormap" or "host"
        "nc" is through the cache that is not coherent.
    scope : int
        Of a strong operation, or WEAK.
    launch : int
    ctas : array of int
        Accessing CTAs, by their index in the grid.
    clusters, slots : array of int
        For each CTA the index of the first CTA of its cluster, and its slot.
    threads : array of int or None
        Accessing threads of each CTA; None for the async proxy.
    columns, counts : array of int, (CTA or 1, lane or 1)
        Columns of the clocks (the threads' own, or the channel that signals completion), and their counts.
    ranks : array of int, (CTA,)
        Rank of the CTA to whose clock the columns belong.
    pattern : Pattern
    low : int
        The lowest address.
    granule : int
        When it was recorded.
    before : int or array of int
        Numbers of the previous records: one for all granules, or (entry, granule).
    depth : int
        Length of the longest chain of previous records.
    cut : int
        Launches whose previous records were dropped, as a bit mask.
    strong : (str, int) or None
        Proxy and bytes of an operation, if the record and all previous ones have the same, with scopes of .gpu or
        wider: such records are morally strong with each other.
    when : int
        Number of steps of synchronisation before it, or before its issue: see `order.last_steps`.
    issuers : array of int or None
        The threads of each CTA that issued an operation of the async proxy.
    """

    name: str
    access: AccessKind
    instruction: Instruction
    writes: bool
    proxy: str
    scope: int
    launch: int
    ctas: Array
    clusters: Array
    slots: Array
    threads: Array | None
    columns: Array
    counts: Array
    ranks: Array
    pattern: Pattern
    low: int
    modifies: bool = False
    number: int = 0
    granule: int = UNIT_BYTES
    before: int | Array = 0
    depth: int = 0
    cut: int = 0
    strong: tuple[str, int] | None = None
    when: int = 0
    issuers: Array | None = None

    def __post_init__(self) -> None:
        """Begin with nothing before it."""
        self.strong = (self.proxy, unit_bytes(self.instruction.opcode)) if self.scope >= GPU else None

    @property
    def lanes(self) -> int:
        """Lanes of each CTA."""
        by = self.issuers if self.threads is None else self.threads
        return 1 if by is None else len(by)

    @property
    def is_by_lane(self) -> bool:
        """True if each lane's part is a copy by itself, as of bulk copies; all of an access or of a box is one."""
        return self.proxy == "async" and "tensor" not in self.instruction.parts

    def same_lanes(self, other: GlobalAccessRecord) -> bool:
        """Tell whether the same lanes touched the same bytes in the same way, and the same tells that they are over."""
        return (
            self.pattern is other.pattern
            and (self.low, self.launch, self.writes, self.proxy) == (other.low, other.launch, other.writes, other.proxy)
            and self.scope <= other.scope
            and np.array_equal(self.columns, other.columns)
            and np.array_equal(self.ctas, other.ctas)
            and (self.threads is other.threads or np.array_equal(self.threads, other.threads))  # type: ignore[arg-type]
            and (self.threads is not None or np.array_equal(self.ranks, other.ranks))
        )

    def comes_after(self, other: GlobalAccessRecord) -> bool:
        """Return whether it comes after another one of the same lanes, in the order of their program."""
        return self.threads is not None and self.same_lanes(other) and not len(self.pattern.twice())

    def is_morally_strong(self, other: GlobalAccessRecord) -> bool:
        """Return whether each of its lanes and each of another one's are morally strong: no pair of them races."""
        scope = min(self.scope, other.scope)
        if scope == WEAK or self.proxy != other.proxy:
            return False
        if not overlap_completely(self.instruction.opcode, other.instruction.opcode):
            return False
        if scope >= GPU:
            return True
        mine, others = (self.ctas, other.ctas) if scope == CTA else (self.clusters, other.clusters)
        return self.launch == other.launch and bool((mine == mine[0]).all() and (others == mine[0]).all())

    def entries(self, addresses: Array) -> tuple[Array, Array]:
        """Return pairs of positions in `addresses` and entries that touched the bytes there."""
        starts, order = self.pattern.sorted()
        relative = addresses - self.low
        first = np.searchsorted(starts, relative - self.pattern.size, "right")
        many = np.searchsorted(starts, relative, "right") - first
        of = np.repeat(np.arange(len(addresses)), many)
        within = np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many)
        return of, order[np.repeat(first, many) + within]

    def found_before(self, addresses: Array) -> Array:
        """Return the numbers that some granules had before."""
        if isinstance(self.before, int):
            return np.full(len(addresses), self.before, np.int32)
        of, entries = self.entries(addresses)
        result = np.zeros(len(addresses), np.int32)
        starts = self.pattern.starts[entries] + self.low
        result[of] = self.before[entries, (addresses[of] - starts) // self.granule]
        return result


CONFLICTS = (
    "",
    "early-access",
    "missing-proxy-fence",
    "non-coherent-read",
    "partial-overlap",
    "too-narrow-scope",
    "unfenced-overwrite",
    "unordered-read",
    "unordered-write",
)
"""Kinds of hazards of two accesses, in the order in which they are told; arrays of pairs hold their positions here."""


def code_of(kind: str) -> int:
    """Return the position of a kind of hazard in `CONFLICTS`; 0 stands for none."""
    return CONFLICTS.index(kind)


@dataclass(frozen=True)
class GlobalConflict:
    """Two touches of the same byte that nothing orders, or not as they have to be.

    Attributes
    ----------
    kind : str
    before, after : GlobalAccessRecord
    before_lane, after_lane : int
    address : int
    pairs : (array of int, array of int, array of int) or None
        The lanes before and after, and the addresses, of all that are so.
    """

    kind: str
    before: GlobalAccessRecord
    after: GlobalAccessRecord
    before_lane: int
    after_lane: int
    address: int
    pairs: tuple[Array, Array, Array] | None = None
