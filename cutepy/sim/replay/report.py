"""All that is known of a run, in every form in which it is told: hazards, schedules that were played, certificates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cutepy.sim.options import checked_script
from cutepy.sim.replay.schedule_exploration import Exploration
from cutepy.sim.replay.witnesses import Witness
from cutepy.sim.sanitize.certificate.certificates import Certificate
from cutepy.sim.sanitize.hazards import Hazard, WitnessSummary
from cutepy.sim.sanitize.reports import sarif, structured, text
from cutepy.sim.sanitize.reports.collection import Hazards


@dataclass(frozen=True)
class Report:
    """Report of a run, or of several: text, a page of a notebook, JSON and SARIF have the same facts.

    Attributes
    ----------
    hazards : Hazards
        With what came of playing them, if they were.
    explorations : tuple of Exploration
        Results of other schedules.
    certificates : tuple of Certificate
        Of each launch.
    """

    hazards: Hazards
    explorations: tuple[Exploration, ...] = ()
    certificates: tuple[Certificate, ...] = ()

    @staticmethod
    def of_all(reports: Sequence[Report]) -> Report:
        """Join the reports of several runs; if launches of more than one were played, each names its run."""
        played = [number for number, report in enumerate(reports) if report.explorations]
        return Report(
            Hazards.of_all([report.hazards for report in reports]),
            tuple(
                one if len(played) < 2 else replace(one, run=number)
                for number, report in enumerate(reports)
                for one in report.explorations
            ),
            tuple(one for report in reports for one in report.certificates),
        )

    def played(self) -> Report:
        """Return the same with the outcome of playing each hazard again, or the reason against that."""
        found = self.hazards
        return replace(self, hazards=Hazards((*map(_played, found), *found.advisories, *found.allowed), found.unused))

    def replay(self) -> tuple[WitnessSummary, ...]:
        """Play each hazard again, for a schedule that shows it: the witnesses, in the order of `hazards`.

        Raises
        ------
        RuntimeError
            If a hazard can't be played: the run was not made with ``simulate(sanitize=True, replay=True)``, say.
        """
        return tuple(hazard.replay() for hazard in self.hazards)

    def reproducer(self, path: str | Path) -> tuple[Path, ...]:
        """Write scripts that look for the hazards on a GPU, one for each: of the first it is `path`.

        Those of further ones have a number behind: hang.py, hang-2.py, hang-3.py.

        Raises
        ------
        RuntimeError, ValueError, TypeError
            If that is no path of a file, there is no hazard, or no script can be made of one: see `Run.reproducer`.
        """
        first = checked_script(path)
        if not self.hazards:
            raise ValueError("a reproducer is of a hazard, and the report has none")
        names = [first, *(first.with_stem(f"{first.stem}-{n}") for n in range(2, len(self.hazards) + 1))]
        return tuple(hazard.reproducer(name) for hazard, name in zip(self.hazards, names, strict=True))

    @property
    def is_clean(self) -> bool:
        """True if there are no hazards, and all schedules came to the same."""
        return not self.hazards and not any(explored.divergences for explored in self.explorations)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to tell: no hazard, advisory or allowance, no schedule, no certificate."""
        told = self.hazards.every, self.hazards.unused, self.explorations, self.certificates
        return not any(told)

    def to_json(self) -> dict[str, object]:
        """Return the report as `json.dump` takes it.

        Returns
        -------
        dict
            - ``version``: 1; another one comes with any change that removes or redefines a field.
            - ``hazards``, ``advisories``, ``allowed``: hazards; `cutepy.sim.sanitize.reports.structured` has their
              fields.
            - ``unused``: allowances that cover nothing: ``kinds``, ``reason``, ``file``, ``line`` (``""`` and 0 for an
              argument).
            - ``schedules``, one for each launch that was played: ``kernel``; ``launch``, its index; ``seeds``
              (``{"first": 0, "last": 99}``, null for all); ``played``, their number; ``is_complete``; ``endless``, a
              policy without end, or null; ``differ``, a list of ``policy``, ``seed`` or null, ``kind`` (``values``,
              ``hang``, ``error``, ``hazard``), ``what`` and ``hazard``; ``reordered``, policies that differ by the
              order of float sums only; ``uncovered``.
            - ``certificates``: ``is_certified``, ``kernel``, ``grid``, ``block``, ``cluster``, ``ctas``,
              ``operations``, ``reasons``, ``assumptions``, ``uncovered``, and the number of ``launches``.

            Lists may be empty. `Hazards.to_json` has no ``schedules`` and ``certificates``.
        """
        counted = Counter(self.certificates)
        return structured.encodable(
            {
                **self.hazards.to_json(),
                "schedules": [explored.to_json() for explored in self.explorations],
                "certificates": [one.to_json() | {"launches": times} for one, times in counted.items()],
            }
        )

    def to_sarif(self, script: str = "", *, is_whole: bool = True) -> dict[str, object]:
        """Return it in the Static Analysis Results Interchange Format, as `json.dump` takes it.

        Parameters
        ----------
        script : str
            The file to name where a hazard has no line, as between two operations of the host.
        is_whole : bool
            True if all of it has run, and was watched.
        """
        notes = [(str(explored), "error" if explored.divergences else "note") for explored in self.explorations]
        notes += [(str(certificate), "note") for certificate in dict.fromkeys(self.certificates)]
        explored = (d.hazard for one in self.explorations for d in one.divergences if d.hazard is not None)
        return structured.encodable(sarif.as_sarif([*self.hazards.every, *explored], script, notes, is_whole))

    @property
    def lines(self) -> list[text.Line]:
        """The lines of the text, in pieces that each have a style of rich."""
        return text.shown([*self.hazards.lines, *self._schedules(), *self._certificates()])

    def _schedules(self) -> Iterator[text.Line]:
        for explored in self.explorations:
            first, *rest = str(explored).splitlines()
            yield []
            yield [(first, "bold red" if explored.divergences else "bold green")]
            yield from ([(line, "")] for line in rest)

    def _certificates(self) -> Iterator[text.Line]:
        for certificate, times in Counter(self.certificates).items():
            first, *rest = str(certificate).splitlines()
            yield []
            yield [(first, "bold")]
            yield from ([(line, "")] for line in rest)
            if times > 1:
                yield [(f"    {times} launches", "")]

    def __str__(self) -> str:
        return text.plain(self.lines)

    def _repr_html_(self) -> str:
        return text.as_html(self.lines)


def _played(hazard: Hazard) -> Hazard:
    try:
        return replace(hazard, witness=hazard.replay())
    except RuntimeError as error:
        return replace(hazard, witness=Witness(hazard, f"not played: {error}"))
