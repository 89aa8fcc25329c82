"""Access records of shared memory: one instruction's accesses in all CTAs in lockstep, and conflicts of two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.memory_order import CLUSTER, CTA, overlap_completely
from cutepy.sim.sanitize.byte_layouts.layouts import Span
from cutepy.sim.sanitize.hazards import AccessKind, Side
from cutepy.sim.sanitize.order.clocks import Need, View, need

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.wave import IssuedOperation


Lacks = Literal["order", "scope", "fence", "warps"]
"""Missing between two touches: any order, or a scope or a proxy fence only; or that warps of a group meet."""


class Issue(NamedTuple):
    """The threads that issued an asynchronous operation.

    Attributes
    ----------
    slots : array of int
        Their CTAs, one for each CTA that it touches.
    threads : array of int
    number : int
        Number of earlier steps of synchronisation: see `order.last_steps`.
    """

    slots: Array
    threads: Array
    number: int


class LaneCopies(NamedTuple):
    """Asynchronous copies that one instruction issued, one a lane.

    Attributes
    ----------
    issued : IssuedOperation
    rows : array of int
        Positions of the CTAs that issued it, one for each CTA that it touches.
    columns : array of int, (thread,)
        The channels on which the completion of each thread's copy is waited for; empty where it is an mbarrier.
    """

    issued: IssuedOperation
    rows: Array
    columns: Array


class Warps(NamedTuple):
    """The warps that issue an MMA.

    Attributes
    ----------
    first : int
        The first of the four.
    rows : array of int, (4,)
        Row of each warp's vector clock, or -1 if the lanes of the warp have different clocks.
    of : array of int, (n,)
        For each granule of A, in order, the index of the warp that multiplies its rows; -1 for other granules.
    """

    first: int
    rows: Array
    of: Array


@dataclass(eq=False, slots=True)
class AccessRecord:
    """Accesses of an instruction, or of an asynchronous operation, to shared memory.

    Attributes
    ----------
    name : str
        The instruction or the copy, such as "TMA store".
    instruction : Instruction
    writes, asynchronous : bool
    scope : int
        Of strong operations: see `ptx.memory_order`. WEAK of all others.
    slots : array of int
        CTAs whose memory is accessed.
    agents : array of int
        Accessing CTA, for each of `slots`.
    threads : array of int, (lane,), or None
        Accessing threads; None for the async proxy.
    columns : array of int, (lane,)
        Columns of the clocks: the threads' own columns, or the channel that signals completion.
    counts : array of int, (CTA, lane)
        Counts of the columns at the access.
    granules : array of int, (CTA or 1, lane, n)
        Accessed granules of each lane.
    view, row_of : View, array of int, (lane,)
        Clocks of the lanes, and the row of each lane in them. The async proxy knows all rows.
    warps : array of int
        Warps of `threads`, if the threads accessed their own CTA, or the warps that issued the async access.
    heard : array of bool, (CTA, warp)
        Warps that know the access: later accesses of all their lanes come after it.
    spans : tuple of Span
        Layouts of the read or written granules, where known.
    early : array of int or None
        Granules that were read before any write, in some CTA.
    when : int
        Number of steps of synchronisation before it, and of an asynchronous operation before its effect.
    issue : Issue or None
        Of the async proxy, and of st.async: the issuing threads.
    together : LaneCopies or None
        Of a copy that other lanes issue with it.
    issuers : Warps or None
        Of an MMA, the warps that issue it.
    access : "read", "write", "atomic" or ""
    more : list of array of int
        The granules that the same lanes touched by the same instruction before they had synchronised, as of `granules`.
    """

    name: str
    instruction: Instruction
    writes: bool
    asynchronous: bool
    scope: int
    slots: Array
    agents: Array
    threads: Array | None
    columns: Array
    counts: Array
    granules: Array
    view: View
    row_of: Array
    spans: tuple[Span, ...] = ()
    early: Array | None = None
    number: int = 0
    when: int = 0
    issue: Issue | None = None
    together: LaneCopies | None = None
    warps: Array | None = None
    issuers: Warps | None = None
    access: AccessKind = ""
    heard: Array = field(init=False)
    lanes: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    more: list[Array] = field(default_factory=list)

    def of_proxy(self, cta: tuple[int, ...]) -> Side:
        """Return it as an operation of the async proxy for a CTA, by its coordinate."""
        return Side.of_proxy(self.name, cta, self.instruction, self.access)

    def is_heard(self, new: AccessRecord, rows: Array | None = None) -> bool:
        """Return whether it is known that all lanes of a later touch know of this, in all CTAs or some of these."""
        if new.warps is None or (new.asynchronous and not self.asynchronous):
            return False
        heard = self.heard if rows is None else self.heard[rows]
        return bool(heard[:, new.warps].all())

    def copies(self, lanes: Array) -> Array:
        """Return, by lane, which copy it is part of: of the async proxy each lane's is one, of threads all are."""
        return np.zeros_like(lanes) if self.threads is not None else lanes % len(self.row_of)

    def touched(self, row: int) -> tuple[Array, Array]:
        """Return the granules of one CTA in order, and the lane that touched each, once for each that did."""
        self._merge()
        row = min(row, len(self.granules) - 1)
        found = self.lanes.get(row)
        if found is None:
            flat = self.granules[row].reshape(-1)
            order = np.argsort(flat, kind="stable")
            found = self.lanes[row] = flat[order], _lanes_of(self.granules)[order]
        return found

    def repeat(self, new: AccessRecord) -> bool:
        """Take a touch by the same lanes and instruction as part of this; tells if they have not synchronised since."""
        if not (self.access == new.access == "atomic") or len(self.granules) != len(new.granules):
            return False
        if not all(map(np.array_equal, (self.counts, self.agents), (new.counts, new.agents))):
            return False
        self.more.append(new.granules)
        if len(self.more) > _MOST_REPEATS:
            self._merge()
        return True

    def _merge(self) -> None:
        """Add the granules of `more` to those of each lane."""
        more, self.more = self.more, []
        for row in range(len(self.granules) if more else 0):
            found = [self.touched(row), *((granules[row].reshape(-1), _lanes_of(granules)) for granules in more)]
            granules, lanes = (np.concatenate(each) for each in zip(*found, strict=True))
            many = self.granules.shape[1]
            both = np.unique(granules * many + lanes)
            self.lanes[row] = both // many, both % many


def _lanes_of(granules: Array) -> Array:
    """Return the lane of each granule of a CTA."""
    return np.repeat(np.arange(granules.shape[1]), granules.shape[2])


_MOST_REPEATS = 64
"""Touches by the same instruction that are kept apart."""


@dataclass(frozen=True)
class Conflict:
    """Two touches of the same byte that nothing orders.

    Attributes
    ----------
    before, after : AccessRecord
    before_lane, after_lane : int
        Of `columns`.
    row : int
        The CTA, by position in `after.slots`.
    granule : int
    lacks : Lacks
    mate : int or None
        Another lane of the same warp whose touch is ordered, by its publication.
    """

    before: AccessRecord
    after: AccessRecord
    before_lane: int
    after_lane: int
    row: int
    granule: int
    lacks: Lacks
    mate: int | None = None

    @property
    def read_first(self) -> bool:
        """True if a read came before the first write, which it should have come after."""
        return self.before.early is not None and not self.before.writes and self.granule in self.before.early

    @property
    def narrow(self) -> bool:
        """True if both are strong, and one names a scope that the other is outside of."""
        return _have_scope(self.before, self.after, CTA) and not self.partial

    @property
    def partial(self) -> bool:
        """True if both are strong, each in the scope of the other, and of different sizes."""
        old, new = self.before, self.after
        near = old.agents[np.searchsorted(old.slots, new.slots[self.row])] == new.agents[self.row]
        return _have_scope(old, new, CTA if near else CLUSTER) and not _overlap_completely(old, new)


def unfenced(writes: bool) -> str:
    """Return the kind of hazard when only a proxy fence is missing after a write, or a read, by the generic proxy."""
    return "missing-proxy-fence" if writes else "unfenced-overwrite"


def are_strong(old: AccessRecord, new: AccessRecord, scope: int) -> bool:
    """Return whether both are strong, of such a scope or a wider one, of one proxy and one size."""
    return _have_scope(old, new, scope) and _overlap_completely(old, new)


def hides(old: AccessRecord, new: AccessRecord) -> bool:
    """Return whether an older record is kept beside a newer one, since a strong access may conflict with it alone."""
    return bool(old.scope) != bool(new.scope) or bool(old.scope and not _overlap_completely(old, new))


def _have_scope(old: AccessRecord, new: AccessRecord, scope: int) -> bool:
    return min(old.scope, new.scope) >= scope and old.asynchronous == new.asynchronous


def _overlap_completely(old: AccessRecord, new: AccessRecord) -> bool:
    return overlap_completely(old.instruction.opcode, new.instruction.opcode)


def needed(old: AccessRecord, new: AccessRecord) -> Need:
    """Return the planes of a clock in which a later access to the same bytes must know an access."""
    # What is over has left its bytes: within one proxy another may write there, whoever has seen them.
    overwrites = new.writes and not new.instruction.traits.is_atomic
    is_shown = old.writes and not (overwrites and old.asynchronous == new.asynchronous)
    return need(is_shown, old.asynchronous, new.asynchronous)
