"""GEMM for Blackwell (sm_100a, sm_103a): an epilogue of A B^T on tcgen05, never run on hardware and never timed.

`signature` and `config` are plain Python; `gemm` loads torch and the DSL.
"""

from typing import TYPE_CHECKING

from cutepy.extras import loaded_on_use
from cutepy.kernels.sm100.config import UmmaGemmConfig as UmmaGemmConfig
from cutepy.kernels.sm100.signature import UmmaGemmSignature as UmmaGemmSignature

if TYPE_CHECKING:
    from cutepy.kernels.sm100.op import block_scales as block_scales, compile_gemm as compile_gemm, gemm as gemm

__all__ = ["UmmaGemmConfig", "UmmaGemmSignature", "block_scales", "compile_gemm", "gemm"]

__getattr__, __dir__ = loaded_on_use(__name__, dict.fromkeys(("block_scales", "compile_gemm", "gemm"), "op"))
