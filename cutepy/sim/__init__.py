"""Run compiled CuTe DSL kernels on the CPU, by interpreting their PTX over numpy arrays.

`simulate` is the way in for the DSL's kernels, `cutepy.simulate` for those of any compiler. There is no model of time,
and no architecture but sm_90a.
"""

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
from cutepy.sim.inspect.banks import AccessSite as AccessSite, WaitSite as WaitSite
from cutepy.sim.inspect.breakpoints import Breakpoint as Breakpoint, BreakpointError as BreakpointError, Step as Step
from cutepy.sim.inspect.checked import SavedRunError as SavedRunError
from cutepy.sim.inspect.history import (
    SavedCta as SavedCta,
    SavedLaunch as SavedLaunch,
    SavedRun as SavedRun,
    Wait as Wait,
)
from cutepy.sim.inspect.saved import load_run as load_run
from cutepy.sim.machine.events import (
    Access as Access,
    AsyncOperation as AsyncOperation,
    BarrierEvent as BarrierEvent,
    BarrierState as BarrierState,
    CompletionPolicy as CompletionPolicy,
    Observer as Observer,
    TmaEvent as TmaEvent,
    WgmmaEvent as WgmmaEvent,
)
from cutepy.sim.machine.launch import Launch as Launch
from cutepy.sim.run import Run as Run, simulate as simulate

__all__ = [
    "Access",
    "AccessSite",
    "AsyncOperation",
    "BarrierError",
    "BarrierEvent",
    "BarrierState",
    "Breakpoint",
    "BreakpointError",
    "CompletionPolicy",
    "DeadlockError",
    "DescriptorError",
    "Launch",
    "LaunchError",
    "MemoryAccessError",
    "Observer",
    "Run",
    "SavedCta",
    "SavedLaunch",
    "SavedRun",
    "SavedRunError",
    "SimulationError",
    "Step",
    "TmaEvent",
    "TrapError",
    "UnknownInstructionError",
    "Wait",
    "WaitSite",
    "WgmmaEvent",
    "load_run",
    "simulate",
]
