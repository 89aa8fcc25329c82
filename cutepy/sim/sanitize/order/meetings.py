"""What was published where threads meet: at a barrier, an mbarrier, the barrier of a cluster."""

from __future__ import annotations

import numpy as np

from cutepy.sim.machine.lanes import Array, as_index
from cutepy.sim.sanitize.order.indices import raise_at


class Meeting:
    """What was published at an object that threads meet at, by phase: of the one that is current, and the last one."""

    def __init__(self, slots: int) -> None:
        self._phase = np.full((2, slots), -1)
        self._slots = slots
        self._what: Array | None = None

    def add(self, slots: Array, phase: Array, what: Array) -> None:
        """Add what was published in a phase, of one CTA's object each."""
        if self._what is None or self._what.shape[-1] < what.shape[-1]:
            shape = (2, what.shape[0], self._slots, *what.shape[2:])
            grown = np.zeros(shape, np.int32)
            if self._what is not None:
                grown[..., : self._what.shape[-1]] = self._what
            self._what = grown
        phase = np.broadcast_to(phase, slots.shape)
        for parity in (0, 1):
            here = np.flatnonzero((phase & 1) == parity)
            if len(here):
                of = slots[here]
                new = self._phase[parity, of] != phase[here]
                at, added = (slice(None), as_index(of)), what[:, as_index(here)]
                if new.all():
                    self._what[parity][*at, ..., : what.shape[-1]] = added
                    self._what[parity][*at, ..., what.shape[-1] :] = 0
                else:
                    self._what[parity][:, of[new]] = 0
                    raise_at(self._what[parity], (*at, ..., slice(what.shape[-1])), added)
                self._phase[parity, of] = phase[here]

    def published(self, slots: Array, phase: Array) -> Array | None:
        """Return what was published in phases, (plane, CTA, rank, column), as kept; None if nothing was."""
        if self._what is None:
            return None
        phase = np.broadcast_to(phase, slots.shape)
        other = self._phase[phase & 1, slots] != phase
        if (phase == phase[0]).all() and not other.any():
            held: Array = self._what[int(phase[0]) & 1][:, as_index(slots)]
            return held
        found = np.moveaxis(self._what[phase & 1, :, slots], 0, 1)
        found[:, other] = 0
        return found
