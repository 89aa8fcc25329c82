"""Lanes before an instruction, as a hook sees them: registers, accumulators and shared memory.

A stop is the start of a basic block of its own, so that every live register is in its place; code without stops is
translated as if there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.group import Group, inherited
from cutepy.sim.machine.lanes import Array, Ctas, Threads
from cutepy.sim.machine.shared_memory import Place, SharedMemory, view

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate import Program


class Step:
    """Lanes that are about to execute an instruction.

    Attributes
    ----------
    instruction : Instruction
        With its line of Python in `instruction.source`.
    ctas, threads : Ctas, Threads
        Who: the lanes, a rectangle.
    """

    def __init__(self, program: Program, group: Group, instruction: Instruction, shared: SharedMemory) -> None:
        self.instruction = instruction
        self.ctas: Ctas = group.ctas
        self.threads: Threads = group.threads
        self._program = program
        self._group = group
        self._shared = shared

    def value(self, index: int) -> Array:
        """Return a register that will still be read, by its number in the function; it broadcasts to the lanes."""
        value = self._group.registers[index]
        return np.array(inherited(self._group, index) if value is None else value)

    def holds(self, index: int) -> bool:
        """Tell whether `value` has a register: it is no accumulator of an MMA that is held as a tile."""
        return not any(index in self._program.accumulator_sets[number] for number in self._group.tiles)

    def executing(self) -> Array:
        """Tell which lanes execute the instruction, (CTAs, threads): those whose guard holds."""
        shape, guard = (self.ctas.count, self.threads.count), self.instruction.predicate
        if guard is None or guard[0].index not in self._program.flow.live_in[self._group.block]:
            return np.ones(shape, bool)  # the others have gone another way already
        return np.broadcast_to(self.value(guard[0].index).astype(bool) != guard[1], shape)

    @property
    def registers(self) -> dict[str, Array]:
        """The registers that will still be read, by PTX name: (CTAs, threads), bits or floats; accumulators excepted.

        Copies: to change one changes nothing.
        """
        g, program = self._group, self._program
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
        layout: Place = None,
        dtype: object = "uint8",
        offset: int = 0,
    ) -> Array:
        """Return the shared memory of a resident CTA, by default the first of these: see `Run.smem`."""
        own = self.ctas.residents.coordinate(int(self.ctas.slots[0])) if cta is None else cta
        data = self._shared.find(own)
        if data is None:
            raise LookupError(f"CTA {tuple(own)} is not resident now")
        return view(data, layout, dtype, offset)

    def __str__(self) -> str:
        i = self.instruction
        return f"{i.source or '?'}: `{i.text}` by {self.threads.describe()} of {self.ctas.describe()}"
