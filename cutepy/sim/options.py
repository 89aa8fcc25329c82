"""Options of a run, checked: right types, possible values, no option without effect."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import cast

from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.limits import Limit
from cutepy.sim.machine.observer import Observer
from cutepy.sim.machine.policies import policy_named
from cutepy.sim.machine.selected_ctas import Coordinates


def check_flags(**flags: object) -> None:
    """Check that flags are True or False; a text such as "no" is neither.

    Raises
    ------
    TypeError
    """
    for name, value in flags.items():
        if isinstance(value, (str, bytes, os.PathLike)) or not hasattr(value, "__bool__"):
            raise TypeError(f"{name} must be True or False, got {value!r}")


def checked_count(name: str, value: object, least: int, otherwise: str = "") -> int:
    """Return an integer as a count, if it is one and not too small.

    Examples
    --------
    >>> checked_count("limit", 5, 1)
    5

    Raises
    ------
    TypeError, ValueError
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer of at least {least}{otherwise}, got {value!r}")
    count = index(cast("int", value))
    if count < least:
        raise ValueError(f"{name} must be at least {least}{otherwise}, got {count}")
    return count


def checked_limit(seconds: object, instructions: object) -> Limit:
    """Return the most that a launch may take.

    Examples
    --------
    >>> checked_limit(2, None)
    Limit(seconds=2.0, instructions=None)

    Raises
    ------
    TypeError, ValueError
    """
    if seconds is not None:
        if isinstance(seconds, (bool, str, bytes)) or not hasattr(seconds, "__float__"):
            raise TypeError(f"limit_seconds must be a number of seconds above 0, or None, got {seconds!r}")
        if not 0 < (seconds := float(seconds)) < math.inf:
            raise ValueError(f"limit_seconds must be a number of seconds above 0, or None, got {seconds!r}")
    if instructions is not None:
        instructions = checked_count("limit_instructions", instructions, 1, ", or None")
    return Limit(seconds, instructions)


def checked_script(path: object) -> Path:
    """Return where to write a script, if that is the path of a file.

    Examples
    --------
    >>> checked_script("races/race.py").stem
    'race'

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(name := os.fspath(path), str):
        raise TypeError(f"path must be where to write the script, such as 'race.py', got {path!r}")
    if not name or Path(name).is_dir():
        said = "a folder, " if name else ""
        raise ValueError(f"path must be the file to write the script to, such as 'race.py', got {said}{name!r}")
    return Path(name)


def checked_processes(processes: int) -> int:
    """Return how many processes there may be, if that is a number of them."""
    return checked_count("processes", processes, 1, ", or None for one a core")


def checked_observers(observers: Sequence[Observer]) -> tuple[Observer, ...]:
    """Return observers as they are, if they are some.

    Raises
    ------
    TypeError
    """
    if isinstance(observers, (Observer, type)) or not hasattr(observers, "__iter__"):
        raise TypeError(f"observers must be a sequence of them, such as [{_shown(observers)}], got {observers!r}")
    for observer in observers:
        if not isinstance(observer, Observer):
            raise TypeError(f"observers must be instances of cutepy.sim.Observer, got {observer!r}")
    return tuple(observers)


def _shown(observers: object) -> str:
    return f"{observers.__name__}()" if isinstance(observers, type) else "observer"


def checked_policy(policy: CompletionPolicy | str | None) -> CompletionPolicy | None:
    """Return the policy that is given or named.

    Raises
    ------
    TypeError
        If it is no policy and no name.
    ValueError
        If there is none of this name.
    """
    if isinstance(policy, str):
        return policy_named(policy)
    if policy is not None and not isinstance(policy, CompletionPolicy):
        made = f"; make one: {policy.__name__}()" if isinstance(policy, type) else ""
        raise TypeError(f"policy must be a CompletionPolicy, its name or None, got {policy!r}{made}")
    return policy


def checked_ctas(ctas: Coordinates | None) -> Coordinates | None:
    """Return coordinates of CTAs as they are, if they are some; whether the grid has them its launch says.

    Raises
    ------
    TypeError, ValueError
    """
    wanted = "ctas must be coordinates: a list of ints, or of one to three of them each, such as [(0, 0), -1]"
    if ctas is None:
        return None
    if isinstance(ctas, (str, bytes, Mapping)) or not hasattr(ctas, "__iter__"):
        raise TypeError(f"{wanted}, got {ctas!r}")
    if not len(ctas):
        raise ValueError(f"{wanted}, got none; leave it out to run all")
    return ctas
