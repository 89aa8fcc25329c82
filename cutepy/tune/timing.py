"""Compilation and timing of candidates: one problem's buffers at a time, on this GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cutepy.benchmark import Protocol, Timing
from cutepy.tune.space import Settings
from cutepy.tune.tunable import Trial, Tunable
from cutepy.tune.winners import key_of

Compare = Callable[..., Mapping[str, Timing]]
"""Timing function: (contenders by name, sets=, protocol=) -> `Timing` by name, as `cutepy.benchmark.compare`."""
Note = Callable[[str, int, int], None]
"""Progress callback: activity, number done, and total."""
Pair = tuple[Settings, Settings]
"""Problem with a candidate."""


class TuningError(RuntimeError):
    """Error of a problem for which no candidate compiles, launches and gives right results."""


def key_of_pair(pair: Pair) -> tuple[str, str]:
    """Return a problem and a candidate as texts."""
    return key_of(pair[0]), key_of(pair[1])


class Timer:
    """Compiler and timer of a tunable's candidates.

    Parameters
    ----------
    tunable : Tunable
    compare : callable
        Timer of candidates.
    note : callable
        Is told of the progress.
    is_shown : bool
        True if the progress of compiling is shown.
    """

    def __init__(self, tunable: Tunable, compare: Compare, note: Note, *, is_shown: bool) -> None:
        self._tunable, self._compare, self.note, self._is_shown = tunable, compare, note, is_shown
        self._key = ""
        self._trial: Trial | None = None

    def compile(self, pairs: Sequence[Pair]) -> dict[tuple[str, str], Any]:
        """Compile candidates in parallel: text -> compiled object, or exception."""
        if not pairs:
            return {}
        self.note("compiling", 0, len(pairs))
        built = self._tunable.compile(pairs, progress=self._is_shown)
        return dict(zip(map(key_of_pair, pairs), built, strict=True))

    def trial(self, problem: Settings) -> Trial:
        """Return the buffers of a problem; the previous problem's are freed first."""
        key = key_of(problem)
        if self._trial is None or key != self._key:
            self._trial = None
            self._key, self._trial = key, self._tunable.prepare(problem)
        return self._trial

    def time(
        self, problem: Settings, contenders: Mapping[str, tuple[Any, Settings]], protocol: Protocol
    ) -> dict[str, float]:
        """Time compiled candidates of a problem, in turns: device microseconds, by the same names."""
        trial = self.trial(problem)
        launches = {
            name: partial(trial.launch, function, candidate) for name, (function, candidate) in contenders.items()
        }
        timings = self._compare(launches, sets=trial.sets, protocol=protocol)
        return {name: timing.device_us for name, timing in timings.items()}


def check_gpu(error: Exception, then: str) -> None:
    """Check that a failed launch did not destroy the GPU's context: then nothing runs in this process any more.

    Raises
    ------
    TuningError
        If so; the message has the remedy `then`.
    """
    import torch

    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError as lost:
        raise TuningError(
            f"a candidate left the GPU in a state in which nothing runs in this process any more: {error}; {then}"
        ) from lost
