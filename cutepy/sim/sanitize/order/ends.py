"""What is left when CTAs end: what is in flight, what reaches them, and what did not come out even."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.order.wave import Wave

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

End = tuple[str, str, Side | None, Side, str | None]
"""A hazard: its kind, where it is, its two sides, and what is missing where the kind doesn't say."""


def ends(wave: Wave) -> Iterator[End]:
    """Yield the hazards of CTAs that have ended."""
    coordinate = wave.residents.coordinate
    for column, (i, groups) in wave.last.items():
        late = np.flatnonzero(groups > wave.clocks.best(column))
        if len(late):
            yield _in_flight(i, int(wave.clocks.owner[column]), coordinate(int(late[0])))
    for (slot, agent, column), (i, count) in wave.lent.items():
        if wave.clocks.best_of(slot, agent % wave.clocks.cluster)[column] < count:
            side = Side("bulk copy read", f"the async proxy for CTA {coordinate(slot)}", i, coordinate(slot))
            missing = (
                f"CTA {coordinate(agent)}, whose mbarrier counts its bytes, must say that they have come, by "
                "barrier.cluster for example, before the end"
            )
            yield "in-flight-at-exit", "shared memory", side, _exit(coordinate(slot)), missing
    for one in wave.peers.late():
        before = _by_thread(one.instruction.opcode, coordinate(one.agent), one.thread, one.instruction)
        target = coordinate(one.target)
        yield "exited-peer", f"shared memory of CTA {target}", before, _exit(target), None
    yield from stuck(wave, None)


def stuck(wave: Wave, ended: Array | None) -> Iterator[End]:
    """Yield the hazards of CTAs in which nothing goes on: some threads have ended, (CTA, thread), or all."""
    coordinate = wave.residents.coordinate
    for mbarrier in wave.objects.uneven():
        what = f"{mbarrier.pending_bytes} bytes were expected and never came"
        if mbarrier.pending_bytes < 0:
            what = f"{-mbarrier.pending_bytes} bytes came that nobody had expected"
        where, cta = f"mbarrier {mbarrier.address:#x}", coordinate(mbarrier.slot)
        before, after = (
            None if i is None else Side(i.opcode, f"CTA {cta}", i, cta) for i in (mbarrier.expects, mbarrier.delivers)
        )
        after = after or _exit(cta)
        yield "uneven-bytes", where, before, after, f"{what}: expect_tx must say what the copies bring"
    for part in wave.set_registers.parts(ended):
        who = f"warp {part.warp} of CTA {coordinate(part.slot)}"
        missing = f"warp {part.other} of the same warpgroup did not execute it: all four must"
        yield "partial-warpgroup", "registers", None, Side("setmaxnreg", who, part.instruction), missing


def _exit(cta: tuple[int, ...]) -> Side:
    return Side("exit", f"CTA {cta}", None, cta)


def _by_thread(what: str, cta: tuple[int, ...], thread: int, i: Instruction) -> Side:
    warp, lane = divmod(thread, WARP)
    return Side(what, f"warp {warp}, lane {lane} of CTA {cta}", i, cta, warp, lane)


def _in_flight(i: Instruction, owner: int, cta: tuple[int, ...]) -> End:
    """Say what uses shared memory of a CTA that has ended."""
    if i.parts[0] == "wgmma":
        side = Side("wgmma read", f"the async proxy for CTA {cta}", i, cta)
        missing = "wgmma.commit_group and wgmma.wait_group 0 must come before the end"
    elif owner >= 0:
        side = _by_thread("bulk store read", cta, owner, i)
        missing = "cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 must come before the end"
    else:
        side = Side("copy write", f"the async proxy for CTA {cta}", i, cta)
        missing = "a wait for the mbarrier that counts its bytes must come before the end"
    return "in-flight-at-exit", "shared memory", side, _exit(cta), missing
