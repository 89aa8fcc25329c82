"""Adapter to NVIDIA's CuTe DSL: all code that depends on the DSL's version.

Attributes are loaded on first use, so that importing this package loads neither the DSL nor torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutepy.dsl.bridge import from_cute as from_cute, to_cute as to_cute

__all__ = ["from_cute", "to_cute"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.bridge"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
