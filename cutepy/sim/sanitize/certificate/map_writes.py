"""Words of tensor maps that loops store: what they hold in further rounds, the code is not asked.

What `tensormap.replace` writes is followed as any operand of synchronisation. Other stores are taken for stores of
data, and so it is asked of the run whether one in a loop that synchronises has hit a map, or what is copied to one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.tensor_map_bits import SIZE_BYTES
from cutepy.sim.translate.deciding import acquires_maps
from cutepy.sim.translate.state_spaces import state_spaces

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction

_GRANULE_BYTES = 16


class MapWrites:
    """Where a launch has tensor maps, and where its loops store.

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
