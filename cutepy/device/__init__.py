"""Building blocks of Hopper kernels: traced device code, and the host rules that check their arguments.

The modules `rules` and `rasterise` are plain Python and import nothing of the DSL; the others are traced by CuTe DSL
and are imported by name where a kernel needs them.
"""

from cutepy.device.marks import mark as mark
