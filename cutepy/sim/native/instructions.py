"""Instructions over the lanes of a warp, all families of them."""

from __future__ import annotations

from cutepy.sim.native import movement, warp  # noqa: F401  each adds its own
from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.table import write_instruction as write_instruction
from cutepy.sim.ptx.model import Instruction


def is_native(i: Instruction, kinds: list[str]) -> bool:
    """Return whether machine code can be written for an instruction."""
    try:
        write_instruction(Lanes(kinds, {}, True), i)
    except UnsupportedError:
        return False
    return True
