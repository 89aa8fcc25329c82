"""What of cutepy depends on the version of NVIDIA's CuTe DSL.

Attributes are loaded on first use, so that importing this package loads neither the DSL nor torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutepy.dsl.bridge import from_cute as from_cute, to_cute as to_cute
    from cutepy.dsl.cubin import KernelResources as KernelResources, read_resources as read_resources
    from cutepy.dsl.ptx import Wgmma as Wgmma, wgmmas as wgmmas

# Public name -> the module that defines it.
_HOMES = {
    "KernelResources": "cubin",
    "Wgmma": "ptx",
    "from_cute": "bridge",
    "read_resources": "cubin",
    "to_cute": "bridge",
    "wgmmas": "ptx",
}

__all__ = ["KernelResources", "Wgmma", "from_cute", "read_resources", "to_cute", "wgmmas"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
