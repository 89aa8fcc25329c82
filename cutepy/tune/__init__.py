"""Autotuner: find the fastest candidate of a kernel on this GPU, and keep it on disk.

A `Tunable` says which candidates it has for a problem (often a `Space`: axes of values and rules), how each is compiled
and launched, and whether results are right. `Tuning(...).run(problems)` compiles them in parallel, times them by the
protocol of `cutepy.benchmark`, and keeps the winners on the disk, where `winner` finds them. `docs/tuning.md` shows it.
"""

from typing import TYPE_CHECKING

from cutepy.extras import loaded_on_use
from cutepy.tune.space import Rule as Rule, Settings as Settings, Space as Space
from cutepy.tune.tunable import Trial as Trial, Tunable as Tunable
from cutepy.tune.winners import Winner as Winner, winner as winner, winners as winners

if TYPE_CHECKING:
    from cutepy.tune.timing import TuningError as TuningError
    from cutepy.tune.tuning import Tuning as Tuning

__all__ = ["Rule", "Settings", "Space", "Trial", "Tunable", "Tuning", "TuningError", "Winner", "winner", "winners"]

# An operation that looks up a winner does not need the timing code.
__getattr__, __dir__ = loaded_on_use(__name__, {"Tuning": "tuning", "TuningError": "tuning"})
