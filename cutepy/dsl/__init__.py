"""Adapter to NVIDIA's CuTe DSL: all code that depends on the DSL's version.

Attributes are loaded on first use, so that importing this package loads neither the DSL nor torch.
"""

from typing import TYPE_CHECKING

from cutepy.extras import loaded_on_use

if TYPE_CHECKING:
    from cutepy.dsl.bridge import from_cute as from_cute, to_cute as to_cute

__all__ = ["from_cute", "to_cute"]

__getattr__, __dir__ = loaded_on_use(__name__, {"from_cute": "bridge", "to_cute": "bridge"})
