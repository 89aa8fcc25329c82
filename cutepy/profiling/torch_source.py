"""Records by torch's profiler, where cupti-python is missing or cannot have CUPTI.

The profiler's trace has each kernel, the call that launched it, and scopes as ranges of a thread; a kernel belongs to
the innermost range around its call.
"""

from __future__ import annotations

import json
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutepy.extras import is_installed
from cutepy.profiling.recording import Extents, Record
from cutepy.profiling.sources import SourceError, check_driver

_RANGE = "cutepy:"
_KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}
_CALLS = ("cuda_runtime", "cuda_driver")


class _ThreadRanges(threading.local):
    def __init__(self) -> None:
        self.ranges: list[Any] = []


class TorchSource:
    """Records of torch's profiler.

    Attributes
    ----------
    name : str
    notes : list of str
    """

    name = "torch.profiler"

    def __init__(self) -> None:
        self.notes = ["kernels of CUDA graphs are in the scope of their replay: torch's profiler tells no other"]
        self._thread = _ThreadRanges()
        self._profiler: Any = None

    def start(self) -> None:
        """Begin to record.

        Raises
        ------
        SourceError
            If torch sees no GPU, or its profiler is active already.
        """
        check_driver()
        if not is_installed("torch"):
            raise SourceError("torch is not installed: pip install 'cutepy[dsl]'")
        import torch

        if not torch.cuda.is_available():
            raise SourceError("torch sees no GPU")
        if torch.autograd.profiler._is_profiler_enabled:
            raise SourceError("torch's profiler must be free, and is active; end it first")
        activities = torch.profiler.ProfilerActivity
        self._profiler = torch.profiler.profile(activities=[activities.CPU, activities.CUDA])
        self._profiler.start()

    def push(self, scope: int) -> None:
        """Attribute the calling thread's launches to a scope until `pop`."""
        from torch.profiler import record_function

        entered = record_function(f"{_RANGE}{scope}")
        entered.__enter__()
        self._thread.ranges.append(entered)

    def pop(self) -> None:
        """Undo the calling thread's last `push`."""
        if self._thread.ranges:
            self._thread.ranges.pop().__exit__(None, None, None)

    def stop(self) -> Sequence[Record]:
        """Wait for the device, and return all records."""
        import torch

        torch.cuda.synchronize()
        self._profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(path))
            return records_of(json.loads(path.read_text())["traceEvents"])


def records_of(events: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Read the events of a trace of torch's profiler."""
    ranges: dict[Any, list[tuple[float, float, int]]] = {}
    calls: dict[Any, Mapping[str, Any]] = {}
    for each in events:
        name, category = str(each.get("name", "")), each.get("cat")
        if category == "user_annotation" and name.startswith(_RANGE):
            begin = float(each["ts"])
            ranges.setdefault(each["tid"], []).append((begin, begin + float(each["dur"]), int(name[len(_RANGE) :])))
        elif category in _CALLS:
            calls[each["args"].get("correlation")] = each
    for of_thread in ranges.values():
        of_thread.sort(key=lambda range_: (range_[0], -range_[1]))
    return [
        _record(each, calls.get(each["args"].get("correlation")), ranges)
        for each in events
        if each.get("cat") in _KINDS
    ]


def _record(
    each: Mapping[str, Any],
    call: Mapping[str, Any] | None,
    ranges: Mapping[Any, Sequence[tuple[float, float, int]]],
) -> Record:
    told, start = each["args"], _ns(each["ts"])
    scope = None if call is None else _innermost(ranges.get(call["tid"], ()), float(call["ts"]))
    kind: Any = _KINDS[each["cat"]]
    launches_graph = call is not None and "GraphLaunch" in str(call["name"])
    return Record(
        str(each["name"]),
        kind,
        start,
        start + _ns(each["dur"]),
        int(told.get("device", 0)),
        int(told.get("stream", 0)),
        scope,
        told.get("correlation") if launches_graph else None,
        None if call is None else _ns(call["ts"]),
        grid=_extents(told.get("grid")),
        block=_extents(told.get("block")),
        registers=int(told.get("registers per thread", 0)),
        smem_bytes=int(told.get("shared memory", 0)),
        bytes=int(told.get("bytes", 0)),
    )


def _innermost(ranges: Sequence[tuple[float, float, int]], at: float) -> int | None:
    """Return the scope of the last range to begin before a time, of those that hold it."""
    for begin, end, scope in reversed(ranges[: bisect_right(ranges, at, key=lambda range_: range_[0])]):
        if begin <= at <= end:
            return scope
    return None


def _ns(us: float) -> int:
    return round(float(us) * 1000)


def _extents(values: Sequence[int] | None) -> Extents:
    x, y, z = values or (1, 1, 1)
    return int(x), int(y), int(z)
