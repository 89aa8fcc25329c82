"""Instructions over the lanes of a warp, all families of them."""

from cutepy.sim.native import comparison, conversion, floating, integer, movement  # noqa: F401  each adds its own
from cutepy.sim.native.table import write_instruction as write_instruction
