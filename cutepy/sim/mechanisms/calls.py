"""Calls of functions: the lanes of a group enter, and meet again where the function returns.

A call parts a group as a branch does, into one part for each function that some lanes call. The group that calls waits
meanwhile, with its registers; its parts have registers of their own, and a frame in local memory behind that of the
caller. That is copied which is passed: arguments as they enter, results as they return.

References
----------
PTX ISA, "Control Flow Instructions: call".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.group import Group, Join, parts_of, places
from cutepy.sim.machine.lanes import Array, select
from cutepy.sim.ptx.linking import Callee, CallSite, slots

if TYPE_CHECKING:
    from cutepy.sim.machine.machine import Machine
    from cutepy.sim.ptx.model import Instruction

_Target = tuple[NDArray[np.intp] | None, NDArray[np.intp] | None, Callee]


@dataclass(frozen=True)
class Return:
    """What there is to do when lanes return.

    Attributes
    ----------
    block : int
        Where they go on.
    site : CallSite
    instruction : Instruction
        The call.
    results : tuple of int
        Bytes of what the function gives.
    frame, top : array
        Where the frames of the caller and of the function start, for the lanes that called.
    """

    block: int
    site: CallSite
    instruction: Instruction
    results: tuple[int, ...]
    frame: Array
    top: Array


class Calls:
    """The calls of a launch."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

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
        m = self._machine
        if g.tiles or g.issued or g.committed:
            m.wgmma.drain(g)
            for number in list(g.tiles):
                m.wgmma.flush(g, number)
        targets = self._targets(g, i, target)
        join = Join(m.program.landing, g, Return(after, site, i, targets[0][2].results, frame, top))
        children = []
        for rows, columns, callee in targets:
            _check(g, i, site, callee)
            ctas = g.ctas if rows is None else m.ctas(g.ctas.slots[rows])
            threads = g.threads if columns is None else m.threads(g.threads.ids[columns])
            child = Group(m.next_number(), m.block_of(callee), m.fresh_registers(), ctas, threads, join)
            bottom, start = select(frame, rows, columns), select(top, rows, columns)
            child.registers[callee.frame.index] = start
            *_, after_results = slots(callee.results)
            for (source, _), to, size in zip(site.arguments, slots(callee.parameters), callee.parameters, strict=False):
                place = start + np.uint64(after_results + to)
                m.memory.copy_local(child, i, bottom + np.uint64(source), place, size)
            children.append(child)
        join.expected = len(children)
        return m.descend(g, join, children)

    def _targets(self, g: Group, i: Instruction, target: Callee | Array) -> list[_Target]:
        """Return which lanes call which function: rows and columns, None for all."""
        if isinstance(target, Callee):
            return [(None, None, target)]
        shape = (g.ctas.count, g.threads.count)
        found: list[_Target] = []
        for address in np.unique(target):
            callee = self._machine.program.linked.callees.get(int(address))
            if callee is None:
                raise SimulationError(f"what is called, at {int(address):#x}, is no function", i, g.describe())
            if target.size == 1:
                return [(None, None, callee)]
            lanes = np.broadcast_to(target == address, shape)
            parts = parts_of(lanes, shape, 1, 0)
            found += [(rows, columns, callee) for rows, columns, chosen in parts if chosen and len(rows)]
        return found

    def returned(self, back: Return, caller: Group, lanes: Group) -> None:
        """Copy the results of lanes that go on as a group, a part of the one that called or all of it."""
        rows, columns = places(lanes, caller)
        frame, top = select(back.frame, rows, columns), select(back.top, rows, columns)
        for (to, _), source, size in zip(back.site.results, slots(back.results), back.results, strict=False):
            place = frame + np.uint64(to)
            self._machine.memory.copy_local(lanes, back.instruction, top + np.uint64(source), place, size)


def _check(g: Group, i: Instruction, site: CallSite, callee: Callee) -> None:
    """See that a function takes and gives what it is called with.

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
