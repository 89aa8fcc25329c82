"""Timelines on the page: traces of `cutepy predict --timeline` and `cutepy profile --timeline`, one above the other.

Traces are in the Trace Event Format: complete events ("X") of microseconds, metadata ("M") that name processes and
threads. A thread's events that overlap in time, and do not nest, lie in rows of their own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from cutepy.explorer.files import Files
from cutepy.explorer.parameters import BadParameterError

MOST_EVENTS = 200_000
"""Events of a trace, beyond which it is refused."""

LIFE = "runs"
"""Name of the event that spans a warp's life."""


class TimelineError(ValueError):
    """Error of a file that is no trace."""


class Timelines:
    """Traces by the hash of their bytes."""

    def __init__(self) -> None:
        self._files: Files[Trace] = Files("timeline", "timeline")

    def add(self, data: bytes, name: str, *, keep: bool = False) -> dict[str, Any]:
        """Add a trace.

        Parameters
        ----------
        data : bytes
            The file.
        name : str
            Shown in the page's menus.
        keep : bool
            Keep the trace as long as the server runs; an upload makes room for later ones.

        Raises
        ------
        TimelineError
            If the file is no trace.
        """
        trace = Trace(data)
        return {"id": self._files.add(data, name, trace, keep=keep), "name": name, "kind": trace.kind}

    def listed(self) -> list[dict[str, Any]]:
        """List the traces."""
        return [{"id": identity, "name": name, "kind": trace.kind} for identity, name, trace in self._files.all()]

    def tracks(self, identity: str, process: str) -> dict[str, Any]:
        """Return the tracks of a process of a trace, by the process's number in the trace, of the first by default."""
        name, trace = self._files.named(identity)
        names = trace.processes
        number = int(process) if process.isdecimal() and len(process) < 10 else 0 if not process else len(names)
        if number >= len(names):
            raise BadParameterError("process", f"there is no process {process!r} in {name}; choose another")
        told = {"name": name, "kind": trace.kind, "processes": names, "process": number}
        return told | {"tracks": trace.tracks(number), "sources": trace.sources}


def is_trace(data: bytes) -> bool:
    """Return whether a file may be a trace, rather than a profile."""
    return b'"traceEvents"' in data[:4096]


class Trace:
    """Trace of a file.

    Attributes
    ----------
    kind : "predicted" or "measured"
    processes : list of str
    sources : dict
        Text of lines that events name, by file and number.
    """

    def __init__(self, data: bytes) -> None:
        try:
            told = json.loads(data)
            events = told["traceEvents"]
            spans = [each for each in events if each["ph"] == "X"]
            if len(spans) > MOST_EVENTS:
                raise TimelineError(f"a trace must have at most {MOST_EVENTS} events, got {len(spans)}; record fewer")
            names = {
                (each["name"], str(each["pid"]), str(each.get("tid", ""))): str(each["args"]["name"])
                for each in events
                if each["ph"] == "M" and each["name"] in ("process_name", "thread_name")
            }
            other = told.get("otherData") or {}
            sources = other.get("sources") or {}
            self.sources = {str(f): {str(n): str(text) for n, text in lines.items()} for f, lines in sources.items()}
            self.kind = "predicted" if str(other.get("time", "")).startswith("predicted") else "measured"
            self._threads: dict[str, dict[str, list[_Span]]] = defaultdict(lambda: defaultdict(list))
            for each in spans:
                begin, took = float(each["ts"]), float(each["dur"])
                span = begin, begin + took, str(each["name"]), dict(each.get("args") or {})
                self._threads[str(each["pid"])][str(each["tid"])].append(span)
        except TimelineError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TimelineError(
                "a timeline must be what `cutepy predict --timeline FILE` or `cutepy profile --timeline FILE` writes, "
                f"got {type(error).__name__}: {str(error)[:80]}"
            ) from error
        self._ids = list(self._threads)
        self.processes = [
            next((name for (what, pid, _), name in names.items() if what == "process_name" and pid == each), each)
            for each in self._ids
        ]
        self._names = names

    def tracks(self, number: int) -> list[dict[str, Any]]:
        """List the tracks of a process: times are microseconds since its first event."""
        pid = self._ids[number]
        threads = self._threads[pid]
        first = min((span[0] for spans in threads.values() for span in spans), default=0.0)
        found = []
        for tid, spans in threads.items():
            name = self._names.get(("thread_name", pid, tid), tid)
            rows, events = _rows(sorted(spans, key=lambda each: (each[0], -each[1])))
            found.append(
                {
                    "name": name,
                    "rows": rows,
                    "events": [
                        [round(begin - first, 6), round(end - first, 6), name, row, args]
                        for (begin, end, name, args), row in events
                    ],
                }
            )
        return found


_Span = tuple[float, float, str, dict[str, Any]]
_MOST_ROWS = 8


def _rows(spans: list[_Span]) -> tuple[int, list[tuple[_Span, int]]]:
    """Give each span of a thread a row: below those that are around it, or beside those that it overlaps.

    A warp's life lies behind its waits, in their row.

    Returns
    -------
    (int, list of (span, int))
        Rows, of which there are at most eight, and the row of each span.
    """
    ends: list[float] = []
    placed = []
    for span in spans:
        if span[2] == LIFE:
            placed.append((span, 0))
            continue
        row = next((n for n, end in enumerate(ends) if end <= span[0] + 1e-9), len(ends))
        row = min(row, _MOST_ROWS - 1)
        if row == len(ends):
            ends.append(span[1])
        else:
            ends[row] = max(ends[row], span[1])
        placed.append((span, row))
    return max(1, len(ends)), placed
