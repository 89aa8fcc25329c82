"""Plan of a CTA's shared memory: its regions, with their offsets and layouts.

A plan is a value: a kernel is configured with one and allocates by it, and the simulator names shared memory by its
regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ..capacity import SMEM_BYTES_PER_CTA, smem_overrun
from ..composed import ComposedLayout
from ..errors import LayoutError
from ..layout import Layout
from .staged import StagedTile


@dataclass(frozen=True)
class SmemArray:
    """Array of elements: mbarriers, or words that threads exchange.

    Parameters
    ----------
    count : int
    bits : int
        Width of an element, whole bytes.
    alignment_bytes : int, optional
        Alignment; that of an element if not given.

    Examples
    --------
    >>> barriers = SmemArray(8, bits=64)
    >>> print(barriers.layout, barriers.size_bytes, barriers.alignment_bytes)
    8:1 64 8
    """

    count: int
    bits: int
    alignment_bytes: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or self.bits < 8 or self.bits % 8:
            required = "an array has 1 element or more, of whole bytes"
            raise LayoutError("SmemArray", (self.count, self.bits), required)
        if not self.alignment_bytes:
            object.__setattr__(self, "alignment_bytes", self.bits // 8)
        if self.alignment_bytes < 1 or self.alignment_bytes & (self.alignment_bytes - 1):
            raise LayoutError("SmemArray", (self.alignment_bytes,), "the alignment must be a power of 2")

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return self.count * self.bits // 8

    @property
    def layout(self) -> Layout:
        """(index) -> offset in elements."""
        return Layout(self.count)


Content = StagedTile | SmemArray


class SmemRegion(NamedTuple):
    """One region of a plan.

    Attributes
    ----------
    name : str
    content : StagedTile or SmemArray
    offset_bytes : int
        Start of the region.
    """

    name: str
    content: Content
    offset_bytes: int

    @property
    def layout(self) -> Layout | ComposedLayout:
        """(coordinates) -> offset in elements from the region's start."""
        return self.content.layout

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.content.bits

    @property
    def size_bytes(self) -> int:
        """Bytes of the region."""
        return self.content.size_bytes

    @property
    def end_bytes(self) -> int:
        """End of the region."""
        return self.offset_bytes + self.content.size_bytes


@dataclass(frozen=True)
class SmemPlan:
    """Regions of shared memory in order, each at the next offset that its alignment allows.

    Parameters
    ----------
    contents : tuple of (str, StagedTile or SmemArray)
        In order. `SmemPlan.of` takes them by keyword, or from a mapping.
    overlays : tuple of (str, str)
        Regions that begin where another one does, in its memory, and that one: the kernel has each of them at another
        time. `SmemPlan.of` takes a mapping.

    Raises
    ------
    TypeError
        If a region holds something else.
    LayoutError
        If two regions have one name, or an overlay has no region before it of its name, or one that is too small.

    Examples
    --------
    >>> plan = SmemPlan.of(sA=StagedTile((128, 64), 4, 16), sB=StagedTile((256, 64), 4, 16), full=SmemArray(4, bits=64))
    >>> print(plan)
         0  sA    65536 bytes  Sw<3,4,3> o smem_ptr[16b](unset) o ((8,16),(64,1),(1,4)):((64,512),(1,0),(0,8192))
     65536  sB   131072 bytes  Sw<3,4,3> o smem_ptr[16b](unset) o ((8,32),(64,1),(1,4)):((64,512),(1,0),(0,16384))
    196608  full     32 bytes  4:1
    196640
    >>> plan["sB"].offset_bytes, plan.size_bytes
    (65536, 196640)
    >>> plan = SmemPlan.of(sA=StagedTile((128, 64), 4, 16), sOut=SmemArray(1024, bits=32), overlays={"sOut": "sA"})
    >>> plan["sOut"].offset_bytes, plan.size_bytes
    (0, 65536)
    """

    contents: tuple[tuple[str, Content], ...]
    overlays: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, content in self.contents:
            if not isinstance(content, Content):
                raise TypeError(
                    f"region {name} must be a StagedTile or an SmemArray, which know their bits and alignment, got "
                    f"{content!r}"
                )
        names = [name for name, _ in self.contents]
        if len(set(names)) < len(names):
            raise LayoutError("SmemPlan", tuple(names), "each region must have a name of its own")
        sizes = {name: (content.size_bytes, content.alignment_bytes) for name, content in self.contents}
        for name, holder in self.overlays:
            if name not in names or holder not in names[: names.index(name)] or holder in dict(self.overlays):
                required = f"overlay {name} must be in a region before it that is no overlay itself, got {holder}"
                raise LayoutError("SmemPlan", tuple(names), required)
            if any(size > most for size, most in zip(sizes[name], sizes[holder], strict=True)):
                own, whole = (f"{size} bytes at a multiple of {of}" for size, of in (sizes[name], sizes[holder]))
                required = f"overlay {name}, {own}, must fit into {holder}, {whole}"
                raise LayoutError("SmemPlan", tuple(names), required)

    @classmethod
    def of(
        cls,
        contents: Mapping[str, Content] | None = None,
        *,
        overlays: Mapping[str, str] | None = None,
        **named: Content,
    ) -> SmemPlan:
        """Make a plan of named regions, in order; `overlays` has the region in whose memory another one is."""
        return cls((*(contents or {}).items(), *named.items()), (*(overlays or {}).items(),))

    @cached_property
    def regions(self) -> tuple[SmemRegion, ...]:
        """All regions, in order."""
        regions: dict[str, SmemRegion] = {}
        holders, end = dict(self.overlays), 0
        for name, content in self.contents:
            if name in holders:
                regions[name] = SmemRegion(name, content, regions[holders[name]].offset_bytes)
                continue
            start = -(-end // content.alignment_bytes) * content.alignment_bytes
            regions[name] = SmemRegion(name, content, start)
            end = regions[name].end_bytes
        return tuple(regions.values())

    def __getitem__(self, name: str) -> SmemRegion:
        """Return a region by its name.

        Raises
        ------
        KeyError
            If the plan has no region of this name.
        """
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(f"no region {name!r}: there are {', '.join(region.name for region in self.regions)}")

    def __contains__(self, name: object) -> bool:
        return any(region.name == name for region in self.regions)

    def __iter__(self) -> Iterator[SmemRegion]:
        return iter(self.regions)

    @property
    def size_bytes(self) -> int:
        """Bytes up to the end of all regions."""
        return max((region.end_bytes for region in self.regions), default=0)

    @property
    def fits(self) -> bool:
        """True if the plan fits in the shared memory of a CTA."""
        return self.size_bytes <= SMEM_BYTES_PER_CTA

    @property
    def overrun(self) -> str:
        """Description of the excess over a CTA's shared memory, with a remedy; empty where the plan fits.

        >>> SmemPlan.of(sA=StagedTile((256, 64), 8, 16), full=SmemArray(8, bits=64)).overrun
        '262208 bytes are 29760 more than the 232448 (227 KiB) that a CTA can have; 7 stages fit'
        >>> SmemPlan.of(sA=StagedTile((256, 512), 1, 16)).overrun
        '262144 bytes are 29696 more than the 232448 (227 KiB) that a CTA can have; sA takes 262144: use smaller tiles'
        """
        if self.fits:
            return ""
        stages = [content.stages for _, content in self.contents if isinstance(content, StagedTile)]
        for fewer in range(max(stages, default=1) - 1, 0, -1):
            if self._fits_with(fewer):
                return smem_overrun(self.size_bytes, f"{fewer} {'stage fits' if fewer == 1 else 'stages fit'}")
        largest = max(self, key=lambda region: region.size_bytes)
        smaller = "smaller tiles" if isinstance(largest.content, StagedTile) else "fewer elements"
        return smem_overrun(self.size_bytes, f"{largest.name} takes {largest.size_bytes}: use {smaller}")

    def _fits_with(self, stages: int) -> bool:
        try:
            return self._with_stages(stages).fits
        except LayoutError:  # an overlay is larger than what is left of its holder
            return False

    def _with_stages(self, most: int) -> SmemPlan:
        """Return the plan with the tiles' stages limited."""
        return replace(
            self,
            contents=tuple(
                (
                    name,
                    replace(content, stages=min(content.stages, most)) if isinstance(content, StagedTile) else content,
                )
                for name, content in self.contents
            ),
        )

    def __str__(self) -> str:
        holders = dict(self.overlays)
        rows = [
            (str(r.offset_bytes), r.name, str(r.size_bytes), f"{r.layout}{_overlaid(holders.get(r.name))}")
            for r in self.regions
        ]
        start, name, size = (max((len(row[column]) for row in rows), default=1) for column in range(3))
        lines = [f"{a:>{start}}  {b:<{name}} {c:>{size}} bytes  {d}" for a, b, c, d in rows]
        total = f"{self.size_bytes:>{start}}"
        return "\n".join([*lines, total if self.fits else f"{total}  does not fit: {self.overrun}"])


def _overlaid(holder: str | None) -> str:
    return "" if holder is None else f"  in {holder}"
