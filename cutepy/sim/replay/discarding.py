"""Whether anything comes of what a launch reads of shared memory that nothing has written.

It is played with several values there. If it writes the same to global memory, bit for bit, whatever comes of these
reads is thrown away: rows beyond a tensor's last, say, that are computed and not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.replay.holding import POISON, HoldBack
from cutepy.sim.replay.outcomes import Outcome, Request

if TYPE_CHECKING:
    from cutepy.sim.replay.snapshots import Snapshot

_CONTENTS = (0x00, POISON, 0x5A, 0xDA)
"""Bytes of shared memory where a CTA begins: zero, NaN, large numbers and very negative ones, as integers too."""

_TIMEOUT_S = 60.0


def is_discarded(snapshot: Snapshot, processes: int, is_before: bool) -> bool:
    """Tell whether a launch writes the same, whatever shared memory holds where its CTAs begin.

    Parameters
    ----------
    snapshot : Snapshot
    processes : int
        How many play at the same time.
    is_before : bool
        Whether the snapshot is of memory before the launch, or else after it. Then what it read must be as it was, or
        nothing is known.
    """
    outcomes: dict[int, Outcome] = {}
    requests = [Request(HoldBack(None, held), with_reads=not is_before) for held in _CONTENTS]
    snapshot.play(requests, outcomes.__setitem__, processes, _TIMEOUT_S)
    if any(outcome.error or outcome.digest != outcomes[0].digest for outcome in outcomes.values()):
        return False
    return is_before or not any(map(_reads_what_it_writes, outcomes.values()))


def _reads_what_it_writes(outcome: Outcome) -> bool:
    assert outcome.reads is not None
    assert outcome.starts is not None
    assert outcome.ends is not None
    starts, ends = outcome.reads
    return bool((np.searchsorted(outcome.starts, ends, "left") > np.searchsorted(outcome.ends, starts, "right")).any())
