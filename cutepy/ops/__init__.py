"""Kernels as operations of PyTorch: `gemm`, and `register` for your own.

Attributes are loaded on first use; loading them imports torch, and the DSL only once something must be compiled.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutepy.ops.operation import Operation as Operation
    from cutepy.ops.products import gemm as gemm
    from cutepy.ops.registration import register as register

# Public name -> the module that defines it.
_HOMES = {"Operation": "operation", "gemm": "products", "register": "registration"}

__all__ = ["Operation", "gemm", "register"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _HOMES:
        # Kept, since to ask here costs a microsecond of each call.
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
