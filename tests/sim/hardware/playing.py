"""Play launches on the GPU in child processes: what hangs or faults costs its own launch only.

Each child plays every n-th launch and writes what came of it as it goes: a line of JSON, and the bytes of the regions
that differ from the simulator's. A child that stops writing is killed; after it, or after a fault, another goes on
behind the launch that was under way.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.sim.hardware.launches import CapturedLaunch, load

WORKERS = 8
_SILENCE_S = 20.0
_FATAL = 3  # a child's exit code: its context is lost
_STICKY = range(700, 730)  # errors of a launch, after which a context is of no more use


@dataclass
class Outcome:
    """Result of a launch on the GPU: the memory after it, or the reason why there is none."""

    memory: list[np.ndarray[Any, Any]] = field(default_factory=list)
    error: str = ""


def play(bundle: Path, folder: Path, workers: int = WORKERS) -> tuple[list[Outcome], dict[str, str]]:
    """Play all launches of a bundle; returns what came of each, and what the GPU is."""
    launches, _ = load(bundle)
    children = [_Child(bundle, folder, first, workers, len(launches)) for first in range(min(workers, len(launches)))]
    while not all([child.poll() for child in children]):
        time.sleep(0.1)
    outcomes = [Outcome(error="not played") for _ in launches]
    about: dict[str, str] = {}
    for child in children:
        for n, error in child.lost.items():
            outcomes[n].error = error
        for path in child.outputs:
            about |= _read(path, launches, outcomes)
    return outcomes, about


class _Child:
    """The processes that play every `step`-th launch from `first` on, one after the other."""

    def __init__(self, bundle: Path, folder: Path, first: int, step: int, count: int) -> None:
        self._bundle, self._folder, self._step, self._count = bundle, folder, step, count
        self._first = first
        self.outputs: list[Path] = []
        self.lost: dict[int, str] = {}
        self._start(first)

    def _start(self, at: int) -> None:
        self.outputs.append(self._folder / f"{self._first}.{len(self.outputs)}.frames")
        self.outputs[-1].touch()
        self._at = at
        arguments = [str(self._bundle), str(at), str(self._step), str(self.outputs[-1])]
        command = [sys.executable, "-m", "tests.sim.hardware.playing", *arguments]
        with self._errors().open("wb") as errors:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(command, stderr=errors)
        self._size, self._since = 0, time.monotonic()

    def _errors(self) -> Path:
        return self.outputs[-1].with_suffix(".stderr")

    def poll(self) -> bool:
        """Look after the process; returns whether all is done."""
        if self._process is None:
            return True
        size = self.outputs[-1].stat().st_size
        if size != self._size:
            self._size, self._since = size, time.monotonic()
        code = self._process.poll()
        if code == 0:
            self._process = None
            return True
        if code is not None:
            said = self._errors().read_text(errors="replace").strip().splitlines()
            self._lose("" if code == _FATAL else f"the process ended with {code}: {said[-1] if said else ''}")
        elif time.monotonic() - self._since > _SILENCE_S:
            self._process.kill()
            self._process.wait()
            self._lose(f"did not end within {_SILENCE_S:.0f} s")
        return self._process is None

    def _lose(self, error: str) -> None:
        """Go on behind the launch that was under way."""
        begun = [frame["begin"] for frame, _ in _frames(self.outputs[-1]) if "begin" in frame]
        self._process = None
        if not begun:  # there is no GPU, or none that works: another process would fare no better
            self.lost |= dict.fromkeys(range(self._at, self._count, self._step), error)
            return
        at = begun[-1]
        if error:
            self.lost[at] = error
        if at + self._step < self._count:
            self._start(at + self._step)


def _frames(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """Read the frames that are whole."""
    data, at, found = path.read_bytes(), 0, []
    while (end := data.find(b"\n", at)) >= 0:
        frame = json.loads(data[at:end])
        at = end + 1 + frame.get("bytes", 0)
        if at > len(data):
            break
        found.append((frame, data[end + 1 : at]))
    return found


def _read(path: Path, launches: list[CapturedLaunch], outcomes: list[Outcome]) -> dict[str, str]:
    about = {}
    for frame, data in _frames(path):
        if "gpu" in frame:
            about = frame
        elif "error" in frame:
            outcomes[frame["n"]] = Outcome(error=frame["error"])
        elif "regions" in frame:
            memory = list(launches[frame["n"]].after)
            at = 0
            for region in frame["regions"]:
                memory[region] = np.frombuffer(data, np.uint8, len(memory[region]), at)
                at += len(memory[region])
            outcomes[frame["n"]] = Outcome(memory)
    return about


def _work(bundle: Path, first: int, step: int, output: Path) -> int:
    """Play every `step`-th launch, in this process."""
    from tests.sim.hardware.driver import DriverError, Gpu

    launches, _ = load(bundle)
    with output.open("ab") as file:

        def write(frame: dict[str, Any], data: bytes = b"") -> None:
            file.write(json.dumps(frame | ({"bytes": len(data)} if data else {})).encode() + b"\n" + data)
            file.flush()

        gpu = Gpu()
        write({"gpu": gpu.name, "driver": gpu.driver})
        for n in range(first, len(launches), step):
            write({"begin": n})
            launch = launches[n]
            try:
                memory = gpu.run(launch)
            except DriverError as error:
                write({"n": n, "error": str(error)})
                if error.code in _STICKY:
                    return _FATAL
                continue
            pairs = zip(memory, launch.after, strict=True)
            differing = [r for r, (x, y) in enumerate(pairs) if not np.array_equal(x, y)]
            write({"n": n, "regions": differing}, b"".join(memory[r].tobytes() for r in differing))
    return 0


if __name__ == "__main__":
    sys.exit(_work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
