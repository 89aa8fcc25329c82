"""What is said of a kind of hazard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["hazard", "advisory"]


FIRST = "here the read came first, and nothing had written these bytes before"


class Diagnosis(NamedTuple):
    """What is wrong, and what there should be.

    Attributes
    ----------
    wrong : str
        Empty if the gist of the kind says it.
    wanted : str
        What there should be, and where.
    read_first : bool
        Whether the read came first in this execution, and nothing had written its bytes before.

    Examples
    --------
    >>> print(Diagnosis("the MMAs may still read it", "wgmma.wait_group must come before"))
    the MMAs may still read it: wgmma.wait_group must come before
    """

    wrong: str
    wanted: str
    read_first: bool = False

    @property
    def problem(self) -> str:
        """Return what is wrong, in this execution too."""
        return "; ".join(filter(None, (FIRST * self.read_first, self.wrong)))

    def __str__(self) -> str:
        return f"{self.problem}: {self.wanted}" if self.problem else self.wanted


@dataclass(frozen=True)
class Kind:
    """A kind of hazard.

    Attributes
    ----------
    name : str
        Lower case, words joined by hyphens.
    gist : str
        What it is, in a line: of Markdown, in lower case and without a full stop.
    wanted : str
        What there should be, and where; some findings say it more closely.
    section : str
        The clause that orders it otherwise: a section of the PTX ISA.
    severity : "hazard" or "advisory"
        Whether a run fails by it. What costs time, what the assembler repairs, or what nothing comes of is an advisory.
    defect : "between", "before", "either" or "place"
        Where the mistake is: between the two operations, at the first, whatever comes after it, at one of them, in
        whatever order they come, or at what they are at, whoever they are. One mistake is told once.
    detail : str
        The forms in which it comes, if there are several.
    wrong : str
        What is wrong, if that says more than the gist.
    """

    name: str
    gist: str
    wanted: str
    section: str
    severity: Severity = "hazard"
    defect: Literal["between", "before", "either", "place"] = "between"
    detail: str = ""
    wrong: str = ""

    @property
    def meaning(self) -> str:
        """Return what it is, with the forms in which it comes."""
        return f"{self.gist}: {self.detail}" if self.detail else self.gist

    @property
    def diagnosis(self) -> Diagnosis:
        """Return what is said of a hazard of this kind if its finding says nothing more closely."""
        return Diagnosis(self.wrong, self.wanted)

    @property
    def missing(self) -> str:
        """Return the same as text."""
        return str(self.diagnosis)
