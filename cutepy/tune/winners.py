"""Winners of tuning: the fastest candidate of each problem, by kind of GPU, in files beside the compiled programs.

Each kind of GPU and each kernel has a file of JSON lines. A process reads a file once, at its first look-up.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cutepy.host import environment
from cutepy.host.lock import exclusive
from cutepy.tune.space import Settings


@dataclass(frozen=True)
class Winner:
    """Winner of a problem.

    Attributes
    ----------
    problem, candidate : mapping
        As `Tunable` describes them.
    us : float
        Device time of a launch, in microseconds.
    default_us : float or None
        Of the candidate that would be chosen without tuning, in the same run.
    compared : int
        Candidates that were timed.
    """

    problem: Settings
    candidate: Settings
    us: float
    default_us: float | None
    compared: int

    @property
    def gain(self) -> float:
        """Return the ratio of the default's time to the winner's; 1 without a default."""
        return self.default_us / self.us if self.default_us else 1.0


def key_of(settings: Settings) -> str:
    """Return settings as canonical text, independent of the order of their names.

    Raises
    ------
    TypeError
        If a value is none that JSON gives back as it was.
    """
    for name, value in settings.items():
        if type(value) not in (int, float, str, bool, type(None)):
            raise TypeError(
                f"{name} must be an int, float, str, bool or None, which can be kept and compared, got {value!r}"
            )
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":"))


def folder(device: str) -> Path:
    """Return the folder of winners for a kind of GPU; it need not exist."""
    return environment.cache_dir() / "tuned" / re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-").lower()


def keep(device: str, name: str, found: list[Winner]) -> Path:
    """Add winners to the file of a kind of GPU and a kernel, and return its path."""
    path = folder(device) / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path.with_suffix(".lock")):
        kept = read(path) | {key_of(winner.problem): winner for winner in found}
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(json.dumps(asdict(winner)) + "\n" for winner in kept.values()))
        fresh.replace(path)
    _known.cache_clear()
    return path


def winners(device: str, name: str) -> dict[str, Winner]:
    """Read the winners of a kernel on a kind of GPU: text of the problem (`key_of`) -> winner."""
    return read(folder(device) / f"{name}.jsonl")


def winner(device: str, name: str, problem: Settings) -> Winner | None:
    """Look up the winner of a problem; None if it was not tuned, or `CUTEPY_TUNED` is off.

    The first look-up of a process reads the file, of which later ones take no notice: a choice that was made stays.
    """
    if not environment.tuned():
        return None
    return _known(folder(device), name).get(key_of(problem))


@lru_cache
def _known(folder: Path, name: str) -> dict[str, Winner]:
    return read(folder / f"{name}.jsonl")


def read(path: Path) -> dict[str, Winner]:
    """Read the winners of a file, without lines of another version or incomplete ones."""
    found: dict[str, Winner] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            fields: dict[str, Any] = json.loads(line)
            read = Winner(**fields)
            found[key_of(read.problem)] = read
        except (ValueError, TypeError, AttributeError):
            continue
    return found
