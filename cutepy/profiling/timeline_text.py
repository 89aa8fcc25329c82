"""Timeline as text: the time of each range, by warps that do the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from cutepy.profiling.warps import Warp, clock_ghz, probe_clocks


@dataclass
class Row:
    """Range of a role.

    Attributes
    ----------
    warps : str
        Warps of a CTA that have the same ranges, such as "0-3".
    name : str
    calls : int
    clocks : int
        Sum over all warps and calls, with the ranges within.
    share : float
        Share of the role's time from its first event to its last.
    """

    warps: str
    name: str
    calls: int = 0
    clocks: int = 0
    share: float = 0.0


def rows(warps: Sequence[Warp]) -> list[Row]:
    """Sum ranges by role: warps of all CTAs whose ranges have the same names.

    Examples
    --------
    >>> from cutepy.profiling.warps import Range
    >>> one = Warp(1, 0, 0, 0, (Range("wait", 0, 0, 30), Range("multiply", 0, 30, 40)), 0, ((0, 0), (0, 0)))
    >>> for row in rows([one]):
    ...     print(row.warps, row.name, row.calls, row.clocks, row.share)
    0 wait 1 30 0.75
    0 multiply 1 10 0.25
    """
    roles: dict[frozenset[str], list[Warp]] = defaultdict(list)
    for warp in warps:
        roles[frozenset(each.name for each in warp.ranges)].append(warp)
    found = []
    for of_role in sorted(roles.values(), key=lambda each: min(warp.warp for warp in each)):
        named: dict[str, Row] = {}
        label = numbers(sorted({warp.warp for warp in of_role}))
        life = sum(max(r.end for r in w.ranges) - min(r.begin for r in w.ranges) for w in of_role if w.ranges)
        for each in (each for warp in of_role for each in warp.ranges):
            row = named.setdefault(each.name, Row(label, each.name))
            row.calls += 1
            row.clocks += each.end - each.begin
        for row in named.values():
            row.share = row.clocks / max(1, life)
        found += sorted(named.values(), key=lambda row: -row.clocks)
    return found


def numbers(values: Sequence[int]) -> str:
    """Write sorted numbers as spans.

    Examples
    --------
    >>> numbers([0, 1, 2, 5])
    '0-2,5'
    """
    spans: list[list[int]] = []
    for value in values:
        if spans and value == spans[-1][-1] + 1:
            spans[-1][1:] = [value]
        else:
            spans.append([value])
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def print_timeline(warps: Sequence[Warp], *, simulated: bool, console: Console | None = None) -> None:
    """Print a table of ranges, and the cost of the probes.

    Parameters
    ----------
    warps : sequence of Warp
    simulated : bool
        True if clocks are steps of the simulator.
    console : rich.console.Console, optional
        Default: the standard output.
    """
    console = console or Console(highlight=False)
    if not warps:
        console.print("no events: no kernel with ranges was compiled and launched within the timeline", markup=False)
        return
    ghz, unit = (1.0, "steps") if simulated else (clock_ghz(warps), "ns")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("warps", "range"):
        table.add_column(name, no_wrap=True)
    for name in ("calls", f"{unit} a call", "share of the warps' time"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows(warps):
        mean = row.clocks / row.calls / ghz
        table.add_row(row.warps, row.name, str(row.calls), f"{mean:.0f}", f"{row.share:.0%}")
    console.print(table)
    ctas, dropped = len({(warp.launch, warp.cta) for warp in warps}), sum(warp.dropped for warp in warps)
    lost = f"; {dropped} events had no room" if dropped else ""
    console.print(
        f"{len(warps)} warps of {ctas} CTAs; a probe takes at most {probe_clocks(warps) / ghz:.0f} {unit}{lost}",
        markup=False,
    )
