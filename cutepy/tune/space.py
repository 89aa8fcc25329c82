"""Search space: axes with their values, and rules that exclude combinations for a problem."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Plain = int | float | str | bool | None
"""Value of a problem or candidate, unchanged by a round trip through JSON."""
Settings = Mapping[str, Plain]
"""Problem, such as {"m": 512, "n": 512}, or candidate, such as {"tile_m": 128, "stages": 4}."""


@dataclass(frozen=True)
class Rule:
    """Predicate that excludes candidates.

    Attributes
    ----------
    why : str
        Reason in a few words; reports count the candidates that the rule leaves out.
    holds : callable
        Takes, by name, values of the candidate and of the problem; tells whether it holds. A parameter with a default
        keeps that where neither has its name.

    Raises
    ------
    TypeError
        If one of them is something else.
    """

    why: str
    holds: Callable[..., bool]

    def __post_init__(self) -> None:
        if not isinstance(self.why, str):
            raise TypeError(f"why a rule leaves a candidate out must be text, got {self.why!r}; give it first")
        if not callable(self.holds):
            raise TypeError(
                f'the rule "{self.why}" must be a function of values by name, got {self.holds!r}; use a lambda'
            )

    @cached_property
    def _parameters(self) -> tuple[inspect.Parameter, ...]:
        return tuple(inspect.signature(self.holds).parameters.values())

    def asks_for(self, there: Collection[str]) -> list[str]:
        """Return the names it takes, without defaults that are absent."""
        return [each.name for each in self._parameters if each.default is each.empty or each.name in there]


@dataclass(frozen=True)
class Space:
    """Combinations of values of all axes that satisfy the rules: a problem -> candidates.

    Attributes
    ----------
    axes : mapping of str to values
        In the order in which they are bound: a rule is asked as soon as its arguments are known.
    rules : tuple of Rule

    Examples
    --------
    >>> space = Space({"tile": (64, 128, 256), "stages": (2, 4)})
    >>> space = space.where("a tile that is mostly empty", lambda tile, m: tile < 2 * m)
    >>> space = space.where("more shared memory than there is", lambda tile, stages: tile * stages <= 512)
    >>> list(space.candidates({"m": 64}))
    [{'tile': 64, 'stages': 2}, {'tile': 64, 'stages': 4}]
    >>> space.left_out({"m": 4096})
    Counter({'more shared memory than there is': 1})
    """

    axes: Mapping[str, Iterable[Plain]]
    rules: tuple[Rule, ...] = field(default=())

    def __post_init__(self) -> None:
        """Keep the values in tuples, since each may be iterated repeatedly."""
        kept = {name: tuple(values) for name, values in self.axes.items()}
        for name, values in kept.items():
            if not values:
                raise ValueError(f"the axis {name} must have a value at least; leave it out if it is not to be tuned")
            if len(set(values)) < len(values):
                raise ValueError(f"the values of the axis {name} must differ, got {values}")
        object.__setattr__(self, "axes", kept)

    def where(self, why: str, holds: Callable[..., bool]) -> Space:
        """Add a rule; see `Rule`."""
        return Space(self.axes, (*self.rules, Rule(why, holds)))

    def candidates(self, problem: Settings) -> Iterator[dict[str, Plain]]:
        """Return the candidates that satisfy all rules, the last axis changing fastest.

        Raises
        ------
        ValueError
            If a rule's argument is neither an axis nor of the problem, or a name is both.
        """
        return self._bound(dict(problem), Counter())

    def left_out(self, problem: Settings) -> Counter[str]:
        """Count excluded candidates by rule; a partial one excluded early stands for all its completions."""
        counted: Counter[str] = Counter()
        for _ in self._bound(dict(problem), counted):
            pass
        return counted

    def _bound(self, known: dict[str, Plain], left_out: Counter[str]) -> Iterator[dict[str, Plain]]:
        names = list(self.axes)
        if both := sorted(set(names) & set(known)):
            raise ValueError(f"{', '.join(both)} must be either of the problem or an axis, and is both; rename one")
        asked = [rule.asks_for({*names, *known}) for rule in self.rules]
        for rule, needed in zip(self.rules, asked, strict=True):
            if missing := sorted(set(needed) - set(names) - set(known)):
                raise ValueError(
                    f'the rule "{rule.why}" asks for {", ".join(missing)}; there are the axes {", ".join(names)}, and '
                    f"of the problem {', '.join(known) or 'nothing'}"
                )
        due: list[list[tuple[Rule, list[str]]]] = [[] for _ in range(len(names) + 1)]
        for rule, needed in zip(self.rules, asked, strict=True):  # at the last axis that it needs
            due[max((names.index(name) + 1 for name in needed if name in names), default=0)].append((rule, needed))

        def bind(bound: int) -> Iterator[dict[str, Plain]]:
            for rule, needed in due[bound]:
                if not rule.holds(**{name: known[name] for name in needed}):
                    left_out[rule.why] += 1
                    return
            if bound == len(names):
                yield {name: known[name] for name in names}
                return
            for value in self.axes[names[bound]]:
                known[names[bound]] = value
                yield from bind(bound + 1)
            del known[names[bound]]

        return bind(0)
