"""Racing loads whose value nothing uses in the lane that raced.

Compilers load a scalar in all lanes, compute with it, and store the result in one lane. The loads of the other lanes
race with that store, but their values are discarded. A racing load counts as discarded if its value reaches only
stores, through arithmetic of its own lane, and the lane executes none of these stores. The end of the CTA shows whether
the lane does; until then the race is held back. A load whose value reaches no store at all does not count as discarded,
since its purpose is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import as_index
from cutepy.sim.ptx.model import Address, registers_in
from cutepy.sim.sanitize.kinds import RACES
from cutepy.sim.sanitize.order.uses import uses_of
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Function, Instruction, Register
    from cutepy.sim.sanitize.memory.global_access_record import GlobalAccessRecord, GlobalConflict

_MOST_LANES = 1 << 26
"""Of a launch with more, nothing is held."""
_MOST_HELD = 64
"""Races of the same two instructions that are held, of which one is told."""


class _PendingRace(NamedTuple):
    """Race whose loaded value may have no effect, for each lane that reads.

    Attributes
    ----------
    conflict : GlobalConflict
    befores, afters, addresses : array of int
    ctas, threads : array of int
        Lanes that read.
    stores : frozenset of int
        The instructions that may store the read value.
    """

    conflict: GlobalConflict
    befores: Array
    afters: Array
    addresses: Array
    ctas: Array
    threads: Array
    stores: frozenset[int]


class DiscardedLoads:
    """The loads of a launch that race, and the stores of each lane."""

    def __init__(self) -> None:
        self._function: Function | None = None
        self._is_steered = False
        self._stores: dict[int, frozenset[int]] = {}
        self._shape = 0, 0
        self._executed: dict[int, Array] = {}
        self._held: dict[tuple[int, int, str], list[_PendingRace]] = {}

    def begin(self, launch: Launch, function: Function, is_steered: bool) -> None:
        """Begin with a launch; where the schedule steers it, other lanes may store in another one, and none is held."""
        self._is_steered = is_steered
        if self._function is not function:
            self._function, self._stores = function, {}
        x, y, z = launch.block
        self._shape = launch.ctas, x * y * z
        self._executed, self._held = {}, {}

    def note(self, access: Access) -> None:
        """Note the lanes that store, each with an instruction of its own."""
        if not _is_store(access.instruction) or self._shape[0] * self._shape[1] > _MOST_LANES:
            return
        index = access.instruction.index
        if index not in self._executed:
            self._executed[index] = np.zeros(self._shape, bool)
        ctas = access.ctas.residents.blocks[access.ctas.slots]
        rows, threads = as_index(ctas), access.threads.ids
        if isinstance(rows, slice):
            self._executed[index][rows, as_index(threads)] = True
        else:
            self._executed[index][ctas[:, None], threads] = True

    def hold(self, found: GlobalConflict) -> bool:
        """Take a race of one launch, and tell whether it is told later."""
        old, new = found.before, found.after
        reader = old if new.writes else new
        if self._is_steered or found.kind not in RACES or old.launch != new.launch or (old.writes and new.writes):
            return False
        i = reader.instruction
        if not i.traits.transfers or reader.threads is None or self._shape[0] * self._shape[1] > _MOST_LANES:
            return False
        stores = self._reached(i)
        key = old.instruction.index, new.instruction.index, found.kind
        held = self._held.setdefault(key, [])
        if not stores:
            return False
        new_one = _lanes_of(found, reader, stores)
        if any(np.array_equal(new_one.ctas, x.ctas) and np.array_equal(new_one.threads, x.threads) for x in held):
            return True  # whether they store what they have read is the same question
        if len(held) >= _MOST_HELD:
            return False
        held.append(new_one)
        return True

    def decided(self, *, is_over: bool) -> Iterator[tuple[GlobalConflict, bool]]:
        """Yield the races that were held, each with whether nothing comes of it; of some that is not known yet.

        `is_over`: whether the CTAs have come to their end.
        """
        for each in self._held.values():
            harmless: GlobalConflict | None = None
            for one in each:
                comes = np.full(len(one.ctas), not is_over)
                for store in one.stores & self._executed.keys():
                    comes |= self._executed[store][one.ctas, one.threads]
                found = _at(one, int(np.argmax(comes)))
                if comes.any():
                    yield found, False
                elif harmless is None:
                    harmless = found
            if harmless is not None:
                yield harmless, True
        self._held = {}

    def _reached(self, load: Instruction) -> frozenset[int]:
        if load.index not in self._stores:
            assert self._function is not None
            has_calls = any(i.traits.calls for i in self._function.instructions)  # arguments are not followed
            stores = {} if has_calls else stores_of(self._function, load, written(load), lambda i: i.traits.is_pure)
            self._stores[load.index] = frozenset(stores)
        return self._stores[load.index]


def _lanes_of(found: GlobalConflict, reader: GlobalAccessRecord, stores: frozenset[int]) -> _PendingRace:
    """Return a race once for each lane that reads."""
    assert reader.threads is not None
    assert found.pairs is not None
    befores, afters, addresses = found.pairs
    readers = befores if reader is found.before else afters
    first_of = np.full(int(readers.max()) + 1, -1)
    first_of[readers[::-1]] = np.arange(len(readers))[::-1]  # of those of one lane the first is stored last
    lanes = np.flatnonzero(first_of >= 0)
    first = first_of[lanes]
    row, column = np.divmod(lanes, reader.lanes)
    where = befores[first], afters[first], addresses[first]
    return _PendingRace(replace(found, pairs=None), *where, reader.ctas[row], reader.threads[column], stores)


def _at(held: _PendingRace, n: int) -> GlobalConflict:
    lanes = int(held.befores[n]), int(held.afters[n])
    return replace(held.conflict, before_lane=lanes[0], after_lane=lanes[1], address=int(held.addresses[n]))


def stores_of(
    function: Function, load: Instruction, registers: Iterable[Register], through: Callable[[Instruction], bool]
) -> dict[int, Instruction]:
    """Return the stores that values loaded into registers reach through some instructions.

    Nothing if it reaches anything else.
    """
    uses, seen, waiting = uses_of(function), set(), [(load, r.index) for r in registers]
    stores: dict[int, Instruction] = {}
    while waiting:
        source, value = waiting.pop()
        for use in uses.after(source, value):
            i = use.instruction
            if i is None or _addresses(i, value) or not (through(i) or _is_store(i)):
                return {}
            if (i.index, value) in seen:
                continue
            seen.add((i.index, value))
            if i.traits.access == "write":
                stores[i.index] = i
            else:
                waiting += [(i, to.index) for to in written(i)]
    return stores


def _is_store(i: Instruction) -> bool:
    """Return whether an instruction stores, as `DiscardedLoads.note` sees it: for its lanes, when they execute it."""
    return i.traits.transfers and i.traits.access == "write" and not {"async", "param"} & {*i.parts}


def _addresses(i: Instruction, value: int) -> bool:
    """Return whether an instruction finds memory by a value; one that a value guards comes behind a branch."""
    addresses = [operand for operand in i.operands if isinstance(operand, Address)]
    return any(value == r.index for address in addresses for r in registers_in(address))
