"""Premise 7: each setmaxnreg.inc finds registers in every schedule.

A `.dec` gives back its registers in every schedule if no `.inc` of a warp of the cluster comes before it. If all `.dec`
are such, the premise holds in two cases: the peaks of all warps fit the registers of a CTA together, or each warp gives
or takes only once. Otherwise a search looks for an order of requests in which some warp waits for ever. Giving back
early never harms, so schedules differ only in the order of the served requests: the search is over sets of these.

A warp that requests registers waits, and all later operations of its threads, issues of copies included, come after the
request. So a request counts as an ended wait, and vector clocks pass it on like other ended waits. A barrier of all
threads does not wait for exited threads: later operations of the cluster are then taken to come after all operations
of these threads. The same holds after a relaxed operation on a barrier, which clocks do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import REGISTERS
from cutepy.sim.machine.events import (
    ClusterArrive,
    ClusterWait,
    MbarrierExpectTx,
    NamedBarrierEvent,
    NamedBarrierJoin,
    NamedBarrierSync,
    SetRegisters,
)
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.ptx.model import Immediate
from cutepy.sim.ptx.source_lines import line_of
from cutepy.sim.sanitize.certificate.violations import Violation
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.order.clocks import DONE

if TYPE_CHECKING:
    from cutepy.sim.machine.events import (
        BarrierEvent,
        ClusterBarrier,
        GenerationEvent,
        NamedBarrier,
        RegistersBlocked,
    )
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.wave import Wave


_MOST_ROUNDS = 8
"""Changes of a warp that are told apart."""


class _RegisterChange(NamedTuple):
    """Change of the registers of a warp of some CTAs by one instruction.

    Attributes
    ----------
    instruction : Instruction
    slots : array of int
    warp : int
    amounts : array of int, (CTA,)
    after : array of int, (CTA, rank, warp)
        Number of earlier changes of each warp of the cluster.
    """

    instruction: Instruction
    slots: Array
    warp: int
    amounts: Array
    after: Array


class RegisterSupply:
    """Registers that the warps of resident CTAs hold, give back and ask for.

    Parameters
    ----------
    wave : Wave
    at_launch : int
        Registers that a thread begins with.
    violated, refuse : callable
        As of `Premises`.
    """

    def __init__(
        self,
        wave: Wave,
        at_launch: int,
        violated: Callable[[Violation], None],
        refuse: Callable[[str], None],
    ) -> None:
        self._wave, self._clocks, self._at_launch = wave, wave.clocks, at_launch
        self._violated, self._refuse = violated, refuse
        slots, self._warps = wave.residents.count, wave.clocks.warps
        shape = slots, self._warps
        self._held, self._peak = np.full((2, *shape), at_launch)
        self._given = np.zeros(slots, np.int64)
        self._is_sure, self._is_hidden = np.ones(shape, bool), np.zeros(shape, bool)
        self._many = np.zeros(shape, int)
        # By how often a warp had changed before, and thread: how many waits it has ended by then, 0 if it never has.
        self._when: list[Array] = []
        self._asked = np.zeros((slots, wave.clocks.threads), np.int32)  # the same, of the first time it took some
        self._came: dict[NamedBarrier | ClusterBarrier, Array] = {}
        self._done: list[_RegisterChange] = []

    def see(self, event: BarrierEvent) -> None:
        """Take a change, before its threads count it; or threads that come to a barrier and go on from one."""
        if event.instruction.traits.is_relaxed and not isinstance(event, MbarrierExpectTx):  # which lets nobody go on
            self._overlook(event)
        if isinstance(event, SetRegisters):
            for warp in np.unique(event.threads.ids // WARP).tolist():
                self._change(event, warp)
        elif isinstance(event, (NamedBarrierJoin, ClusterArrive)) and self._is_of_all(event):
            came = self._came.setdefault(event.barrier, np.full_like(self._asked, -1))
            slots, threads = event.ctas.slots, event.threads.ids
            came[slots[:, None], threads] = _generation(event)[:, None]
        elif isinstance(event, (NamedBarrierSync, ClusterWait)) and self._is_of_all(event):
            self._miss(event)

    @staticmethod
    def _is_of_all(event: GenerationEvent) -> bool:
        return not isinstance(event, NamedBarrierEvent) or event.is_of_all

    def _miss(self, event: NamedBarrierSync | ClusterWait) -> None:
        """Note the threads that a barrier did not wait for: they had ended."""
        came, slots, size = self._came.get(event.barrier), event.ctas.slots, self._clocks.cluster
        if came is None or not self._asked.any():
            return
        size = 1 if isinstance(event, NamedBarrierSync) else size
        for rank in range(size):
            of = slots // size * size + rank
            absent = (came[of] < _generation(event)[:, None]) & (self._asked[of] > 0)
            rows, threads = np.nonzero(absent)
            self._is_hidden[of[rows], threads // WARP] = True

    def _overlook(self, event: BarrierEvent) -> None:
        """Note that relaxed operations, which clocks don't show, order the warps that took registers so far."""
        cluster = self._clocks.cluster
        members = np.unique(event.ctas.slots // cluster)[:, None] * cluster + np.arange(cluster)
        for of in members[(self._asked[members] > 0).any(axis=(1, 2))]:
            self._is_hidden[of] = True

    # Changes.

    def _change(self, event: SetRegisters, warp: int) -> None:
        i, clocks, slots, cluster = event.instruction, self._clocks, event.ctas.slots, self._clocks.cluster
        count = i.operands[0]
        assert isinstance(count, Immediate)
        threads = event.threads.ids[event.threads.ids // WARP == warp]
        held, more = self._held[slots, warp], i.traits.takes_registers
        now = np.maximum(held, count.value) if more else np.minimum(held, count.value)
        known = clocks.joint(slots, threads)[DONE][..., clocks.all_ends]
        members = (slots // cluster * cluster)[:, None] + np.arange(cluster)
        if more:
            self._peak[slots, warp] = np.maximum(self._peak[slots, warp], now)
        else:
            self._give(slots, warp, held - now, self._comes_after_requests(known, members))
        self._held[slots, warp] = now
        if self._many.max() < _MOST_ROUNDS:
            self._done.append(_RegisterChange(i, slots, warp, now - held, self._before(known, members)))
        ends = clocks.counts(slots, clocks.ends(threads)) + 1
        takes = (now > held)[:, None] & (self._asked[slots[:, None], threads] == 0)
        self._asked[slots[:, None], threads] += np.where(takes, ends, 0).astype(np.int32)
        self._note(slots, warp, threads, ends)

    def _give(self, slots: Array, warp: int, amounts: Array, after: Array) -> None:
        self._given[slots] += amounts
        self._is_sure[slots, warp] &= ~after
        sure = slots[self._is_sure[slots, warp]]
        self._peak[sure, warp] = self._held[sure, warp] - amounts[self._is_sure[slots, warp]]

    def _comes_after_requests(self, known: Array, members: Array) -> Array:
        """Mark the CTAs in whose cluster an event comes after a warp took registers."""
        asked = self._asked[members]
        either = ((known >= asked) & (asked > 0)).any(axis=2) | self._is_hidden[members].any(axis=2)
        found: Array = np.logical_or.reduce(either, axis=1)
        return found

    def _before(self, known: Array, members: Array) -> Array:
        """Return how many changes of each warp of the cluster are known to be done, (CTA, rank, warp)."""
        result = np.zeros((*members.shape, self._warps), int)
        first = np.arange(self._warps) * WARP
        for when in self._when:
            there = when[members]
            result += np.logical_or.reduceat((known >= there) & (there > 0), first, axis=2)
        return result

    def _note(self, slots: Array, warp: int, threads: Array, ends: Array) -> None:
        before = self._many[slots, warp]
        for many in np.unique(before).tolist():
            if many >= _MOST_ROUNDS:
                continue
            if many == len(self._when):
                self._when.append(np.zeros_like(self._asked))
            here = before == many
            self._when[many][slots[here][:, None], threads] = ends[here]
        self._many[slots, warp] += 1

    # Results.

    def end(self) -> None:
        """Check that each request finds registers, in every order."""
        short = self._peak.sum(axis=1) > self._at_launch * self._warps
        cluster = self._clocks.cluster
        for first in np.unique(np.flatnonzero(short) // cluster * cluster).tolist():
            if self._search(first):
                return

    def _search(self, first: int) -> bool:
        """Search the orders of one cluster's changes; tells whether something was said."""
        cluster, members = self._clocks.cluster, slice(first, first + self._clocks.cluster)
        by_warp: list[list[tuple[Change, Instruction]]] = [[] for _ in range(cluster * self._warps)]
        for done in self._done:
            for row in np.flatnonzero((done.slots >= first) & (done.slots < first + cluster)).tolist():
                after = tuple(done.after[row].reshape(-1).tolist())
                change = Change(int(done.amounts[row]), after)
                by_warp[(int(done.slots[row]) - first) * self._warps + done.warp].append((change, done.instruction))
        found: BlockedWarp | bool = True
        if self._many[members].max() < _MOST_ROUNDS and not self._is_hidden[members].any():
            pools = np.repeat(np.arange(cluster), self._warps).tolist()
            found = starved([[change for change, _ in one] for one in by_warp], pools)
        if found is True:
            self._refuse(self._unknown([i for one in by_warp for _, i in one]))
        elif found is not False:
            sides = [
                self._side(by_warp[w][n][1], first + w // self._warps, w % self._warps)
                for w, n in (found.took, found.waits)
            ]
            w, n = found.waits
            late = next((i for one in by_warp for c, i in one if c.amount < 0 and c.after[w] > n), None)
            self._violated(Violation("exhausted-registers", REGISTERS, sides[0], sides[1], _starves(late)))
        return found is not False

    def _unknown(self, changes: list[Instruction]) -> str:
        lines = " and ".join(
            dict.fromkeys(f"`{i.text.strip()}` ({line_of(i)})" for i in changes if i.traits.takes_registers)
        )
        return (
            f"it is not known whether each setmaxnreg.inc finds registers, whoever asks first: {lines}; what is given "
            "back before any of them is less than all need at most"
        )

    def _side(self, i: Instruction, slot: int, warp: int) -> Side:
        cta = self._wave.residents.coordinate(slot)
        return Side("setmaxnreg", f"warp {warp} of CTA {cta}", i, cta, warp)

    def block(self, event: RegistersBlocked) -> None:
        """Refuse to say that every schedule hangs where warps wait for registers, unless too few were given back."""
        count = event.instruction.operands[0]
        assert isinstance(count, Immediate)
        slots, warps = event.ctas.slots, np.unique(event.threads.ids // WARP)
        needed = count.value - self._held[slots[:, None], warps]
        if ((needed > 0) & (needed <= self._given[slots][:, None])).any():
            self._refuse(
                f"a warp waits for registers that others were given first: `{event.instruction.text.strip()}` "
                f"({line_of(event.instruction)})"
            )


def _generation(event: GenerationEvent) -> Array:
    shape = len(event.ctas.slots), len(event.threads.ids)
    generation: Array = np.broadcast_to(event.generation, shape)[:, 0]
    return generation


def _starves(late: Instruction | None) -> Diagnosis:
    if late is None:
        return Diagnosis("registers-run-out")
    return Diagnosis("registers-given-back-late", instruction=late.text.strip(), line=line_of(late))


MOST_STATES = 20_000


class Change(NamedTuple):
    """A setmaxnreg of a warp.

    Attributes
    ----------
    amount : int
        Registers a thread that it takes; below 0 the registers that it gives back.
    after : tuple of int
        Of each warp, how many of its changes come before.
    """

    amount: int
    after: tuple[int, ...]


class BlockedWarp(NamedTuple):
    """A warp that may wait forever.

    Attributes
    ----------
    waits : (int, int)
        The warp, and which of its changes that is.
    took : (int, int)
        The change that the same pool served last before this one.
    """

    waits: tuple[int, int]
    took: tuple[int, int]


def starved(warps: Sequence[Sequence[Change]], pools: Sequence[int], most: int = MOST_STATES) -> BlockedWarp | bool:
    """Return a warp that waits forever in some order; False if there is none, True if that takes too long to say.

    Parameters
    ----------
    warps : sequence of sequence of Change
    pools : sequence of int
        The pool of each warp, in which there are 0 registers at first.
    most : int
        States to look at.

    Examples
    --------
    Two warps ask for 8 registers, a third gives 8 back, and 8 more when the first has got its own:

    >>> first, second, third = [Change(8, (0, 0, 0))], [Change(8, (0, 0, 0))], [Change(-8, (0, 0, 0))]
    >>> starved([first, second, [*third, Change(-8, (1, 0, 1))]], [0, 0, 0])
    BlockedWarp(waits=(0, 0), took=(1, 0))
    >>> starved([first, second, [*third, Change(-8, (0, 0, 1))]], [0, 0, 0])
    False
    """
    start = _given_back(warps, (0,) * len(warps))
    waiting: list[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]] = [(start, ())]
    seen = {start}
    while waiting:
        state, path = waiting.pop()
        free = _free(warps, pools, state)
        asking = [w for w, n in enumerate(state) if n < len(warps[w]) and _may(warps[w][n], state)]
        served = [w for w in asking if warps[w][state[w]].amount <= free[pools[w]]]
        if asking and not served:
            w = asking[0]
            took = next((one for one in reversed(path) if pools[one[0]] == pools[w]), (w, state[w]))
            return BlockedWarp((w, state[w]), took)
        for w in served:
            following = _given_back(warps, (*state[:w], state[w] + 1, *state[w + 1 :]))
            if following not in seen:
                if len(seen) >= most:
                    return True
                seen.add(following)
                waiting.append((following, (*path, (w, state[w]))))
    return False


def _may(change: Change, state: tuple[int, ...]) -> bool:
    return all(had >= need for had, need in zip(state, change.after, strict=True))


def _given_back(warps: Sequence[Sequence[Change]], state: tuple[int, ...]) -> tuple[int, ...]:
    """Return a state after all changes that give registers back, as far as they wait for no request."""
    now, is_done = list(state), False
    while not is_done:
        is_done = True
        for w, changes in enumerate(warps):
            while now[w] < len(changes) and changes[now[w]].amount <= 0 and _may(changes[now[w]], tuple(now)):
                now[w] += 1
                is_done = False
    return tuple(now)


def _free(warps: Sequence[Sequence[Change]], pools: Sequence[int], state: tuple[int, ...]) -> dict[int, int]:
    free = dict.fromkeys(pools, 0)
    for changes, pool, n in zip(warps, pools, state, strict=True):
        free[pool] -= sum(change.amount for change in changes[:n])
    return free
