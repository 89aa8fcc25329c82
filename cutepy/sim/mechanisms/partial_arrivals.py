"""Warps of which some lanes have come to a named barrier: these wait for the others that have not ended.

What counts there are warps. So lanes that come without the rest of their warp do not count yet; they do, in the
generation that is current then, once the last of the others comes, or ends.

References
----------
PTX ISA, "bar, barrier": a thread waits for all non-exited threads from its warp, and the warp's arrival is marked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads
from cutepy.sim.machine.thread_history import ExecutedInstruction
from cutepy.sim.ptx.model import Instruction

_Warp = tuple[int, int, int]
"""A slot, the number of a barrier, and a warp."""


class PartialArrivals:
    """Warps that have come to barriers in part, of each resident CTA.

    Parameters
    ----------
    slots, barriers, warps : int
    """

    def __init__(self, slots: int, barriers: int, warps: int) -> None:
        self._shape = slots, barriers, warps
        # How often each warp has come whole in the end, and in which generation it counted then.
        self._times: Array | None = None
        self._counted: Array | None = None
        # By slot and warp, and by barrier: who came, and how many predicates held.
        self._came: dict[tuple[int, int], dict[int, tuple[list[ExecutedInstruction], int]]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any now."""
        return bool(self._came)

    def come(self, g: Group, i: Instruction, number: int, here: Array, held: Array) -> tuple[Array, list[_Warp]]:
        """Let lanes come, of (CTAs, threads) those `here`, whose predicates are `held`.

        Returns
        -------
        array, (CTAs, threads)
            Number by which each lane waits (`generations`), below 0.
        list of (int, int, int)
            The warps that they are of.
        """
        if self._times is None:
            self._times, self._counted = np.zeros((2, *self._shape), np.int64)
        warp_of, warps = g.threads.ids // WARP, []
        for row, slot in enumerate(g.ctas.slots.tolist()):
            for warp in np.unique(warp_of[here[row]]).tolist():
                lanes = here[row] & (warp_of == warp)
                key = slot, number, warp
                ctas = Ctas(np.array([slot]), g.ctas.residents)
                done = ExecutedInstruction(i, ctas, Threads(g.threads.ids[lanes], g.threads.block))
                before, holds = self._came.setdefault((slot, warp), {}).get(number, ([], 0))
                self._came[slot, warp][number] = [*before, done], holds + int((held[row] & lanes).sum())
                warps.append(key)
        return -1 - self._times[g.ctas.slots[:, None], number, warp_of], warps

    def count_of(self, key: _Warp) -> int:
        """Return how many lanes of a warp have come."""
        slot, number, warp = key
        came, _ = self._came.get((slot, warp), {}).get(number, ((), 0))
        return sum(done.threads.count for done in came)

    def of(self, slots: Array, warps: Array) -> Iterator[_Warp]:
        """Yield those of some CTAs and warps."""
        for slot in slots.tolist():
            for warp in warps.tolist():
                for number in list(self._came.get((slot, warp), ())):
                    yield slot, number, warp

    def at(self, slot: int, number: int) -> bool:
        """Return whether there is one at a barrier."""
        return any(number in self._came.get((slot, warp), ()) for warp in range(self._shape[2]))

    def last(self, key: _Warp) -> ExecutedInstruction:
        """Return the instruction of the lanes that came last."""
        slot, number, warp = key
        return self._came[slot, warp][number][0][-1]

    def count(self, key: _Warp, generation: int) -> tuple[list[ExecutedInstruction], int]:
        """Let a warp count in a generation; return the arrivals, and the number of true predicates."""
        assert self._times is not None
        assert self._counted is not None
        slot, number, warp = key
        self._times[key] += 1
        self._counted[key] = generation
        at = self._came[slot, warp]
        found = at.pop(number)
        if not at:
            del self._came[slot, warp]
        return found

    def generations(self, token: Array, slots: Array, identity: Array, threads: Threads) -> Array:
        """Return the keys by which lanes wait: of warps that are complete by now, the generation they count in."""
        if self._times is None or (token >= 0).all():
            return token
        assert self._counted is not None
        at = slots, identity, threads.ids // WARP
        return np.where((token < 0) & (self._times[at] != -1 - token), self._counted[at], token)
