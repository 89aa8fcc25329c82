"""Heats: all working candidates of a problem, timed in turns, so that a drifting clock affects all alike.

Each candidate is launched alone first. A candidate that can't be launched, or ends the process, is recorded as failed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from cutepy.benchmark import Protocol
from cutepy.tune.journal import Heat, Journal
from cutepy.tune.space import Settings
from cutepy.tune.timing import Pair, Timer, check_gpu, key_of_pair
from cutepy.tune.winners import key_of

TRY = Protocol(rounds=1, turn_us=200.0, max_launches=10)
"""Protocol of a trial: the candidate is compiled, captured and launched, as in a heat."""
HEAT = Protocol(rounds=3, turn_us=1000.0, max_launches=50)
"""Protocol of a heat: some milliseconds for each candidate."""


class Heats:
    """Heats of one rank.

    Parameters
    ----------
    timer : Timer
    journal : Journal
        Journal of the results; problems whose candidates all are there have no heats.
    """

    def __init__(self, timer: Timer, journal: Journal) -> None:
        self._timer, self._journal = timer, journal

    def run(self, pairs: Sequence[Pair]) -> None:
        """Try candidates that are not in the journal, and run the heats of problems with untimed ones.

        All of such a problem that work take part, also those that were timed before, by another clock.
        """
        anew = {key_of(problem) for problem, candidate in pairs if not self._journal.is_timed(problem, candidate)}
        running = [pair for pair in pairs if key_of(pair[0]) in anew and not self._has_failed(pair)]
        compiled, done = self._timer.compile(running), 0
        for _, group in groupby(running, key=lambda pair: key_of(pair[0])):
            contenders: dict[str, tuple[Any, Settings]] = {}
            for problem, candidate in group:
                self._timer.note("heats", done, len(running))
                built = compiled[key_of_pair((problem, candidate))]
                if self._works(problem, candidate, built):
                    contenders[key_of(candidate)] = built, candidate
                done += 1
            if contenders:
                self._heat(problem, contenders)
        self._timer.note("heats", len(running), len(running))

    def _has_failed(self, pair: Pair) -> bool:
        return pair in self._journal and bool(self._journal.heat(*pair).failed)

    def _works(self, problem: Settings, candidate: Settings, built: Any) -> bool:  # noqa: ANN401
        """Return whether a candidate can be launched; try it unless the journal has the answer."""
        if isinstance(built, Exception):
            self._fail(problem, candidate, built)
            return False
        if (problem, candidate) in self._journal:
            return True
        self._journal.begin(problem, candidate)
        try:
            tried = self._timer.time(problem, {"it": (built, candidate)}, TRY)
        except Exception as error:
            self._fail(problem, candidate, error)
            check_gpu(error, "run again: it is noted as failed, and left out")
            return False
        self._journal.tried(problem, candidate, tried["it"])
        return True

    def _fail(self, problem: Settings, candidate: Settings, error: Exception) -> None:
        self._journal.note(problem, candidate, Heat(math.inf, f"{type(error).__name__}: {error}"))

    def _heat(self, problem: Settings, contenders: dict[str, tuple[Any, Settings]]) -> None:
        """Time candidates in turns; if that fails, or ends the process, their earlier times count."""
        candidates = {key: candidate for key, (_, candidate) in contenders.items()}
        for candidate in candidates.values():
            self._journal.note(problem, candidate, self._journal.heat(problem, candidate))
        try:
            timed = self._timer.time(problem, contenders, HEAT)
        # an error of one that worked alone, or of memory, of which the graphs of all take some
        except Exception as error:
            check_gpu(error, "run again: what the candidates took alone counts for their heat")
            return
        for key, candidate in candidates.items():
            self._journal.note(problem, candidate, Heat(timed[key]))
