"""The sanitizer: a launch's accesses are checked for a happens-before that holds in every schedule.

It watches one execution and asks of each two accesses to the same byte, one of which writes, whether the memory
consistency model of the PTX ISA orders them; that holds for every schedule which synchronises alike, so that a race is
found where the values are right. What orders is said in `clocks.py`, what touched which byte in `shadow.py`, and
`sanitizer.py` listens to the simulator and tells both.

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
