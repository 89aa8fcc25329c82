"""Predictions as people and programs read them: text, JSON, and a timeline in the Trace Event Format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutepy.predict.launch import Prediction
from cutepy.predict.state import Event

if TYPE_CHECKING:
    from rich.console import Console

_STALLS = 5
_AROUND = 6
"""Lines before and after a line that an event names, whose text a timeline has."""
_ADVICE = {
    "tensor cores": "the MMAs' own time; fewer of them, or a narrower type, is all that helps",
    "L2": "load less: larger tiles, or clusters that share loads by multicast",
    "device memory": "move fewer bytes: fuse, or use a narrower type",
    "port of the SM": "load less into each SM: larger tiles",
    "shared memory": "fewer wavefronts: wider accesses, a layout without bank conflicts, operands in registers",
    "issue slots": "fewer instructions: wider accesses, less address arithmetic",
    "tail": "the last round leaves SMs idle: other tiles, or a persistent kernel that splits the last ones",
    "launch": "fuse it with its neighbours, or launch it by a graph or programmatically",
    "latency": "more bytes in flight, more warps, or more independent work: see where warps wait",
}


def sentence(found: Prediction) -> str:
    """Say what bounds a kernel, with the numbers that say so, and what helps."""
    bound, most = found.bound, next(iter(found.use.items()))
    if bound in found.use:
        said = f"{bound}: {found.use[bound]:.0%} of the time in use"
    elif bound == "tail":
        said = f"tail: SMs have run out of CTAs for {found.tail:.0%} of the time, in {found.waves:.2f} rounds of CTAs"
    elif bound == "launch":
        said = f"launch: {found.launch_us:.2f} of {found.us:.2f} us are the launch's"
    else:
        waits = next((what for what in found.critical if what not in ("instructions", "tensor cores")), "instructions")
        said = (
            f"latency: nothing is used more than {most[0]}, {most[1]:.0%}; the critical path waits for {waits} "
            f"{found.critical.get(waits, 0.0):.0%} of its time"
        )
        if found.in_flight_bytes < found.needed_bytes:
            said += (
                f"; {found.in_flight_bytes / 1024:.0f} KiB are in flight to an SM, and full bandwidth needs "
                f"{found.needed_bytes / 1024:.0f}"
            )
    advice = _ADVICE.get(bound, "less of its work")
    return f"{said}. To do: {advice}."


def write(predictions: Sequence[Prediction], console: Console) -> None:
    """Print a table of the launches, and of each kernel and grid, by its number, what bounds it and where it waits."""
    from rich.table import Table

    about = {(each.kernel, each.grid): each for each in predictions}
    numbers = {key: number for number, key in enumerate(about, 1)}
    table = Table(title=f"predicted on one {predictions[0].gpu.upper()}" if predictions else "", title_justify="left")
    table.box, table.pad_edge = None, False
    for name in ("", "us", "range", "bound", "tensor", "L2", "memory", "issue", "tail"):
        table.add_column(name, justify="left" if name == "bound" else "right", no_wrap=True)
    for found in predictions:
        use = found.use
        shares = (use.get(name, 0.0) for name in ("tensor cores", "L2", "device memory", "issue slots"))
        table.add_row(
            str(numbers[found.kernel, found.grid]),
            f"{found.us:.2f}",
            f"{found.low_us:.1f} to {found.high_us:.1f}",
            found.bound,
            *(f"{share:.0%}" for share in shares),
            f"{found.tail:.0%}",
        )
    console.print(table)
    for key, found in about.items():
        console.print(
            f"{numbers[key]}: [bold]{found.kernel}[/] {'x'.join(map(str, found.grid))}: {sentence(found)}",
            highlight=False,
            soft_wrap=True,
        )
        for line in lines(found):
            console.print(f"   {line}", highlight=False, markup=False, soft_wrap=True)


def several(count: int, noun: str) -> str:
    """Count a noun.

    Examples
    --------
    >>> several(1, "CTA"), several(2, "CTA")
    ('1 CTA', '2 CTAs')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def lines(found: Prediction) -> Iterator[str]:
    """Yield lines about a prediction."""
    critical = ", ".join(f"{what} {share:.0%}" for what, share in found.critical.items() if share >= 0.02)
    yield f"critical path: {critical}"
    if found.idle:
        idle = ", ".join(f"{what} {share:.1%}" for what, share in found.idle.items())
        beyond = f"SMs without work are {found.tail:.0%} of the time, and the launch {found.launch_us / found.us:.0%}"
        yield f"idle tensor cores of a busy SM: {idle}; {beyond}"
    at_once = found.occupancy
    yield (
        f"{several(at_once.ctas_per_sm, 'CTA')} an SM, limited by {' and '.join(at_once.limited_by)}; "
        f"{found.waves:.2f} rounds; {found.in_flight_bytes / 1024:.1f} KiB in flight to an SM, of "
        f"{found.needed_bytes / 1024:.1f} that full bandwidth needs; {several(found.sampled_ctas, 'CTA')} simulated, "
        f"and the others' times follow within {found.sampling_error:.1%}"
    )
    for stall in found.stalls[:_STALLS]:
        yield f"{stall.line}: warps wait for {stall.cause}, {stall.share:.1%} of their time"


def as_json(predictions: Iterable[Prediction]) -> list[dict[str, Any]]:
    """Return predictions as plain values, without their timelines."""
    found = []
    for each in predictions:
        plain = dataclasses.asdict(dataclasses.replace(each, events=()))
        del plain["events"]
        plain["occupancy"] = each.occupancy._asdict() | {"limits": dict(each.occupancy.limits)}
        found.append(plain | {"sentence": sentence(each)})
    return found


def timeline(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Return the timelines as a Chrome trace, for Perfetto: a process for each SM of a launch, a track for each warp.

    Of each launch the SMs of one cluster are shown; times are in microseconds. Spans name their line of the source, and
    the trace has the text around these lines.
    """
    events: list[dict[str, Any]] = []
    for number, found in enumerate(predictions):
        tracks: dict[tuple[int, str], int] = {}
        per_us = found.clock_hz / 1e6
        for event in sorted(found.events, key=lambda each: (each.sm, _order(each.track), each.start, -each.end)):
            pid = 100 * number + event.sm
            if (pid, event.track) not in tracks:
                if not any(known == pid for known, _ in tracks):
                    name = {"name": f"{found.kernel}, SM {event.sm}"}
                    events.append({"ph": "M", "name": "process_name", "pid": pid, "args": name})
                tid = tracks[pid, event.track] = len(tracks)
                about = {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": event.track}}
                events.append(about)
            span: dict[str, Any] = {"ts": event.start / per_us, "dur": (event.end - event.start) / per_us}
            if event.where:
                span["args"] = {"line": event.where}
            events.append({"ph": "X", "name": event.name, "pid": pid, "tid": tracks[pid, event.track], **span})
    told = {
        "time": "predicted, microseconds",
        "sources": sources(found for each in predictions for found in each.events),
    }
    return {"traceEvents": events, "otherData": told}


def _order(track: str) -> tuple[bool, list[int], str]:
    """Order tracks: tensor cores and copies before warps, and warps by their numbers."""
    return track.startswith("CTA"), [int(word) for word in track.split() if word.isdigit()], track


def sources(events: Iterable[Event]) -> dict[str, dict[str, str]]:
    """Return the text around the lines that events name: by file, then by number of the line."""
    found: dict[str, dict[str, str]] = {}
    for where in sorted({event.where for event in events if event.where}):
        file, _, number = where.rpartition(":")
        text = _text(file)
        if not number.isdigit() or not text:
            continue
        for n in range(max(1, int(number) - _AROUND), min(len(text), int(number) + _AROUND) + 1):
            found.setdefault(file, {})[str(n)] = text[n - 1]
    return found


@cache
def _text(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()
