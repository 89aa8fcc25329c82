"""bank_conflicts: the wavefronts of warp accesses to a tile in shared memory, and the lanes in conflict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..drawable import Drawable
from ..errors import LayoutError
from ..grids.grid import Picture
from .access import WarpAccess, as_accesses
from .measure import AccessReport, Conflict, count, measure
from .proposals import Proposal, propose

_SHOWN = 8


@dataclass(frozen=True)
class BankReport(Drawable):
    """Wavefronts of warp accesses to a tile, the lanes in conflict, and proposals without conflicts.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        The tile: coordinate -> element of shared memory.
    bits : int
        Width of an element.
    accesses : tuple of AccessReport
        One for each access.
    """

    layout: Any
    bits: int
    accesses: tuple[AccessReport, ...]

    @property
    def wavefronts(self) -> int:
        """Number of wavefronts of all accesses."""
        return sum(report.wavefronts for report in self.accesses)

    @property
    def ideal(self) -> int:
        """Fewest wavefronts possible if each access had a layout of its own."""
        return sum(report.ideal for report in self.accesses)

    @property
    def conflict_free(self) -> bool:
        """True if no wavefront is lost."""
        return self.wavefronts == self.ideal

    @cached_property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Every group of banks that serves more than one address in a pass."""
        return tuple(
            Conflict(i, banks, turns)
            for i, report in enumerate(self.accesses)
            for group in report.passes
            for banks, turns in group.turns.items()
            if len(turns) > 1
        )

    @cached_property
    def proposals(self) -> tuple[Proposal, ...]:
        """Other layouts of the tile that take fewer wavefronts: see `propose`."""
        return propose([report.access for report in self.accesses], self.layout, self.bits)

    def _picture_(self) -> Picture:
        """Draw the tile's banks for each access, with the accessing lanes, and the conflicts marked."""
        from .picture import report_picture

        return report_picture(self)

    def __str__(self) -> str:
        lines = list(map(str, self.accesses))
        if len(lines) > 1:
            lines = [f"{count(len(lines), 'access')}: {self.wavefronts} wavefronts, {self.ideal} at best", *lines]
        lines = lines[:_SHOWN] + [f"... {len(lines) - _SHOWN} more"] * (len(lines) > _SHOWN)
        lines += [f"  {conflict}" for conflict in self.conflicts[:_SHOWN]]
        lines += [f"  ... {len(self.conflicts) - _SHOWN} more"] * (len(self.conflicts) > _SHOWN)
        if self.conflicts:
            lines += [f"proposal: {proposal}" for proposal in self.proposals] or ["no proposal is better"]
        return "\n".join(lines)


def bank_conflicts(access: WarpAccess | Sequence[WarpAccess], layout: Any, bits: int) -> BankReport:  # noqa: ANN401
    """Return the wavefronts that warp accesses to a tile in shared memory take, and which lanes conflict.

    Parameters
    ----------
    access : WarpAccess or sequence of WarpAccess
        Accesses from `warp_access`, `tv_accesses`, `wgmma_accesses` or `tma_accesses`.
    layout : Layout, ComposedLayout or LinearLayout
        The tile: coordinate -> index of an element, from the tile's start, which is aligned to the swizzle's period.
        Whatever has a `shape` and can be called will do.
    bits : int
        Width of an element.

    Raises
    ------
    LayoutError
        If a coordinate is not in the tile; a lane's elements are not contiguous in memory, not aligned to their bytes
        or not 1, 2, 4, 8 or 16 bytes; or a row is not of 16 bytes.

    Examples
    --------
    A column of a row-major tile of 32 by 32 floats lies in one bank; one float of padding for each row cures it:

    >>> from cutepy.layouts import Layout
    >>> from cutepy.layouts.banks import warp_access
    >>> column = warp_access("ld", lambda lane: (lane, 0))
    >>> report = bank_conflicts(column, Layout((32, 32), (32, 1)), 32)
    >>> report.wavefronts, report.ideal
    (32, 1)
    >>> print(report.conflicts[0].banks, *report.conflicts[0].turns[:2])
    (0,) 0x0 (lane 0) 0x80 (lane 1)
    >>> for proposal in report.proposals:
    ...     print(proposal)
    swizzle Sw<5,0,5>: 1 wavefront, 0 bytes more: Sw<5,0,5> o 0 o (32,32):(32,1)
    padding of 1 after 32 elements: 1 wavefront, 124 bytes more: (32,32):(33,1)
    """
    accesses = as_accesses("bank_conflicts", access)
    if bits.__class__ is not int or bits < 1:
        raise LayoutError("bank_conflicts", (layout, bits), f"bits must be a positive int, got {bits!r}")
    if not callable(layout) or not hasattr(layout, "shape"):
        raise TypeError(f"bank_conflicts: need a layout of the tile, got {layout!r}")
    return BankReport(layout, bits, tuple(measure(one, layout, bits) for one in accesses))
