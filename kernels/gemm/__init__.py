"""GEMM: D = A B^T (+ C) on Hopper's tensor cores.

`config` is plain Python; `gemm` loads torch and the DSL when it is first asked for.
"""

from typing import TYPE_CHECKING

from cutepy.kernels.gemm.config import (
    GemmConfig as GemmConfig,
    GemmSignature as GemmSignature,
    select_config as select_config,
)

if TYPE_CHECKING:
    from cutepy.kernels.gemm.op import compile_gemm as compile_gemm, gemm as gemm

__all__ = ["GemmConfig", "GemmSignature", "compile_gemm", "gemm", "select_config"]


def __getattr__(name: str) -> object:
    """Load the public operation on first use (PEP 562)."""
    if name in ("compile_gemm", "gemm"):
        from cutepy.kernels.gemm import op

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
