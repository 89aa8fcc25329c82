"""Events that observers receive: memory accesses, barrier operations and asynchronous operations, with their lanes.

A `CompletionPolicy` decides when asynchronous operations take effect. Without one they do as they are issued, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.sim.machine.lanes import Array, Ctas, Residents, Threads

if TYPE_CHECKING:
    from cutepy.sim.machine.address_patterns import InOwnCta, LocatedPattern
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.wgmma_shapes import Shape, SharedTile

Space = Literal["shared", "global", "local"]
Proxy = Literal["generic", "async", "tensormap"]
AsyncKind = Literal[
    "tma_load",
    "tma_store",
    "bulk_load",
    "bulk_store",
    "bulk_peer",
    "wgmma",
    "cp_async",
    "st_async",
    "tcgen05",
    "launch_control",
]


@dataclass(frozen=True, slots=True)
class Access:
    """A memory access by a group of lanes.

    Attributes
    ----------
    operation : "read", "write" or "atomic"
    space : "shared", "global" or "local"
    proxy : "generic", "async" or "tensormap"
    instruction : Instruction
        With its line of Python in `instruction.source`.
    ctas, threads : Ctas, Threads
        Lanes: a rectangle of CTAs and threads.
    where : array, LocatedPattern or InOwnCta
        The addresses, or the pattern that they follow from.
    size_bytes : int
        Bytes that each lane accesses.
    part_of : AsyncOperation or None
        The asynchronous operation whose effect it is.
    stores : array of bool or None
        Of a compare-and-swap, the lanes that found the expected value: broadcasts to (CTAs, threads). None: all store.
    values : tuple of array, or None
        Of a store by threads its elements, where they are known: each broadcasts to (CTAs, threads).
    issuers : array of int or None
        Issuing lane in `part_of` of each address, counted CTA by CTA; None: lanes of the same shape, or any lane.
    dropped : array of bool, (addresses, size_bytes), or None
        Of a read by a TMA store, the bytes outside of the tensor, which reach nothing; None: it drops none.
    operand : (int, str, SharedTile), or None
        Of an operand of tcgen05.mma its descriptor, the type of its elements, and its extents.
    """

    operation: Literal["read", "write", "atomic"]
    space: Space
    proxy: Proxy
    instruction: Instruction
    ctas: Ctas
    threads: Threads
    where: Array | LocatedPattern | InOwnCta = field(repr=False)
    size_bytes: int
    part_of: AsyncOperation | None = field(default=None, repr=False)
    stores: Array | None = field(default=None, repr=False)
    issuers: Array | None = field(default=None, repr=False)
    values: tuple[Array, ...] | None = field(default=None, repr=False)
    dropped: Array | None = field(default=None, repr=False)
    operand: tuple[int, str, SharedTile] | None = field(default=None, repr=False)

    @property
    def addresses(self) -> Array:
        """The addresses in bytes, (CTAs, threads); an axis along which they are equal has extent 1.

        In shared memory, `slot * slot_bytes + offset`. Of the async proxy in global memory (CTAs, runs of bytes), by
        one thread of each CTA; or one run of each thread.
        """
        return self.where.addresses() if isinstance(self.where, tuple) else self.where


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A copy of arguments or results of a call from one place of local memory to another.

    Attributes
    ----------
    instruction : Instruction
        The call.
    ctas, threads : Ctas, Threads
        Lanes: a rectangle of CTAs and threads.
    source, to : array, (CTAs, threads)
        Addresses read and written, as the addresses of `Access`.
    size_bytes : int
        Bytes that are copied for each lane.
    """

    instruction: Instruction
    ctas: Ctas
    threads: Threads
    source: Array = field(repr=False)
    to: Array = field(repr=False)
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BarrierState:
    """State of an mbarrier of some CTAs after an operation on it.

    Attributes
    ----------
    address : int
        Its offset in shared memory.
    slots : array of int
        The CTAs whose mbarrier it is.
    phase, pending, expected, pending_bytes : array of int, (slots,)
        The phase that is current, arrivals that it lacks, arrivals that a phase expects, and bytes that it lacks.
    """

    address: int
    slots: Array
    phase: Array
    pending: Array
    expected: Array
    pending_bytes: Array


@dataclass(frozen=True, slots=True)
class MbarrierAt:
    """An mbarrier, by its offset in shared memory.

    Attributes
    ----------
    wait : str
        The instruction that waits at such a barrier.

    Examples
    --------
    >>> str(MbarrierAt(0x400))
    'mbarrier 0x400'
    """

    wait: ClassVar[str] = "mbarrier.try_wait"

    address: int

    def __str__(self) -> str:
        return f"mbarrier {self.address:#x}"


@dataclass(frozen=True, slots=True)
class NamedBarrier:
    """A named barrier of a CTA, by its number.

    Examples
    --------
    >>> str(NamedBarrier(1))
    'bar 1'
    """

    wait: ClassVar[str] = "bar.sync"

    number: int

    def __str__(self) -> str:
        return f"bar {self.number}"


@dataclass(frozen=True, slots=True)
class ClusterBarrier:
    """The barrier of a cluster."""

    wait: ClassVar[str] = "barrier.cluster.wait"

    def __str__(self) -> str:
        return "barrier.cluster"


@dataclass(frozen=True, slots=True)
class WarpBarrier:
    """The barrier of a warp."""

    wait: ClassVar[str] = "bar.warp.sync"

    def __str__(self) -> str:
        return "bar.warp"


Barrier = MbarrierAt | NamedBarrier | ClusterBarrier | WarpBarrier
GroupKind = Literal["bulk_group", "cp.async group", "wgmma group"]
"""Kinds of groups that threads commit asynchronous operations in, and wait for."""


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """An operation that synchronises threads, after it took effect: its class says which, and each has its own fields.

    Attributes
    ----------
    operation : str
        Its name in traces.
    begins : bool
        True if `Observer.on_begin` sees it, rather than `on_barrier`.
    barrier : MbarrierAt, NamedBarrier, ClusterBarrier, WarpBarrier or str
        The barrier that it acts on; the name of the groups, of the registers or of the fence if it acts on no barrier.
        `str` prints it.
    instruction : Instruction
    ctas, threads : Ctas, Threads
        The lanes that did it.
    """

    operation: ClassVar[str]
    begins: ClassVar[bool] = False

    instruction: Instruction
    ctas: Ctas
    threads: Threads

    if TYPE_CHECKING:

        @property
        def barrier(self) -> Barrier | str:
            """Return the object that it acts on."""

    @property
    def amounts(self) -> tuple[int, ...]:
        """Return the arrivals, bytes or registers that it counts: one of each CTA's barrier, or one for all."""
        return ()


@dataclass(frozen=True, slots=True)
class MbarrierEvent(BarrierEvent):
    """An operation on an mbarrier, of each of some CTAs.

    Attributes
    ----------
    state : BarrierState
        State of the mbarrier after the operation.
    slots : array of int, or None
        The CTA whose mbarrier each lane acted on: broadcasts to (CTAs, threads). None if copies act.
    part_of : AsyncOperation or None
        The asynchronous operation whose effect it is.
    """

    state: BarrierState
    slots: Array | None = field(repr=False)
    part_of: AsyncOperation | None = field(repr=False)

    @property
    def barrier(self) -> MbarrierAt:
        """Return the mbarrier."""
        return MbarrierAt(self.state.address)


@dataclass(frozen=True, slots=True)
class MbarrierInit(MbarrierEvent):
    """mbarrier.init, with the arrivals that a phase expects."""

    operation: ClassVar[str] = "init"

    arrivals: tuple[int, ...]

    @property
    def amounts(self) -> tuple[int, ...]:
        """Return the arrivals that a phase expects."""
        return self.arrivals


class MbarrierInvalidate(MbarrierEvent):
    """mbarrier.inval."""

    __slots__ = ()

    operation: ClassVar[str] = "inval"


@dataclass(frozen=True, slots=True)
class MbarrierCount(MbarrierEvent):
    """An operation that counts in a phase of an mbarrier.

    Attributes
    ----------
    counted : array of int
        The phase that it counts in: broadcasts to (CTAs, threads), or to (CTAs,) of `state` if copies act.
    """

    counted: Array = field(repr=False)


@dataclass(frozen=True, slots=True)
class _ArrivalCount(MbarrierCount):
    """An operation that counts arrivals, by CTA of the mbarrier or one for all."""

    arrivals: tuple[int, ...]

    @property
    def amounts(self) -> tuple[int, ...]:
        """Return the arrivals."""
        return self.arrivals


class MbarrierArrive(_ArrivalCount):
    """An arrival by threads, or by the copies that they had issued."""

    __slots__ = ()

    operation: ClassVar[str] = "arrive"


class MbarrierExpectArrivals(_ArrivalCount):
    """An increment of the arrivals that the current phase expects, by cp.async.mbarrier.arrive without .noinc."""

    __slots__ = ()

    operation: ClassVar[str] = "expect_arrivals"


@dataclass(frozen=True, slots=True)
class MbarrierBytes(MbarrierCount):
    """An operation that counts bytes.

    Attributes
    ----------
    size_bytes : tuple of int
        By CTA of the mbarrier, or one for all.
    """

    size_bytes: tuple[int, ...]

    @property
    def amounts(self) -> tuple[int, ...]:
        """Return the bytes."""
        return self.size_bytes


class MbarrierExpectTx(MbarrierBytes):
    """An announcement of bytes, by mbarrier.expect_tx or with an arrival."""

    __slots__ = ()

    operation: ClassVar[str] = "expect_tx"


@dataclass(frozen=True, slots=True)
class MbarrierCompleteTx(MbarrierBytes):
    """Bytes that have come, by copies or by mbarrier.complete_tx.

    Attributes
    ----------
    deliveries : array of int, (copies, 3), or None
        Each copy that brought bytes, as the CTA's slot whose mbarrier counts them, and the positions in `part_of` of
        the CTA and the thread that issued it. None of mbarrier.complete_tx.
    """

    operation: ClassVar[str] = "complete_tx"

    deliveries: Array | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MbarrierTry(MbarrierEvent):
    """A wait at an mbarrier, or a test of it.

    Attributes
    ----------
    counted : array of int
        The phase that lanes saw complete, -1 for the one before the first, -2 where it was not complete: broadcasts to
        (CTAs, threads).
    tried : array of int
        The phase that they wait for, whether or not it was complete; broadcasts as `counted`.
    """

    counted: Array = field(repr=False)
    tried: Array = field(repr=False)


class MbarrierWait(MbarrierTry):
    """A wait that is over, or a test."""

    __slots__ = ()

    operation: ClassVar[str] = "wait"


class MbarrierBlocked(MbarrierTry):
    """A wait that is not over, in a deadlock."""

    __slots__ = ()

    operation: ClassVar[str] = "blocked"


@dataclass(frozen=True, slots=True)
class GenerationEvent(BarrierEvent):
    """An operation on a barrier that counts generations: a named one, or that of a cluster.

    Attributes
    ----------
    generation : array of int
        The generation that lanes take part in: broadcasts to (CTAs, threads).
    """

    generation: Array = field(repr=False)

    if TYPE_CHECKING:

        @property
        def barrier(self) -> NamedBarrier | ClusterBarrier:
            """Return the barrier."""


@dataclass(frozen=True, slots=True)
class NamedBarrierEvent(GenerationEvent):
    """An operation on a named barrier."""

    barrier: NamedBarrier

    @property
    def is_of_all(self) -> bool:
        """True if a named barrier is for all threads of the CTA, so that exited threads count."""
        i = self.instruction
        return len(i.operands) == (3 if i.traits.votes else 1)


class NamedBarrierPartialArrive(NamedBarrierEvent):
    """Lanes that come to a named barrier before others of their warp: they join or arrive once all are there."""

    __slots__ = ()

    operation: ClassVar[str] = "partial_arrive"
    begins: ClassVar[bool] = True


class NamedBarrierJoin(NamedBarrierEvent):
    """Lanes that come to a bar.sync or a bar.red, and wait there."""

    __slots__ = ()

    operation: ClassVar[str] = "join"
    begins: ClassVar[bool] = True


class NamedBarrierArrive(NamedBarrierEvent):
    """Lanes that come to a bar.arrive."""

    __slots__ = ()

    operation: ClassVar[str] = "arrive"


class NamedBarrierSync(NamedBarrierEvent):
    """Lanes that go on from a bar.sync or a bar.red."""

    __slots__ = ()

    operation: ClassVar[str] = "sync"


class _OfCluster:
    __slots__ = ()

    @property
    def barrier(self) -> ClusterBarrier:
        """Return the barrier of the cluster."""
        return _CLUSTER


class ClusterArrive(_OfCluster, GenerationEvent):
    """barrier.cluster.arrive."""

    __slots__ = ()

    operation: ClassVar[str] = "cluster_arrive"


class ClusterWait(_OfCluster, GenerationEvent):
    """A barrier.cluster.wait that is over."""

    __slots__ = ()

    operation: ClassVar[str] = "cluster_wait"


class WarpSync(BarrierEvent):
    """bar.warp.sync, by the lanes of a mask."""

    __slots__ = ()

    operation: ClassVar[str] = "sync"

    @property
    def barrier(self) -> WarpBarrier:
        """Return the barrier of the warp."""
        return _WARP


class Fence(BarrierEvent):
    """A fence of threads or of proxies: fence, membar, wgmma.fence, griddepcontrol."""

    __slots__ = ()

    operation: ClassVar[str] = "fence"

    @property
    def barrier(self) -> str:
        """Return the opcode."""
        return self.instruction.opcode


@dataclass(frozen=True, slots=True)
class GroupCommit(BarrierEvent):
    """The end of a group of asynchronous operations.

    Attributes
    ----------
    groups : "bulk_group", "cp.async group" or "wgmma group"
    """

    operation: ClassVar[str] = "commit"
    begins: ClassVar[bool] = True

    groups: GroupKind

    @property
    def barrier(self) -> str:
        """Return the kind of the groups."""
        return self.groups


@dataclass(frozen=True, slots=True)
class GroupWait(BarrierEvent):
    """A wait for groups of asynchronous operations that is over.

    Attributes
    ----------
    groups : "bulk_group", "cp.async group" or "wgmma group"
    remaining : int or None
        Latest groups that may still be in flight; None of cp.async.wait_all, which ends a group.
    reads_only : bool
        True if bulk stores need only have read their sources.
    """

    operation: ClassVar[str] = "wait"

    groups: GroupKind
    remaining: int | None
    reads_only: bool = False

    @property
    def barrier(self) -> str:
        """Return the kind of the groups, and how many may be in flight."""
        if self.remaining is None:
            return "cp.async"
        kind = "wgmma.wait_group" if self.groups == "wgmma group" else self.groups
        return f"{kind} {self.remaining}{' read' if self.reads_only else ''}"


@dataclass(frozen=True, slots=True)
class RegistersEvent(BarrierEvent):
    """An operation on the registers of warps.

    Attributes
    ----------
    count : int
        The registers of each thread that the instruction asks for.
    """

    count: int

    @property
    def barrier(self) -> str:
        """Return "registers"."""
        return "registers"

    @property
    def amounts(self) -> tuple[int, ...]:
        """Return the registers of each thread."""
        return (self.count,)


class SetRegisters(RegistersEvent):
    """setmaxnreg, once there are enough."""

    __slots__ = ()

    operation: ClassVar[str] = "set_registers"


class RegistersBlocked(RegistersEvent):
    """A setmaxnreg.inc that waits for registers, in a deadlock."""

    __slots__ = ()

    operation: ClassVar[str] = "blocked"


def part_of(event: BarrierEvent) -> AsyncOperation | None:
    """Return the asynchronous operation whose effect an event is; None of effects of threads themselves."""
    return event.part_of if isinstance(event, MbarrierEvent) else None


BLOCKED = MbarrierBlocked, RegistersBlocked
"""Events of waits that are not over, in a deadlock."""
PASSES = MbarrierWait, GroupWait, NamedBarrierSync, ClusterWait, WarpSync
"""Events of waits that are over."""
_CLUSTER, _WARP = ClusterBarrier(), WarpBarrier()


@dataclass(slots=True, eq=False)
class AsyncOperation:
    """An operation that takes effect some time after it was issued.

    Attributes
    ----------
    kind : str
    instruction : Instruction
        Instruction that issued it; for wgmma the commit of its group.
    ctas, threads : Ctas, Threads
        Lanes that issued it.
    detail : str
        Description: source, destination and bytes.
    apply : callable
        Lets it take effect.
    after : tuple of AsyncOperation
        Operations that complete earlier under every policy: the MMAs of a warpgroup complete in order.
    takes : callable or None
        Of a store that has not read what it moves: does so. A store has read before it has written, which
        `cp.async.bulk.wait_group.read` waits for; `apply` comes after.
    """

    kind: AsyncKind
    instruction: Instruction
    ctas: Ctas
    threads: Threads
    detail: str
    apply: Callable[[], None] = field(repr=False)
    after: tuple[AsyncOperation, ...] = field(default=(), repr=False)
    done: bool = False
    takes: Callable[[], None] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PartialUnit:
    """Collective instruction that only a part of a warp or warpgroup executed.

    Attributes
    ----------
    instruction : Instruction
    branch : Instruction or None
        Branch at which the lanes had parted; None if that isn't known.
    slot : int
        The CTA.
    unit : int
        Threads that must execute it together.
    executed, lacking : array of int
        The threads that did, and those that didn't.
    residents : Residents
    """

    instruction: Instruction
    branch: Instruction | None
    slot: int
    unit: int
    executed: Array
    lacking: Array
    residents: Residents


@dataclass(frozen=True, slots=True)
class TensorMemoryAccess:
    """An access to tensor memory, by a warp of a CTA or by an operation of the tensor core.

    Attributes
    ----------
    instruction : Instruction
    ctas, threads : Ctas, Threads
        Lanes that execute it; of an operation see `part_of`.
    slot : int
        The CTA whose memory is accessed; of a warp it is its own, or where a pair frees columns the peer's too.
    granules : array of int, (1, n)
        512 times a half of a warp's lanes, plus the column; each once.
    lanes : array of uint16, (1, n)
        Lanes of each granule that are accessed: bit n is the half's lane n.
    writes : bool
    needs_value : bool
        True if it computes with the read values.
    part_of : AsyncOperation or None
    of_registers : array of int, (threads, registers, columns), or None
        Place of each register of a warp's load or store: 16 times the granule, plus the lane in it.
    accumulator : hashable, optional
        Place and shape of the accumulator that an MMA accesses; None of its other accesses, and of other operations.
    """

    instruction: Instruction
    ctas: Ctas
    threads: Threads
    slot: int
    granules: Array = field(repr=False)
    lanes: Array = field(repr=False)
    writes: bool
    needs_value: bool = False
    part_of: AsyncOperation | None = None
    of_registers: Array | None = field(default=None, repr=False)
    accumulator: Hashable = None


@dataclass(frozen=True, slots=True)
class TensorMemoryAllocation:
    """An allocation of tensor memory, its end, or the end of the right to allocate, by a warp of one CTA.

    Attributes
    ----------
    instruction : Instruction
    ctas, threads : Ctas, Threads
        Lanes that execute it.
    members : tuple of int
        The CTAs that it is about: one, or both of a pair.
    first, count : int
        Columns.
    begins : tuple of int
        The CTAs whose columns it allocates: of a pair the first warp allocates for both.
    """

    instruction: Instruction
    ctas: Ctas
    threads: Threads
    members: tuple[int, ...]
    first: int = 0
    count: int = 0
    begins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WgmmaEvent:
    """An MMA as it is issued.

    Attributes
    ----------
    shape : cutepy.sim.translate.wgmma_shapes.Shape
        Extents, types, majors.
    a, b : array of uint64, (CTAs, warpgroups)
        Descriptors; `a` is None where A comes from registers. An axis along which they are equal has extent 1.
    accumulates : array of bool, (CTAs, warpgroups)
        True if the MMA adds to its accumulators; axes as those of the descriptors.
    instruction : Instruction
    ctas, threads : Ctas, Threads
    """

    shape: Shape
    a: Array | None
    b: Array
    accumulates: Array
    instruction: Instruction
    ctas: Ctas
    threads: Threads


@dataclass(frozen=True, slots=True)
class TensorMmaEvent:
    """An MMA of the tensor core of sm_100, of one thread, as it is issued.

    Attributes
    ----------
    descriptor : int
        Instruction descriptor.
    a, b : int
        Descriptors of shared memory; `a` an address of tensor memory where `a_in_tensor_memory`.
    a_in_tensor_memory : bool
    instruction : Instruction
    ctas, threads : Ctas, Threads
    """

    descriptor: int
    a: int
    b: int
    a_in_tensor_memory: bool
    instruction: Instruction
    ctas: Ctas
    threads: Threads


@dataclass(frozen=True, slots=True)
class TmaEvent:
    """A tensor copy of one lane as it is issued.

    Attributes
    ----------
    operation : "load", "store" or a reduction
    tensor_map : cutepy.layouts.sm90.TensorMap or Im2colTensorMap
    coordinates : tuple of int
        Of the box, the contiguous mode first.
    cta : (int, int, int)
        The CTA whose shared memory is addressed.
    shared_address : int
        Its offset there.
    instruction : Instruction
    """

    operation: str
    tensor_map: TensorMap | Im2colTensorMap
    coordinates: tuple[int, ...]
    cta: tuple[int, int, int]
    shared_address: int
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A request of cluster launch control as it is granted or refused; the answer comes later.

    Attributes
    ----------
    instruction : Instruction
    ctas, threads : Ctas, Threads
        The thread that asks.
    first_cta : (int, int, int) or None
        Of the cluster that it gets, and that does not begin; None of a refusal.
    left : int
        Clusters that have not begun, after that.
    """

    instruction: Instruction
    ctas: Ctas
    threads: Threads
    first_cta: tuple[int, int, int] | None
    left: int


class CompletionPolicy:
    """Decide when asynchronous operations take effect; this one: at once.

    A wait in the kernel (`wait_group`) completes what it waits for, whatever the policy says. The wgmma groups of a
    warpgroup complete in order: one that completes is preceded by those that were committed before it.

    Attributes
    ----------
    parts_arrivals : bool
        True if lanes that come to a `bar.sync` wait there even if they are the last, and go on later.
    """

    parts_arrivals = False

    def completes(self, operation: AsyncOperation) -> None:
        """See a pending operation about to complete."""

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Tell whether an operation takes effect at its issue."""
        return True

    def choose(self, pending: Sequence[AsyncOperation]) -> int:
        """Pick the operation that completes next, when no thread can go on without one."""
        return 0

    def gives_up(self) -> bool:
        """Tell whether a try_wait of an incomplete phase returns now; called once between two changes of memory."""
        return False

    def grants(self, left: int, beyond: int) -> bool:
        """Tell whether a request of launch control gets one of the clusters that have not begun.

        Half of the clusters beyond the first wave begin by themselves, so that kernels see both answers.

        Parameters
        ----------
        left : int
            Clusters that have not begun: 1 or more.
        beyond : int
            Clusters that had not when the first wave began.

        Examples
        --------
        >>> [CompletionPolicy().grants(left, 3) for left in (3, 2, 1)]
        [True, True, False]
        """
        return 2 * left > beyond

    def missed(self, launch: Launch) -> str:
        """Name the instruction or thread of a policy that a finished launch lacks; nothing if it has all of them."""
        return ""
