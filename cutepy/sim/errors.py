"""What a simulated kernel can do wrong, said at the line of Python that did it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutepy.sim.ptx.places import described

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

REPORT_HINT = "please report the kernel, or this line of PTX, at the project's issue tracker"


class SimulationError(RuntimeError):
    """A kernel did what the hardware would not let pass, or would let pass with wrong results.

    Attributes
    ----------
    instruction : Instruction or None
        The instruction that failed.
    """

    def __init__(self, message: str, instruction: Instruction | None = None, where: str = "") -> None:
        self.instruction = instruction
        lines = [message]
        if where:
            lines.append(f"  by {where}")
        if instruction is not None:
            if instruction.source is not None:
                lines.append("  " + described(instruction.source, "\n  "))
            lines.append(f"  in `{instruction.text}`")
        super().__init__("\n".join(lines))


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
        unknown = f"the simulator does not know {instruction.opcode}{': ' + reason if reason else ''}; {REPORT_HINT}"
        super().__init__(refusal or unknown, instruction)


class MemoryAccessError(SimulationError):
    """An address outside of known memory, or misaligned."""


class BarrierError(SimulationError):
    """A barrier used against its protocol."""


class DescriptorError(SimulationError):
    """A TMA or matrix descriptor that the hardware would refuse or misread."""


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
    """

    _what = "deadlock: no thread can go on"

    def __init__(self, waiting: Sequence[str]) -> None:
        self.waiting = tuple(waiting)
        super().__init__(f"{self._what}\n" + "\n".join(f"  {line}" for line in waiting))


class AbsentCtaError(DeadlockError):
    """No thread can go on, and some wait for global memory to change, as a CTA may do that was not chosen to run."""

    _what = "threads wait for a CTA that is absent: it was not chosen to run, and no other CTA can let them go on"
