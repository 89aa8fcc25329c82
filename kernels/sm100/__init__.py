"""GEMM for Blackwell (sm_100a, sm_103a): an epilogue of A B^T on tcgen05, never run on hardware and never timed.

`signature` and `config` are plain Python; `gemm` loads torch and the DSL.
"""

from typing import TYPE_CHECKING

from cutepy.kernels.sm100.config import UmmaGemmConfig as UmmaGemmConfig
from cutepy.kernels.sm100.signature import UmmaGemmSignature as UmmaGemmSignature

if TYPE_CHECKING:
    from cutepy.kernels.sm100.op import block_scales as block_scales, compile_gemm as compile_gemm, gemm as gemm

__all__ = ["UmmaGemmConfig", "UmmaGemmSignature", "block_scales", "compile_gemm", "gemm"]


def __getattr__(name: str) -> object:
    """Load the parts that need torch on first use (PEP 562)."""
    if name in ("block_scales", "compile_gemm", "gemm"):
        from cutepy.kernels.sm100 import op

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
