"""What a simulated kernel can do wrong, said at the line of Python that did it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutepy.sim.ptx.places import place

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

REPORT_HINT = "please report the kernel, or this line of PTX, at the project's issue tracker"


@dataclass(frozen=True)
class Who:
    """Lanes that did something: `text` names them; the CTA, the warp and the lane are those of the first."""

    text: str
    cta: tuple[int, ...] | None = None
    warp: int | None = None
    lane: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Deed:
    """An instruction, and who executed it."""

    instruction: Instruction
    who: Who


@dataclass(frozen=True)
class Place:
    """What an operation is at: a barrier, or bytes of memory, of which `address` is given if that is shared memory."""

    name: str
    address: int | None = None
    size_bytes: int | None = None


class PolicyError(ValueError):
    """A policy names what no launch of its run has."""


class SimulationError(RuntimeError):
    """A kernel did what the hardware would not let pass, or would let pass with wrong results.

    Parameters
    ----------
    message : str
        What was required, and what was got.
    instruction : Instruction, optional
    who : Who, optional
        Who executed it.
    fix : str
        What to do.
    kind : str, optional
        What the sanitizer calls it; by default the kind of its class. "" is none of a kernel's mistakes.
    at : Place, optional
    before : Deed, optional
        What was done before that it does not agree with.

    Attributes
    ----------
    instruction : Instruction or None
        The instruction that failed.
    message, who, fix, kind, at, before
        As given.
    """

    kind = ""

    def __init__(
        self,
        message: str,
        instruction: Instruction | None = None,
        who: Who | None = None,
        *,
        fix: str = "",
        kind: str | None = None,
        at: Place | None = None,
        before: Deed | None = None,
    ) -> None:
        self.message, self.instruction, self.who = message, instruction, who
        self.fix, self.at, self.before = fix, at, before
        self.kind = self.kind if kind is None else kind
        lines = [f"{message}; {fix}" if fix else message]
        if who is not None:
            lines.append(f"  by {who}")
        if instruction is not None:
            lines += [f"  {found}" for found in (place(instruction, "\n  "),) if found]
            lines.append(f"  in `{instruction.text}`")
        super().__init__("\n".join(lines))

    @property
    def mistakes(self) -> tuple[SimulationError, ...]:
        """What the kernel did wrong, if it is that; nothing for what the simulator doesn't know, and the like."""
        return (self,) if self.kind else ()


class UnknownInstructionError(SimulationError):
    """An instruction, or a form of one, that the simulator does not know, or refuses.

    Parameters
    ----------
    instruction : Instruction
    reason : str
        What is not known about it.
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


class DeadlockError(SimulationError):
    """No thread can go on.

    Attributes
    ----------
    waiting : sequence of str
        Who waits, where and for what.
    mistakes : sequence of SimulationError
        One for each thing that is waited for, what it comes of before what follows from it.
    """

    _what = "deadlock: no thread can go on"

    def __init__(self, waiting: Sequence[str], mistakes: Sequence[SimulationError] = ()) -> None:
        self.waiting, self._mistakes = tuple(waiting), tuple(mistakes)
        super().__init__(f"{self._what}\n" + "\n".join(f"  {line}" for line in waiting))

    @property
    def mistakes(self) -> tuple[SimulationError, ...]:
        """One for each thing that is waited for."""
        return self._mistakes


class AbsentCtaError(DeadlockError):
    """No thread can go on, and some wait for global memory to change, as a CTA may do that was not chosen to run."""

    _what = "threads wait for a CTA that is absent: it was not chosen to run, and no other CTA can let them go on"
