"""Costly loads and stores: uncoalesced global memory, and bank conflicts of shared memory."""

from __future__ import annotations

from collections.abc import Iterable

from cutepy.anatomy.mmas import site_of
from cutepy.anatomy.model import CostlyAccess
from cutepy.anatomy.watch import SeenAccess


def costly_accesses(seen: Iterable[SeenAccess]) -> tuple[CostlyAccess, ...]:
    """List the accesses that took more than the fewest wavefronts or sectors, those with the largest excess first.

    Instructions of one line and one opcode, such as those of an unrolled loop, are one access.
    """
    groups: dict[tuple[object, ...], list[SeenAccess]] = {}
    for access in seen:
        if access.taken > access.fewest:
            i = access.instruction
            groups.setdefault((site_of([i]).lines or i.index, i.opcode, access.space), []).append(access)
    found = [
        CostlyAccess(
            space=group[0].space,
            opcode=group[0].instruction.opcode,
            site=site_of([access.instruction for access in group]),
            instructions=len(group),
            warps=sum(access.warps for access in group),
            taken=sum(access.taken for access in group),
            fewest=sum(access.fewest for access in group),
        )
        for group in groups.values()
    ]
    return tuple(sorted(found, key=lambda access: (access.fewest - access.taken, access.site.ptx_lines)))
