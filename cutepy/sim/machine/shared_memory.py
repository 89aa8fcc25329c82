"""Shared memory of a CTA: its initial contents, and views through a layout.

A view through a swizzled layout returns a tile as a matrix. At the start of a CTA, shared memory of a GPU holds bytes
of other kernels; here every word has a pattern that is not plausible as data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.layouts import ComposedLayout, Layout, parse
from cutepy.layouts.sm90 import SmemPlan, SmemRegion
from cutepy.layouts.sm90.gmma import byte_swizzle, split_swizzle
from cutepy.layouts.sm90.smem_remarks import named_regions
from cutepy.sim.arithmetic.minifloat import bf16_to_f32, table
from cutepy.sim.machine.lanes import Array, Residents
from cutepy.sim.machine.layout_tables import values

if TYPE_CHECKING:
    from cutepy.layouts.sm90.smem_remarks import NamedRegion
    from cutepy.sim.ptx.model import Function, Module


_NARROW = {"bfloat16": "u2", "float8_e4m3fn": "u1", "float8_e5m2": "u1"}
"""Types that numpy lacks, by torch's names, and the bits they are read as."""


Place = Layout | ComposedLayout | SmemRegion | str | None
"""Ways to ask for shared memory: a layout, its text, a region of a plan; None for all of it."""


def named(plan: SmemPlan | None, name: str | None, layout: Place, kernel: str) -> Place:
    """Return the region of a name, if one is given in place of a layout; errors call the kernel `kernel`.

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


def planned_regions(
    ptx: str, module: Module, function: Function, symbols: Mapping[str, int]
) -> tuple[NamedRegion, ...]:
    """List the regions that remarks in a kernel's PTX name, at their addresses in dynamic shared memory.

    Parameters
    ----------
    ptx : str
        Text that the module was read from.
    module, function
        The module, and its kernel.
    symbols : mapping of str to int
        Addresses of shared variables.
    """
    lines = [i.line for i in function.instructions]
    body = ptx.splitlines()[min(lines, default=1) - 1 : max(lines, default=0)]
    declared = (*module.variables, *function.variables)
    start = next((symbols[v.name] for v in declared if v.space == "shared" and v.size_bytes is None), 0)
    return tuple(region._replace(start=start + region.start) for region in named_regions("\n".join(body)))


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
    offsets = offset + size * (tile.offset_elems + values(tile.tile))
    swizzle: Any = byte_swizzle(tile.mode)  # bit operations, which arrays have too
    offsets = swizzle(offsets)
    if int(offsets.max()) + size > len(data) or int(offsets.min()) < 0:
        raise ValueError(
            f"{parsed} of {name} at byte {offset} reaches byte {int(offsets.max()) + size}, and the shared memory of a "
            f"CTA ends at {len(data)}; check layout, dtype and offset"
        )
    extents = [mode.size() for mode in tile.tile]
    elements = data[: len(data) // size * size].view(kind)[offsets // size]
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


_PERIOD = 65521
"""Words after which mixed ones repeat: a prime, so that CTAs, whose memory is a round size, have different ones."""

_FLOATS, _INTEGERS, _HALVES = range(3)
"""Kind of a mixed word, as two bits; 3 stands for any four bytes."""


@dataclass(frozen=True)
class Words:
    """Words of 32 bits that differ by their address.

    Attributes
    ----------
    seed : int or None
        Of words each of which is a float32, a small integer, two float16 or four bytes, of either sign. None for two
        words only, each the complement of the other: words whose distance is a power of two differ in each bit.
    is_complement : bool
        True if all bits are others: which of two is the larger, as integers or floats, is the other way round then.
    """

    seed: int | None = None
    is_complement: bool = False

    def fill(self, size: int) -> Array:
        """Return so many bytes."""
        count = -(-size // 4)
        words = _alternating(count) if self.seed is None else np.resize(_mixed(min(count, _PERIOD), self.seed), count)
        found: Array = (~words if self.is_complement else words).view(np.uint8)[:size]
        return found


MemoryContents = int | Words | Array
"""One byte throughout, words, or bytes that repeat."""


def leftover(size: int, held: MemoryContents) -> Array:
    """Return memory filled with a value, a pattern or words.

    Examples
    --------
    >>> leftover(4, 90).tolist(), leftover(4, np.uint8([1, 2, 3])).tolist()
    ([90, 90, 90, 90], [1, 2, 3, 1])
    >>> leftover(8, Words()).view("f2").tolist()
    [210.75, 1.9404296875, -0.0211334228515625, -2.1171875]
    """
    if isinstance(held, Words):
        return held.fill(size)
    if isinstance(held, np.ndarray):
        return np.resize(held, size)
    return np.full(size, held, np.uint8) if held else np.zeros(size, np.uint8)


def _alternating(count: int) -> Array:
    """Return words by the parity of the ones in their index (Thue and Morse)."""
    parity = np.arange(count, dtype=np.uint32)
    for shift in (16, 8, 4, 2, 1):
        parity ^= parity >> np.uint32(shift)
    word = np.uint32(0x3FC35A96)
    return np.where(parity & np.uint32(1), ~word, word)


def _mixed(count: int, seed: int) -> Array:
    """Return words of several kinds: floats have exponents from -4 to 3, integers are less than 1024."""
    bits, kinds = _hashed(count, 2 * seed), _hashed(count, 2 * seed + 1) >> 30
    floats = bits & 0x807FFFFF | (123 + (bits >> 23 & 7)) << 23
    integers = (bits & 2047) - 1024
    halves = bits & 0x83FF83FF | (11 + (bits >> 10 & 7)) << 10 | (11 + (bits >> 26 & 7)) << 26
    words = np.select([kinds == _FLOATS, kinds == _INTEGERS, kinds == _HALVES], [floats, integers, halves], bits)
    return words.astype(np.uint32)


def _hashed(count: int, seed: int) -> Array:
    """Return numbers below 2**32 (the last steps of MurmurHash3), as int64."""
    found = (np.arange(count, dtype=np.int64) + seed * _PERIOD) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found ^= found >> shift
        found = found * factor & 0xFFFFFFFF
    return found ^ found >> 16
