"""Timelines by IKET, the profiler of the DSL: lives of the warps of any kernel, and ranges and marks of its own API.

IKET patches the loaded code: a kernel needs no ranges of `cutepy.device`. Its decoded JSON has, for each launch,
`warpLifetimes`, `ranges` and `markers`, with times of the GPU's global timer in ns, and indices into a table of places.

References
----------
`run-iket profile --postprocess json` of nvidia-cutlass-dsl 4.8.1.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutepy.profiling.names import short_name

LIFE = "runs"
"""Name of the event that spans a warp's life."""
_PROGRAM = "from iket.cli.main import entrypoint; entrypoint()"
_SECONDS = 600


def is_available() -> bool:
    """Return whether the installed DSL has IKET."""
    return importlib.util.find_spec("iket") is not None


def trace(script: Path, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Run a script under IKET, and list the events of a trace: of kernels with IKET's ranges, else of all warps' lives.

    Parameters
    ----------
    script : Path
    arguments : sequence of str

    Returns
    -------
    list of dict
        In the Trace Event Format; empty if IKET is absent, or fails.
    """
    if not is_available():
        return []
    return _run(script, arguments, []) or _run(script, arguments, ["--warp-trace"])


def _run(script: Path, arguments: Sequence[str], mode: Sequence[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "iket"
        command = [sys.executable, "-c", _PROGRAM, "--output-dir", str(output), "profile", *mode]
        command += ["--postprocess", "json", "--", sys.executable, str(script), *arguments]
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return []
        told = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(output.glob("*.trace.json"))]
    return [event for each in told for event in events(each)]


def events(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the events of a decoded capture: a process for each CTA of a launch, a thread for each warp.

    Examples
    --------
    >>> life = {"startTs": 5000, "endTs": 7000, "locIdx": 0}
    >>> launch = {"kernelName": "k", "gridId": 3, "warpLifetimes": [life], "ranges": [], "markers": []}
    >>> place = {"ctaId": [1, 0, 0], "smId": 7, "warpId": 2}
    >>> for event in events({"launches": [launch], "locationTable": [place], "stringTable": []}):
    ...     print(event["ph"], event.get("ts"), event.get("dur"), event["args"] or event["name"])
    M None None {'name': 'CTA 1,0,0 of grid 3: k, SM 7'}
    M None None {'name': 'warp 2'}
    X 0.0 2.0 runs
    """
    locations, names = told["locationTable"], told["stringTable"]
    begins = [life["startTs"] for launch in told["launches"] for life in launch["warpLifetimes"]]
    first = min(begins, default=0)
    found: list[dict[str, Any]] = []
    for launch in told["launches"]:
        known: set[tuple[str, int]] = set()
        for place, event in _of_launch(launch, names):
            at = locations[place]
            cta = ",".join(map(str, at["ctaId"]))
            of = {"pid": f"{launch['gridId']}:{cta}", "tid": at["warpId"]}
            if (of["pid"], -1) not in known:
                name = f"CTA {cta} of grid {launch['gridId']}: {short_name(launch['kernelName'])}, SM {at['smId']}"
                found.append({"ph": "M", "name": "process_name", "args": {"name": name}, **of})
            if (of["pid"], at["warpId"]) not in known:
                found.append({"ph": "M", "name": "thread_name", "args": {"name": f"warp {at['warpId']}"}, **of})
            known |= {(of["pid"], -1), (of["pid"], at["warpId"])}
            name, begin, end, args = event
            span = {"ts": (begin - first) / 1000, "dur": (end - begin) / 1000, "args": args}
            found.append({"ph": "X", "cat": "iket", "name": name, **span, **of})
    return found


def _of_launch(
    launch: Mapping[str, Any], names: Sequence[str]
) -> Iterator[tuple[int, tuple[str, int, int, dict[str, Any]]]]:
    """Yield the place of each event of a launch, with its name, begin, end and payload."""
    for life in launch["warpLifetimes"]:
        yield life["locIdx"], (LIFE, life["startTs"], life["endTs"], {})
    for span in launch["ranges"]:
        given = [each["payloadVal"] for each in span["internalEvents"] if each.get("payloadType")]
        args = {"payload": given[0]} if given else {}
        yield span["warpLocIdxs"][0], (names[span["rangeNameIdx"]], span["startTs"], span["endTs"], args)
    for mark in launch["markers"]:
        args = {"payload": mark["payloadVal"]} if mark.get("payloadType") else {}
        yield mark["locIdx"], (names[mark["markerNameIdx"]], mark["timestamp"], mark["timestamp"], args)
