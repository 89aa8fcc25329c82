"""Kernels as operations of PyTorch: `gemm`, grouped and scaled ones, and `register` for your own.

Attributes are loaded on first use; loading them imports torch, and the DSL only once something must be compiled.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutepy.ops.grouped import grouped_gemm as grouped_gemm
    from cutepy.ops.operation import Operation as Operation
    from cutepy.ops.products import gemm as gemm
    from cutepy.ops.quantising import dequantise as dequantise, quantise as quantise
    from cutepy.ops.registration import register as register
    from cutepy.ops.scaled import scaled_gemm as scaled_gemm
    from cutepy.ops.scaled_grouped import scaled_grouped_gemm as scaled_grouped_gemm
    from cutepy.runtime.invariance import batch_invariant as batch_invariant

# Public name -> the module that defines it.
_HOMES = {
    "Operation": "cutepy.ops.operation",
    "batch_invariant": "cutepy.runtime.invariance",
    "dequantise": "cutepy.ops.quantising",
    "gemm": "cutepy.ops.products",
    "grouped_gemm": "cutepy.ops.grouped",
    "quantise": "cutepy.ops.quantising",
    "register": "cutepy.ops.registration",
    "scaled_gemm": "cutepy.ops.scaled",
    "scaled_grouped_gemm": "cutepy.ops.scaled_grouped",
}

__all__ = [
    "Operation",
    "batch_invariant",
    "dequantise",
    "gemm",
    "grouped_gemm",
    "quantise",
    "register",
    "scaled_gemm",
    "scaled_grouped_gemm",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _HOMES:
        # Kept, since to ask here costs a microsecond of each call.
        found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
