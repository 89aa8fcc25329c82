"""Map of shared memory: the use, writers and readers of each range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cutepy.anatomy.mmas import site_of
from cutepy.anatomy.model import Barrier, Region
from cutepy.anatomy.watch import CELL_BYTES, Cells, LaunchRecord
from cutepy.anatomy.words import place, progression
from cutepy.layouts.sm90.smem_remarks import NamedRegion
from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx import Module

UNUSED = "not accessed"
"""Use of a range that no launch accessed."""

_APART = 128
"""Largest gap that gets no line of its own, in bytes."""
_APART_BYTES = 1024
"""Largest gap between ranges of one use that counts as padding."""
_MOST_ROLES = 62
_FEWEST_FOLDED = 3


def seen_regions(
    seen: LaunchRecord,
    barriers: Sequence[Barrier],
    symbols: Mapping[str, tuple[int, int]],
    planned: Sequence[NamedRegion] = (),
) -> tuple[Region, ...]:
    """Map shared memory by the accesses of observed launches.

    Parameters
    ----------
    seen : LaunchRecord
    barriers : sequence of Barrier
        Barriers, for the names of mbarriers.
    symbols : mapping of str to (int, int)
        Start and end of each variable of known size.
    planned : sequence of NamedRegion
        Regions of the plan by which the kernel shares its memory, where it has one.
    """
    called = {address: barrier.name for barrier in barriers if not barrier.is_nameless for address in barrier.addresses}
    roles: dict[object, list[Cells]] = {}
    for cells in seen.cells.values():
        name = _label(cells, called)
        roles.setdefault(name, []).append(cells)
    if not roles:
        return ()
    signature = np.zeros(max(len(cells.used) for cells in seen.cells.values()), np.uint64)
    for number, group in enumerate(roles.values()):
        for cells in group:
            signature[: len(cells.used)][cells.used] |= np.uint64(1 << min(number, _MOST_ROLES))
    labels = list(roles)
    runs = _runs(signature)
    used = max(launch.smem_bytes for launch in seen.launches)
    found = [
        _region(
            start,
            end,
            [labels[n] for n in range(len(labels)) if bits >> min(n, _MOST_ROLES) & 1],
            roles,
            symbols,
            planned,
        )
        for start, end, bits in runs
    ]
    ends = [0, *(end for _, end, _ in runs)]
    starts = [*(start for start, _, _ in runs), used]
    unused = [Region(end, start - end, UNUSED) for end, start in zip(ends, starts, strict=True) if start - end > _APART]
    return tuple(sorted(_folded((*found, *unused)), key=lambda region: region.start))


def _folded(regions: Iterable[Region]) -> Iterator[Region]:
    """Fold regions of one size and one use into one, where their addresses are a progression."""
    alike: dict[Region, list[Region]] = {}
    for region in regions:
        alike.setdefault(replace(region, start=0), []).append(region)
    for group in alike.values():
        group.sort(key=lambda region: region.start)
        starts = tuple(region.start for region in group)
        if len(group) < _FEWEST_FOLDED or group[0].parts or progression(starts) is None:
            yield from group
        else:
            yield replace(group[0], starts=starts)


def static_regions(symbols: Mapping[str, tuple[int, int]], barriers: Sequence[Barrier]) -> tuple[Region, ...]:
    """Map the objects that PTX places: variables, and mbarriers at constant addresses."""
    found = [Region(start, end - start, f"variable {name}") for name, (start, end) in symbols.items() if end > start]
    for barrier in barriers:
        for run in _neighbours(barrier.addresses):
            name = barrier.name if len(run) > 1 or not barrier.is_nameless else f"{run[0]:#x}"
            found.append(Region(run[0], run[-1] + CELL_BYTES - run[0], f"mbarrier {name}"))
    return tuple(sorted(found, key=lambda region: (region.start, -region.bytes)))


def _neighbours(addresses: Sequence[int]) -> list[list[int]]:
    """Split rising addresses into runs of adjacent barriers."""
    runs: list[list[int]] = []
    for at in addresses:
        if runs and at == runs[-1][-1] + CELL_BYTES:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def variables(
    module: Module, function_variables: Sequence[object], shared: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Return start and end of the shared variables of known size."""
    every = [v for v in (*module.variables, *function_variables) if getattr(v, "space", "") == "shared"]
    return {
        v.name: (shared[v.name], shared[v.name] + v.size_bytes)  # type: ignore[attr-defined]
        for v in every
        if v.size_bytes is not None and v.name in shared  # type: ignore[attr-defined]
    }


def _label(cells: Cells, called: Mapping[int, str]) -> object:
    """Name a range's use: an operand, a copy of one line, a barrier, threads."""
    if cells.role.actor == "mbarrier":
        names = {called.get(start, "") for start in cells.starts}
        return "mbarrier", names.pop() if len(names) == 1 else ""
    if cells.role.actor == "TMA":
        return cells.role, site_of([cells.instruction]).lines or cells.instruction.index
    return cells.role, ""


def _runs(signature: Array) -> list[tuple[int, int, int]]:
    """Return start, end and roles of the ranges with one use, small gaps included."""
    edges = np.flatnonzero(np.diff(signature)) + 1
    starts, ends = np.concatenate([[0], edges]), np.concatenate([edges, [len(signature)]])
    runs: list[tuple[int, int, int]] = []
    for start, end in zip((starts * CELL_BYTES).tolist(), (ends * CELL_BYTES).tolist(), strict=True):
        bits = int(signature[start // CELL_BYTES])
        if not bits:
            continue
        if runs and runs[-1][2] == bits and start - runs[-1][1] <= _APART_BYTES:
            runs[-1] = runs[-1][0], end, bits
        else:
            runs.append((start, end, bits))
    return runs


def _region(
    start: int,
    end: int,
    labels: list[object],
    roles: Mapping[object, list[Cells]],
    symbols: Mapping[str, tuple[int, int]],
    planned: Sequence[NamedRegion],
) -> Region:
    within = slice(start // CELL_BYTES, end // CELL_BYTES)
    here = [cells for label in labels for cells in roles[label] if cells.used[within].any()]
    copied = sorted({at for cells in here if cells.role.actor == "TMA" for at in cells.starts if start <= at < end})
    writers = _said(cells for cells in here if cells.role.writes)
    readers = _said(cells for cells in here if cells.role.reads)
    what = _what(here, labels, start, symbols)
    if not what.startswith("mbarrier") and (
        names := [each.name for each in planned if each.start < end and start < each.end]
    ):
        what = f"{' and '.join(names)}: {what}"
    return Region(start, end - start, what, writers, readers, tuple(copied[1:] and copied))


def _what(here: Sequence[Cells], labels: list[object], start: int, symbols: Mapping[str, tuple[int, int]]) -> str:
    barriers = [label[1] for label in labels if isinstance(label, tuple) and label[0] == "mbarrier"]
    operands = sorted({cells.role.action for cells in here if cells.role.actor == "wgmma"})
    words = [f"mbarrier {name}".strip() for name in barriers]
    if operands:
        words.append(f"operand {' and '.join(operands)} of wgmma")
    elif any(cells.role.actor == "tensor core" for cells in here):
        words.append("operand of the tensor core")
    elif any(cells.role.actor == "TMA" for cells in here):
        words.append("a tensor's tile")
    names = [name for name, (first, last) in symbols.items() if first <= start < last]
    words += [f"variable {name}" for name in names]
    return ", ".join(words) or "scratch"


def _said(users: Iterable[Cells]) -> tuple[str, ...]:
    """Describe a region's users, each line once."""
    return tuple(dict.fromkeys(f"{_role(cells)} at {place(site_of([cells.instruction]))}" for cells in users))


def _role(cells: Cells) -> str:
    """Describe an instruction's use of shared memory."""
    role = cells.role
    if role.actor == "bulk copies":
        return "bulk copy"
    if role.actor == "tensor core":
        return cells.instruction.name
    if role.actor != "threads":
        return f"{role.actor} {role.action}"
    return "cp.async" if cells.instruction.traits.is_copy_of_thread else cells.instruction.parts[0]
