"""The assembler, if a frontend gives one: its resources, spills and remarks about a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol


class Remark(Protocol):
    """Protocol of a numbered remark of an assembler, such as `cutepy.binaries.ptxas.Advice`."""

    @property
    def code(self) -> str:
        """Number of the remark, such as "C7517"."""
        ...

    @property
    def text(self) -> str:
        """As the assembler words it."""
        ...

    @property
    def function(self) -> str | None:
        """The kernel that it names, or None."""
        ...

    @property
    def line(self) -> int | None:
        """The line of the PTX that it names, or None."""
        ...


class Resources(Protocol):
    """Resources of a kernel, as `cutepy.binaries.cubin.KernelResources` has them."""

    @property
    def name(self) -> str:
        """The mangled name."""
        ...

    @property
    def spill_store_bytes(self) -> int:
        """Stored to local memory by a thread, for want of registers."""
        ...

    @property
    def spill_load_bytes(self) -> int:
        """Bytes that are loaded back."""
        ...


class SpillAccess(Protocol):
    """A store of a register to local memory, or its load, as `cutepy.binaries.spills.Spill` is."""

    @property
    def line(self) -> int | None:
        """Line of the PTX."""
        ...

    @property
    def stored_bytes(self) -> int:
        """Bytes that a thread stores each time."""
        ...

    @property
    def loaded_bytes(self) -> int:
        """Bytes that a thread loads each time."""
        ...

    @property
    def is_in_loop(self) -> bool:
        """True if it may be executed again."""
        ...

    @property
    def is_with_mmas(self) -> bool:
        """True if that loop has MMAs."""
        ...


class Assembly(Protocol):
    """Result of assembling a module, as `cutepy.binaries.ptxas.Assembly` is."""

    @property
    def advice(self) -> Sequence[Remark]:
        """Remarks of the assembler."""
        ...

    @property
    def resources(self) -> Sequence[Resources]:
        """Resources of each kernel."""
        ...

    def spills(self, kernel: str) -> Sequence[SpillAccess] | None:
        """Return where a kernel spills; None if nobody can tell."""
        ...


_active: list[Callable[[str], Assembly | None]] = []


@contextmanager
def assembled_by(assemble: Callable[[str], Assembly | None]) -> Iterator[None]:
    """Use a function as the assembler of kernels' PTX, while the context is active; None is its answer if it fails.

    Examples
    --------
    >>> with assembled_by(lambda ptx: None):
    ...     assembly_of(".version 8.0")
    """
    _active.append(assemble)
    try:
        yield
    finally:
        _active.pop()


def assembly_of(ptx: str) -> Assembly | None:
    """Return the assembler's answer on a module; None without an assembler."""
    return _active[-1](ptx) if _active else None
