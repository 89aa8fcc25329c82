"""What is said of a kind of hazard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["hazard", "advisory"]


@dataclass(frozen=True)
class Kind:
    """A kind of hazard.

    Attributes
    ----------
    name : str
        Lower case, words joined by hyphens.
    meaning : str
        What it is, in a line: of Markdown, in lower case and without a full stop.
    missing : str
        What there should be, and where, perhaps after what is wrong and a colon; some findings say it more closely.
    section : str
        The clause that orders it otherwise: a section of the PTX ISA.
    severity : "hazard" or "advisory"
        Whether a run fails by it. What costs time, what the assembler repairs, or what nothing comes of is an advisory.
    defect : "between", "before", "either" or "place"
        Where the mistake is: between the two operations, at the first, whatever comes after it, at one of them, in
        whatever order they come, or at what they are at, whoever they are. One mistake is told once.
    """

    name: str
    meaning: str
    missing: str
    section: str
    severity: Severity = "hazard"
    defect: Literal["between", "before", "either", "place"] = "between"
