"""Trace of a recording for Perfetto and Chrome: kernels by stream, and their scopes above them.

References
----------
Trace Event Format: complete events ("X") of microseconds, metadata events ("M") that name processes and threads.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from cutepy.profiling.names import short_name
from cutepy.profiling.recording import Record, Recording

_SCOPES = 1 << 20
"""First thread number of scopes; streams have lower numbers."""


def events(recording: Recording) -> list[dict[str, Any]]:
    """List the events of a trace: of simulated launches, which have no time, one microsecond each in their order.

    Examples
    --------
    >>> [each["name"] for each in events(Recording((Record("mm", start_ns=5, end_ns=9),))) if each["ph"] == "X"]
    ['mm']
    """
    timed = [each for each in recording.records if not each.simulated]
    first = min((each.start_ns or 0 for each in timed), default=0)
    found: list[dict[str, Any]] = []
    streams: dict[tuple[Any, int], list[tuple[float, float, Record]]] = defaultdict(list)
    for record in timed:
        assert record.start_ns is not None
        begin = (record.start_ns - first) / 1000
        streams[record.device, record.stream].append((begin, begin + record.duration_ns / 1000, record))
    for n, record in enumerate(each for each in recording.records if each.simulated):
        streams["simulator", record.stream].append((float(n), n + 1.0, record))
    for (device, stream), of_stream in streams.items():
        process = "simulator (no times)" if device == "simulator" else f"GPU {device}"
        found += [
            _named("process_name", device, stream, process),
            _named("thread_name", device, stream, f"stream {stream}"),
        ]
        found.append(_named("thread_name", device, _SCOPES + stream, f"scopes of stream {stream}"))
        found += [_launch(device, stream, *each) for each in of_stream]
        found += _scopes(recording, device, stream, of_stream)
    return found


def save_trace(recording: Recording, path: Path) -> None:
    """Write a trace."""
    path.write_text(json.dumps({"traceEvents": events(recording), "displayTimeUnit": "ns"}))


def _named(what: str, process: Any, thread: int, name: str) -> dict[str, Any]:  # noqa: ANN401
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _launch(device: Any, stream: int, begin: float, end: float, record: Record) -> dict[str, Any]:  # noqa: ANN401
    told: dict[str, Any] = {"name": record.name, "grid": record.grid, "block": record.block, "cluster": record.cluster}
    told |= {"registers": record.registers, "shared memory": record.smem_bytes, "bytes": record.bytes}
    if record.launched_ns is not None and record.start_ns is not None:
        told["us from launch to start"] = (record.start_ns - record.launched_ns) / 1000
    return {
        "ph": "X",
        "cat": record.kind,
        "name": short_name(record.name),
        "pid": device,
        "tid": stream,
        "ts": begin,
        "dur": end - begin,
        "args": told,
    }


def _scopes(
    recording: Recording,
    device: Any,  # noqa: ANN401
    stream: int,
    launches: list[tuple[float, float, Record]],
) -> list[dict[str, Any]]:
    """List the passes through scopes, each from its first launch of a stream to its last, of one replay."""
    spans: dict[tuple[int, int | None], tuple[float, float]] = {}
    for begin, end, record in launches:
        scope = record.scope
        while scope is not None:
            key = scope, record.graph_launch
            before = spans.get(key, (begin, end))
            spans[key] = min(before[0], begin), max(before[1], end)
            scope = recording.scopes[scope].parent
    return [
        {
            "ph": "X",
            "cat": "scope",
            "name": recording.scopes[scope].name,
            "pid": device,
            "tid": _SCOPES + stream,
            "ts": begin,
            "dur": end - begin,
            "args": {"flops": recording.scopes[scope].flops, "bytes": recording.scopes[scope].bytes},
        }
        for (scope, _), (begin, end) in sorted(spans.items(), key=lambda each: (each[1][0], -each[1][1]))
    ]
