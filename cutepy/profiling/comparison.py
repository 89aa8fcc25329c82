"""Comparison of two profiles: scopes and kernels that became slower."""

from __future__ import annotations

from dataclasses import dataclass

from cutepy.profiling.recording import Recording
from cutepy.profiling.tree import Node, tree

LEAST = 0.05
"""Smallest difference that counts, as a share."""
LEAST_NS = 1000
"""Smallest difference of a call that counts: the clock of the records is coarser than a few hundred nanoseconds."""


@dataclass(frozen=True)
class Slowdown:
    """Scope or kernel whose calls take longer than in another profile.

    Attributes
    ----------
    path : tuple of str
    now_ns, then_ns : float
        Time of a call; `then_ns` is None where the other profile has no such call.
    """

    path: tuple[str, ...]
    now_ns: float
    then_ns: float | None

    def __str__(self) -> str:
        name = " / ".join(self.path)
        if self.then_ns is None:
            return f"{name}: {self.now_ns / 1000:.1f} us a call, not there before"
        return (
            f"{name}: {self.now_ns / 1000:.1f} us a call, {self.then_ns / 1000:.1f} before "
            f"({self.now_ns / self.then_ns:.2f} times)"
        )


def slower(now: Recording, then: Recording, *, least: float = LEAST) -> list[Slowdown]:
    """List the scopes and kernels whose calls became slower, the largest loss over all calls first.

    Parameters
    ----------
    now, then : Recording
    least : float
        Smallest difference that counts, as a share of the time before.

    Returns
    -------
    list of Slowdown
        A scope is named where it is slower as a whole; kernels are compared within equal scopes. Kernels that are new
        in a scope that is slower come too, since kernels get other names as they change.

    Examples
    --------
    >>> from cutepy.profiling import Record
    >>> def recording(us):
    ...     return Recording((Record("mm", start_ns=0, end_ns=1000 * us),))
    >>> print(*slower(recording(15), recording(10)))
    mm: 15.0 us a call, 10.0 before (1.50 times)
    """
    before = {(node.kind, node.path): node for node in tree(then).walk() if node.path}
    lost: list[tuple[float, Slowdown]] = []
    slow_scopes: set[tuple[str, ...]] = set()
    for node in tree(now).walk():
        if not node.path or not node.time_ns:
            continue
        mine, old = _of_call(node), before.get((node.kind, node.path))
        if old is None or not old.time_ns:
            if node.path[:-1] in slow_scopes and node.kind != "scope":
                lost.append((node.time_ns, Slowdown(node.path, mine, None)))
            continue
        theirs = _of_call(old)
        if mine > theirs * (1 + least) and mine - theirs > LEAST_NS:
            lost.append(((mine - theirs) * node.calls, Slowdown(node.path, mine, theirs)))
            if node.kind == "scope":
                slow_scopes.add(node.path)
    return [found for _, found in sorted(lost, key=lambda each: -each[0])]


def _of_call(node: Node) -> float:
    return node.time_ns / max(1, node.calls)
