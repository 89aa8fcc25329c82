"""Frontends of the simulator: `dsl` for the CuTe DSL's kernels, `triton`, and `ptx` for those of any compiler.

Within `simulate`, and within `serve_cuda`, which serves torch's device too (`torch_device`), the DSL's functions and
Triton's kernels are called as ever. `load_ptx` takes any PTX.
"""

from cutepy.extras import require

require("cutepy.frontends", "numpy")

# ruff: noqa: E402 - what is missing is told before the rest is imported
from cutepy.frontends.contexts import serve_cuda as serve_cuda, simulate as simulate
from cutepy.frontends.ptx.modules import PtxModule as PtxModule, load_ptx as load_ptx

__all__ = ["PtxModule", "load_ptx", "serve_cuda", "simulate"]
