"""Visibility of mbarrier.init: each use of an mbarrier needs a happens-before from the init, released by a fence.

References
----------
PTX ISA, "membar, fence": fence.mbarrier_init is a release, of what an mbarrier was made with; "bi-directional proxy
fences do not directly synchronize with other fences", and "take effect within a single thread".
"""

from __future__ import annotations

import numpy as np

from cutepy.sim.machine.events import MbarrierCompleteTx, MbarrierEvent, MbarrierInit
from cutepy.sim.machine.lanes import WARP, Array, spread
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.order.clocks import DONE, FENCED, SEEN
from cutepy.sim.sanitize.order.mbarrier_lifetime import UnorderedUse
from cutepy.sim.sanitize.order.wave import GENERIC, InitRecord, Wave

INITS = "inits"
"""The channel of fence.mbarrier_init after mbarrier.init, which relaxed arrivals publish too."""


def fence_inits(wave: Wave, slots: Array, threads: Array) -> None:
    """Note a fence.mbarrier_init, which shows mbarriers to copies and to other CTAs."""
    for made in wave.inits.values():
        waiting = (made.counts > 0) & (made.fenced == 0)
        if waiting.any():
            here = waiting & np.isin(made.agents, slots) & np.isin(made.threads, threads)
            made.fenced[here] = _shown(wave, made, here)


def _shown(wave: Wave, made: InitRecord, here: Array) -> Array:
    """Count a fence after the making of an mbarrier in a column of its own, which relaxed arrivals publish too."""
    clocks = wave.clocks
    result = np.zeros(here.sum(), np.int64)
    for thread in np.unique(made.threads[here]).tolist():
        column = np.array([clocks.column((INITS, thread), thread)])
        of = made.threads[here] == thread
        agents = made.agents[here][of]
        counts = clocks.counts(agents, column) + 1
        for plane in (DONE, SEEN):
            clocks.set_own(plane, agents, column, counts)
        result[of] = counts[:, 0]
    return result


def check_made(wave: Wave, event: MbarrierEvent) -> tuple[str, Side, Side] | None:
    """Note the init of an mbarrier; of other uses, return the kind of hazard if they don't know of the init."""
    state, clocks = event.state, wave.clocks
    of = state.slots
    if isinstance(event, MbarrierInit):
        none = np.zeros((5, wave.residents.count), np.int64)
        new = wave.inits.setdefault(state.address, InitRecord(event.instruction, *none))
        thread = event.threads.ids[:1]
        new.instruction = event.instruction
        new.agents[of], new.threads[of], new.fenced[of] = event.ctas.slots, thread, 0
        new.counts[of] = clocks.counts(event.ctas.slots, thread)[:, 0]
        new.settled[of] = False
        return None
    made = wave.inits.get(state.address)
    if made is None or made.settled[of].all():
        return None
    if event.part_of is None:
        seen = _by_threads(wave, event, made)
        fenced = np.ones_like(seen)
    else:
        seen, fenced = _by_copies(wave, event, made)
        if event.part_of.kind in (*GENERIC, "tcgen05"):  # ISA, "tcgen05.commit": by the generic proxy
            fenced = np.ones_like(seen)
    if seen.all() and fenced.all():
        made.settled[of] = _settled(wave, made, of)
        return None
    maker = int(made.threads[of[0]])
    before = Side("mbarrier.init", f"thread {maker}", made.instruction, warp=maker // WARP, of_warps=True)
    # Without a fence a relaxed arrival at the cluster's barrier publishes nothing, though the barrier is there.
    unfenced = _needs_fence(event) and not made.fenced[of].all()
    return "missing-init-fence" if seen.all() or unfenced else "unpublished-mbarrier", before, side_of(wave, event)


def _needs_fence(event: MbarrierEvent) -> bool:
    """Return whether a copy uses an mbarrier, or another CTA."""
    if event.part_of is not None:
        return event.part_of.kind not in ("cp_async", "tcgen05")
    assert event.slots is not None
    return bool((event.slots != event.ctas.slots[:, None]).any())


def _settled(wave: Wave, made: InitRecord, of: Array) -> Array:
    """Tell, by CTA, whether all threads of its cluster know of the making and of a fence after it: so ever after."""
    clocks, cluster = wave.clocks, wave.clocks.cluster
    slots = (of // cluster * cluster)[:, None, None] + np.arange(cluster)[:, None]
    at = slots, np.arange(clocks.threads), (made.agents[of] % cluster)[:, None, None]
    counts = made.counts[of][:, None, None]
    knows = clocks.rows_know(SEEN, *at, made.threads[of][:, None, None]) >= counts
    fenced = clocks.rows_know(FENCED, *at, made.threads[of][:, None, None]) >= counts
    shown = clocks.known_column((INITS, int(made.threads[of[0]])))
    if shown is not None:
        count = made.fenced[of][:, None, None]
        held = (count > 0) & (clocks.rows_know(SEEN, *at, np.array(shown)) >= count)
        return np.asarray(((knows & fenced) | held).all(axis=(1, 2)))
    return np.asarray((knows & fenced).all(axis=(1, 2)))


def _by_copies(wave: Wave, event: MbarrierEvent, made: InitRecord) -> tuple[Array, Array]:
    """Return, by copy or by CTA, whether the issuers of copies knew of the init, and of a fence after it."""
    assert event.part_of is not None
    issued = wave.issued[id(event.part_of)]
    deliveries = event.deliveries if isinstance(event, MbarrierCompleteTx) else None
    if deliveries is None:
        of = event.state.slots
        known = issued.known[:, wave.issuers(event.part_of.ctas.slots, of)]
    else:
        of, by, lanes = deliveries.T
        known = issued.known[:, by] if len(issued.threads) == 1 else issued.lanes(by, lanes)
    rows, ranks, threads = np.arange(len(of)), made.agents[of] % wave.clocks.cluster, made.threads[of]
    seen = known[SEEN][rows, ranks, threads] >= made.counts[of]
    fenced = known[FENCED][rows, ranks, threads] >= made.counts[of]
    shown = wave.clocks.known_column((INITS, int(threads[0])))
    if shown is not None and shown < known.shape[-1]:
        held = (made.fenced[of] > 0) & (known[SEEN][rows, ranks, shown] >= made.fenced[of])
        seen, fenced = seen | held, fenced | held
    return seen, fenced


def _by_threads(wave: Wave, event: MbarrierEvent, made: InitRecord) -> Array:
    """Tell, by CTA and thread, whether they know of the making, or of a fence after it that relaxed arrivals show."""
    assert event.slots is not None
    clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
    whose = spread(event.slots, (len(slots), len(threads)))
    view, rows_of = clocks.view(slots, threads)
    at = np.arange(len(slots))[:, None], rows_of, made.agents[whose] % clocks.cluster
    own = (made.agents[whose] == slots[:, None]) & (made.threads[whose] == threads)
    seen: Array = own | (view.known[SEEN][*at, made.threads[whose]] >= made.counts[whose])
    shown = clocks.known_column((INITS, int(made.threads[whose].flat[0])))
    if shown is not None:
        seen = seen | ((made.fenced[whose] > 0) & (view.known[SEEN][*at, shown] >= made.fenced[whose]))
    return seen


def used_by(wave: Wave, used: UnorderedUse) -> Side:
    """Return the threads that used an mbarrier, as reports name them."""
    return Side.of_thread(used.instruction.opcode, wave.residents.coordinate(used.agent), used.thread, used.instruction)


def side_of(wave: Wave, event: MbarrierEvent) -> Side:
    """Return the threads of an operation on an mbarrier, as reports name them."""
    of_copy = "" if event.part_of is None else f"{event.part_of.kind} "
    cta = wave.residents.coordinate(int(event.ctas.slots[0]))
    warp = int(event.threads.ids[0]) // WARP
    who = f"warp {warp} of CTA {cta}"
    return Side(of_copy + event.operation, who, event.instruction, cta, warp)
