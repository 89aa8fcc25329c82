"""Constants of a GPU: latencies, throughputs and clocks, by microbenchmarks of ``tests.time.measure`` or by papers.

A constant that a GPU's own file lacks, or that its benchmark failed to give, is that of the GPU that it is
`like`, which has the same SMs, and else that of `published.json`, whose entries name their papers.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any

GPUS = ("h100", "h200")
_PUBLISHED = "published"


class ConstantError(LookupError):
    """Error of a constant that no file has, or of a GPU without a file."""


@dataclass(frozen=True)
class Gpu:
    """Constants of a GPU.

    Attributes
    ----------
    name : str
    sms : int
    constants : mapping of str to object
        Key -> value or table.
    others : frozenset of str
        Keys whose values come from papers, or from another GPU.
    """

    name: str
    sms: int
    constants: dict[str, Any] = field(repr=False)
    others: frozenset[str] = field(default=frozenset(), repr=False)

    def value(self, key: str) -> float:
        """Return a constant.

        Raises
        ------
        ConstantError
            If there is none.
        """
        found = self.constants.get(key)
        if not isinstance(found, (int, float)):
            raise ConstantError(f"{self.name} has no constant {key}; measure it by python -m tests.time.measure")
        return float(found)

    def at(self, key: str, *path: str | float) -> float:
        """Return an entry of a table: by name, or by number, between whose neighbours it is interpolated.

        Raises
        ------
        ConstantError
            If the table has no such entry.

        Examples
        --------
        >>> gpu = Gpu("toy", 1, {"latency": {"l2": {"1024": 600.0, "2048": 620.0}}})
        >>> gpu.at("latency", "l2", 1536), gpu.at("latency", "l2", 64), gpu.at("latency", "l2", 4096)
        (610.0, 600.0, 660.0)
        """
        found = _entry(self.constants.get(key), path)
        if found is None:
            raise ConstantError(f"{self.name} has no constant {key} of {path}; python -m tests.time.measure gives it")
        return found


def _entry(table: Any, path: Sequence[str | float]) -> float | None:  # noqa: ANN401
    """Return an entry of a table, by linear interpolation between its numbers and extrapolation from the last two."""
    if not isinstance(table, dict):
        return float(table) if isinstance(table, (int, float)) else None
    if not path:
        return None
    at, *rest = path
    if isinstance(at, str):
        return _entry(table.get(at), rest)
    known = {float(key): value for key, entry in table.items() if (value := _entry(entry, rest)) is not None}
    if at in known or not known:
        return known.get(at)
    places = sorted(known)
    if at <= places[0] or len(places) == 1:
        return known[places[0]]
    upper = next((n for n, place in enumerate(places) if place > at), len(places) - 1)
    low, high = places[upper - 1], places[upper]
    return known[low] + (known[high] - known[low]) * (at - low) / (high - low)


def interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """Return the value of a curve through some points, in order: that of its ends beyond them.

    Examples
    --------
    >>> [interpolated([(1.0, 10.0), (2.0, 30.0)], at) for at in (0.0, 1.5, 3.0)]
    [10.0, 20.0, 30.0]
    """
    after = bisect_right(points, at, key=itemgetter(0))
    if after in (0, len(points)):
        return points[max(after - 1, 0)][1]
    (x0, y0), (x1, y1) = points[after - 1 : after + 1]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


@cache
def gpu_named(name: str) -> Gpu:
    """Return a GPU by its name.

    Raises
    ------
    ConstantError
        If there are no constants of it.
    """
    if name not in GPUS:
        raise ConstantError(f"gpu must be one of {', '.join(GPUS)}, got {name!r}")
    own = _read(name)
    read = [_read(each) for each in (_PUBLISHED, own.get("like"), name) if each]
    constants: dict[str, Any] = {}
    for values in map(_values, read):
        # Of a table some entries may be missing.
        tables = {k: v for k, v in values.items() if isinstance(v, dict) and isinstance(constants.get(k), dict)}
        constants |= values | {key: _merged(constants[key], value) for key, value in tables.items()}
    return Gpu(name, int(own["sms"]), constants, frozenset(constants) - frozenset(_values(own)))


def _read(name: str) -> Any:  # noqa: ANN401
    return json.loads(files("cutepy.predict").joinpath("gpus", f"{name}.json").read_text(encoding="utf-8"))


def _values(file: Any) -> dict[str, Any]:  # noqa: ANN401
    entries = file["constants"].items()
    return {key: entry["value"] for key, entry in entries if entry["value"] is not None and not entry.get("outside")}


def _merged(before: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Add the entries that a table's measurement lacks: of names, not of numbers, between which it is interpolated."""
    named = {k: v for k, v in before.items() if not k.replace(".", "").isdigit()}
    found = named | {k: v for k, v in own.items() if v is not None}
    for key in named.keys() & own.keys():
        if isinstance(named[key], dict) and isinstance(own[key], dict):
            found[key] = _merged(named[key], own[key])
    return found
