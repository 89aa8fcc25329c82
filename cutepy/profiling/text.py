"""Tree of a recording as text."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cutepy.profiling.recording import Recording
from cutepy.profiling.tree import Node, tree

_COLUMNS = ("time", "share", "calls", "GFLOP", "MB", "TFLOP/s", "TB/s", "roofline", "gaps", "overlap")
_NAME = 24
"""Fewest characters of a name, however narrow the terminal is."""


def print_tree(recording: Recording, console: Console | None = None) -> None:
    """Print a recording: a line of totals, the tree, and the limits that apply.

    Parameters
    ----------
    recording : Recording
    console : rich.console.Console, optional
        Default: the standard output.
    """
    console = console or Console(highlight=False)
    root = tree(recording)
    console.print(headline(recording, root), markup=False)
    if root.children:
        console.print(table(root, console.width))
    for note in recording.notes:
        console.print(f"note: {note}", markup=False)


def headline(recording: Recording, root: Node) -> str:
    """Return a line of totals.

    Examples
    --------
    >>> from cutepy.profiling import Record
    >>> recording = Recording((Record("mm", start_ns=0, end_ns=2000), Record("mm", start_ns=5000, end_ns=8000)))
    >>> headline(recording, tree(recording))
    '2 launches, 5.0 us on the device within 8.0 us (62% busy)'
    >>> recording = Recording((Record("mm"),))
    >>> headline(recording, tree(recording))
    '1 launches, all simulated: they have no times'
    """
    if root.launches == root.simulated:
        return f"{root.launches} launches" + (", all simulated: they have no times" if root.launches else "")
    where = f" on {recording.gpu}, by {recording.source}" if recording.source else ""
    timed = sorted((r.start_ns, r.end_ns) for r in recording.records if r.start_ns is not None and r.end_ns is not None)
    busy, ended = 0, timed[0][0]
    for start, end in timed:
        busy += max(0, end - max(start, ended))
        ended = max(ended, end)
    span = ended - timed[0][0]
    simulated = f"; {root.simulated} more in the simulator, without times" if root.simulated else ""
    return (
        f"{root.launches - root.simulated} launches{where}, {time(root.time_ns)} on the device within {time(span)} "
        f"({busy / max(1, span):.0%} busy){simulated}"
    )


def table(root: Node, width: int = 80) -> Table:
    """Return the tree as a table of rich: a row for each scope and kernel, and the columns that have a value."""
    rows = [(node, values(node, root)) for node in root.walk() if node.path]
    used = [n for n in range(len(_COLUMNS)) if any(cells[n] for _, cells in rows)]
    widths = [max(len(_COLUMNS[n]), *(len(cells[n]) for _, cells in rows)) for n in used]
    left = max(_NAME, width - sum(widths) - 2 * len(widths))
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    made.add_column("scope or kernel", no_wrap=True)
    for n in used:
        made.add_column(_COLUMNS[n], justify="right", no_wrap=True)
    for node, cells in rows:
        name = "  " * (len(node.path) - 1) + node.name
        name = name if len(name) <= left else f"{name[: left - 3]}..."
        made.add_row(Text(name), *(cells[n] for n in used), style="bold" if node.kind == "scope" else "")
    return made


def values(node: Node, root: Node) -> tuple[str, ...]:
    """Return the cells of a row, "" where a value is not known."""
    timed = node.time_ns > 0
    return (
        time(node.time_ns) if timed else "",
        f"{node.time_ns / root.time_ns:.1%}" if timed else "",
        str(node.calls),
        "" if timed or not node.flops else f"{node.flops / 1e9:.3g}",
        "" if timed or not node.bytes else f"{node.bytes / 1e6:.3g}",
        "" if node.tflops is None else f"{node.tflops:.1f}",
        "" if node.tbytes is None else f"{node.tbytes:.2f}",
        "" if node.roofline is None else f"{node.roofline:.0%}",
        time(node.gap_ns) if node.gap_ns else "",
        time(node.overlap_ns) if node.overlap_ns else "",
    )


def time(ns: float) -> str:
    """Return a time in a unit that fits.

    Examples
    --------
    >>> time(640), time(12_340), time(7_654_321), time(2_500_000_000)
    ('0.6 us', '12.3 us', '7.65 ms', '2.50 s')
    """
    if ns < 1e6:
        return f"{ns / 1e3:.1f} us"
    return f"{ns / 1e6:.2f} ms" if ns < 1e9 else f"{ns / 1e9:.2f} s"
