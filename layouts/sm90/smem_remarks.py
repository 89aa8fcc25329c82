"""Remarks in PTX that name the regions of a kernel's shared memory, so that reports can.

A kernel's PTX knows addresses only. The remarks are comments: they cost nothing, and stay with the PTX wherever it is
kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .smem_plan import SmemPlan
from .staged import StagedTile

_REMARK = re.compile(r"// smem region (?P<name>\S+): (?P<stages>\d+) x (?P<bytes>\d+) bytes at (?P<start>\d+)")


class NamedRegion(NamedTuple):
    """Region of shared memory, as a remark has it.

    Attributes
    ----------
    name : str
    start : int
        Offset in the shared memory that the plan is of.
    stages, stage_bytes : int
        An array is of one stage.
    """

    name: str
    start: int
    stages: int
    stage_bytes: int

    @property
    def end(self) -> int:
        """Offset behind the region."""
        return self.start + self.stages * self.stage_bytes

    def stage_of(self, offset: int) -> int | None:
        """Return the stage that an offset in shared memory is in; None if it is in no stage of the region."""
        stage = (offset - self.start) // self.stage_bytes
        return stage if 0 <= stage < self.stages else None


def remarks(plan: SmemPlan) -> str:
    """Write the remarks of a plan's regions, one a line; a name with blanks in it gets none.

    Examples
    --------
    >>> from cutepy.layouts.sm90 import SmemArray
    >>> print(remarks(SmemPlan.of(sA=StagedTile((128, 64), 4, 16), full=SmemArray(4, bits=64))))
    // smem region sA: 4 x 16384 bytes at 0
    // smem region full: 1 x 32 bytes at 65536
    """
    return "\n".join(_remarks(plan))


def _remarks(plan: SmemPlan) -> Iterator[str]:
    for region in plan:
        stages = region.content.stages if isinstance(region.content, StagedTile) else 1
        each = region.size_bytes // stages
        text = f"// smem region {region.name}: {stages} x {each} bytes at {region.offset_bytes}"
        if _REMARK.fullmatch(text):
            yield text


def named_regions(ptx: str) -> tuple[NamedRegion, ...]:
    r"""Read the regions that remarks in PTX name.

    Examples
    --------
    >>> named_regions("mov.u32 %r1, %tid.x;\n// smem region sA: 4 x 16384 bytes at 0\n")
    (NamedRegion(name='sA', start=0, stages=4, stage_bytes=16384),)
    """
    return tuple(
        NamedRegion(found["name"], int(found["start"]), int(found["stages"]), int(found["bytes"]))
        for found in _REMARK.finditer(ptx)
    )
