"""Support for tests of layouts and kernels: strategies that draw layouts, and derived tolerances.

``cutepy.testing.strategies`` needs hypothesis (``pip install 'cutepy[testing]'``); importing this package does not.

>>> from cutepy.testing import numerics, strategies  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from types import ModuleType

from cutepy.extras import needed_by

_MODULES = ("numerics", "strategies")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        with needed_by(f"{__name__}.{name}"):
            return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*globals(), *_MODULES))


__all__ = ["numerics", "strategies"]
