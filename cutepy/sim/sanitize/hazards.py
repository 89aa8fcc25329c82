"""What is reported: two operations that nothing orders, and what is missing between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cutepy.sim.errors import SimulationError

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction


@dataclass(frozen=True)
class Side:
    """One of the operations of a hazard.

    Attributes
    ----------
    what : str
        What it did, such as "wgmma read".
    who : str
        The first of those that did, such as "warp 4, lane 0 of CTA (0, 0, 0)".
    instruction : Instruction or None
    """

    what: str
    who: str
    instruction: Instruction | None = field(default=None, repr=False)

    @property
    def line(self) -> str:
        """The line of the source, or of the PTX where that is not known."""
        if self.instruction is None:
            return "the end of the CTA"
        if self.instruction.source is not None:
            return str(self.instruction.source)
        return f"line {self.instruction.line} of the PTX"

    def __str__(self) -> str:
        return f"{self.what} by {self.who} at {self.line}"


@dataclass(frozen=True)
class Hazard:
    """Something that a schedule can break.

    Attributes
    ----------
    kind : str
        One of those that docs/sanitizer.md lists, such as "unordered-read".
    kernel : str
    where : str
        Which bytes, or which barrier.
    before, after : Side
        The two operations, in the order of this execution; `before` is None where there is one only.
    missing : str
        What there should be, and where.
    count : int
        How many pairs of operations of these two instructions were found so.
    """

    kind: str
    kernel: str
    where: str
    before: Side | None
    after: Side
    missing: str
    count: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        """What two reports of the same defect have in common."""
        sides = (None if s is None or s.instruction is None else s.instruction.index for s in (self.before, self.after))
        return self.kind, self.kernel, *sides

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.where} of {self.kernel}" + (f", {self.count} times" if self.count > 1 else "")]
        if self.before is not None:
            lines.append(f"    {self.before}")
        lines += [f"    {self.after}", f"    {self.missing}"]
        return "\n".join(lines)


class HazardError(SimulationError):
    """What the sanitizer found in a run.

    Attributes
    ----------
    hazards : tuple of Hazard
    """

    def __init__(self, hazards: tuple[Hazard, ...]) -> None:
        self.hazards = hazards
        super().__init__(f"{len(hazards)} hazard{'s' * (len(hazards) != 1)}\n" + "\n".join(map(str, hazards)))
