"""What instructions say of the lanes that execute them: whole warps that come together, arrivals that show nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutepy.sim.ptx.model import Immediate, Register

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

_COLLECTIVES = frozenset(("elect", "shfl", "vote", "match", "redux"))
ALL_LANES = 0xFFFFFFFF
"""The mask of a whole warp."""


def arrives_relaxed(i: Instruction) -> bool:
    """Tell whether an instruction is a relaxed arrival at a barrier."""
    return "relaxed" in i.parts and i.parts[0] in ("mbarrier", "barrier") and "arrive" in i.opcode


def is_collective(i: Instruction) -> bool:
    """Tell whether whole warps may come together at an instruction: its mask may be known when it runs."""
    if i.parts[0] not in _COLLECTIVES or "sync" not in i.parts:
        return False
    mask = i.operands[-1]
    return isinstance(mask, Register) or (isinstance(mask, Immediate) and mask.value & ALL_LANES == ALL_LANES)
