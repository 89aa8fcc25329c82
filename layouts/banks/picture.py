"""Picture of a warp access: lane, element and bank, with the conflicts marked."""

from __future__ import annotations

from typing import Any

from ..grids.grid import Cell, Grid, Picture, ranges
from ..grids.of_layouts import layout_grid
from ..modes import LayoutBase
from .measure import AccessReport, Conflict


def report_picture(report: Any) -> Picture:  # noqa: ANN401 - BankReport
    """Return a grid of the tile for each access: the banks, and the lanes that access each element."""
    if not isinstance(report.layout, LayoutBase):
        raise TypeError(f"a tile is drawn from a Layout or a ComposedLayout, got {type(report.layout).__name__}")
    grids = [
        _access_grid(report.layout, report.bits, access, [c for c in report.conflicts if c.access == number])
        for number, access in enumerate(report.accesses)
    ]
    return Picture(tuple(grids), f"{report.wavefronts} wavefronts, {report.ideal} at best")


def _access_grid(layout: Any, bits: int, access: AccessReport, conflicts: list[Conflict]) -> Grid:  # noqa: ANN401
    lanes_at: dict[int, list[int]] = {}
    for lane, address in enumerate(access.addresses):
        if address is not None:
            for byte in range(address, address + access.size_bytes):
                lanes_at.setdefault(byte, []).append(lane)
    turns_of: dict[int, int] = {}
    for conflict in conflicts:
        for lane in {lane for turn in conflict.turns for lane in turn.lanes}:
            turns_of[lane] = max(turns_of.get(lane, 0), len(conflict.turns))
    tile = layout_grid(layout, bits=bits, banks=True)

    def cell(i: int, j: int) -> Cell:
        found = tile.cell(i, j)
        lanes = lanes_at.get(found.offset * bits // 8)
        if lanes is None:
            return found._replace(colour=None)
        turns = max((turns_of.get(lane, 0) for lane in lanes), default=0)
        who = ranges(lanes) if len(lanes) < 3 else f"{lanes[0]}+{len(lanes) - 1}"
        return found._replace(
            colour=(found.bank or 0) % 8,
            text=f"L{who}\nb{found.bank}",
            marks=(f"conflict: its banks serve {turns} addresses in turn",) if turns else (),
            notes=(*found.notes, ("lanes", ranges(lanes))),
        )

    where = tile.caption[0].partition(";")[0]
    said = f"{where}; L lane, b its bank; elsewhere banks; {access.access.kind} of {access.size_bytes} bytes a lane"
    marked = "marked (* or outlined): in a bank conflict"
    return tile.but(
        cell=cell, caption=(said, *tile.caption[1:], marked), title=str(access), colours="bank mod 8", coarser=None
    )
