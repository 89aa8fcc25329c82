"""Warps of which some lanes have come to a named barrier: these wait for the others that have not ended.

What counts there are warps. So lanes that come without the rest of their warp do not count yet; they do, in the
generation that is current then, once the last of the others comes, or ends.

References
----------
PTX ISA, "bar, barrier": a thread waits for all non-exited threads from its warp, and the warp's arrival is marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.group import Done
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Threads

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
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
        self._came: dict[_Warp, list[Done]] = {}
        self._holds: dict[_Warp, int] = {}

    def __bool__(self) -> bool:
        """Tell whether there are any now."""
        return bool(self._came)

    def come(self, g: Group, i: Instruction, number: int, here: Array, held: Array) -> tuple[Array, list[_Warp]]:
        """Let lanes come, of (CTAs, threads) those `here`, whose predicates are `held`.

        Returns
        -------
        array, (CTAs, threads)
            What each lane waits by (`generations`), below 0.
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
                done = Done(i, ctas, Threads(g.threads.ids[lanes], g.threads.block))
                self._came.setdefault(key, []).append(done)
                self._holds[key] = self._holds.get(key, 0) + int((held[row] & lanes).sum())
                warps.append(key)
        return -1 - self._times[g.ctas.slots[:, None], number, warp_of], warps

    def count_of(self, key: _Warp) -> int:
        """Return how many lanes of a warp have come."""
        return sum(done.threads.count for done in self._came.get(key, ()))

    def of(self, slots: Array, warps: Array, number: int | None = None) -> Iterator[_Warp]:
        """Yield those of some CTAs and warps, at one barrier or at any."""
        for key in list(self._came):
            if key[0] in slots and key[2] in warps and number in (None, key[1]):
                yield key

    def at(self, slot: int, number: int) -> bool:
        """Tell whether there is one at a barrier."""
        return any(key[:2] == (slot, number) for key in self._came)

    def last(self, key: _Warp) -> Done:
        """Return who came last."""
        return self._came[key][-1]

    def count(self, key: _Warp, generation: int) -> tuple[list[Done], int]:
        """Let a warp count in a generation; returns who came, and how many predicates held."""
        assert self._times is not None
        assert self._counted is not None
        self._times[key] += 1
        self._counted[key] = generation
        return self._came.pop(key), self._holds.pop(key)

    def generations(self, token: Array, slots: Array, identity: Array, threads: Threads) -> Array:
        """Return what lanes wait by: of those whose warps have come meanwhile the generation that they count in."""
        if self._times is None or (token >= 0).all():
            return token
        assert self._counted is not None
        at = slots, identity, threads.ids // WARP
        found: Array = np.where((token < 0) & (self._times[at] != -1 - token), self._counted[at], token)
        return found
