"""Map of tensor memory: the warps that allocate columns, and the readers and writers of lanes and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from cutepy.anatomy.mmas import site_of
from cutepy.anatomy.model import TmemAllocation, TmemPart
from cutepy.anatomy.smem import UNUSED
from cutepy.anatomy.values import Values
from cutepy.anatomy.watch import TMEM_GRANULE_LANES, LaunchRecord, SeenTmem, TmemCells, thread_ranges
from cutepy.anatomy.words import place
from cutepy.layouts.sm100.arch import TMEM_LANES
from cutepy.sim.ptx import Address, Function, Instruction

_EVERY_LANE = ((0, TMEM_LANES - 1),)


def allocations_of(function: Function, values: Values, seen: LaunchRecord | None) -> tuple[TmemAllocation, ...]:
    """List the allocations of tensor memory, with their parts as observed launches used them, if there were any."""
    every = [i for i in function.instructions if i.traits.allocates]
    return tuple(_allocation(i, values, None if seen is None else seen.tensor_memory.get(i.index)) for i in every)


def _allocation(i: Instruction, values: Values, seen: SeenTmem | None) -> TmemAllocation:
    ctas, site = i.traits.cta_group, site_of([i])
    if seen is None:
        return TmemAllocation(values.always(i.operands[1]), site, ctas)
    groups: dict[object, list[TmemCells]] = {}
    for cells in seen.cells.values():
        use = cells.instruction
        groups.setdefault((cells.writes, use.name, site_of([use]).lines or use.index), []).append(cells)
    freed = tuple(site_of([each]) for each in seen.freed.values())
    parts = tuple(_parts(list(groups.values()), seen.columns))
    return TmemAllocation(seen.columns, site, ctas, thread_ranges(seen.threads), freed, parts)


def _parts(groups: list[list[TmemCells]], columns: int) -> Iterator[TmemPart]:
    """Split an allocation into runs of columns with one use, each by lanes with one use."""
    if not groups:
        yield TmemPart(0, columns, _EVERY_LANE, UNUSED)
        return
    # (uses, lanes, columns) -> for each run of equal columns, lanes by their uses
    used = np.array([np.any([cells.used for cells in group], axis=0) for group in groups])[:, :, :columns]
    edges = np.flatnonzero((used[:, :, 1:] != used[:, :, :-1]).any(axis=(0, 1))) + 1
    for first, end in zip([0, *edges.tolist()], [*edges.tolist(), columns], strict=True):
        if not used[:, :, first].any():
            yield TmemPart(first, end - first, _EVERY_LANE, UNUSED)
            continue
        lanes: dict[tuple[bool, ...], list[int]] = {}
        for half in range(used.shape[1]):
            lanes.setdefault(tuple(used[:, half, first].tolist()), []).append(half)
        for uses, halves in lanes.items():
            here = [group for group, uses_it in zip(groups, uses, strict=True) if uses_it]
            if here:
                yield TmemPart(
                    first,
                    end - first,
                    _runs(halves),
                    _what([cells for group in here for cells in group if cells.used[halves, first].any()]),
                    tuple(_said(group) for group in here if group[0].writes),
                    tuple(_said(group) for group in here if not group[0].writes),
                )


def _runs(halves: list[int]) -> tuple[tuple[int, int], ...]:
    """Return first and last lane of each run of granules."""
    runs: list[list[int]] = []
    for half in halves:
        if runs and runs[-1][1] == half - 1:
            runs[-1][1] = half
        else:
            runs.append([half, half])
    unit = TMEM_GRANULE_LANES
    return tuple((first * unit, last * unit + unit - 1) for first, last in runs)


def _what(here: Iterable[TmemCells]) -> str:
    """Name the use of a part by its role in the MMAs."""
    mmas = [cells for cells in here if cells.instruction.traits.is_tensor_mma]
    accumulating = {cells.instruction.index for cells in mmas if cells.writes}
    read = set()
    for cells in mmas:
        if cells.instruction.index in accumulating:
            continue
        if "block_scale" in cells.instruction.parts:
            read.add("block scales")
        if isinstance(cells.instruction.operands[1], Address):
            read.add("operand A")
    return ", ".join(["accumulator"] * bool(accumulating) + [" or ".join(sorted(read))] * bool(read)) or "data"


def _said(group: list[TmemCells]) -> str:
    """Describe the instructions of one line, and of loads and stores the warps."""
    instructions = [cells.instruction for cells in group]
    parts = instructions[0].parts
    form = {
        "ld": " ".join(dict.fromkeys(".".join(i.parts[4:6]) for i in instructions)),
        "st": " ".join(dict.fromkeys(".".join(i.parts[4:6]) for i in instructions)),
        "cp": ".".join(parts[3:]),
    }.get(parts[1], "")
    threads = {thread for cells in group for thread in cells.threads}
    said = f"{instructions[0].name}{f' {form}' if form else ''} at {place(site_of(instructions))}"
    return f"{said}, by {thread_ranges(threads)}" if threads else said
