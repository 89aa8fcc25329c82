"""Tunable: the interface of a kernel to the tuner, with its candidates, compilation and launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from cutepy.host.inputs import sources as met_sources
from cutepy.host.parallel_compilation import Variant, VariantsError, compile_many
from cutepy.tune.space import Settings


class Trial(Protocol):
    """Problem on the current GPU: its buffers, of which several sets exceed the L2 cache (`buffer_sets`)."""

    @property
    def sets(self) -> int:
        """Number of sets of buffers."""

    def launch(self, function: Any, candidate: Settings, index: int) -> None:  # noqa: ANN401
        """Launch a compiled candidate, on one set, on torch's current stream."""

    def complaint(self) -> str | None:
        """Describe an error in the results of set 0, after its launch; None if they are right."""


class Tunable(ABC):
    """Kernel that `tune` can find the fastest candidate of, problem by problem.

    Problems and candidates are mappings of names to plain values (`Settings`), so that they can be kept and shown.

    Attributes
    ----------
    name : str
        Under which winners are kept, of letters, digits, `-` and `_`.
    sources : tuple of str or path
        Packages, modules and paths that decide how fast candidates are: after a change they are timed again.
    """

    name: str
    sources: tuple[str, ...] = ()

    @abstractmethod
    def candidates(self, problem: Settings) -> Iterable[Settings]:
        """Return the candidates worth a try, as `Space.candidates` does."""

    @abstractmethod
    def variant(self, problem: Settings, candidate: Settings) -> Variant:
        """Return the variant to compile for a candidate; several problems may share it."""

    @abstractmethod
    def prepare(self, problem: Settings) -> Trial:
        """Make the buffers of a problem, with random values: a GPU is faster on zeros than on data."""

    def default(self, problem: Settings) -> Settings | None:
        """Return the choice without tuning, for comparison; None if there is none."""
        return None

    def predict(self, pairs: Sequence[tuple[Settings, Settings]]) -> list[float | None]:
        """Predict how many microseconds candidates of problems take: (problem, candidate) -> time, or None."""
        return [None for _ in pairs]

    def sources_digest(self) -> str:
        """Hash the sources, as this process read them first."""
        return met_sources(*self.sources).digest if self.sources else ""

    def compile(self, pairs: Sequence[tuple[Settings, Settings]], progress: bool) -> list[Any]:
        """Compile candidates of problems in parallel: (problem, candidate) -> compiled object, or exception."""
        variants = [self.variant(problem, candidate) for problem, candidate in pairs]
        try:
            return list(compile_many(variants, progress=progress))
        except VariantsError as error:
            failed = iter(error.exceptions)
            return [next(failed) if function is None else function for function in error.functions]
