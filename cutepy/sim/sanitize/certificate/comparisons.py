"""The comparisons of what counts the rounds of a loop, as sums of what registers held where the round began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.certificate.affine import Sum

_SIGNED = {"lt": -1, "ge": -1, "le": 0, "gt": 0}
_UNSIGNED = {"lo": -1, "hs": -1, "ls": 0, "hi": 0}
_TYPES = ("s32", "u32", "b32", "s64", "u64", "b64")


@dataclass(frozen=True)
class Comparison:
    """A comparison in or after a loop, of sums of what registers hold where a round begins.

    Attributes
    ----------
    instruction : Instruction
    sides : tuple of (Sum, Sum)
        What is compared; by some ways to it other sums than by others.
    """

    instruction: Instruction
    sides: tuple[tuple[Sum, Sum], ...]

    @property
    def is_equality(self) -> bool:
        """Whether it asks if two numbers are the same."""
        return bool({"eq", "ne"} & set(self.instruction.parts))

    @property
    def registers(self) -> frozenset[int]:
        """What is in the sums, by number."""
        return frozenset(r for sides in self.sides for side in sides for r, _ in side.terms)

    @property
    def bits(self) -> int:
        """Of what is compared."""
        return 64 if "64" in self.instruction.parts[-1] else 32

    def stays(self, first: int, second: int, by_first: int, by_second: int) -> bool:
        """Tell whether the outcome stays if two numbers that are compared go on changing by so much each time."""
        parts = set(self.instruction.parts)
        is_unsigned = self.instruction.parts[-1][0] == "u" and not self.is_equality
        if is_unsigned and min(first, second, by_first, by_second) < 0:
            return False
        by = by_first - by_second
        if not by:
            return True
        apart = first - second
        if self.is_equality:
            return apart * by > 0
        # Of a < b and its contrary 0 is with what is more, of a <= b with what is less.
        is_more = apart > next(x for name, x in (_SIGNED | _UNSIGNED).items() if name in parts)
        return is_more == (by > 0)


def compares(i: Instruction) -> bool:
    """Tell whether an instruction compares integers."""
    relations = {"eq", "ne", *_SIGNED, *_UNSIGNED}
    return i.parts[0] == "setp" and i.parts[-1] in _TYPES and bool(relations & set(i.parts))
