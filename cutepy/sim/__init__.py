"""Run compiled CuTe DSL kernels on the CPU, by interpreting their PTX over numpy arrays.

`simulate` is the way in. There is no model of time, and no architecture but sm_90a.
"""

from cutepy.sim.capture import Launch as Launch
from cutepy.sim.errors import (
    BarrierError as BarrierError,
    DeadlockError as DeadlockError,
    DescriptorError as DescriptorError,
    LaunchError as LaunchError,
    MemoryAccessError as MemoryAccessError,
    SimulationError as SimulationError,
    TrapError as TrapError,
    UnknownInstructionError as UnknownInstructionError,
)
from cutepy.sim.events import (
    Access as Access,
    AsyncOperation as AsyncOperation,
    BarrierEvent as BarrierEvent,
    CompletionPolicy as CompletionPolicy,
    Observer as Observer,
    TmaEvent as TmaEvent,
    WgmmaEvent as WgmmaEvent,
)
from cutepy.sim.run import Run as Run, simulate as simulate

__all__ = [
    "Access",
    "AsyncOperation",
    "BarrierError",
    "BarrierEvent",
    "CompletionPolicy",
    "DeadlockError",
    "DescriptorError",
    "Launch",
    "LaunchError",
    "MemoryAccessError",
    "Observer",
    "Run",
    "SimulationError",
    "TmaEvent",
    "TrapError",
    "UnknownInstructionError",
    "WgmmaEvent",
    "simulate",
]
