"""Tree of a recording: times, calls and rates of scopes, and of the kernels within."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cutepy.profiling.backward import NAME as BACKWARD
from cutepy.profiling.names import short_name
from cutepy.profiling.recording import Record, Recording
from cutepy.profiling.roofline import Roofline, roofline


@dataclass
class Node:
    """Scope, or kernel of a scope, with all that is below it.

    Attributes
    ----------
    name : str
    kind : str
        "scope", "kernel", "copy" or "fill"; the root is a scope.
    path : tuple of str
        Names of the scopes around it, and its own; the root's is empty.
    calls : int
        Passes through a scope, replays of graphs included; launches of a kernel.
    launches : int
        Kernels, copies and fills.
    simulated : int
        Launches of the simulator among them.
    time_ns : int
        Sum of their durations.
    gap_ns : int
        Time in which a stream had nothing to do between two launches of one pass.
    overlap_ns : int
        Time in which a launch ran beside the one before it in its stream, as programmatic launch lets it.
    flops, bytes : float or None
        Work of all passes; where a scope states none, the sum over the scopes below.
    rated_ns : int
        Time that `flops` and `bytes` are divided by: without the backward pass where the scope states them.
    least_ns : float or None
        Roofline time of `flops` and `bytes`.
    children : dict of (str, str) to Node
        By kind and name.
    """

    name: str
    kind: str = "scope"
    path: tuple[str, ...] = ()
    calls: int = 0
    launches: int = 0
    simulated: int = 0
    time_ns: int = 0
    gap_ns: int = 0
    overlap_ns: int = 0
    flops: float | None = None
    bytes: float | None = None
    rated_ns: int = 0
    least_ns: float | None = None
    children: dict[tuple[str, str], Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Node:
        """Return the child of a name: a scope, or else a kernel, copy or fill.

        Raises
        ------
        KeyError
            If the node has no child of this name.
        """
        for kind in ("scope", "kernel", "copy", "fill"):
            if (kind, name) in self.children:
                return self.children[kind, name]
        raise KeyError(name)

    @property
    def tflops(self) -> float | None:
        """TFLOP/s; None where flops or time are not known."""
        return None if not self.flops or not self.rated_ns else self.flops / self.rated_ns / 1e3

    @property
    def tbytes(self) -> float | None:
        """TB/s; None where bytes or time are not known."""
        return None if not self.bytes or not self.rated_ns else self.bytes / self.rated_ns / 1e3

    @property
    def roofline(self) -> float | None:
        """Share of the GPU's peak rates, 0 to 1; None where the FLOPs or bytes are not known."""
        return None if not self.least_ns or not self.rated_ns else self.least_ns / self.rated_ns

    def walk(self) -> Iterator[Node]:
        """Yield the node and all below it, parents first, the longest time first."""
        yield self
        for child in self.sorted():
            yield from child.walk()

    def sorted(self) -> list[Node]:
        """Return the children, the longest time first."""
        return sorted(self.children.values(), key=lambda each: (-each.time_ns, -each.launches, each.name))


@dataclass
class _Pass:
    """Sums of one pass through a scope."""

    time_ns: int = 0
    backward_ns: int = 0
    eager: bool = False
    replays: set[int] = field(default_factory=set)
    flops: float | None = None
    bytes: float | None = None
    least_ns: float | None = None
    rated_ns: int = 0

    @property
    def executions(self) -> int:
        """Number of executions: one, or the replays of the graph that captured the pass."""
        return len(self.replays) + self.eager if self.replays else 1


def tree(recording: Recording) -> Node:
    """Sum a recording by the names of scopes and kernels.

    Parameters
    ----------
    recording : Recording

    Returns
    -------
    Node
        The root.

    Examples
    --------
    >>> from cutepy.profiling import Record, ScopeCall
    >>> scopes = (ScopeCall("layer", flops=8e6),)
    >>> root = tree(Recording((Record("mm", start_ns=0, end_ns=2000, scope=0),), scopes))
    >>> root.time_ns, root["layer"].tflops, root["layer"]["mm"].calls
    (2000, 4.0, 1)
    """
    root = Node("", calls=1)
    passes = _passes(recording)
    for place, each in enumerate(passes):
        node = _node(root, recording.path(place))
        node.calls += each.executions
        node.rated_ns += each.rated_ns
        node.flops = _sum(node.flops, each.flops)
        node.bytes = _sum(node.bytes, each.bytes)
        node.least_ns = _sum(node.least_ns, each.least_ns)
    for record in recording.records:
        _add(root, recording.path(record.scope), record)
    _add_gaps(root, recording)
    for name in ("flops", "bytes", "least_ns"):
        for child in root.children.values():
            setattr(root, name, _sum(getattr(root, name), getattr(child, name)))
    root.rated_ns = root.time_ns
    return root


def _passes(recording: Recording) -> list[_Pass]:
    """Sum each pass, its children before it."""
    calls, roof = recording.scopes, roofline(recording.gpu)
    passes = [_Pass() for _ in calls]
    for record in recording.records:
        if record.scope is not None:
            own = passes[record.scope]
            own.time_ns += record.duration_ns
            if record.graph_launch is None:
                own.eager = True
            else:
                own.replays.add(record.graph_launch)
    children: dict[int, list[int]] = defaultdict(list)
    for place in reversed(range(len(calls))):
        call, own = calls[place], passes[place]
        for child in children[place]:
            own.time_ns += passes[child].time_ns
            own.eager |= passes[child].eager
            own.replays |= passes[child].replays
            if calls[child].name == BACKWARD:
                own.backward_ns += passes[child].time_ns
        below = [passes[child] for child in children[place]]
        _rate(own, call.flops, call.bytes, call.precision, below, roof)
        if call.parent is not None:
            children[call.parent].append(place)
    return passes


def _rate(
    own: _Pass,
    flops: float | None,
    bytes_: float | None,
    precision: str,
    below: Sequence[_Pass],
    roof: Roofline | None,
) -> None:
    """Set the FLOPs and bytes of a pass: as its scope states, else the sum over the scopes below."""
    if flops is None and bytes_ is None:
        own.rated_ns = own.time_ns
        for each in below:
            own.flops = _sum(own.flops, each.flops)
            own.bytes = _sum(own.bytes, each.bytes)
            own.least_ns = _sum(own.least_ns, each.least_ns)
        return
    own.rated_ns = own.time_ns - own.backward_ns
    own.flops = None if flops is None else flops * own.executions
    own.bytes = None if bytes_ is None else bytes_ * own.executions
    if roof is not None:
        own.least_ns = roof.least_ns(flops or 0, bytes_ or 0, precision) * own.executions


def _add(root: Node, path: tuple[str, ...], record: Record) -> None:
    """Add a launch to its kernel's node, and to all above."""
    name = short_name(record.name)
    leaf = _node(root, path).children.setdefault((record.kind, name), Node(name, record.kind, (*path, name)))
    leaf.calls += 1
    if record.kind != "kernel":
        leaf.bytes, leaf.rated_ns = (leaf.bytes or 0) + record.bytes, leaf.rated_ns + record.duration_ns
    for node in (*_along(root, path), leaf):
        node.launches += 1
        node.simulated += record.simulated
        node.time_ns += record.duration_ns


def _add_gaps(root: Node, recording: Recording) -> None:
    """Add the time between two launches of a stream, or beside each other, to the innermost pass around both."""
    streams: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for record in recording.records:
        if not record.simulated:
            streams[record.device, record.stream].append(record)
    for records in streams.values():
        records.sort(key=lambda each: each.start_ns or 0)
        ended = 0
        for before, after in pairwise(records):
            ended = max(ended, before.end_ns or 0)
            between = (after.start_ns or 0) - ended
            path = recording.path(_common(recording, before.scope, after.scope))
            for node in _along(root, path):
                if between >= 0:
                    node.gap_ns += between
                else:
                    node.overlap_ns += min(-between, after.duration_ns)


def _common(recording: Recording, one: int | None, other: int | None) -> int | None:
    """Return the innermost pass around two."""
    while one != other:
        if one is None or other is None:
            return None
        if one > other:  # a parent comes before its children
            one = recording.scopes[one].parent
        else:
            other = recording.scopes[other].parent
    return one


def _node(root: Node, path: tuple[str, ...]) -> Node:
    """Return the node of a scope."""
    for n, name in enumerate(path):
        root = root.children.setdefault(("scope", name), Node(name, path=path[: n + 1]))
    return root


def _along(root: Node, path: tuple[str, ...]) -> Iterator[Node]:
    """Yield the root, and the nodes down to a scope."""
    yield root
    for name in path:
        root = root.children["scope", name]
        yield root


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
