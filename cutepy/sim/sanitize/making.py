"""Whether those who use an mbarrier know that it has been made: mbarrier.init is a write that must be published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.sanitize.clocks import DONE, SEEN
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.wave import Making, Wave

if TYPE_CHECKING:
    from cutepy.sim.machine.events import BarrierEvent

INITS = "inits"
"""The channel of fences after mbarrier.init, which relaxed arrivals publish too."""


def fence_inits(wave: Wave, slots: Array, threads: Array) -> None:
    """Note a fence that shows mbarriers to copies and to other CTAs."""
    for made in wave.inits.values():
        here = np.isin(made.agents, slots) & np.isin(made.threads, threads) & (made.counts > 0) & (made.fenced == 0)
        made.fenced[here] = _shown(wave, made, here)


def _shown(wave: Wave, made: Making, here: Array) -> Array:
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


def check_made(wave: Wave, event: BarrierEvent) -> tuple[str, Side, Side] | None:
    """Note that an mbarrier is made; of other uses, return what kind of hazard it is if they don't know of it."""
    state, clocks = event.state, wave.clocks
    assert state is not None
    i, of = event.instruction, state.slots
    if event.operation == "init":
        new = wave.inits.setdefault(state.address, Making(i, *np.zeros((4, wave.residents.count), np.int64)))
        thread = event.threads.ids[:1]
        new.instruction = i
        new.agents[of], new.threads[of], new.fenced[of] = event.ctas.slots, thread, 0
        new.counts[of] = clocks.counts(event.ctas.slots, thread)[:, 0]
        return None
    made = wave.inits.get(state.address)
    if made is None:
        return None
    if event.part_of is not None:
        known = wave.issued[id(event.part_of)].known
        issuers = event.part_of.ctas.slots
        rows = wave.issuers(issuers, of)
        ranks = made.agents[of] % clocks.cluster
        seen = known[SEEN][rows, ranks, made.threads[of]] >= made.counts[of]
        shown = clocks.known_column((INITS, int(made.threads[of[0]])))
        if shown is not None and shown < known.shape[-1]:
            seen |= (made.fenced[of] > 0) & (known[SEEN][rows, ranks, shown] >= made.fenced[of])
        who, fenced = f"{event.part_of.kind} ", bool((made.fenced[of] > 0).all())
    else:
        assert event.slots is not None
        slots, threads = event.ctas.slots, event.threads.ids
        whose = np.broadcast_to(event.slots, (len(slots), len(threads)))
        view, rows_of = clocks.view(slots, threads)
        rows = np.broadcast_to(rows_of, whose.shape)
        at = made.agents[whose] % clocks.cluster
        held = view.known[SEEN][np.arange(len(slots))[:, None], rows, at, made.threads[whose]]
        own = (made.agents[whose] == slots[:, None]) & (made.threads[whose] == threads)
        seen = own | (held >= made.counts[whose])
        shown = clocks.known_column((INITS, int(made.threads[of[0]])))
        if shown is not None:
            held = view.known[SEEN][np.arange(len(slots))[:, None], rows, at, shown]
            seen |= (made.fenced[whose] > 0) & (held >= made.fenced[whose])
        who, fenced = "", bool(((made.fenced[whose] > 0) | (whose == slots[:, None])).all())
    if seen.all() and fenced:
        return None
    first = wave.residents.coordinate(int(event.ctas.slots[0]))
    agent = f"warp {int(event.threads.ids[0]) // WARP} of CTA {first}"
    before = Side("mbarrier.init", f"thread {int(made.threads[of[0]])}", made.instruction)
    return (
        ("missing-init-fence" if seen.all() else "unpublished-mbarrier"),
        before,
        Side(who + event.operation, agent, i),
    )
