"""What the sanitizer knows of the CTAs that are resident together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.clocks import Clocks, Meeting
from cutepy.sim.sanitize.shadow import Conflict, Shadow, Touch

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.ptx.model import Instruction

BULK, COPIES, MMAS = "bulk_group", "cp.async group", "wgmma group"
"""Kinds of groups that threads close, and wait for."""


@dataclass
class Issued:
    """An asynchronous operation, until it completes.

    Attributes
    ----------
    known : array of int, (plane, CTA, rank, column)
        What its threads knew.
    accesses : list of Access
    signals : list of (offset, slots, phases)
        The mbarriers that count its bytes.
    """

    known: Array
    accesses: list[Access] = field(default_factory=list)
    signals: list[tuple[int, Array, Array]] = field(default_factory=list)


@dataclass
class Making:
    """The making of an mbarrier, by CTA.

    Attributes
    ----------
    instruction : Instruction
    threads, agents, counts : array of int
        Who made it, and how far they had come; a count of 0 where it is not made.
    fenced : array of int
        How often its thread had executed a fence that shows it to copies and to other CTAs; 0 before that.
    """

    instruction: Instruction
    threads: Array
    agents: Array
    counts: Array
    fenced: Array


class Wave:
    """What is known of the CTAs that are resident together.

    Parameters
    ----------
    residents : Residents
    threads, granules : int
        Of each CTA, and of its shared memory.
    report, unwritten : callable
        As of `Shadow`.

    Attributes
    ----------
    clocks : Clocks
    shadow : Shadow
    meetings : dict of object to Meeting
    closed : dict of str to array of int, (CTA, thread)
        Groups that threads have closed, by kind.
    issued : dict of int to Issued
        What is in flight, by the operation's identity.
    last : dict of int to (Instruction, array of int)
        By column of groups: what was issued last, and in which group of each CTA.
    inits : dict of int to Making
        By address, how mbarriers were made.
    """

    def __init__(
        self,
        residents: Residents,
        threads: int,
        granules: int,
        report: Callable[[Conflict], None],
        unwritten: Callable[[Touch, int, int], None],
    ) -> None:
        self.residents = residents
        slots = residents.count
        self.clocks = Clocks(slots, threads, residents.cluster_size)
        self.shadow = Shadow(self.clocks, slots, granules, report, unwritten)
        self.meetings: dict[object, Meeting] = {}
        self.closed: dict[str, Array] = {kind: np.zeros((slots, threads), np.int64) for kind in (BULK, COPIES, MMAS)}
        self.issued: dict[int, Issued] = {}
        self.last: dict[int, tuple[Instruction, Array]] = {}
        self.inits: dict[int, Making] = {}

    def note(self, column: int, i: Instruction, slots: Array, counts: Array) -> None:
        """Note in which groups something was issued."""
        _, groups = self.last.get(column, (i, np.zeros(self.residents.count, np.int64)))
        groups[slots] = counts.reshape(len(slots), -1)[:, 0]
        self.last[column] = i, groups

    def meeting(self, what: object) -> Meeting:
        """Return what is published at an object."""
        if what not in self.meetings:
            self.meetings[what] = Meeting(self.residents.count)
        return self.meetings[what]

    def issuers(self, issuers: Array, slots: Array) -> Array:
        """Return, for CTAs whose memory an operation touches, the positions of those of `issuers` that issued it.

        That is the CTA itself, or of a multicast and a copy to a peer one of its cluster.
        """
        cluster = self.clocks.cluster
        own = [np.flatnonzero(issuers == slot) for slot in slots]
        return np.array(
            [
                int(mine[0]) if len(mine) else int(np.flatnonzero(issuers // cluster == slot // cluster)[0])
                for mine, slot in zip(own, slots, strict=True)
            ]
        )
