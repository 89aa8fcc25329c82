"""Errors of simulated kernels, told at the line of Python that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cutepy.sim.advice import Diagnosis
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.ptx.source_lines import place

REPORT_HINT = "please report the kernel, or this line of PTX, at the project's issue tracker"


@dataclass(frozen=True)
class NamedLanes:
    """Lanes of an execution: `text` names all of them; CTA, warp and lane are those of the first."""

    text: str
    cta: tuple[int, ...] | None = None
    warp: int | None = None
    lane: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Execution:
    """An instruction, and the threads that executed it."""

    instruction: Instruction
    who: NamedLanes


@dataclass(frozen=True)
class Place:
    """Object of an operation: a barrier, or bytes of memory.

    Attributes
    ----------
    name : str
    address, size_bytes : int or None
        The bytes, if they are in shared memory of the CTA.
    mbarrier : int or None
        The offset of the mbarrier in shared memory, if it is one.
    global_address : int or None
        The address of the bytes, if they are in global memory.
    cta : (int, int, int) or None
        The CTA, if it is all shared memory of one.
    """

    name: str
    address: int | None = None
    size_bytes: int | None = None
    mbarrier: int | None = field(default=None, compare=False)
    global_address: int | None = field(default=None, compare=False)
    cta: tuple[int, ...] | None = field(default=None, compare=False)

    @classmethod
    def of_mbarrier(cls, offset: int, name: str = "") -> Place:
        """Return the place of an mbarrier, by its offset in shared memory."""
        return cls(name or f"mbarrier {offset:#x}", mbarrier=offset)

    @classmethod
    def of_global(cls, address: int) -> Place:
        """Return the place of bytes of global memory."""
        return cls(f"global memory at {address:#x}", global_address=address)

    @classmethod
    def of_shared(cls, address: int) -> Place:
        """Return the place of bytes of a CTA's shared memory."""
        return cls(f"shared memory at {address:#x}", address)

    @classmethod
    def of_cta(cls, cta: tuple[int, ...]) -> Place:
        """Return the place of all shared memory of a CTA."""
        return cls(f"shared memory of CTA {cta}", cta=cta)


SHARED_MEMORY, REGISTERS = Place("shared memory"), Place("registers")


@dataclass(frozen=True)
class WaitNearMiss:
    """Near miss of a wait: an operation that resembles the missing one, and the reason why it does not end the wait.

    Attributes
    ----------
    kind : str
        One of `cutepy.sim.sanitize.hazards.NEAR_MISSES`.
    why : str
    execution : Execution or None
        Execution that does not help.
    """

    kind: str
    why: str
    execution: Execution | None = None


@dataclass(frozen=True)
class Signaller:
    """Threads that may end a wait of others, at an instruction, and the wait of their own before it.

    Attributes
    ----------
    execution : Execution
    waits_at : str
        Object of their own wait.
    is_sure : bool
        True if they do bring it, once their own waits have ended.
    """

    execution: Execution
    waits_at: str
    is_sure: bool = False


@dataclass(frozen=True)
class Wait:
    """A wait that does not end.

    Attributes
    ----------
    at : Place
        Object of the wait.
    lacks : str
        Arrivals and bytes that have come, and those that lack.
    executions : tuple of Execution
        The instructions that wait, and the lanes.
    bringers : tuple of Signaller
        Lanes that may complete the wait.
    """

    at: Place
    lacks: str
    executions: tuple[Execution, ...]
    bringers: tuple[Signaller, ...] = ()


class PolicyError(ValueError):
    """Error of a policy that names an instruction or thread that no launch of its run has."""


class SimulationError(RuntimeError):
    """Error of a kernel that the hardware would stop, or that would give wrong results there.

    Parameters
    ----------
    message : str
        Requirement, and value.
    instruction : Instruction, optional
    who : NamedLanes, optional
        Lanes that executed it.
    fix : Diagnosis, optional
        Advice, a row of the table in `advice.py`.
    kind : str, optional
        Kind of hazard; by default that of the class. "" is none of a kernel's mistakes.
    at : Place, optional
    before : Execution, optional
        Earlier execution that contradicts this one.
    waits : sequence of Wait
        Of a deadlock, the waits in order, the cause first.
    chances : sequence of WaitNearMiss
        Near misses.

    Attributes
    ----------
    instruction : Instruction or None
        The instruction that failed.
    fix : str
        Advice as text; empty if nothing was given.
    advice : Diagnosis or None
        The same as a row of the table.
    message, who, kind, at, before, waits, chances
        As given.
    """

    kind = ""

    def __init__(
        self,
        message: str,
        instruction: Instruction | None = None,
        who: NamedLanes | None = None,
        *,
        fix: Diagnosis | None = None,
        kind: str | None = None,
        at: Place | None = None,
        before: Execution | None = None,
        waits: Sequence[Wait] = (),
        chances: Sequence[WaitNearMiss] = (),
    ) -> None:
        self.message, self.instruction, self.who = message, instruction, who
        self.advice, self.at, self.before = fix, at, before
        self.fix = "" if fix is None else fix.wanted
        self.waits, self.chances = tuple(waits), tuple(chances)
        self.kind = self.kind if kind is None else kind
        lines = [f"{message}; {self.fix}" if self.fix else message]
        if who is not None:
            lines.append(f"  by {who}")
        if instruction is not None:
            lines += [f"  {found}" for found in (place(instruction, "\n  "),) if found]
            lines.append(f"  in `{instruction.text.rstrip()}`")
        super().__init__("\n".join(lines))

    def locate(self, instruction: Instruction) -> None:
        """Name the instruction that failed, where it was not known before."""
        waits, chances = self.waits, self.chances
        SimulationError.__init__(
            self, self.message, instruction, self.who,
            fix=self.advice, kind=self.kind, at=self.at, before=self.before, waits=waits, chances=chances,
        )  # fmt: skip

    @property
    def file(self) -> str:
        """The file that the PTX was read from; empty if it wasn't, or no instruction is known."""
        return self.instruction.file if self.instruction is not None else ""

    @property
    def line(self) -> int:
        """The line of the PTX, from 1; 0 where no instruction is known."""
        return self.instruction.line if self.instruction is not None else 0

    @property
    def column(self) -> int:
        """The column of the PTX, from 1; 0 where no instruction is known."""
        return self.instruction.column if self.instruction is not None else 0

    @property
    def statement(self) -> str:
        """The instruction as it is written; empty where none is known."""
        return self.instruction.text if self.instruction is not None else ""

    @property
    def mistakes(self) -> tuple[SimulationError, ...]:
        """Return the mistake of the kernel; empty for instructions that the simulator doesn't know, and the like."""
        return (self,) if self.kind else ()


class UnknownInstructionError(SimulationError):
    """An instruction, or a form of one, that the simulator does not know, or refuses.

    Parameters
    ----------
    instruction : Instruction
    reason : str
        Reason why the simulator cannot execute it.
    refusal : str
        Why it is refused, if it is known: nothing that is to be reported.
    """

    def __init__(self, instruction: Instruction, reason: str = "", *, refusal: str = "") -> None:
        self.reason = reason
        unknown = f"the simulator does not know {instruction.opcode}{': ' + reason if reason else ''}; {REPORT_HINT}"
        super().__init__(refusal or unknown, instruction)


class OperandError(UnknownInstructionError):
    """An instruction with an operand of another kind or type than it takes."""


class MemoryAccessError(SimulationError):
    """An address outside of known memory, or misaligned."""

    kind = "invalid-access"


class ReadOnlyMemoryError(MemoryAccessError):
    """A store to an array that is read-only."""


class BarrierError(SimulationError):
    """A barrier used against its protocol."""

    kind = "misused-barrier"


class DescriptorError(SimulationError):
    """A TMA or matrix descriptor that the hardware would refuse or misread."""

    kind = "invalid-descriptor"


class TrapError(SimulationError):
    """The kernel executed a trap: a failed device assertion."""


class LaunchError(SimulationError):
    """A launch beyond the limits of the hardware.

    Attributes
    ----------
    cuda_error : int
        The cudaError_t that CUDA would return.
    """

    INVALID_CONFIGURATION, COOPERATIVE_TOO_LARGE = 9, 720

    def __init__(self, message: str, cuda_error: int = INVALID_CONFIGURATION) -> None:
        self.cuda_error = cuda_error
        super().__init__(message)


class LimitError(SimulationError):
    """A launch took more than the limit of its run.

    Parameters
    ----------
    taken, limit : str
        Amount that the launch used, and the option that limits it.
    lanes : sequence of str
        Places of its lanes.
    beside : str
        Seconds in which it did not run, if there were many.
    """

    def __init__(self, taken: str, limit: str, lanes: Sequence[str], beside: str = "") -> None:
        self.lanes = tuple(lanes)
        where = "".join(f"\n  {line}" for line in lanes)
        super().__init__(
            f"the launch has run for {taken} and has not ended, and {limit} stops it: it loops without end, or needs a "
            f"larger limit; {beside}{'; ' * bool(beside)}its lanes were{where}"
        )


class DeadlockError(SimulationError):
    """No thread can go on.

    Attributes
    ----------
    waiting : sequence of str
        Waiting lanes: their lines, and the objects of their waits.
    mistakes : sequence of SimulationError
        The wait that all others come of, which has these as its `waits`.
    """

    _what = "deadlock: no thread can go on"

    def __init__(self, waiting: Sequence[str], mistakes: Sequence[SimulationError] = ()) -> None:
        self.waiting, self._mistakes = tuple(waiting), tuple(mistakes)
        super().__init__(f"{self._what}\n" + "\n".join(f"  {line}" for line in waiting))

    @property
    def mistakes(self) -> tuple[SimulationError, ...]:
        """The wait that all others come of."""
        return self._mistakes


class AbsentCtaError(DeadlockError):
    """No thread can go on, and some wait for global memory to change, as a CTA may do that was not chosen to run."""

    _what = "threads wait for a CTA that is absent: it was not chosen to run, and no other CTA can let them go on"
