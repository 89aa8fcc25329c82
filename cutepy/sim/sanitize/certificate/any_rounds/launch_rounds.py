"""Rounds of the loops of one launch: what the run notes of them, and the extensions of its certificate in the end.

`tensormap.replace` is followed as any operand of synchronisation. Other stores count as stores of data. So `MapWrites`
looks in the run for stores, in loops that synchronise, which hit a tensor map or what is copied to one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.tensor_map_bits import SIZE_BYTES
from cutepy.sim.ptx.places import line_of
from cutepy.sim.sanitize.certificate.any_rounds.extensions import Extension, extensions, merged
from cutepy.sim.sanitize.certificate.any_rounds.grid_constants import extents_of, specialised
from cutepy.sim.sanitize.certificate.any_rounds.loops import loops
from cutepy.sim.translate.operand_roles import acquires_maps
from cutepy.sim.translate.state_spaces import state_spaces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.certificate.any_rounds.loops import Loop
    from cutepy.sim.sanitize.certificate.any_rounds.rounds import RoundNotes
    from cutepy.sim.translate import Program

_GRANULE_BYTES = 16


class LaunchRounds:
    """Collects the rounds of a launch's loops, and extends its certificate to further ones.

    Parameters
    ----------
    program : Program
    launch : Launch
    """

    def __init__(self, program: Program, launch: Launch) -> None:
        self._loops = _loops(program, extents_of(launch))
        self._heads = {} if isinstance(self._loops, str) else {one.head: one for one in self._loops}
        in_loops = frozenset[int]().union(*(one.instructions for one in self._heads.values()))
        self._map_writes = MapWrites(program.function.instructions, in_loops)
        self._found: list[Extension] = []

    def access(self, access: Access) -> None:
        """Note an access that may write a tensor map."""
        self._map_writes.see(access)

    def begin(self, notes: RoundNotes, step: Step) -> None:
        """Note the beginning of a round, if a loop begins one at this step."""
        loop = self._heads.get(step.instruction.index)
        if loop is not None:
            notes.begin(step, loop.noted(lambda register: step.value(register.index)))

    def end(self, notes: RoundNotes) -> None:
        """Look at the rounds of CTAs that have ended."""
        if not isinstance(self._loops, str):
            self._found += extensions(notes, self._loops)

    def extensions(self) -> tuple[Extension, ...]:
        """Return the extensions for all CTAs that ended: refused, where a loop stores words of tensor maps."""
        by = self._map_writes.found()
        if by is None:
            return merged(self._found)
        reason = f"tensor maps are written by `{by.text.strip()}` ({line_of(by)})"
        each = {where: None for one in self._found for where, _ in one.loops}
        return merged([Extension(((where, 0),), 0, reason) for where in each])


@lru_cache(maxsize=16)
def _loops(program: Program, extents: tuple[tuple[str, int], ...]) -> list[Loop] | str:
    """Return the loops of a program, with the extents of a grid as constants."""
    return loops(specialised(program.flow, dict(extents)))


class MapWrites:
    """Tensor maps of a launch, and stores in its loops that may write them.

    Parameters
    ----------
    instructions : sequence of Instruction
        Of the kernel.
    in_loops : set of int
        Those in loops that synchronise, by index.
    """

    def __init__(self, instructions: tuple[Instruction, ...], in_loops: Iterable[int]) -> None:
        looping = frozenset(in_loops) if acquires_maps(instructions) else frozenset[int]()
        self._stores = {i.index: i for i in instructions if i.index in looping and _is_of_data(i)}
        self._maps: dict[str, set[int]] = {}
        self._stored: dict[tuple[str, int], set[int]] = {}

    def see(self, access: Access) -> None:
        """Note what an access does to tensor maps, or may."""
        if not self._stores:
            return
        i = access.instruction
        if access.proxy == "tensormap" or i.parts[0] == "tensormap":
            self._maps.setdefault(access.space, set()).update(_granules(access.addresses, SIZE_BYTES))
        elif access.operation != "read" and i.index in self._stores:
            places = _granules(access.addresses, access.size_bytes)
            self._stored.setdefault((access.space, i.index), set()).update(places)

    def found(self) -> Instruction | None:
        """Return what has stored words of tensor maps, in a loop."""
        hit = (n for (space, n), places in self._stored.items() if not places.isdisjoint(self._maps.get(space, ())))
        return next((self._stores[n] for n in sorted(hit)), None)


def _is_of_data(i: Instruction) -> bool:
    return i.parts[0] != "tensormap" and not {"shared", "global", "generic"}.isdisjoint(state_spaces(i).stores)


def _granules(addresses: Array, size: int) -> list[int]:
    """Return the granules that accesses touch."""
    starts = np.unique(np.asarray(addresses).astype(np.int64))
    ends = starts + size - 1
    steps = np.arange(size // _GRANULE_BYTES + 2)
    wide = starts[:, None] // _GRANULE_BYTES + steps
    found: list[int] = np.unique(wide[wide <= (ends // _GRANULE_BYTES)[:, None]]).tolist()
    return found
