"""Journal of timed candidates, one line of JSON each, so that interrupted tuning can be resumed."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import NamedTuple

from cutepy.tune.space import Settings
from cutepy.tune.winners import key_of


class Heat(NamedTuple):
    """Outcome of a candidate of a problem.

    Attributes
    ----------
    us : float
        Device time of a launch; infinite where there is none.
    failed : str
        Error of a candidate that could not be compiled or launched, or whose process died. Empty if it works.
    """

    us: float
    failed: str = ""


class Files(NamedTuple):
    """Journal files of a kernel on a kind of GPU: one for each rank, which all ranks read.

    Attributes
    ----------
    folder : Path
        Made when something is noted.
    name : str
        Of the kernel.
    rank : int
        Whose file is written.
    """

    folder: Path
    name: str
    rank: int

    @property
    def own(self) -> Path:
        """File that this rank writes."""
        return self.folder / f"{self.name}.{self.rank}.heats"

    @property
    def every(self) -> list[Path]:
        """Existing files, of all ranks of earlier runs."""
        return sorted(self.folder.glob(f"{self.name}.*.heats"))


class Journal:
    """Heats of a kernel on a GPU, by problem and candidate: in memory, and in files that outlive the process.

    A candidate is noted before it is launched, too. If nothing was noted after that, the process ended with it, so
    that it counts as failed: one that hangs is not tried again. One that was tried and not timed yet is in the journal,
    too.

    Parameters
    ----------
    files : Files or None
        None keeps nothing.
    sources : str
        A digest of the sources that decide how fast candidates are: heats of other sources don't count.
    resume : bool
        True if earlier results count.
    """

    def __init__(self, files: Files | None, sources: str, *, resume: bool = True) -> None:
        self._file = files.own if files else None
        self._sources = sources
        self._heats: dict[tuple[str, str], Heat] = {}
        for path in files.every if files and resume else ():
            self._heats |= _read(path, sources)
        self._untimed = {key for key, heat in self._heats.items() if not heat.failed and math.isinf(heat.us)}

    def __contains__(self, pair: tuple[Settings, Settings]) -> bool:
        return self._key(*pair) in self._heats

    def heat(self, problem: Settings, candidate: Settings) -> Heat:
        """Return the outcome of a candidate in the journal."""
        return self._heats[self._key(problem, candidate)]

    def is_timed(self, problem: Settings, candidate: Settings) -> bool:
        """Return whether a candidate needs no heat: it was timed in one, or has failed."""
        key = self._key(problem, candidate)
        return key in self._heats and key not in self._untimed

    def begin(self, problem: Settings, candidate: Settings) -> None:
        """Record that a candidate is about to be launched."""
        self._write(problem, candidate, Heat(math.inf, "the process ended while it ran"))

    def tried(self, problem: Settings, candidate: Settings, us: float) -> None:
        """Record that a candidate works; its time alone is kept in memory."""
        key = self._key(problem, candidate)
        self._heats[key] = Heat(us)
        self._untimed.add(key)
        self._write(problem, candidate, Heat(math.inf))

    def note(self, problem: Settings, candidate: Settings, heat: Heat) -> None:
        """Record the outcome of a candidate."""
        key = self._key(problem, candidate)
        self._heats[key] = heat
        self._untimed.discard(key)
        self._write(problem, candidate, heat)

    def _key(self, problem: Settings, candidate: Settings) -> tuple[str, str]:
        return key_of(problem), key_of(candidate)

    def _write(self, problem: Settings, candidate: Settings, heat: Heat) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        us = None if math.isinf(heat.us) else heat.us
        with self._file.open("a") as file:
            file.write(json.dumps([self._sources, *self._key(problem, candidate), us, heat.failed]) + "\n")


def _read(path: Path, wanted: str) -> dict[tuple[str, str], Heat]:
    """Read the heats of given sources, without an incomplete last line."""
    found = {}
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            sources, problem, candidate, us, failed = json.loads(line)
            if sources == wanted:
                found[problem, candidate] = Heat(math.inf if us is None else us, failed)
    return found
