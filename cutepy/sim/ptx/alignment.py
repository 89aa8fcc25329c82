"""Instructions that whole warps or warpgroups execute together: those with the modifier ``.aligned``.

All threads must execute the same one, and under a condition only if all evaluate that alike; otherwise what it does is
undefined. It is the modifier that says so, whatever the opcode: ``bar`` is ``barrier`` with it, and ``wgmma`` and
``setmaxnreg`` mean a warpgroup by it. Threads that have ended are not waited for by barriers; whether all others do
without them the ISA doesn't say, or it says that they don't.

References
----------
PTX ISA, "bar, barrier"; "barrier.cluster"; "ldmatrix", "stmatrix", "movmatrix", "mma"; "wgmma.mma_async",
"wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"; "tensormap.cp_fenceproxy"; "setmaxnreg".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutepy.layouts.sm90.arch import WARP_THREADS, WARPGROUP_THREADS

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

_OF_WARPGROUPS = ("wgmma", "setmaxnreg")
_BARRIERS = ("bar", "barrier")


def aligned_threads(i: Instruction) -> int:
    """Return how many threads must execute an instruction together: 1, a warp of 32, or a warpgroup of 128.

    Examples
    --------
    >>> from cutepy.sim.ptx.model import Instruction
    >>> opcodes = "bar.sync", "barrier.sync", "bar.warp.sync", "mma.sync.aligned", "setmaxnreg.inc.sync.aligned"
    >>> [aligned_threads(Instruction(0, opcode, ())) for opcode in opcodes]
    [32, 1, 1, 32, 128]
    """
    parts = i.parts
    if "aligned" not in parts and (parts[0] != "bar" or "warp" in parts):
        return 1
    return WARPGROUP_THREADS if parts[0] in _OF_WARPGROUPS else WARP_THREADS


def goes_without_ended(i: Instruction) -> bool:
    """Tell whether threads that have ended are none that such an instruction lacks: barriers wait for the others."""
    return i.parts[0] in _BARRIERS
