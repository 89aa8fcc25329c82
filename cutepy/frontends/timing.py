"""Timers of runs: `time` of `cutepy.simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.predict.timer import Timer


def timer_of(time: str | bool | Timer) -> Timer | None:
    """Return the timer that is given, or that of a GPU's name; None where nothing is to be timed.

    Raises
    ------
    TypeError, ConstantError
        If it names no GPU.
    """
    if time is False:
        return None
    from cutepy.predict.timer import Timer

    if isinstance(time, Timer):
        return time
    if time is not True and not isinstance(time, str):
        raise TypeError(f"time must be the name of a GPU, True or False, got {time!r}")
    return Timer("h200" if time is True else time)
