"""Sources of a wait: the awaited object, the missing arrivals, and the operations that could signal it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Place, WaitNearMiss
from cutepy.sim.machine.events import BarrierEvent, MbarrierAt

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Barrier
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.thread_history import ExecutedInstruction
    from cutepy.sim.ptx.model import Instruction


def arrives(i: Instruction) -> bool:
    """Return whether an instruction arrives at an mbarrier, by itself or behind copies."""
    return i.traits.arrives and i.traits.barrier == "mbarrier"


def copies(i: Instruction) -> bool:
    """Return whether an instruction brings bytes that an mbarrier counts."""
    return i.traits.brings_bytes or i.parts[:2] == ("mbarrier", "complete_tx")


def operation(i: Instruction) -> object:
    """Return the lines that the copies of an instruction in an unrolled loop share, if they are known."""
    return i.source or i.index


def _nothing(i: Instruction) -> bool:
    return False


@dataclass(frozen=True)
class Source:
    """A CTA, or threads of it, that brought a part of earlier phases.

    Attributes
    ----------
    slot : int
    done : ExecutedInstruction
        Last operation on it.
    phases : int
        In how many phases.
    """

    slot: int
    done: ExecutedInstruction
    phases: int


@dataclass(frozen=True)
class MisdirectedArrival:
    """The last arrival at another mbarrier: its place, its name and the arrival."""

    offset: int
    name: str
    done: ExecutedInstruction


@dataclass(frozen=True)
class AwaitedObject:
    """Object that lanes wait for.

    Attributes
    ----------
    said : str
        All in a line, such as "barrier 1: 32 of 64 threads arrived".
    at : Place
        Object: lanes that wait at places of one name wait for one object.
    lacks : str
        Arrivals and bytes that have come, and those that lack, in words.
    fix : Diagnosis
        Advice.
    kind : str
        Kind of hazard if the wait never ends.
    last : ExecutedInstruction or None
        Last operation on the object, or the one that set its count.
    brings : callable
        Tells whether an instruction may bring it.
    brought : frozenset of object
        The operations that have brought it, or a part of it, or a fellow of it in a ring, so far: see `operation`.
    nobody : str
        Text if no other lane can still reach such an instruction.
    is_begun : bool
        True if others have brought a part of it.
    is_of_a_cta : bool
        True if none but threads of the same CTA can bring it.
    others : dict of int to Instruction
        By index, the instructions that have brought other things so far, and never this one or a fellow of it.
    is_first : bool
        True if lanes wait, by a parity, for the first phase of a barrier, of which nothing has come.
    absent : tuple of Source
        CTAs that have brought a part of earlier phases, and nothing of this one.
    ceased : tuple of Source
        Threads of the waiters' own CTA that have arrived in earlier phases, and not in this one.
    chances : tuple of WaitNearMiss
        Near misses.
    beside : tuple of AwaitedObject
        Objects that the other lanes wait for.
    lanes : array of bool, (CTAs, threads), or None
        Those of the group that wait for it; None if all do.
    barrier : MbarrierAt, NamedBarrier or ClusterBarrier, or None
        The barrier that they wait at; None if it is none.
    is_of_all : bool
        True if threads of any cluster can bring it.
    ring : str
        The source's name of the ring of mbarriers that it is of; empty if it has none.
    fellows : str
        Phases of the other stages of its ring, in words, if they differ.
    misdirected : tuple of MisdirectedArrival
        Arrivals that have completed a phase of other mbarriers, for which nothing has waited; none if this one has
        got any.
    """

    said: str
    at: Place
    lacks: str
    fix: Diagnosis
    kind: str = "deadlock"
    last: ExecutedInstruction | None = None
    brings: Callable[[Instruction], bool] = field(default=_nothing, compare=False)
    brought: frozenset[object] = frozenset()
    nobody: str = ""
    is_begun: bool = False
    is_of_a_cta: bool = False
    others: dict[int, Instruction] = field(default_factory=dict, compare=False)
    is_first: bool = False
    absent: tuple[Source, ...] = ()
    ceased: tuple[Source, ...] = ()
    chances: tuple[WaitNearMiss, ...] = ()
    beside: tuple[AwaitedObject, ...] = ()
    lanes: Array | None = field(default=None, compare=False)
    barrier: Barrier | None = None
    is_of_all: bool = False
    misdirected: tuple[MisdirectedArrival, ...] = ()
    ring: str = ""
    fellows: str = ""

    @property
    def elsewhere(self) -> frozenset[object]:
        """Return the operations that have brought other things so far, and never this one or a fellow of it."""
        return frozenset(map(operation, self.others.values())) - self.brought

    @property
    def offset(self) -> int | None:
        """Return the offset in shared memory that an arrival, or a copy, must address; None if it is no mbarrier."""
        return self.barrier.address if isinstance(self.barrier, MbarrierAt) else None

    def __str__(self) -> str:
        return self.said


@dataclass(frozen=True, slots=True)
class WaitBegins(BarrierEvent):
    """Event of lanes that begin to wait at a barrier or for registers, for `Observer.on_wait`.

    Attributes
    ----------
    awaited : AwaitedObject or None
        Object that they wait for, if known.
    """

    operation: ClassVar[str] = "wait"

    awaited: AwaitedObject | None

    @property
    def barrier(self) -> str:
        """Return the awaited object, in words."""
        return "a barrier" if self.awaited is None else str(self.awaited)
