"""The hazards of a run: a list in order of likely causes, with every form of report.

Hazards stand in the order in which they were found, except for kinds that are causes wherever they show: an mbarrier
without a visible init makes all that it should order unordered, and uneven bytes are seen last. A deadlock follows from
whatever else there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cutepy.sim.errors import SimulationError
from cutepy.sim.sanitize.hazards import Hazard, HazardReplays
from cutepy.sim.sanitize.reports import sarif, structured, text
from cutepy.sim.sanitize.reports.allowances import Allowance


class Hazards(tuple[Hazard, ...]):
    """The hazards of a run, the likeliest causes first.

    Its text has the lines of the source; a notebook shows it in colour.

    Attributes
    ----------
    advisories : tuple of Hazard
        Costs in time, hazards that an assembler repairs, and those without effect: a run does not fail by them.
    allowed : tuple of Hazard
        Those that a line of the source, or an argument, allows.
    unused : tuple of Allowance
        Allowances that cover no hazard.
    """

    advisories: tuple[Hazard, ...]
    allowed: tuple[Hazard, ...]
    unused: tuple[Allowance, ...]

    def __new__(cls, found: Iterable[Hazard] = (), unused: Iterable[Allowance] = ()) -> Hazards:
        """Sort the hazards that were found."""
        every = tuple(found)
        self = super().__new__(cls, (h for h in every if not h.allowed and h.severity == "hazard"))
        self.advisories = tuple(h for h in every if not h.allowed and h.severity == "advisory")
        self.allowed = tuple(h for h in every if h.allowed)
        self.unused = tuple(unused)
        return self

    @classmethod
    def of_all(cls, parts: Iterable[Hazards]) -> Hazards:
        """Join those of several runs: an allowance at a line is in vain only if no run needs it."""
        parts = tuple(parts)
        used = {hazard.allowed_at for part in parts for hazard in part.allowed}
        unused = [one for part in parts for one in part.unused if not one.file or f"{one.file}:{one.line}" not in used]
        return cls((hazard for part in parts for hazard in part.every), dict.fromkeys(unused))

    @property
    def every(self) -> tuple[Hazard, ...]:
        """Hazards, advisories, and allowed ones."""
        return (*self, *self.advisories, *self.allowed)

    def replayed_by(self, replays: HazardReplays) -> Hazards:
        """Return the same, each of which can be replayed."""
        return Hazards((replace(hazard, replays=replays) for hazard in self.every), self.unused)

    def strict(self) -> Hazards:
        """Return the same with advisories as hazards, by which a run fails."""
        return Hazards((replace(hazard, is_strict=True) for hazard in self.every), self.unused)

    def to_json(self) -> dict[str, object]:
        """Return all of it as `json.dump` takes it."""
        return structured.encodable(structured.as_json(self, self.advisories, self.allowed, self.unused))

    def to_sarif(self) -> dict[str, object]:
        """Return all of it in the Static Analysis Results Interchange Format, as `json.dump` takes it."""
        return structured.encodable(sarif.as_sarif(self.every))

    @property
    def lines(self) -> list[text.Line]:
        """The lines of the text, in pieces that each have a style of rich."""
        return text.shown(text.lines_of(self, self.advisories, self.allowed, self.unused))

    def __str__(self) -> str:
        return text.plain(self.lines)

    def _repr_html_(self) -> str:
        return text.as_html(self.lines)


class AdvisoryWarning(UserWarning):
    """The advisories of a run, by which it does not fail."""


class HazardError(SimulationError):
    """The hazards of a run.

    Attributes
    ----------
    hazards : Hazards
    """

    def __init__(self, hazards: Iterable[Hazard]) -> None:
        self.hazards = hazards if isinstance(hazards, Hazards) else Hazards(hazards)
        super().__init__(str(self.hazards))


_CAUSES = (
    "repeated-init",
    "overwritten-mbarrier",
    "missing-init-fence",
    "unpublished-mbarrier",
    "partial-warp",
    "partial-warpgroup",
    "uneven-bytes",
)


def rank(name: str) -> int:
    """Return whether reports print a kind before others that were found earlier: the smaller, the nearer to the cause.

    Examples
    --------
    >>> rank("repeated-init") < rank("uneven-bytes") < rank("unordered-read") == rank("missing-proxy-fence")
    True
    >>> rank("deadlock") > rank("unordered-read")
    True
    """
    if name == "deadlock":
        return len(_CAUSES) + 1
    return _CAUSES.index(name) if name in _CAUSES else len(_CAUSES)
