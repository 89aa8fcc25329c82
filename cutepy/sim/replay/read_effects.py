"""Effects of reads of shared memory that nothing has written: a launch is played with other bytes, or writes, there.

It is played with several values there and in registers that nothing has written, and with what its own CTAs leave. If
it writes the same to global memory, bit for bit, whatever comes of these reads is thrown away: rows beyond a tensor's
last, say, that are computed and not stored.

Late writes would come after a read that was too early, in a launch that hangs before them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.policies import HoldBack
from cutepy.sim.machine.shared_memory import MemoryContents, Words
from cutepy.sim.replay.launch_player import name_of
from cutepy.sim.replay.outcomes import Outcome, Request, site_of
from cutepy.sim.replay.schedule_exploration import played
from cutepy.sim.replay.snapshots import Snapshot
from cutepy.sim.sanitize.hazards import Hazard

_CONTENTS = (0x00, 0xFF, 0x5A, 0xDA, Words(1), Words(1, is_complement=True), Words())
"""Shared memory where a CTA begins: zeros, NaN, large numbers and very negative ones, as integers too, throughout; and
words that differ, since the difference of two, which is larger, or whether they are equal, is the same throughout.

What its own CTAs leave is tried after them."""

_IN_REGISTERS = 0x3C
"""Of every byte of a register that nothing has written, where shared memory holds words that differ."""
_TIMEOUT_S = 60.0


def are_discarded(
    reads: Collection[Hazard], snapshot: Snapshot, is_before: bool, policy: CompletionPolicy | None, processes: int
) -> bool:
    """Return whether a launch with these reads writes the same for any shared memory at the start of its CTAs.

    Parameters
    ----------
    reads : collection of Hazard
        Hazards and writes that each replay must have too.
    snapshot : Snapshot
    is_before : bool
        True if that is of memory before the launch, or else after it. Then the launch must not have written what it
        read, or nothing is known.
    policy : CompletionPolicy or None
        Under which it had them.
    processes : int
        Processes that play at the same time.
    """
    names = set(map(name_of, reads))

    def play(*contents: MemoryContents) -> list[Outcome]:
        requests = [
            Request(
                policy,
                unwritten=held if isinstance(held, int) else _IN_REGISTERS,
                with_reads=True,
                with_left=n == 0,
                unwritten_shared=held,
                sanitizes=True,
            )
            for n, held in enumerate(contents)
        ]
        found: dict[int, Outcome] = {}
        snapshot.play(requests, found.__setitem__, processes, _TIMEOUT_S)
        return [found[n] for n in range(len(contents))]

    def comes_to(first: Outcome, outcome: Outcome) -> bool:
        return (
            not outcome.error
            and outcome.digest == first.digest
            and names <= _hazards_of(outcome) == _hazards_of(first)  # as where it says which way somebody goes
            and (is_before or not _reads_what_it_writes(outcome))
        )

    outcomes = play(*_CONTENTS)
    first = outcomes[0]
    if not all(comes_to(first, outcome) for outcome in outcomes):
        return False
    assert first.left is not None
    return comes_to(first, *play(first.left))


def _hazards_of(outcome: Outcome) -> frozenset[str]:
    return frozenset(name for name, _ in outcome.hazards)


def _reads_what_it_writes(outcome: Outcome) -> bool:
    assert outcome.reads is not None
    assert outcome.starts is not None
    assert outcome.ends is not None
    starts, ends = outcome.reads
    return bool((np.searchsorted(outcome.starts, ends, "left") > np.searchsorted(outcome.ends, starts, "right")).any())


_MOST = 4
"""Reads that are looked into."""


def late_writes(reads: Collection[Hazard], snapshot: Snapshot, processes: int) -> Iterator[tuple[Hazard, Hazard]]:
    """Yield reads of unwritten memory, with the hazard of each when it is held back until nothing else goes on.

    Parameters
    ----------
    reads : collection of Hazard
        Of one side each.
    snapshot : Snapshot
    processes : int
        Processes that play at the same time.
    """
    asked = [read for read in reads if read.before is None and read.after.instruction is not None][:_MOST]
    sites = [replace(site_of(read.after), is_operation=False, cta=None, warp=None, lane=None) for read in asked]
    outcomes = played(snapshot, [Request(HoldBack(site), sanitizes=True) for site in sites], processes)
    for read, outcome in zip(asked, outcomes, strict=True):
        same = (h for _, h in outcome.hazards if h.after.place == read.after.place and h.before is not None)
        found = next((h for h in same if h.kind in ("unordered-read", "uninitialised-read")), None)
        if found is not None:
            yield read, found
