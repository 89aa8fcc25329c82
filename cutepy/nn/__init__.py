"""Modules of PyTorch on cutepy's kernels, and the swap of a model's own for them.

Attributes are loaded on first use; loading them imports torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutepy.nn.linear import Linear as Linear, replace_linears as replace_linears

__all__ = ["Linear", "replace_linears"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.linear"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
