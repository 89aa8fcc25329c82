"""Calls of functions: the lanes of a group enter, and meet again where the function returns.

A call splits a group as a branch does, into one part for each called function. The calling group waits and keeps its
registers. Each part has registers of its own, and a frame in local memory behind the frame of the caller. Arguments are
copied to the frame at the call, and results are copied back at the return.

References
----------
PTX ISA, "Control Flow Instructions: call".
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import MemoryAccessError, SimulationError
from cutepy.sim.machine.divergence import parts_of
from cutepy.sim.machine.group import Group, Join, Return, places
from cutepy.sim.machine.lanes import Array, select
from cutepy.sim.machine.memory import MAX_LOCAL_BYTES
from cutepy.sim.ptx.linking import SLOT_BYTES, Callee, CallSite, slots

if TYPE_CHECKING:
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.machine.schedule import Schedule
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate import Program

_MOST_CALLS = MAX_LOCAL_BYTES // 32
"""Most calls that are nested: a GPU saves the return address and the caller's registers for each."""

_Target = tuple[NDArray[np.intp] | None, NDArray[np.intp] | None, Callee]


class Calls:
    """The calls of a launch."""

    def __init__(self, program: Program, memory: Memory, schedule: Schedule) -> None:
        self._program, self._memory, self._schedule = program, memory, schedule

    def enter(
        self,
        g: Group,
        i: Instruction,
        site: CallSite,
        target: Callee | Array,
        frame: Array,
        top: Array,
        after: int,
    ) -> int:
        """Let a group call a function, or each of its lanes the one whose address it has.

        Returns
        -------
        int
            That the group has become others.
        """
        roster, schedule, memory = self._schedule.roster, self._schedule, self._memory
        targets = self._targets(g, i, target)
        finish = partial(self._finish, i, site, targets[0][2].results, frame, top)
        join = Join(self._program.landing, g, Return(after, finish))
        children = []
        for rows, columns, callee in targets:
            _check(g, i, site, callee)
            _check_depth(g, i, callee, join.depth, int(top.max()))
            ctas = g.ctas if rows is None else roster.ctas(g.ctas.slots[rows])
            threads = g.threads if columns is None else roster.threads(g.threads.ids[columns])
            block = self._program.entries[callee.start]
            child = roster.group(block, schedule.fresh_registers(), ctas, threads, join)
            bottom, start = select(frame, rows, columns), select(top, rows, columns)
            child.registers[callee.frame.index] = start
            *_, after_results = slots(callee.results)
            for (source, _), to, size in zip(site.arguments, slots(callee.parameters), callee.parameters, strict=False):
                place = start + np.uint64(after_results + to)
                memory.copy_local(child, i, bottom + np.uint64(source), place, size)
            children.append(child)
        return schedule.descend(g, join, children)

    def _targets(self, g: Group, i: Instruction, target: Callee | Array) -> list[_Target]:
        """Return which lanes call which function: rows and columns, None for all."""
        if isinstance(target, Callee):
            return [(None, None, target)]
        shape = (g.ctas.count, g.threads.count)
        found: list[_Target] = []
        for address in np.unique(target):
            callee = self._program.linked.callees.get(int(address))
            if callee is None:
                raise SimulationError(f"what is called, at {int(address):#x}, is no function", i, g.describe())
            if target.size == 1:
                return [(None, None, callee)]
            lanes = np.broadcast_to(target == address, shape)
            parts = parts_of(lanes, shape, 1, 0)
            found += [(rows, columns, callee) for rows, columns, chosen in parts if chosen and len(rows)]
        return found

    def _finish(
        self,
        i: Instruction,
        site: CallSite,
        results: tuple[int, ...],
        frame: Array,
        top: Array,
        lanes: Group,
        caller: Group,
    ) -> None:
        """Copy the results of lanes that go on as a group, a part of the one that called or all of it."""
        rows, columns = places(lanes, caller)
        bottom, start = select(frame, rows, columns), select(top, rows, columns)
        for (to, _), source, size in zip(site.results, slots(results), results, strict=False):
            self._memory.copy_local(lanes, i, start + np.uint64(source), bottom + np.uint64(to), size)


def _check_depth(g: Group, i: Instruction, callee: Callee, depth: int, frame_offset: int) -> None:
    """Check that the frames of a thread's calls fit into local memory.

    Raises
    ------
    MemoryAccessError
    """
    if depth > _MOST_CALLS or frame_offset + callee.frame_bytes + SLOT_BYTES > MAX_LOCAL_BYTES:
        raise MemoryAccessError(
            f"calls are nested {depth} deep, the last of {callee.name}, and the {MAX_LOCAL_BYTES >> 10} KiB of local "
            "memory that a thread has for them end",
            i,
            g.describe(),
            fix=Diagnosis("endless-recursion"),
        )


def _check(g: Group, i: Instruction, site: CallSite, callee: Callee) -> None:
    """Check that a function's parameters and results are those of the call.

    Raises
    ------
    SimulationError
    """
    for what, passed, formal in (
        ("arguments", site.arguments, callee.parameters),
        ("results", site.results, callee.results),
    ):
        given = tuple(size for _, size in passed)
        if len(given) != len(formal) or any(one < size for one, size in zip(given, formal, strict=True)):
            raise SimulationError(
                f"{callee.name} has {what} of {list(formal)} bytes, and is called with {list(given)}", i, g.describe()
            )
