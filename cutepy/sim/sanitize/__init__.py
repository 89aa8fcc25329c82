"""The sanitizer: a launch's accesses are checked for a happens-before that holds in every schedule.

The sanitizer observes one execution. For any two accesses to a byte of which one writes, it checks whether the memory
consistency model of the PTX ISA orders them. The order holds in every schedule that synchronises alike, so the
sanitizer finds a race even if the values are right. `clocks.py` has the order, `shadow.py` the accesses to each byte,
and `sanitizer.py` receives the events of the simulator and updates both.

References
----------
PTX ISA, "Memory Consistency Model"; "Asynchronous Operations"; "Async proxy".
C. Flanagan, S. N. Freund: FastTrack: Efficient and Precise Dynamic Race Detection. PLDI 2009.
"""

from cutepy.sim.sanitize.hazards import Hazard, Side
from cutepy.sim.sanitize.reports.allowances import AllowanceError
from cutepy.sim.sanitize.reports.collection import AdvisoryWarning, HazardError, Hazards
from cutepy.sim.sanitize.sanitizer import Sanitizer

__all__ = ["AdvisoryWarning", "AllowanceError", "Hazard", "HazardError", "Hazards", "Sanitizer", "Side"]
