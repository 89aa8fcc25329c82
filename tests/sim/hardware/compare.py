"""Distance between the simulator's results and the hardware's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sim.hardware.launches import CapturedLaunch

SAMPLE = 256
_UNSIGNED = {"f16": "u2", "bf16": "u2", "f32": "u4", "f64": "u8"}
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}
NOT_A_NUMBER = 1 << 62
"""The distance of a number from a NaN."""


@dataclass(frozen=True)
class Distance:
    """A comparison.

    Attributes
    ----------
    count : int
        Values that were compared.
    equal : float
        Share of them that are equal; NaNs equal each other.
    ulps : int
        Largest distance in units of the last place, of differences that count.
    absolute : float
        Largest difference of finite values.
    worst : int
        Where the largest distance is.
    """

    count: int
    equal: float
    ulps: int
    absolute: float
    worst: int


def written_by(launches: list[CapturedLaunch], memory: list[list[np.ndarray[Any, Any]]]) -> np.ndarray[Any, Any]:
    """Return what launches left in the regions that they write in the simulator, one after the other."""
    parts = [regions[n] for launch, regions in zip(launches, memory, strict=True) for n in launch.written()]
    return np.concatenate([np.zeros(0, np.uint8), *parts])


def before(launches: list[CapturedLaunch]) -> np.ndarray[Any, Any]:
    """Return what was there before, of the same regions."""
    return written_by(launches, [[block.data for block in launch.before] for launch in launches])


def elements(data: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """Return the bit patterns of a float type."""
    return np.frombuffer(data.tobytes(), _UNSIGNED[kind])


def sampled(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return at most `SAMPLE` elements, evenly spread."""
    if len(bits) <= SAMPLE:
        return bits
    return bits[np.linspace(0, len(bits) - 1, SAMPLE).astype(np.int64)]


def distance(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], kind: str, absolute: float = 0.0) -> Distance:
    """Compare bit patterns of one float type; those up to `absolute` count no ulps: near zero they are many."""
    if len(found) == 0:
        return Distance(0, 1.0, 0, 0.0, 0)
    x, y = _ordered(found, kind), _ordered(expected, kind)
    nan_x, nan_y = _is_nan(found, kind), _is_nan(expected, kind)
    apart = np.abs(x - y)
    apart[nan_x != nan_y] = NOT_A_NUMBER
    apart[nan_x & nan_y] = 0
    # -0 and +0 are neighbours here, so that a wrong sign of zero shows.
    same = (found == expected) | (nan_x & nan_y)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(values(found, kind) - values(expected, kind))
    if absolute:
        apart[difference <= absolute] = 0
    difference = difference[np.isfinite(difference)]
    worst = int(np.argmax(apart))
    return Distance(len(found), float(same.mean()), int(apart[worst]), float(difference.max(initial=0.0)), worst)


def values(bits: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """Return the numbers as float64."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return bits.view(f"f{bits.itemsize}").astype(np.float64)


def _ordered(bits: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """Map bit patterns to integers in the order of their values: neighbours differ by 1."""
    sign = 1 << 8 * bits.itemsize - 1
    magnitude = (bits & bits.dtype.type(sign - 1)).astype(np.int64)
    return np.where(bits & bits.dtype.type(sign) != 0, -1 - magnitude, magnitude)


def _is_nan(bits: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    sign = 1 << 8 * bits.itemsize - 1
    return (bits & bits.dtype.type(sign - 1)) > bits.dtype.type(_INFINITY[kind])
