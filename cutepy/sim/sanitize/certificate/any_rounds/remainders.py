"""Launches that differ by one round each: together they certify any number of rounds.

A certificate that holds for steps of further rounds says nothing of the numbers in between: after one k-tile more, the
next tile begins at another stage. Launches with one number for each remainder say it of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cutepy.sim.sanitize.certificate.any_rounds.bounds import Argument
    from cutepy.sim.sanitize.certificate.any_rounds.extensions import Extension
    from cutepy.sim.sanitize.certificate.certificates import Certificate


@dataclass(frozen=True)
class AnyRounds:
    """Loops that go around together, and from which number on any number of rounds is certified.

    Attributes
    ----------
    kernel : str
    loops : tuple of str
        A line of Python in each.
    least : tuple of int
        From how many rounds on, of each.
    launches : int
        How many were needed, one for each remainder of the rounds by it.

    Examples
    --------
    >>> print(AnyRounds("gemm", ("gemm.py:10", "gemm.py:30"), (31, 30), 4))
    certified for any number of rounds: gemm: the loops around gemm.py:10 (from 31 on) and gemm.py:30 (from 30 on)
        by 4 launches, one of each remainder by 4; if all make as many rounds more, and nothing else that steers changes
    """

    kernel: str
    loops: tuple[str, ...]
    least: tuple[int, ...]
    launches: int

    def __str__(self) -> str:
        names = [f"{where} (from {least} on)" for where, least in zip(self.loops, self.least, strict=True)]
        some = f"loops around {', '.join(names[:-1])} and {names[-1]}" if names[1:] else f"loop around {names[0]}"
        count = self.launches
        by = (
            f"{count} launches, one of each remainder by {count}"
            if count > 1
            else "one launch, as all rounds are alike"
        )
        return (
            f"certified for any number of rounds: {self.kernel}: the {some}\n"
            f"    by {by}; if all make as many rounds more, and nothing else that steers changes"
        )


class _Family(NamedTuple):
    """Family of launches that differ only in the rounds of some loops, all by the same number."""

    kernel: str
    program: str
    shape: tuple[object, ...]
    loops: tuple[str, ...]
    step: int
    apart: tuple[int, ...]
    others: tuple[object, ...]
    besides: tuple[bytes | None, ...]


def any_rounds(certificates: Iterable[Certificate]) -> tuple[AnyRounds, ...]:
    """Return what certificates say together of any number of rounds.

    Of several launches with the same remainder the smallest counts.
    """
    found: dict[_Family, dict[int, int]] = {}
    for one in certificates:
        for extension in one.extends:
            family = _family(one, extension)
            if family is not None:
                (first,) = extension.made[0]
                numbers = found.setdefault(family, {})
                numbers[first % family.step] = min(first, numbers.get(first % family.step, first))
    result = []
    for family, numbers in found.items():
        if len(numbers) == family.step:
            least = max(numbers.values())
            result.append(AnyRounds(family.kernel, family.loops, tuple(least + by for by in family.apart), family.step))
    return tuple(result)


def _family(one: Certificate, extension: Extension) -> _Family | None:
    """Return the family that a launch belongs to by some of its loops, if these always made as many rounds."""
    if extension.most is not None:
        return None
    if extension.grows or extension.steers or extension.besides is None or one.ctas < prod(one.grid):
        return None  # how often its loops go around does not say all
    besides = [_value(one, argument) for argument in extension.besides]
    if None in besides:
        return None
    steps = {count for _, count in extension.loops}
    if not (
        one.is_certified and extension.holds and len(steps) == 1 and all(len(made) == 1 for made in extension.made)
    ):
        return None
    rounds = [made[0] for made in extension.made]
    others = tuple(
        sorted(
            (tuple(where for where, _ in other.loops), other.made) for other in one.extends if other is not extension
        )
    )
    return _Family(
        one.kernel,
        one.program,
        (one.grid, one.block, one.cluster),
        tuple(where for where, _ in extension.loops),
        steps.pop(),
        tuple(number - rounds[0] for number in rounds),
        others,
        tuple(besides),
    )


def _value(one: Certificate, argument: Argument) -> bytes | None:
    """Return what an argument was in a launch; None if that is not known."""
    held = dict(one.arguments).get(argument.name)
    return held and held[argument.offset : argument.offset + argument.size_bytes]
