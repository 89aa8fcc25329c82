"""A run that keeps memory, so that its launches can be played again."""

from __future__ import annotations

from pathlib import Path

from cutepy.sim.replay.replays import Replays, Schedules
from cutepy.sim.replay.report import Report
from cutepy.sim.replay.schedule_exploration import Exploration
from cutepy.sim.replay.witnesses import Witness
from cutepy.sim.sanitize.certificate.certificates import Certificate
from cutepy.sim.sanitize.hazards import Hazard
from cutepy.sim.sanitize.reports.collection import Hazards


class Replayable:
    """A run whose launches can be played again, on memory as it was before them.

    Attributes
    ----------
    hazards : Hazards
    certificates : tuple of Certificate
    """

    _replays: Replays

    @property
    def hazards(self) -> Hazards:
        """Hazards that the sanitizer found."""
        raise NotImplementedError

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Certificates of the sanitizer, which speak of all schedules."""
        raise NotImplementedError

    def report(self, *, replay: bool = False) -> Report:
        """Return all that is known of the run: hazards, schedules that were played, and certificates.

        Parameters
        ----------
        replay : bool
            True to play each hazard, for a schedule that shows it: `replay`.

        Returns
        -------
        Report
            Prints itself, is shown in colour by notebooks, and has `to_json` and `to_sarif`.

        Raises
        ------
        RuntimeError
            If hazards are to be played, and the run was not made with ``simulate(sanitize=True, replay=True)``.
        """
        if replay:
            self._replays.need_memory()
        report = Report(self.hazards, self.explorations, self.certificates)
        return report.played() if replay else report

    @property
    def explorations(self) -> tuple[Exploration, ...]:
        """Outcomes of each launch under other schedules, with ``simulate(schedules=...)``."""
        return tuple(self._replays.explorations)

    def explore(self, schedules: Schedules = 100, seed: int | None = None, limit: int | None = None) -> Exploration:
        """Play the last launch again under other schedules, and compare the writes of each, bit for bit.

        Parameters
        ----------
        schedules : int or "all"
            Number of seeded schedules, or all that there are, up to the order of steps that commute.
        seed : int, optional
            The first of their seeds; the others follow. Default: 0.
        limit : int, optional
            Most schedules that are played of all, 1000 by default; see `Exploration.is_complete`.

        Raises
        ------
        ValueError, TypeError
            If `schedules` is none or neither, or there is a seed or a limit for what has none.
        RuntimeError
            If the run was not made with ``simulate(replay=True)``, or the launch is too large for all schedules.
        """
        return self._replays.explore(schedules, seed, limit)

    def replay(self, hazard: Hazard) -> Witness:
        """Look for a schedule that shows a hazard, and describe its effect.

        What came first is held back until nothing else can go on; if that changes nothing, seeded schedules are tried.

        Raises
        ------
        RuntimeError
            If the run was not made with ``simulate(sanitize=True, replay=True)``.
        """
        return self._replays.replay(hazard)

    def reproducer(self, hazard: Hazard, path: str | Path) -> Path:
        """Write a Python script that looks for a hazard on a GPU: it delays each side in turn, in the PTX.

        Raises
        ------
        RuntimeError
            If the run was not made with ``simulate(sanitize=True, replay=True)``.
        TypeError, ValueError
            If that is no path of a file.
        """
        return self._replays.reproducer(hazard, path)

    def check_schedules(self) -> None:
        """Raise ScheduleError if a schedule that was explored ended with another result."""
        self._replays.check()
