"""Wavefronts of a warp access in a layout: byte addresses, and the addresses that each bank serves in each pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import LayoutError
from ..grids.grid import ranges
from ..hardware import SMEM_BANK_BYTES
from ..int_tuple import IntTuple, product
from ..writer import to_text
from .access import WarpAccess
from .rule import ROW_BYTES, ROW_KINDS, count_wavefronts, passes, served, unit_bank, unit_bytes

_SIZES = (1, 2, 4, 8, 16)
_SHOWN = 4


@dataclass(frozen=True)
class Turn:
    """An address that a group of banks serves in one wavefront.

    Parameters
    ----------
    address : int
        Byte address, from the tile's start.
    lanes : tuple of int
        Lanes that get it.
    """

    address: int
    lanes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.address:#x} ({'lane' if len(self.lanes) == 1 else 'lanes'} {ranges(self.lanes)})"


@dataclass(frozen=True)
class Conflict:
    """Banks that serve several addresses to the lanes of one pass, one after another.

    Parameters
    ----------
    access : int
        Index of the access.
    banks : tuple of int
        One bank; of vectors of 8 and 16 bytes the two or four that serve them together.
    turns : tuple of Turn
        The addresses, each with its lanes; two or more.
    """

    access: int
    banks: tuple[int, ...]
    turns: tuple[Turn, ...]

    def __str__(self) -> str:
        name = "bank" if len(self.banks) == 1 else "banks"
        shown = [str(turn) for turn in self.turns[:_SHOWN]] + ["..."] * (len(self.turns) > _SHOWN)
        return f"{name} {ranges(self.banks)}: {len(self.turns)} turns: {', '.join(shown)}"


@dataclass(frozen=True)
class Pass:
    """Lanes of one access that are served together.

    Parameters
    ----------
    lanes : tuple of int
        Lanes.
    turns : dict
        Banks -> the addresses that they serve, in turn: the whole map of the banks in this pass.
    """

    lanes: tuple[int, ...]
    turns: dict[tuple[int, ...], tuple[Turn, ...]]

    @property
    def wavefronts(self) -> int:
        """The turns of the busiest banks."""
        return max(map(len, self.turns.values()))


@dataclass(frozen=True)
class AccessReport:
    """Wavefronts and byte addresses of one access.

    Parameters
    ----------
    access : WarpAccess
    size_bytes : int
        Bytes of each lane.
    addresses : tuple
        Byte address of each lane (or row) from the tile's start; None for one that is off.
    wavefronts, ideal : int
        Wavefronts that it takes, and the fewest that it takes with any layout.
    """

    access: WarpAccess
    size_bytes: int
    addresses: tuple[int | None, ...]
    wavefronts: int
    ideal: int

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """The groups of lanes that are served together, with the addresses that each bank serves."""
        kind, size = self.access.kind, self.size_bytes
        return tuple(self._pass(lanes) for lanes in passes(kind, size, self.addresses))

    def _pass(self, lanes: Sequence[int]) -> Pass:
        unit = unit_bytes(self.size_bytes)
        banks_each = unit // SMEM_BANK_BYTES
        lanes_of: dict[int, list[int]] = {}
        for lane in lanes:
            lanes_of.setdefault(self._unit(lane), []).append(lane)
        times = Counter(served(self.access.kind, self.size_bytes, self.addresses, lanes))
        turns: dict[tuple[int, ...], list[Turn]] = {}
        for number, sharers in sorted(lanes_of.items()):
            first = unit_bank(self.size_bytes, number) * banks_each
            at = turns.setdefault(tuple(range(first, first + banks_each)), [])
            groups: list[tuple[int, ...]] = [(lane,) for lane in sharers for _ in range(times[number] // len(sharers))]
            at += [Turn(number * unit, group) for group in groups or [tuple(sharers)]]
        return Pass(tuple(lanes), {banks: tuple(turns[banks]) for banks in sorted(turns)})

    def _unit(self, lane: int) -> int:
        address = self.addresses[lane]
        assert address is not None
        return address // unit_bytes(self.size_bytes)

    def __str__(self) -> str:
        what = f"{self.access.kind} of {self.size_bytes} bytes by {count(len(self.access.lanes), 'lane')}"
        if self.access.kind in ROW_KINDS:
            what = f"{self.access.kind} of {count(len(self.access.lanes), 'row')}"
        return f"{what}: {count(self.wavefronts, 'wavefront')}, {self.ideal} at best"


def measure(access: WarpAccess, layout: Any, bits: int) -> AccessReport:  # noqa: ANN401 - whatever has a shape
    """Return the report of one access to a tile, as `bank_conflicts` does for each of its accesses.

    Raises
    ------
    LayoutError
        As `bank_conflicts` does.
    """
    size = size_bytes(access, layout, bits)
    addresses = tuple(_address(access, lane, layout, bits) for lane in range(len(access.elements)))
    return AccessReport(access, size, addresses, *count_wavefronts(access.kind, size, addresses))


def size_bytes(access: WarpAccess, layout: object, bits: int) -> int:
    """Return the bytes of each lane of an access; raise LayoutError where no instruction moves so many."""
    size, rest = divmod(access.vector * bits, 8)
    if access.kind in ROW_KINDS:
        if rest or size != ROW_BYTES:
            condition = f"a row of {access.kind} has 16 bytes, got {access.vector * bits / 8:g}"
            hint = f"let vector be {ROW_BYTES * 8 // bits} for elements of {bits} bits" if bits <= 128 else ""
            raise LayoutError("bank_conflicts", (layout, bits), condition, hint)
    elif rest or size not in _SIZES:
        condition = (
            f"a lane moves 1, 2, 4, 8 or 16 bytes at once, got {access.vector} elements of {bits} bits,"
            f" {access.vector * bits / 8:g} bytes"
        )
        raise LayoutError("bank_conflicts", (layout, bits), condition, "split the access, or change its vector")
    return size


def _address(access: WarpAccess, lane: int, layout: Any, bits: int) -> int | None:  # noqa: ANN401 - any layout
    elements = access.elements[lane]
    if elements is None:
        return None
    who = f"row {lane}" if access.kind in ROW_KINDS else f"lane {lane}"
    for coordinate in elements:
        modes = len(layout.shape) if isinstance(layout.shape, tuple) else 1
        if isinstance(coordinate, tuple) and len(coordinate) != modes:
            raise LayoutError(
                "bank_conflicts",
                (layout, bits),
                f"a coordinate of the tile has {count(modes, 'mode')}, {who} touches {to_text(coordinate)}",
                "take one stage of the tile, or give coordinates in it",
            )
        if not _inside(coordinate, layout.shape):
            raise LayoutError(
                "bank_conflicts",
                (layout, bits),
                f"{who} touches {to_text(coordinate)}, outside of the tile {to_text(layout.shape)}",
                "let the lane be off there: give None",
            )
    offsets = [layout(coordinate) for coordinate in elements]
    start = offsets[0]
    if offsets != list(range(start, start + len(offsets))):
        raise LayoutError(
            "bank_conflicts",
            (layout, bits),
            f"the {len(offsets)} elements of {who} must be contiguous in memory, got offsets {_some(offsets)}",
            "choose a narrower vector, or the contiguous mode",
        )
    size = len(offsets) * bits
    if start * bits % size:
        raise LayoutError(
            "bank_conflicts",
            (layout, bits),
            f"the {size // 8} bytes of {who} must start at a multiple of {size // 8} bytes, got {start * bits / 8:g}",
            "such an access faults; choose a narrower vector, or pad by whole vectors",
        )
    return start * bits // 8  # type: ignore[no-any-return]


def _inside(coordinate: IntTuple, shape: IntTuple) -> bool:
    """Return whether a coordinate lies in a shape; an integer may stand for several modes together."""
    if isinstance(coordinate, tuple):
        return (
            isinstance(shape, tuple)
            and len(coordinate) == len(shape)
            and all(_inside(c, s) for c, s in zip(coordinate, shape, strict=True))
        )
    return isinstance(coordinate, int) and 0 <= coordinate < product(shape)


def _some(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:_SHOWN])) + ", ..." * (len(values) > _SHOWN)


def count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 lane``, ``2 lanes``, ``2 accesses``."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"
