"""State of a simulation of SMs: servers, clusters, warps, and what is known of their time in the end."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cutepy.predict.code import LSU, SCHEDULERS, Step
from cutepy.predict.rates import Rates
from cutepy.predict.trace import CtaTrace, WarpTrace

CAUSES = (
    "instructions", "dependencies", "issue slots", "pipes", "registers", "shared memory", "global memory", "copies",
    "barriers", "tensor cores", "stores", "fences", "instruction cache",
)  # fmt: skip
"""Causes of a warp's time: work, or a wait."""
(WORK, DEPENDENCIES, ISSUE, PIPE, REGISTERS, SHARED, GLOBAL, COPIES, BARRIERS, TENSOR, STORES, FENCES, FETCHES) = range(
    len(CAUSES)
)


@dataclass(eq=False)
class Group:
    """Group of MMAs of a warp: how many have not begun, when the last result is there, and the warp that waits."""

    left: int = 0
    end: float = 0.0
    waiter: Warp | None = None


class IssuedMma(NamedTuple):
    """MMA that has been issued: when, its cycles and those until its result, and what its warp waited for before."""

    time: float
    cycles: float
    drain: float
    group: Group
    since: list[float]
    name: str
    line: int


class TensorCore:
    """Tensor core of a sub-partition: MMAs queue by warp, and the warps take turns.

    Attributes
    ----------
    sm : int
    free : float
        End of the last MMA that has begun.
    queues : dict of Warp to deque of IssuedMma
        The warp whose turn is next comes first.
    awake : bool
        Whether the next MMA's beginning is an event to come.
    """

    def __init__(self, sm: int) -> None:
        self.sm, self.free, self.awake = sm, 0.0, False
        self.queues: dict[Warp, deque[IssuedMma]] = {}


class Sm:
    """Servers of one SM, and their work."""

    def __init__(self, number: int) -> None:
        self.issue = [0.0] * SCHEDULERS
        self.pipes = [[0.0] * LSU for _ in range(SCHEDULERS)]
        self.tensor = [TensorCore(number) for _ in range(SCHEDULERS)]
        self.code: OrderedDict[int, float] = OrderedDict()  # blocks in the instruction cache, and since when
        self.code_bytes = 0
        self.fetched: set[int] = set()
        self.known: set[tuple[int, bool]] = set()  # regions, and whether by TMA, whose pages or maps are known
        # When lines come to L1, by the cluster that reads them (None if all do), the instruction and its execution.
        self.read: dict[tuple[Cluster | None, int, int], float] = {}
        self.constants: dict[int, float] = {}  # lines of parameters, and since when they are there
        self.lsu = self.tma = self.store = self.l2 = self.port = self.dram = 0.0
        self.slots = 0
        self.draws = 0.5  # quantile of the last load's latency
        self.pipe_work = [0.0] * (LSU + 1)
        self.tensor_work = self.smem_bytes = self.l2_work = self.dram_work = self.port_work = 0.0
        self.idle: Counter[str] = Counter()  # of the tensor cores, by cause
        self.dram_read = 0.0
        self.flight = 0.0  # bytes times cycles of loads
        self.awaited: list[tuple[float, float]] = []  # when loads of device memory come, and their bytes
        self.awaited_bytes = 0.0


@dataclass
class Event:
    """Span of a timeline: where it is, its name, its cycles, and the line of PTX and of the source that it is of."""

    sm: int
    track: str
    name: str
    start: float
    end: float
    line: int = 0
    where: str = ""


class LatestArrival(NamedTuple):
    """Latest contribution to a phase: its time, the warp that made it and when, and the cause of waits for it."""

    time: float
    by: Warp
    acted: float
    node: Node | None
    causes: list[float]
    cause: int


@dataclass(eq=False)
class Node:
    """Wait on a path: its end, its cause, the warp that ended it, the wait before, and cycles by cause until then."""

    released: float
    what: str
    late: LatestArrival
    before: Node | None
    causes: list[float]


class Cluster:
    """State of a running cluster: the phases of its barriers, by key."""

    def __init__(self, traces: Sequence[CtaTrace], rates: Rates, start: float, is_first: bool) -> None:
        self.traces, self.rates, self.start, self.is_first = traces, rates, start, is_first
        self.left: dict[int, int] = {}
        self.late: dict[int, LatestArrival] = {}
        self.done: dict[int, float] = {}
        self.waiting: defaultdict[int, list[Warp]] = defaultdict(list)
        self.running = 0
        self.last: Warp | None = None


class Warp:
    """State of a warp."""

    __slots__ = (
        "async_time",
        "before",
        "bulk",
        "bulk_open",
        "causes",
        "cluster",
        "copies",
        "copies_open",
        "cta",
        "facts",
        "held",
        "in_action",
        "mma_next",
        "mma_open",
        "mma_room",
        "mmas",
        "name",
        "node",
        "number",
        "path",
        "position",
        "readable",
        "reason",
        "score",
        "seen",
        "since",
        "sm",
        "smsp",
        "step",
        "steps",
        "time",
        "turns",
    )  # fmt: skip

    def __init__(
        self, trace: WarpTrace, cta: CtaTrace, number: int, cluster: Cluster, sm: int, smsp: int, time: float
    ) -> None:
        self.path, self.facts, self.cta, self.number = trace.path, trace.facts, cta, number
        self.cluster, self.sm, self.smsp, self.time = cluster, sm, smsp, time
        self.name = f"CTA {cta.block} warp {number}"
        self.position = -1
        self.steps: list[Step] = []
        self.step = 0
        self.in_action = False
        self.seen: dict[int, int] = {}  # facts of each instruction that are over
        self.turns: dict[int, int] = {}
        self.score = [0.0] * 6
        self.reason = [REGISTERS] * 6
        self.mmas: list[Group] = []
        self.bulk: list[tuple[float, float]] = []
        self.copies: list[float] = []
        self.mma_open, self.copies_open = Group(), time
        self.mma_next = self.mma_room = float("-inf")  # since when an MMA can be issued: by those before, by the queue
        self.held = False
        self.bulk_open = (time, time)
        self.causes = [0.0] * len(CAUSES)
        self.since = [0.0] * len(CAUSES)
        self.before = time
        self.node: Node | None = None


@dataclass
class Outcome:
    """Result of a simulation of SMs.

    Attributes
    ----------
    cycles : float
        From the first CTA's start to the last one's end.
    spans : list of (float, float)
        Start and end of each cluster, in order.
    sms : list of Sm
    causes : Counter
        Cycles of warps by cause, summed.
    stalls : Counter
        Cycles that warps waited by (instruction's index, cause).
    path : Counter
        Cycles of the critical path by what they are.
    events : list of Event
    steps : int
        Steps that were executed.
    stored : float
        Time at which the last store has left its SM; what the launch's end waits for, if warps do not. Minus infinity
        if nothing is stored.
    waited : float
        Time at which all warps of the first clusters wait for the launch before (griddepcontrol.wait); 0 if none does.
    lets_begin : bool
        Whether the next launch may begin before the end.
    let_begin : float
        Time from which it may.
    """

    cycles: float = 0.0
    spans: list[tuple[float, float]] = field(default_factory=list)
    sms: list[Sm] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    stalls: Counter[tuple[int, str]] = field(default_factory=Counter)
    path: Counter[str] = field(default_factory=Counter)
    events: list[Event] = field(default_factory=list)
    steps: int = 0
    stored: float = 0.0
    waited: float = 0.0
    lets_begin: bool = False
    let_begin: float = 0.0


def critical_path(last: Warp | None) -> Counter[str]:
    """Walk back from the last warp's end: its own time by cause, then whoever ended its latest wait, and so on."""
    found: Counter[str] = Counter()
    if last is None:
        return found
    node, upper = last.node, last.causes
    while True:
        lower = [0.0] * len(CAUSES) if node is None else node.causes
        for cause, more, less in zip(CAUSES, upper, lower, strict=True):
            found[cause] += more - less  # type: ignore[assignment]
        if node is None:
            return found
        late = node.late
        found[node.what] += node.released - late.acted  # type: ignore[assignment]
        node, upper = late.node, late.causes
