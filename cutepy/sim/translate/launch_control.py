"""Cluster launch control.

References
----------
PTX ISA, "clusterlaunchcontrol.try_cancel".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.emitter import Emitter, instruction
from cutepy.sim.translate.memory import space_of


@instruction("clusterlaunchcontrol.try_cancel")
def _try_cancel(e: Emitter, i: Instruction) -> None:
    to, barrier = i.operands
    e.emit(f"m.launch_control.try_cancel(g, {e.site}, {space_of(i)!r}, {e.address(to)}, {e.address(barrier)})")
