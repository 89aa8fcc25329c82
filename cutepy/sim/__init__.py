"""Run compiled kernels on the CPU, by interpreting their PTX over numpy arrays.

`cutepy.frontends` brings kernels to the simulator; `simulate` there is the entry point. The simulator knows no compiler
and no runtime: a `Run` takes a `machine.launch.KernelCall`. `cutepy.predict` predicts times. PTX names its target.

The rooms, each of which imports from those above it in this list only (a contract in ``pyproject.toml``):

- ``ptx`` reads PTX; ``arithmetic`` computes as the hardware does; ``translate`` makes numpy code of basic blocks.
- ``machine`` runs the code: sets of lanes (``lanes``, ``group``), memory, the schedule, and ``activity``, which passes
  all events to observers. It knows no mechanism by name.
- ``mechanisms`` are the other parts of the hardware: barriers, copies, matrix products, atomics. Each gets the
  activity, the memory and the other mechanisms that it needs. The schedule calls them when lanes begin, part and end
  (``machine.schedule.Mechanism``).
- ``engine`` joins machine and mechanisms in the object that translated code calls.
- ``native`` compiles blocks that run often, if a frontend has a compiler. ``parallel`` spreads a grid over processes.
  ``inspect`` has traces, bank conflicts and saved runs. ``sanitize`` finds accesses that nothing orders. ``replay``
  plays launches again, under other schedules.
- ``run`` has `Run`, the record of any number of launches.

A checker is an `Observer`, in a room of its own above ``engine``, as ``sanitize`` is. An observer receives each launch,
access, operation on a barrier, wait, MMA and tensor copy, and the issue and the completion of each asynchronous
operation, with instruction and lanes. The order of the events is an execution; a `CompletionPolicy` chooses among
executions. An observer calls no mechanism, and a run without observers pays nothing for them.
"""

from cutepy.extras import require

require("cutepy.sim", "numpy")

# ruff: noqa: E402 - what is missing is told before the rest is imported
from cutepy.sim.errors import (
    AbsentCtaError as AbsentCtaError,
    BarrierError as BarrierError,
    DeadlockError as DeadlockError,
    DescriptorError as DescriptorError,
    LaunchError as LaunchError,
    LimitError as LimitError,
    MemoryAccessError as MemoryAccessError,
    PolicyError as PolicyError,
    SimulationError as SimulationError,
    TrapError as TrapError,
    UnknownInstructionError as UnknownInstructionError,
)
from cutepy.sim.inspect.banks import AccessSite as AccessSite, SectorSite as SectorSite, WaitSite as WaitSite
from cutepy.sim.inspect.breakpoints import Breakpoint as Breakpoint, BreakpointError as BreakpointError
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
    ClusterArrive as ClusterArrive,
    ClusterBarrier as ClusterBarrier,
    ClusterWait as ClusterWait,
    CompletionPolicy as CompletionPolicy,
    Fence as Fence,
    GroupCommit as GroupCommit,
    GroupWait as GroupWait,
    MbarrierArrive as MbarrierArrive,
    MbarrierAt as MbarrierAt,
    MbarrierBlocked as MbarrierBlocked,
    MbarrierCompleteTx as MbarrierCompleteTx,
    MbarrierCount as MbarrierCount,
    MbarrierEvent as MbarrierEvent,
    MbarrierExpectArrivals as MbarrierExpectArrivals,
    MbarrierExpectTx as MbarrierExpectTx,
    MbarrierInit as MbarrierInit,
    MbarrierInvalidate as MbarrierInvalidate,
    MbarrierTry as MbarrierTry,
    MbarrierWait as MbarrierWait,
    NamedBarrier as NamedBarrier,
    NamedBarrierArrive as NamedBarrierArrive,
    NamedBarrierEvent as NamedBarrierEvent,
    NamedBarrierJoin as NamedBarrierJoin,
    NamedBarrierPartialArrive as NamedBarrierPartialArrive,
    NamedBarrierSync as NamedBarrierSync,
    RegistersBlocked as RegistersBlocked,
    SetRegisters as SetRegisters,
    TensorMemoryAccess as TensorMemoryAccess,
    TensorMemoryAllocation as TensorMemoryAllocation,
    TensorMmaEvent as TensorMmaEvent,
    TmaEvent as TmaEvent,
    WarpBarrier as WarpBarrier,
    WarpSync as WarpSync,
    WgmmaEvent as WgmmaEvent,
)
from cutepy.sim.machine.host_memory import lazy_tensor as lazy_tensor
from cutepy.sim.machine.interleaving import Agent as Agent, Interleaving as Interleaving
from cutepy.sim.machine.launch import Launch as Launch
from cutepy.sim.machine.observer import Observer as Observer, Step as Step
from cutepy.sim.machine.wait_sources import WaitBegins as WaitBegins
from cutepy.sim.replay import (
    Divergence as Divergence,
    Exploration as Exploration,
    Report as Report,
    ScheduleError as ScheduleError,
    Witness as Witness,
)
from cutepy.sim.run import Run as Run
from cutepy.sim.sanitize import (
    AdvisoryWarning as AdvisoryWarning,
    AllowanceError as AllowanceError,
    Hazard as Hazard,
    HazardError as HazardError,
    Hazards as Hazards,
    Side as Side,
)

__all__ = [
    "AbsentCtaError",
    "Access",
    "AccessSite",
    "AdvisoryWarning",
    "Agent",
    "AllowanceError",
    "AsyncOperation",
    "BarrierError",
    "BarrierEvent",
    "BarrierState",
    "Breakpoint",
    "BreakpointError",
    "ClusterArrive",
    "ClusterBarrier",
    "ClusterWait",
    "CompletionPolicy",
    "DeadlockError",
    "DescriptorError",
    "Divergence",
    "Exploration",
    "Fence",
    "GroupCommit",
    "GroupWait",
    "Hazard",
    "HazardError",
    "Hazards",
    "Interleaving",
    "Launch",
    "LaunchError",
    "LimitError",
    "MbarrierArrive",
    "MbarrierAt",
    "MbarrierBlocked",
    "MbarrierCompleteTx",
    "MbarrierCount",
    "MbarrierEvent",
    "MbarrierExpectArrivals",
    "MbarrierExpectTx",
    "MbarrierInit",
    "MbarrierInvalidate",
    "MbarrierTry",
    "MbarrierWait",
    "MemoryAccessError",
    "NamedBarrier",
    "NamedBarrierArrive",
    "NamedBarrierEvent",
    "NamedBarrierJoin",
    "NamedBarrierPartialArrive",
    "NamedBarrierSync",
    "Observer",
    "PolicyError",
    "RegistersBlocked",
    "Report",
    "Run",
    "SavedCta",
    "SavedLaunch",
    "SavedRun",
    "SavedRunError",
    "ScheduleError",
    "SectorSite",
    "SetRegisters",
    "Side",
    "SimulationError",
    "Step",
    "TensorMemoryAccess",
    "TensorMemoryAllocation",
    "TensorMmaEvent",
    "TmaEvent",
    "TrapError",
    "UnknownInstructionError",
    "Wait",
    "WaitBegins",
    "WaitSite",
    "WarpBarrier",
    "WarpSync",
    "WgmmaEvent",
    "Witness",
    "lazy_tensor",
    "load_run",
]
