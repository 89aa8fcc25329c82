"""Bank conflicts of shared memory, statically: wavefronts of warp accesses to a tile, conflicting lanes, and remedies.

The rule is measured; the simulator counts by the same one. `bank_conflicts` is the entry.
"""

from .access import (
    WarpAccess as WarpAccess,
    tma_accesses as tma_accesses,
    tv_accesses as tv_accesses,
    warp_access as warp_access,
    wgmma_accesses as wgmma_accesses,
)
from .measure import AccessReport as AccessReport, Conflict as Conflict, Pass as Pass, Turn as Turn
from .proposals import Proposal as Proposal, propose as propose
from .report import BankReport as BankReport, bank_conflicts as bank_conflicts
from .rule import Kind as Kind, fewest_wavefronts as fewest_wavefronts, wavefronts as wavefronts

__all__ = [
    "AccessReport",
    "BankReport",
    "Conflict",
    "Kind",
    "Pass",
    "Proposal",
    "Turn",
    "WarpAccess",
    "bank_conflicts",
    "fewest_wavefronts",
    "propose",
    "tma_accesses",
    "tv_accesses",
    "warp_access",
    "wavefronts",
    "wgmma_accesses",
]
