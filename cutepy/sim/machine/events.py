"""Events that observers receive: memory accesses, barrier operations and asynchronous operations, with their lanes.

A `CompletionPolicy` decides when asynchronous operations take effect. Without one they do as they are issued, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.sim.machine.lanes import Array, Ctas, Threads

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.wgmma_shapes import Shape

Space = Literal["shared", "global", "local"]
Proxy = Literal["generic", "async", "tensormap"]
AsyncKind = Literal["tma_load", "tma_store", "bulk_load", "bulk_store", "bulk_peer", "wgmma", "cp_async", "st_async"]


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
        Who: the lanes, a rectangle.
    addresses : array, (CTAs, threads)
        Where: bytes; an axis along which they are equal has extent 1. In shared memory, `slot * slot_bytes + offset`.
        Of the async proxy in global memory (CTAs, runs of bytes): all runs are by one thread of each CTA.
    size_bytes : int
        Bytes that each lane accesses.
    part_of : AsyncOperation or None
        The asynchronous operation whose effect it is.
    stores : array of bool or None
        Of a compare-and-swap, which lanes found what they expected: broadcasts to (CTAs, threads). None: all store.
    values : tuple of array, or None
        Of a store by threads its elements, where they are known: each broadcasts to (CTAs, threads).
    issuers : array of int or None
        Which lane of `part_of` issued what touches each address, counted CTA by CTA; None: those of its shape, or any.
    """

    operation: Literal["read", "write", "atomic"]
    space: Space
    proxy: Proxy
    instruction: Instruction
    ctas: Ctas
    threads: Threads
    addresses: Array = field(repr=False)
    size_bytes: int
    part_of: AsyncOperation | None = field(default=None, repr=False)
    stores: Array | None = field(default=None, repr=False)
    issuers: Array | None = field(default=None, repr=False)
    values: tuple[Array, ...] | None = field(default=None, repr=False)


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
class BarrierEvent:
    """An operation on a barrier, after it took effect.

    Attributes
    ----------
    operation : str
        "init", "inval", "arrive", "expect_arrivals", "expect_tx", "complete_tx", "wait", "sync", "fence",
        "cluster_arrive", "cluster_wait", "set_registers", and "blocked" in a deadlock, of waits and setmaxnreg.inc;
        for `on_begin` "come", "join" and "commit".
    barrier : str
        What it acted on, such as "mbarrier 0x400" or "bar 1".
    instruction : Instruction
    ctas, threads : Ctas, Threads
        Who.
    amounts : tuple of int
        By CTA of the barrier, or one for all: of "init" the arrivals that a phase expects, of "arrive" at an mbarrier
        those that were made, of "expect_tx" and "complete_tx" bytes, of
        "set_registers" the registers; empty for other operations.
    state : BarrierState or None
        Of an mbarrier that it changed.
    counted : array of int, or None
        The phase or generation that it counted in, or that a wait saw complete: -1 for the one before the first,
        -2 where the phase was not complete. Broadcasts to (CTAs, threads).
    tried : array of int, or None
        The phase that a wait at an mbarrier is for, whether or not it was complete; broadcasts as `counted`.
    slots : array of int, or None
        Whose mbarrier each lane acted on: broadcasts to (CTAs, threads).
    part_of : AsyncOperation or None
        The asynchronous operation whose effect it is.
    deliveries : array of int, (copies, 3), or None
        Of "complete_tx": each copy that brought bytes, as the CTA's slot whose mbarrier counts them, and the positions
        in `part_of` of the CTA and the thread that issued it.
    """

    operation: str
    barrier: str
    instruction: Instruction
    ctas: Ctas
    threads: Threads
    amounts: tuple[int, ...] = ()
    state: BarrierState | None = None
    counted: Array | None = field(default=None, repr=False)
    slots: Array | None = field(default=None, repr=False)
    part_of: AsyncOperation | None = field(default=None, repr=False)
    tried: Array | None = field(default=None, repr=False)
    deliveries: Array | None = field(default=None, repr=False)

    @property
    def is_of_all(self) -> bool:
        """True if a named barrier is for all threads of the CTA, so that exited threads count."""
        i = self.instruction
        return len(i.operands) == (3 if "red" in i.parts else 1)


@dataclass(slots=True, eq=False)
class AsyncOperation:
    """An operation that takes effect some time after it was issued.

    Attributes
    ----------
    kind : str
    instruction : Instruction
        What issued it (for wgmma, the commit of its group).
    ctas, threads : Ctas, Threads
        Who issued it.
    detail : str
        What moves from where to where.
    apply : callable
        Lets it take effect.
    after : tuple of AsyncOperation
        What completes before it, whatever a policy chooses: the MMAs of a warpgroup do so in order.
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
class WgmmaEvent:
    """An MMA as it is issued.

    Attributes
    ----------
    shape : cutepy.sim.translate.wgmma_shapes.Shape
        Extents, types, majors.
    a, b : array of uint64, (CTAs, warpgroups)
        Descriptors; `a` is None where A comes from registers. An axis along which they are equal has extent 1.
    accumulates : array of bool, (CTAs, warpgroups)
        Whether it adds to what is in the registers; as descriptors.
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


class CompletionPolicy:
    """Decide when asynchronous operations take effect; this one: at once.

    A wait in the kernel (`wait_group`) completes what it waits for, whatever the policy says. The wgmma groups of a
    warpgroup complete in order: one that completes is preceded by those that were committed before it.

    Attributes
    ----------
    parts_arrivals : bool
        Whether lanes that come to a `bar.sync` wait there even if they are the last, and go on later.
    """

    parts_arrivals = False

    def completes(self, operation: AsyncOperation) -> None:
        """See a pending operation about to complete."""

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Say whether an operation takes effect as it is issued."""
        return True

    def choose(self, pending: Sequence[AsyncOperation]) -> int:
        """Pick the operation that completes next, when no thread can go on without one."""
        return 0

    def gives_up(self) -> bool:
        """Say whether a try_wait whose phase is not complete returns now; it is asked once between two changes."""
        return False

    def missed(self, launch: Launch) -> str:
        """Say what it names that a launch, which is over, has not; nothing if it has all, or it names nothing."""
        return ""
