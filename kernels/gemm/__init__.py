"""GEMM: an epilogue of A B^T on Hopper's tensor cores; `cutepy.ops.gemm` computes it.

`signature` and `config` are plain Python; `compile_gemm` loads torch when it is first asked for, and the DSL only where
it must compile.
"""

from typing import TYPE_CHECKING

from cutepy.kernels.gemm.config import GemmConfig as GemmConfig
from cutepy.kernels.gemm.heuristic.choice import select_config as select_config
from cutepy.kernels.gemm.heuristic.explanation import explain_choice as explain_choice
from cutepy.kernels.gemm.signature import GemmSignature as GemmSignature

if TYPE_CHECKING:
    from cutepy.kernels.gemm.compilation import compile_gemm as compile_gemm

__all__ = ["GemmConfig", "GemmSignature", "compile_gemm", "explain_choice", "select_config"]


def __getattr__(name: str) -> object:
    """Load the compiler's call on first use (PEP 562)."""
    if name == "compile_gemm":
        from cutepy.kernels.gemm.compilation import compile_gemm

        return compile_gemm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
