"""Timers of runs by the name of a GPU: `time` of `cutepy.simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.predict.timer import Timer


def timer_of(gpu: str | bool, *, keeps_events: bool = False) -> Timer | None:
    """Return the timer that an option names; None where nothing is to be timed.

    Raises
    ------
    TypeError, ConstantError
        If it names no GPU.
    """
    if gpu is False:
        return None
    from cutepy.predict.timer import Timer

    if gpu is not True and not isinstance(gpu, str):
        raise TypeError(f"time must be the name of a GPU, True or False, got {gpu!r}")
    return Timer("h200" if gpu is True else gpu, keeps_events=keeps_events)
