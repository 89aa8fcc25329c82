"""State spaces that an instruction loads from and stores to.

Beside PTX's own there are "generic", which is any of them; "frame", where arguments and results of calls are; and
"barrier", where the predicates of `bar.red` meet, of whatever instructions.

References
----------
PTX ISA, "State Spaces", "Instruction Set".
"""

from __future__ import annotations

from typing import NamedTuple

from cutepy.sim.ptx.instruction_set import SPACES
from cutepy.sim.ptx.model import Address, FrameSlot, Instruction

_OF_PROGRAM = frozenset((*SPACES, "generic"))


class StateSpaces(NamedTuple):
    """State spaces that an instruction loads from, and stores to."""

    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


def state_spaces(i: Instruction) -> StateSpaces:
    """Return the state spaces that an instruction reads and writes; of an unknown one, all.

    Examples
    --------
    >>> state_spaces(Instruction(0, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", ()))
    StateSpaces(loads=('global',), stores=('shared',))
    """
    loads, stores = i.traits.loads, i.traits.stores
    if "param" in (*loads, *stores):
        if any(isinstance(operand, Address) and isinstance(operand.base, FrameSlot) for operand in i.operands):
            return StateSpaces(*(tuple("frame" if x == "param" else x for x in some) for some in (loads, stores)))
    return StateSpaces(loads, stores)


def space_of(i: Instruction) -> str:
    """Return the state space of an access, of a copy the one that it writes; "generic" if that is not said."""
    found = state_spaces(i)
    return (*found.stores, *found.loads, "generic")[0]


def may_be_same(one: str, other: str) -> bool:
    """Return whether there may be memory that is of two spaces.

    Examples
    --------
    >>> may_be_same("generic", "shared"), may_be_same("global", "shared"), may_be_same("generic", "barrier")
    (True, False, False)
    """
    return one == other or ("generic" in (one, other) and _OF_PROGRAM.issuperset((one, other)))
