"""Kernels of the CuTe DSL: its compiled functions run their own host code, and their launches are simulated.

The DSL also brings a compiler for this CPU, which makes machine code of what the simulator runs often.
"""

from cutepy.frontends.dsl import native_code
from cutepy.sim.native import compiler

compiler.provide(native_code)
