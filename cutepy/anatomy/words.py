"""Formatting of values: source locations, addresses, extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from cutepy.anatomy.model import Site
from cutepy.layouts import Layout
from cutepy.layouts.grids.grid import ranges

UNKNOWN = "known at launch"
_MOST = 6
"""Number of addresses to list; of more, only the first."""


def place(site: Site) -> str:
    """Format a source location: "gemm.py:12 through mma.py:77", or the lines of the PTX.

    >>> place(Site(("/a/gemm.py:12", "/b/mma.py:77"), (644,))), place(Site((), (644, 650)))
    ('gemm.py:12 through mma.py:77', 'PTX lines 644,650')
    """
    if site.lines:
        return " through ".join(PurePath(line).name for line in site.lines)
    several = "s" if len(site.ptx_lines) > 1 else ""
    return f"PTX line{several} {ranges(site.ptx_lines)}" if site.ptx_lines else ""


def extents(values: Iterable[int]) -> str:
    """Format extents.

    >>> extents((128, 64))
    '128x64'
    """
    return "x".join(map(str, values))


def addresses(values: Sequence[int]) -> str:
    """Format rising addresses: a few as a list, a progression as a layout of bytes.

    >>> addresses((1024,)), addresses((0, 32, 64, 96, 8192, 8224, 8256, 8288))
    ('0x400', '0x0 + (4,2):(32,8192)')
    >>> addresses(())
    'known at launch'
    """
    if not values:
        return UNKNOWN
    found = progression(values)
    if len(values) > 2 and found is not None:
        return f"{values[0]:#x} + {found}"
    more = f" and {len(values) - _MOST} more" if len(values) > _MOST else ""
    return ", ".join(f"{value:#x}" for value in values[:_MOST]) + more


def progression(values: Sequence[int]) -> Layout | None:
    """Return the layout with these rising offsets, relative to the first; None if there is none.

    Examples
    --------
    >>> print(progression((0, 32, 64, 96, 8192, 8224, 8256, 8288)))
    (4,2):(32,8192)
    >>> print(progression((5,)), progression((0, 1, 3)))
    1:0 None
    """
    modes, rest = [], list(values)
    while len(rest) > 1:
        step = rest[1] - rest[0]
        count = next((n for n in range(2, len(rest)) if rest[n] - rest[n - 1] != step), len(rest))
        blocks = [rest[n : n + count] for n in range(0, len(rest), count)]
        if any([x - block[0] for x in block] != [step * n for n in range(count)] for block in blocks):
            return None
        modes.append((count, step))
        rest = rest[::count]
    if len(modes) < 2:
        return Layout(*(modes[0] if modes else (1, 0)))
    shape, stride = zip(*modes, strict=True)
    return Layout(shape, stride)


def several(count: int, one: str, many: str = "") -> str:
    """Format a number with its noun.

    >>> several(1, "stage"), several(8, "stage")
    ('1 stage', '8 stages')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"
