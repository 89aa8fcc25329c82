"""Launches played again, on copies of memory as it was before them, under other schedules.

- ``snapshots`` keeps a process before a launch, ``snapshot_process`` is that process, ``launch_player`` runs the
launch.
- ``outcomes`` compares the writes of two schedules, by tensors.
- ``schedule_exploration`` plays many seeded schedules, or all schedules, which ``search`` finds.
- ``sites`` names the lanes or the operation that ``witnesses`` hold back.
- ``report`` has all results, with hazards and certificates.
- ``replays`` is the record of a run, ``replayable`` the interface of a run that has one.
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
