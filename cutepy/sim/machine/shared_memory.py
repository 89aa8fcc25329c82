"""The shared memory of a CTA, seen through a layout: a swizzled tile as the matrix it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutepy.layouts import ComposedLayout, Layout, parse
from cutepy.layouts.sm90 import SmemPlan, SmemRegion
from cutepy.layouts.sm90.gmma import byte_swizzle, split_swizzle
from cutepy.sim.arithmetic.minifloat import bf16_to_f32, table
from cutepy.sim.machine.lanes import Array, Residents
from cutepy.sim.machine.layout_tables import values

_NARROW = {"bfloat16": "u2", "float8_e4m3fn": "u1", "float8_e5m2": "u1"}
"""Types that numpy lacks, by torch's names, and the bits they are read as."""


Place = Layout | ComposedLayout | SmemRegion | str | None
"""How shared memory may be asked for: by a layout, its text, a region of a plan; None for all of it."""


def named(plan: SmemPlan | None, name: str | None, layout: Place, kernel: str) -> Place:
    """Give the region of a name, if one is given in place of a layout; `kernel` is what errors call the kernel.

    Raises
    ------
    ValueError
        If there is no plan, or a layout too.
    KeyError
        If the plan has no such region.
    """
    if name is None:
        return layout
    if layout is not None:
        raise ValueError(
            f"a name stands for a region of a plan, without a layout: got {name!r} and the layout {layout}"
        )
    if plan is None:
        raise ValueError(
            f"a name stands for a region of a plan, and none is known of {kernel}: got {name!r}; set run.plan to the "
            "cutepy.layouts.sm90.SmemPlan by which the kernel shares its memory (what it passes to "
            "cutepy.device.smem.share), or say layout="
        )
    return plan[name]


def view(data: Array, layout: Place, dtype: object = "uint8", offset: int = 0) -> Array:
    """Read bytes of shared memory as elements, and through a layout.

    Parameters
    ----------
    data : array of uint8
        The shared memory of a CTA.
    layout : Layout, ComposedLayout, SmemRegion, str or None
        (coordinates) -> offset in elements, with its swizzle; a region of a plan has one, and where it starts. None:
        all elements in order.
    dtype : str, numpy or torch dtype
        Of an element. bfloat16, float8_e4m3fn and float8_e5m2 are widened to float32, which is exact.
    offset : int
        Byte address where the tile starts; of a region, from its start.

    Returns
    -------
    array
        A copy, with one axis for each mode of the layout.

    Examples
    --------
    >>> data = np.arange(8, dtype="u2").view("u1")
    >>> view(data, Layout((2, 3), (3, 1)), "uint16", 2)
    array([[1, 2, 3],
           [4, 5, 6]], dtype=uint16)
    >>> view(data, Layout((4, 3), (3, 1)), "uint16")
    Traceback (most recent call last):
    ...
    ValueError: (4,3):(3,1) of uint16 at byte 0 reaches byte 24, and the shared memory of a CTA ends at 16; check layout, dtype and offset
    """  # noqa: E501
    name = str(dtype).removeprefix("torch.")
    kind = np.dtype(_NARROW.get(name) or (name if "torch." in str(dtype) else dtype))  # type: ignore[call-overload]
    size = kind.itemsize
    if isinstance(layout, SmemRegion):
        if layout.bits != 8 * size:
            raise ValueError(f"{layout.name} is planned for elements of {layout.bits} bits, got dtype {name}")
        offset += layout.offset_bytes
        layout = layout.layout
    if offset % size:
        raise ValueError(f"the offset must be a multiple of the {size} bytes of {name}, got {offset}")
    parsed: Any = parse(layout) if isinstance(layout, str) else layout
    if parsed is None:
        found: Array = data[offset : offset + (len(data) - offset) // size * size].view(kind).copy()
        return _numbers(found, name)
    tile = split_swizzle("smem", parsed, 8 * size)
    places = offset + size * (tile.offset_elems + values(tile.tile))
    swizzle: Any = byte_swizzle(tile.mode)  # bit operations, which arrays have too
    places = swizzle(places)
    if int(places.max()) + size > len(data) or int(places.min()) < 0:
        raise ValueError(
            f"{parsed} of {name} at byte {offset} reaches byte {int(places.max()) + size}, and the shared memory of a "
            f"CTA ends at {len(data)}; check layout, dtype and offset"
        )
    extents = [mode.size() for mode in tile.tile]
    elements = data[: len(data) // size * size].view(kind)[places // size]
    return _numbers(elements.reshape(extents, order="F"), name)


def _numbers(bits: Array, name: str) -> Array:
    if name == "bfloat16":
        return bf16_to_f32(bits)
    if name in _NARROW:
        return table("e4m3" if "e4m3" in name else "e5m2")[bits]
    return np.ascontiguousarray(bits)


@dataclass
class SharedMemory:
    """The shared memory of CTAs that were resident together.

    Attributes
    ----------
    residents : Residents
    slot_bytes, used_bytes : int
        Bytes from one CTA to the next, and those a CTA may use.
    data : array of uint8
    """

    residents: Residents
    slot_bytes: int
    used_bytes: int
    data: Array = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """The bytes of all of them."""
        return int(self.data.nbytes)

    def find(self, cta: Sequence[int]) -> Array | None:
        """Return the bytes of a CTA, or None if it is not one of these."""
        slot = self.residents.slot_of(cta)
        start = 0 if slot is None else slot * self.slot_bytes
        return None if slot is None else self.data[start : start + self.used_bytes]
