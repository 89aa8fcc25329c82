"""Groups of asynchronous copies: each thread adds copies to an open group, commits it, and waits for the oldest ones.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy": "async-groups".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from operator import attrgetter

from cutepy.sim.machine.events import AsyncOperation
from cutepy.sim.machine.group import Group

Thread = tuple[int, int]
"""The slot of a CTA, and a thread of it."""
_is_done = attrgetter("done")


class CopyGroups:
    """The groups of all threads."""

    def __init__(self) -> None:
        self._open: dict[Thread, list[AsyncOperation]] = {}
        self._committed: dict[Thread, list[list[AsyncOperation]]] = {}

    def __bool__(self) -> bool:
        """Return whether there have been any."""
        return bool(self._open or self._committed)

    def add(self, threads: Iterable[Thread], operation: AsyncOperation) -> None:
        """Add an operation that is not complete to the open groups of some threads."""
        for thread in threads:
            self._open.setdefault(thread, []).append(operation)

    def commit(self, g: Group) -> None:
        """Close the groups of some threads, empty ones too: they count where an older one may be incomplete."""
        if self:
            for thread in threads_of(g):
                self._committed.setdefault(thread, []).append(self._open.pop(thread, []))

    def wait(self, g: Group, remaining: int, end: Callable[[AsyncOperation], None]) -> None:
        """End the operations of all but the youngest groups of each thread, and drop the groups that are complete.

        Parameters
        ----------
        g : Group
            The threads.
        remaining : int
            Youngest groups that are left out.
        end : callable
            Completes an operation that has not, or lets it read its source.
        """
        for thread in threads_of(g) if self._committed else ():
            groups = self._committed.get(thread, [])
            over = len(groups) - remaining
            for n in range(over):
                for operation in groups[n]:
                    end(operation)
            while over > 0 and all(map(_is_done, groups[0])):
                del groups[0]
                over -= 1

    def awaited(self, g: Group, remaining: int, *, with_open: bool = False) -> list[AsyncOperation]:
        """Return the operations that a wait ends, each once; of the open groups, too, if these count as well."""
        found: dict[AsyncOperation, None] = {}
        for thread in threads_of(g) if self else ():
            groups = self._committed.get(thread, [])
            groups = [*groups, self._open.get(thread, [])] if with_open else groups
            for group in groups[: max(len(groups) - remaining, 0)]:
                found.update(dict.fromkeys(group))
        return list(found)


def threads_of(g: Group) -> list[Thread]:
    """Return the threads of a group of lanes."""
    return list(product(g.ctas.slots.tolist(), g.threads.ids.tolist()))
