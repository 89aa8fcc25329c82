"""State spaces that an instruction loads from and stores to.

Beside PTX's own there are "generic", which is any of them; "frame", where arguments and results of calls are; and
"barrier", where the predicates of `bar.red` meet, of whatever instructions.

References
----------
PTX ISA, "State Spaces", "Instruction Set".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cutepy.sim.ptx.model import Address, FrameSlot, Instruction

SPACES = ("shared", "global", "local", "param", "const")
_OF_PROGRAM = frozenset((*SPACES, "generic"))


class StateSpaces(NamedTuple):
    """State spaces that an instruction loads from, and stores to."""

    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


NO_MEMORY = frozenset(
    """%beyond abs activemask add addc alloca and applypriority bfe bfi bfind bmsk bra brev brkpt brx call clz cnot
    copysign cos createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence fma fns getctarank
    griddepcontrol isspacep lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mma mov movmatrix
    mul mul24 nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp redux rem ret rsqrt sad selp set
    setmaxnreg setp shf shfl shl shr sin slct sqrt stackrestore stacksave sub subc szext tanh testp trap
    vote xor""".split()
)
"""The instructions of which nothing comes from memory or gets there; mbarriers are no memory that can be read."""
_LOADS = frozenset("ld ldu ldmatrix wmma.load".split())
_STORES = frozenset("st stmatrix wmma.store tensormap.replace".split())
_BOTH = frozenset("red atom".split())
MEMORY = _LOADS | _STORES | _BOTH | frozenset("bar barrier cp wgmma wmma.mma tensormap.cp_fenceproxy".split())
"""The others."""
_OF_COPIES = frozenset("commit_group wait_group wait_all prefetch mbarrier".split())
_ELSEWHERE = {"ldmatrix": "shared", "stmatrix": "shared"}
"""State spaces of instructions that name none and have no generic address."""


def state_spaces(i: Instruction) -> StateSpaces:
    """Return what an instruction takes from memory, and leaves there; of one that is not known, anything.

    Examples
    --------
    >>> state_spaces(Instruction(0, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", ()))
    StateSpaces(loads=('global',), stores=('shared',))
    """
    parts = i.parts
    name = ".".join(parts[:2]) if parts[0] in ("wmma", "tensormap") else parts[0]
    if name in NO_MEMORY or name == "wmma.mma":
        return StateSpaces()
    if name in ("bar", "barrier"):
        return StateSpaces(("barrier",), ("barrier",)) if "red" in parts else StateSpaces()
    if name == "wgmma":
        return StateSpaces(("shared",)) if parts[1] == "mma_async" else StateSpaces()
    named = [*_named(i)] or [_ELSEWHERE.get(name, "generic")]
    if name in ("cp", "tensormap.cp_fenceproxy"):
        into, taken = named[0], named[-1]
        if name == "cp" and not _OF_COPIES.isdisjoint(parts):
            return StateSpaces()
        return StateSpaces((taken, into) if "reduce" in parts else (taken,), (into,))
    space = named[0]
    return StateSpaces(() if name in _STORES else (space,), () if name in _LOADS else (space,))


def space_of(i: Instruction) -> str:
    """Return the state space of an access, of a copy the one that it writes; "generic" if that is not said."""
    found = state_spaces(i)
    return (*found.stores, *found.loads, "generic")[0]


def may_be_same(one: str, other: str) -> bool:
    """Tell whether there may be memory that is of two spaces.

    Examples
    --------
    >>> may_be_same("generic", "shared"), may_be_same("global", "shared"), may_be_same("generic", "barrier")
    (True, False, False)
    """
    return one == other or ("generic" in (one, other) and _OF_PROGRAM.issuperset((one, other)))


def _named(i: Instruction) -> Iterator[str]:
    in_frame = any(isinstance(o, Address) and isinstance(o.base, FrameSlot) for o in i.operands)
    for part in i.parts[1:]:
        space = part.partition("::")[0]
        if space in SPACES:
            yield "frame" if space == "param" and in_frame else space
