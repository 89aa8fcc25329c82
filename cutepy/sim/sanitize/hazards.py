"""Hazards: two operations without a happens-before, and the step that is missing between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Place
from cutepy.sim.machine.events import Barrier
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.ptx.model import Address, Symbol
from cutepy.sim.ptx.source_lines import user_lines
from cutepy.sim.sanitize.kinds import KINDS, Severity

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction, SourceLine

Where = Barrier | Place
"""Object that a hazard is about."""
NEAR_MISSES = {
    "absent-peer": "a CTA of the cluster brought its part of earlier phases, and comes there no more",
    "arrives-only": "a thread arrives at the right barrier, and does not wait there",
    "barrier-of-others": "a named barrier in which the other thread has no part",
    "counted-besides": "an asynchronous arrival without `.noinc` adds itself to what the phase expects",
    "cta-barrier": "a barrier of each CTA's threads stands between accesses of two CTAs",
    "early-release": "an arrival says that bytes are free, and stands before the wait for what still reads them",
    "earlier-phase": "a wait at the right mbarrier, which saw an earlier phase than that of the arrival",
    "early-fence": "a proxy fence stands before the access that it should follow",
    "ended-arriver": "the threads that arrived in earlier phases have ended",
    "expect-tx": "`expect_tx` announces bytes, and is no arrival",
    "fence-elsewhere": "a proxy fence by a thread that does not know of the access, or in the CTA that does not copy",
    "first-parity": "the first wait at a new mbarrier is for parity 0 by who is to fill the stage",
    "late-commit": "a wait for groups, and the commit of the operation's group stands behind it",
    "late-fence": "a proxy fence comes behind the arrival or the barrier that tells of the access",
    "multicast-mask": "the mask of a copy to several CTAs lacks the one that waits for its bytes",
    "never-committed": "a wait for groups, and no commit of its thread stands between the operation and it",
    "no-barrier-behind": "another thread has waited, and nothing orders this thread after that one",
    "nothing-to-wait-for": "a wait for groups, by a thread that has committed none",
    "leaves-groups": "a wait for groups leaves the latest of them in flight, with this one",
    "other-arrival": "an arrival at another barrier than the one that is waited for",
    "other-barrier": "a wait for another barrier than the one at which bytes or arrivals count",
    "other-cta": "arrivals came at the mbarrier of another CTA of the cluster",
    "other-fence": "a fence of another proxy or state space, or of threads alone",
    "other-stage": "arrivals came at another stage of the ring",
    "others-groups": "a wait for groups, by another thread than the one whose group it is",
    "own-arrival": "the thread that waits would arrive itself, after its wait",
    "release-before-use": "an arrival says that bytes are free, and stands before what reads them",
    "reads-only": "a wait with `.read`, which tells nothing of what a store writes",
    "second-parity": "the first wait at an mbarrier is for parity 1, and the first phase is over",
    "shared-barrier": "two groups of threads use one named barrier",
    "warp-barrier": "bar.warp.sync stands between accesses of two warps",
}
"""Kinds of near misses, and what each is."""


AccessKind = Literal["", "read", "write", "atomic"]
"""An access to memory, or none."""
_DONE = {"read": "reads", "write": "writes", "atomic": "updates"}


@dataclass(frozen=True)
class Side:
    """One of the operations of a hazard.

    Attributes
    ----------
    name : str
        The instruction or the copy, such as "wgmma" or "TMA store".
    who : str
        The first of those that did, such as "warp 4, lane 0 of CTA (0, 0, 0)": text for reports, which nothing reads.
    instruction : Instruction or None
        None for the end of a CTA.
    cta : (int, int, int) or None
    warp, lane : int or None
        Of the CTA: the thread that did it, or that issued it.
    role : str
        Role of the warp, such as "MMA warpgroup 1", or of the copy, such as "TMA of load_operands".
    launch : Launch or None
        The launch that it is part of, where the sides are of two.
    ptx, ptx_file : str
        The PTX that the instruction is of, and the file that it was read from; empty where there is none.
    run : int or None
        The first of the instructions of its PTX that run one after another with it, for any outcome of branches.
    is_async : bool
        True if the async proxy did it.
    access : "read", "write", "atomic" or ""
        The access to memory, if it is one.
    of_warps : bool
        True if several warps did it, of one CTA or of several, of which `warp` is the first.
    issuers : str
        Of a copy or an MMA with a role, the warps that issue it, and the CTA that they do it for.
    """

    name: str
    who: str
    instruction: Instruction | None = field(default=None, repr=False)
    cta: tuple[int, ...] | None = None
    warp: int | None = None
    lane: int | None = None
    role: str = ""
    launch: Launch | None = field(default=None, repr=False, compare=False)
    ptx: str = field(default="", repr=False, compare=False)
    ptx_file: str = field(default="", repr=False, compare=False)
    run: int | None = field(default=None, repr=False, compare=False)
    is_async: bool = field(default=False, repr=False)
    access: AccessKind = ""
    of_warps: bool = field(default=False, repr=False, compare=False)
    issuers: str = field(default="", repr=False, compare=False)

    @classmethod
    def of_thread(
        cls,
        name: str,
        cta: tuple[int, ...],
        thread: int,
        instruction: Instruction,
        access: AccessKind = "",
        launch: Launch | None = None,
    ) -> Side:
        """Return the operation of a thread of a CTA; a launch that is given is named."""
        warp, lane = divmod(thread, WARP)
        who = f"warp {warp}, lane {lane} of CTA {cta}{_of_launch(launch)}"
        return cls(name, who, instruction, cta, warp, lane, launch=launch, access=access)

    @classmethod
    def of_proxy(
        cls,
        name: str,
        cta: tuple[int, ...],
        instruction: Instruction,
        access: AccessKind = "",
        launch: Launch | None = None,
    ) -> Side:
        """Return the operation of the async proxy for a CTA; a launch that is given is named."""
        who = f"the async proxy for CTA {cta}{_of_launch(launch)}"
        return cls(name, who, instruction, cta, launch=launch, is_async=True, access=access)

    @property
    def what(self) -> str:
        """The operation, such as "wgmma read"."""
        return f"{self.name} {self.access}" if self.access else self.name

    @property
    def chain(self) -> tuple[SourceLine, ...]:
        """The user's line of the source, and those of the user's that called it, innermost first."""
        return () if self.instruction is None else user_lines(self.instruction.source)

    @property
    def line(self) -> str:
        """The line of the source, or of the PTX where that is not known."""
        if self.instruction is None:
            return "the end of the CTA"
        if self.chain:
            return str(self.chain[0])
        line = self.instruction.line
        return f"{self.ptx_file}:{line}" if self.ptx_file else f"line {line} of the PTX"

    @property
    def callers(self) -> tuple[str, ...]:
        """The lines that called the function which `line` is in, the nearest first."""
        return tuple(map(str, self.chain[1:]))

    @property
    def place(self) -> object:
        """Key of the copies of one operation: its lines, or where there are none its shape and its run.

        A loop that is unrolled is one run, in which an operation of the loop has many instructions of one shape.
        """
        if self.instruction is None:
            return None
        if self.instruction.source is not None:
            return self.instruction.source
        return self.instruction.index if self.run is None else (self.run, *_shape(self.instruction))

    @property
    def operation(self) -> str:
        """Operation and lanes, such as "TMA of load_operands writes, issued by warp 4 (producer)"."""
        if self.access and self.issuers:
            return f"{self.role} {_DONE[self.access]}, issued by {self.issuers}"
        return f"{self.what} by {self.who}" + (f" ({self.role})" if self.role else "")

    def __str__(self) -> str:
        called = "".join(f", called at {caller}" for caller in self.callers)
        return f"{self.operation} at {self.line}{called}"


def _of_launch(launch: Launch | None) -> str:
    return "" if launch is None else f" of {launch.name} in stream {launch.stream:#x}"


def _shape(i: Instruction) -> Iterator[object]:
    """Yield the parts that instructions of an unrolled loop share: the opcode, the kinds of operands, and variables."""
    yield i.opcode
    for operand in i.operands:
        inner = operand.base if isinstance(operand, Address) else operand
        yield type(operand)
        yield inner.name if isinstance(inner, Symbol) else type(inner)


@dataclass(frozen=True)
class InsertionPoint:
    """The place between two operations where something is missing.

    Attributes
    ----------
    after, before : SourceLine
        Of the source, or of the PTX where there is none.
    is_next_round : bool
        True if a loop leads from the first to the second, which stands above it.
    """

    after: SourceLine
    before: SourceLine
    is_next_round: bool = False


@dataclass(frozen=True)
class NearMiss:
    """An operation that resembles the missing one.

    Attributes
    ----------
    kind : str
        One of `NEAR_MISSES`.
    diagnosis : Diagnosis
        The reason why it does not count.
    side : Side or None
        Operation: its lanes and its line.
    """

    kind: str
    diagnosis: Diagnosis
    side: Side | None = None

    @property
    def why(self) -> str:
        """The reason as text."""
        return str(self.diagnosis)


@dataclass(frozen=True)
class WaitingThreads:
    """Threads that wait for ever, and those that would let them go on.

    Attributes
    ----------
    at : str
        Object of the wait, such as "mbarrier ring.full, stage 1 (0x410)".
    lacks : str
        Arrivals and bytes that have come, and those that lack.
    sides : tuple of Side
        Waiting lanes, with their lines.
    bringers : tuple of (Side, str)
        Lanes that may complete the wait, at an instruction, and the object that they wait for first.
    are_sure : tuple of bool
        True if each of them would; the others may.
    mbarrier : int or None
        The offset of the mbarrier that is waited for, if it is one.
    """

    at: str
    lacks: str
    sides: tuple[Side, ...]
    bringers: tuple[tuple[Side, str], ...] = ()
    are_sure: tuple[bool, ...] = ()
    mbarrier: int | None = None


class WitnessSummary(Protocol):
    """Summary of a witness, the schedule that shows a hazard, or the reason why there is none."""

    @property
    def said(self) -> str:
        """Schedule that shows it, and its effect there."""

    @property
    def schedule(self) -> str:
        """The name of the policy that plays it; empty if none does."""

    def to_json(self) -> dict[str, object]:
        """Return it as `json.dump` takes it."""


class HazardReplays(Protocol):
    """Player of hazards: replays a launch in a schedule that shows one."""

    def replay(self, hazard: Hazard) -> WitnessSummary:
        """Play a schedule that shows it."""

    def reproducer(self, hazard: Hazard, path: str | Path) -> Path:
        """Write a script that looks for it on a GPU."""


@dataclass(frozen=True)
class Hazard:
    """Something that a schedule can break.

    Attributes
    ----------
    kind : str
        One of `cutepy.sim.sanitize.kinds.KINDS`, such as "unordered-read".
    kernel : str
    where : str
        Name of the bytes, or of the barrier.
    before, after : Side
        The two operations, in the order of this execution; `before` is None where there is one only.
    diagnosis : Diagnosis
        Cause, and remedy.
    count : int
        Number of pairs of operations of these lines that were found.
    address : int or None
        First byte that both touch: in shared memory, from its start in the CTA.
    size_bytes : int or None
        Bytes from the first of them to the last.
    buffer : str
        Name in the source of the tensor around the bytes, such as "sA stage 2, rows 64..127"; empty if not known.
    allowed : str
        Why it was allowed; empty if it wasn't.
    allowed_at : str
        The line that allows it, if one does.
    replays : HazardReplays or None
        Replays of the launch: with ``simulate(replay=True)``.
    witness : WitnessSummary or None
        Result of a replay, if there was one: see `Run.report`.
    between : InsertionPoint or None
        Place of the missing operation; None where one line has both sides.
    waits : tuple of WaitingThreads
        Waits of a deadlock: each after the wait for its own signaller, or in a circle.
    near_misses : tuple of NearMiss
        Operations that resemble the missing one, with the reason why each does not count.
    made_at : SourceLine or None
        Of a barrier whose count or bytes are wrong, the line that makes the object which holds it.
    is_strict : bool
        True if the run was asked to fail by advisories too: then this is a hazard of any kind.
    place : Place or None
        The barrier, or the bytes, that `where` names.
    holder : str
        Name in the source of the object that `made_at` makes.
    """

    kind: str
    kernel: str
    where: str
    before: Side | None
    after: Side
    diagnosis: Diagnosis
    count: int = 1
    address: int | None = None
    size_bytes: int | None = None
    buffer: str = ""
    allowed: str = ""
    allowed_at: str = ""
    replays: HazardReplays | None = field(default=None, repr=False, compare=False)
    witness: WitnessSummary | None = field(default=None, repr=False, compare=False)
    between: InsertionPoint | None = None
    waits: tuple[WaitingThreads, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    made_at: SourceLine | None = None
    is_strict: bool = False
    place: Place | None = field(default=None, repr=False, compare=False)
    holder: str = ""

    def replay(self) -> WitnessSummary:
        """Play a schedule that shows it: see `Run.replay`."""
        return self._replays().replay(self)

    def reproducer(self, path: str | Path) -> Path:
        """Write a script that looks for it on a GPU: see `Run.reproducer`."""
        return self._replays().reproducer(self, path)

    def _replays(self) -> HazardReplays:
        if self.replays is None:
            raise RuntimeError("a hazard is replayed on memory as it was: use simulate(sanitize=True, replay=True)")
        return self.replays

    @property
    def severity(self) -> Severity:
        """Severity: "hazard" if the run fails, otherwise "advisory"."""
        return "hazard" if self.is_strict else KINDS[self.kind].severity

    @property
    def meaning(self) -> str:
        """Meaning of its kind, in a line."""
        return KINDS[self.kind].meaning

    @property
    def sides(self) -> tuple[Side, ...]:
        """The operations, in the order of this execution."""
        return (self.after,) if self.before is None else (self.before, self.after)

    @property
    def key(self) -> tuple[object, ...]:
        """Key that two reports of the same defect have in common."""
        if KINDS[self.kind].defect == "place":
            return self.kind, self.kernel, self.where
        sides = (self.before,) if KINDS[self.kind].defect == "before" else (self.before, self.after)
        return self.kind, self.kernel, *(None if s is None else s.place for s in sides)

    @property
    def advice(self) -> tuple[str, str]:
        """Problem and wanted order: a line each."""
        wrong = self.diagnosis.wrong or KINDS[self.kind].gist.replace("`", "")
        return wrong, self.diagnosis.wanted

    @property
    def missing(self) -> str:
        """Problem, if the kind does not say it, and wanted order, as one text."""
        return str(self.diagnosis)

    @property
    def subject(self) -> str:
        """Buffer or place of the hazard, and its kernel, if one has been launched."""
        what = f"{self.buffer} ({self.where})" if self.buffer else self.where
        return f"{what} of {self.kernel}" if self.kernel else what

    @property
    def title(self) -> str:
        """The first line of a report."""
        return f"{self.kind}: {self.subject}" + (f", {self.count} times" if self.count > 1 else "")

    @property
    def summary(self) -> str:
        """The kind, the place and the line of the last operation, in one line."""
        return f"{self.kind}: {self.subject}, at {self.after.line}"

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"    {side}" for side in self.sides), f"    {self.missing}"])
