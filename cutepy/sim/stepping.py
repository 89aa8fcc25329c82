"""Stops: where a kernel pauses before an instruction, so that a hook can look at its registers.

A stop is the start of a basic block of its own, so that every live register is in its place; code without stops is
translated as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.events import Observer
from cutepy.sim.group import inherited
from cutepy.sim.lanes import Array, Ctas, Threads
from cutepy.sim.shared_memory import SharedMemory, view

if TYPE_CHECKING:
    from cutepy.layouts import ComposedLayout, Layout
    from cutepy.sim.group import Group
    from cutepy.sim.machine import Machine
    from cutepy.sim.ptx.model import Function, Instruction

_TAKES_CARRY = ("addc", "subc", "madc")


class Step:
    """Lanes that are about to execute an instruction.

    Attributes
    ----------
    instruction : Instruction
        With its line of Python in `instruction.source`.
    ctas, threads : Ctas, Threads
        Who: the lanes, a rectangle.
    """

    def __init__(self, machine: Machine, group: Group, instruction: Instruction) -> None:
        self.instruction = instruction
        self.ctas: Ctas = group.ctas
        self.threads: Threads = group.threads
        self._machine = machine
        self._group = group

    @property
    def registers(self) -> dict[str, Array]:
        """The registers that will still be read, by PTX name: (CTAs, threads), bits or floats; accumulators excepted.

        Copies: to change one changes nothing.
        """
        g, program = self._group, self._machine.program
        shape = g.ctas.count, g.threads.count
        tiles = {r for number in g.tiles for r in program.accumulator_sets[number]}
        found = {}
        for index in sorted(program.flow.live_in[g.block] - tiles):
            value = g.registers[index]
            value = inherited(g, index) if value is None else value
            found[program.function.registers[index].name] = np.broadcast_to(value, shape).copy()
        return found

    @property
    def accumulators(self) -> list[Array]:
        """The accumulators as tiles, (CTAs, warpgroups, 64, N), with the MMAs that have completed.

        One for each tuple of registers that MMAs accumulate in, as long as no other instruction has touched them.
        """
        tiles = self._group.tiles
        return [tiles[n].matrix.copy() for n in sorted(tiles) if tiles[n].matrix is not None]  # type: ignore[union-attr]

    def smem(
        self,
        cta: Sequence[int] | None = None,
        layout: Layout | ComposedLayout | str | None = None,
        dtype: object = "uint8",
        offset: int = 0,
    ) -> Array:
        """Return the shared memory of a resident CTA, by default the first of these: see `Run.smem`."""
        shared = SharedMemory.of(self._machine, 0)
        own = self.ctas.residents.coordinate(int(self.ctas.slots[0])) if cta is None else cta
        data = shared.find(own)
        if data is None:
            raise LookupError(f"CTA {tuple(own)} is not resident now")
        return view(data, layout, dtype, offset)

    def __str__(self) -> str:
        i = self.instruction
        return f"{i.source or '?'}: `{i.text}` by {self.threads.describe()} of {self.ctas.describe()}"


class Breakpoint(Observer):
    """Call an action wherever the code of a line of Python begins, or that of what the line calls.

    Parameters
    ----------
    where : str
        File and line, as "gemm.py:120"; of the file's path any trailing part.
    action : callable
        Takes a `Step`.
    """

    def __init__(self, where: str, action: Callable[[Step], None]) -> None:
        file, colon, line = where.rpartition(":")
        if not (colon and file and line.isdigit()):
            raise ValueError(f"a breakpoint is a file and a line, such as 'gemm.py:120', got {where!r}")
        self._parts, self._line, self._action = PurePath(file).parts, int(line), action
        self.hits = 0

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Stop at the first of successive instructions of the line."""
        return self._is_here(instruction) and (before is None or not self._is_here(before))

    def _is_here(self, i: Instruction) -> bool:
        lines = () if i.source is None else i.source.chain()
        return any(
            line.line == self._line and PurePath(line.file).parts[-len(self._parts) :] == self._parts for line in lines
        )

    def on_instruction(self, step: Step) -> None:
        """Call the action."""
        self.hits += 1
        self._action(step)


def stops(function: Function, observers: Sequence[Observer]) -> dict[int, tuple[Observer, ...]]:
    """Return which observers stop at which instructions, by index."""
    found = {}
    before = None
    for i in function.instructions:
        here = tuple(o for o in observers if o.stops_at(i, before))
        # A carry does not outlive its block.
        if here and i.parts[0] not in _TAKES_CARRY:
            found[i.index] = here
        before = i
    return found
