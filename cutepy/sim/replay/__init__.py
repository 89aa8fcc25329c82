"""Launches played again, on copies of memory as it was before them, under other schedules.

- ``snapshots`` keeps the process as it was before a launch, in a ``keeper``; ``playing`` runs the launch there.
- ``outcomes`` compares what two schedules wrote, in the terms of the tensors.
- ``exploring`` plays many seeded schedules, or all there are, which ``search`` finds.
- ``sites`` says what is held back of a hazard, for ``witnesses``.
- ``report`` is what is told of all that, and of hazards and certificates.
- ``replays`` is what a run keeps of all that, ``replayable`` what it can be asked for.
"""

from cutepy.sim.replay.replayable import Replayable as Replayable
from cutepy.sim.replay.replays import (
    Replays as Replays,
    Schedules as Schedules,
)
from cutepy.sim.replay.report import Report as Report
from cutepy.sim.replay.schedule_exploration import (
    LIMIT as LIMIT,
    Divergence as Divergence,
    Exploration as Exploration,
    ScheduleError as ScheduleError,
)
from cutepy.sim.replay.witnesses import Witness as Witness

__all__ = [
    "LIMIT",
    "Divergence",
    "Exploration",
    "Replayable",
    "Replays",
    "Report",
    "ScheduleError",
    "Schedules",
    "Witness",
]
