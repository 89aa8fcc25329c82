"""An operand in shared memory: its layout, and its descriptors field by field, of wgmma or of tcgen05."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cutepy.explorer.parameters import BadParameterError
from cutepy.layouts import Layout, tile_to_shape, to_text
from cutepy.layouts.capacity import smem_overrun
from cutepy.layouts.errors import LayoutError
from cutepy.layouts.render import picture_of, render_raw
from cutepy.layouts.sm90.arch import SMEM_BYTES_PER_CTA, UNIT_BYTES, Major

MAX_LISTED = 64
"""Number of descriptors to list; of more, the first and the total."""
END_BYTES = 1 << 18
"""End of the addresses that a descriptor holds."""

_NAMES = {
    "start_address": "start address",
    "leading_byte_offset": "leading byte offset (LBO)",
    "stride_byte_offset": "stride byte offset (SBO)",
    "version": "version",
    "base_offset": "base offset",
    "lbo_mode": "LBO mode",
    "layout_type": "layout type",
}
"""Attribute of a descriptor -> name of the field."""


@dataclass(frozen=True)
class Form:
    """Form of shared memory's operands of one MMA instruction.

    Attributes
    ----------
    atom : callable
        (major, swizzle, bits) -> layout atom.
    iterator : callable
        Makes the descriptors of a layout.
    """

    atom: Callable[[Any, Any, int], Any]
    iterator: Callable[..., Any]


class SmemOperand:
    """A or B in shared memory.

    Parameters
    ----------
    form : Form
    name : str
    shape : (int, int, int)
        Extents along MN and K, and stages.
    mma_shape : (int, int)
        Extents of one MMA along MN and K.
    bits, address : int
    major, swizzle : str
        Errors about them are those of the parameters `major_a`, `swizzle_a` and the like.
    """

    def __init__(
        self,
        form: Form,
        name: str,
        shape: tuple[int, int, int],
        mma_shape: tuple[int, int],
        bits: int,
        address: int,
        *,
        major: Major,
        swizzle: str,
    ) -> None:
        self.name, self.mma_shape, self.bits, self.major = name, mma_shape, bits, major
        extents = shape if shape[2] > 1 else shape[:2]
        try:
            self.atom = form.atom(major, swizzle, bits)
            self.layout = tile_to_shape(self.atom, extents)
            self.iterator = form.iterator(
                self.layout, major=major, bits=bits, mma_shape=mma_shape, base_address=address
            )
        except LayoutError as error:
            raise BadParameterError(f"swizzle_{name.lower()}", str(error)) from error
        self.size_bytes = shape[0] * shape[1] * shape[2] * bits // 8
        self.blocks = tuple(
            mode if isinstance(mode, int) else Layout(mode).size() for mode in self.iterator.layout.shape[1:]
        )

    def coordinates(self) -> list[tuple[int, ...]]:
        """List the coordinates of all descriptors, blocks along MN fastest."""
        found: list[tuple[int, ...]] = [()]
        for extent in self.blocks[::-1]:
            found = [(i, *rest) for rest in found for i in range(extent)]
        return sorted(found, key=lambda coordinate: coordinate[::-1])

    def told(self) -> dict[str, Any]:
        """Return the layout, and the descriptors with their fields."""
        coordinates = self.coordinates()
        return {
            "layout": to_text(self.layout),
            "atom": to_text(self.atom),
            "major": self.major,
            "bits": self.bits,
            "bytes": self.size_bytes,
            "start_address": self.iterator.base_address,
            "iterator": str(self.iterator),
            "fields": _fields(self.iterator.first),
            "explanation": self.iterator.first.explain(),
            "descriptors": [
                {
                    "coordinate": to_text(coordinate),
                    "descriptor": f"{int(self.iterator[coordinate]):#018x}",
                    "start_address": self.iterator[coordinate].start_address,
                }
                for coordinate in coordinates[:MAX_LISTED]
            ],
            "descriptor_count": len(coordinates),
        }

    def picture(self) -> dict[str, Any]:
        """Draw the tile, each element with the descriptor whose MMA reads it."""
        drawn = render_raw(picture_of(self.layout, bits=self.bits, address=self.iterator.base_address))
        (grid,) = drawn["grids"]
        coordinates = self.coordinates()
        number = {coordinate: i for i, coordinate in enumerate(coordinates)}
        mn, k = self.mma_shape
        # Labels are those of a cell's first element, also where cells are units or tiles: MN and stage down, K across.
        down = [tuple(map(int, label.split(","))) for label in grid["rows"]["labels"]]
        across = [int(label) // k for label in grid["columns"]["labels"]]
        grid["cells"]["descriptor"] = [number[(row // mn, column, *stage)] for row, *stage in down for column in across]
        grid["descriptors"] = [
            f"tCr{self.name}[{','.join(map(str, c))}] {int(self.iterator[c]):#018x}" for c in coordinates
        ]
        return drawn


def _fields(descriptor: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - GmmaDescriptor or SmemDescriptor
    """Explain the bit fields of a descriptor."""
    word = int(descriptor)
    found = []
    for attribute, place in descriptor.FIELDS.items():
        value = getattr(descriptor, attribute)
        if attribute == "layout_type":
            meaning = f"swizzle {descriptor.MODES[value]}"
        elif attribute == "base_offset":
            meaning = (
                "the pattern starts at a multiple of its period" if not value else f"{value} rows into the pattern"
            )
        elif attribute == "version":
            meaning = "of tcgen05"
        elif attribute == "lbo_mode":
            meaning = "LBO is an address" if value else "LBO is an offset"
        else:
            meaning = f"{value} bytes ({value:#x}), kept in units of {UNIT_BYTES}"
        last = place.bit + place.width - 1
        bits = f"{place.bit}..{last}" if place.width > 1 else str(last)
        found.append({"field": _NAMES[attribute], "bits": bits, "raw": place.read(word), "meaning": meaning})
    return found


def overrun(smem_bytes: int, stages: int) -> str:
    """Describe the excess of operands over shared memory, and the stages that would fit; empty if all fit."""
    if smem_bytes <= SMEM_BYTES_PER_CTA:
        return ""
    fitting = SMEM_BYTES_PER_CTA // (smem_bytes // stages)
    return smem_overrun(smem_bytes, f"{fitting} of the {stages} stages fit" if fitting else "use a smaller tile")


def room(operands: Mapping[str, SmemOperand], stages: int) -> dict[str, Any]:
    """Return the bytes that operands take together, and whether they fit."""
    smem_bytes = sum(operand.size_bytes for operand in operands.values())
    text = overrun(smem_bytes, stages)
    return {"smem_bytes": smem_bytes, "fits": not text, "overrun": text}


def check_room(size_bytes: int, address: int, stages: int) -> None:
    """Refuse operands that no descriptor can address."""
    if address % UNIT_BYTES:
        raise BadParameterError("address", f"address must be a multiple of {UNIT_BYTES} bytes, got {address}")
    if address + size_bytes > END_BYTES:
        raise BadParameterError(
            "stages",
            overrun(size_bytes, stages) or f"{size_bytes} bytes from {address} on end beyond shared memory",
        )
