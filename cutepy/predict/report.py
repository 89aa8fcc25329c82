"""Predictions as people and programs read them: text, JSON, and a timeline in the Trace Event Format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from cutepy.predict.launch import Prediction

_STALLS = 5
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
    """Print a table of the launches, and of each kernel what bounds it and where it waits."""
    from rich.table import Table

    table = Table(title=f"predicted on one {predictions[0].gpu.upper()}" if predictions else "", title_justify="left")
    for name in ("kernel", "grid", "us", "range", "bound", "tensor", "L2", "memory", "issue", "tail"):
        is_text = name in ("kernel", "bound")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text)
    for found in predictions:
        use = found.use
        shares = (use.get(name, 0.0) for name in ("tensor cores", "L2", "device memory", "issue slots"))
        table.add_row(
            found.kernel,
            "x".join(map(str, found.grid)),
            f"{found.us:.2f}",
            f"{found.low_us:.1f} to {found.high_us:.1f}",
            found.bound,
            *(f"{share:.0%}" for share in shares),
            f"{found.tail:.0%}",
        )
    console.print(table)
    for found in {(each.kernel, each.grid): each for each in predictions}.values():
        console.print(
            f"[bold]{found.kernel}[/] {'x'.join(map(str, found.grid))}: {sentence(found)}",
            highlight=False,
            soft_wrap=True,
        )
        for line in lines(found):
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def lines(found: Prediction) -> Iterator[str]:
    """Yield lines about a prediction."""
    critical = ", ".join(f"{what} {share:.0%}" for what, share in found.critical.items() if share >= 0.02)
    yield f"critical path: {critical}"
    if found.idle:
        yield "idle tensor cores: " + ", ".join(f"{what} {share:.1%}" for what, share in found.idle.items())
    at_once = found.occupancy
    yield (
        f"{at_once.ctas_per_sm} CTAs an SM, limited by {' and '.join(at_once.limited_by)}; {found.waves:.2f} rounds; "
        f"{found.in_flight_bytes / 1024:.1f} KiB in flight to an SM; {found.sampled_ctas} CTAs were simulated, and the "
        f"others' times follow within {found.sampling_error:.1%}"
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

    Of each launch the SMs of one cluster are shown; times are in microseconds.
    """
    events: list[dict[str, Any]] = []
    for number, found in enumerate(predictions):
        tracks: dict[tuple[int, str], int] = {}
        per_us = found.clock_hz / 1e6
        for event in found.events:
            pid = 100 * number + event.sm
            if (pid, event.track) not in tracks:
                if not any(known == pid for known, _ in tracks):
                    name = {"name": f"{found.kernel}, SM {event.sm}"}
                    events.append({"ph": "M", "name": "process_name", "pid": pid, "args": name})
                tid = tracks[pid, event.track] = len(tracks)
                about = {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": event.track}}
                events.append(about)
            span = {"ts": event.start / per_us, "dur": (event.end - event.start) / per_us}
            events.append({"ph": "X", "name": event.name, "pid": pid, "tid": tracks[pid, event.track], **span})
    return {"traceEvents": events, "otherData": {"time": "predicted, microseconds"}}
