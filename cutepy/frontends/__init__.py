"""How kernels come into the simulator: the CuTe DSL's through `simulate`, and those of other compilers.

`load_ptx` takes the PTX of any compiler. Within `simulate` and `serve_cuda`, Triton launches its kernels as ever.
"""

from cutepy.frontends.contexts import serve_cuda as serve_cuda, simulate as simulate
from cutepy.frontends.ptx.modules import PtxModule as PtxModule, load_ptx as load_ptx

__all__ = ["PtxModule", "load_ptx", "serve_cuda", "simulate"]
