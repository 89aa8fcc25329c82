"""Destination CTAs of a multicast within a cluster.

References
----------
PTX ISA, "cp.async.bulk": each bit of ctaMask is the %cluster_ctarank of a destination.
"""

from __future__ import annotations

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.group import Group
from cutepy.sim.ptx.model import Instruction


def reached(g: Group, i: Instruction, own: int, mask: int) -> list[int]:
    """Return the slots of the CTAs that a mask names, in the cluster of a CTA."""
    size = g.ctas.residents.cluster_size
    mask &= 0xFFFF
    if not mask or mask >> size:
        raise MemoryAccessError(
            f"a multicast must reach CTAs of its cluster, which has {size}, got the mask {mask:#06x}",
            i,
            g.describe(),
            fix=Diagnosis("ranks-of-multicast"),
        )
    base = own - own % size
    return [base + rank for rank in range(size) if mask >> rank & 1]
