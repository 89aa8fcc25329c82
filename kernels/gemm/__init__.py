"""GEMM: an epilogue of A B^T on Hopper's tensor cores; `cutepy.ops.gemm` computes it.

`signature` and `config` are plain Python; `compile_gemm` loads torch when it is first asked for, and the DSL only where
it must compile.
"""

from typing import TYPE_CHECKING

from cutepy.extras import loaded_on_use
from cutepy.kernels.gemm.config import GemmConfig as GemmConfig
from cutepy.kernels.gemm.heuristic.choice import select_config as select_config
from cutepy.kernels.gemm.heuristic.explanation import explain_choice as explain_choice
from cutepy.kernels.gemm.signature import GemmSignature as GemmSignature

if TYPE_CHECKING:
    from cutepy.kernels.gemm.compilation import compile_gemm as compile_gemm

__all__ = ["GemmConfig", "GemmSignature", "compile_gemm", "explain_choice", "select_config"]

__getattr__, __dir__ = loaded_on_use(__name__, {"compile_gemm": "compilation"})
