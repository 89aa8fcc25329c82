"""What ptxas says of the kernels that are launched, if there is one: asked once for each module."""

from __future__ import annotations

from functools import lru_cache

from cutepy.binaries.ptxas import Assembly, AssemblyError, assemble


@lru_cache(maxsize=64)
def ask_ptxas(ptx: str) -> Assembly | None:
    """Assemble a module with the ptxas that is installed; None if there is none, or it refuses."""
    try:
        return assemble(ptx)
    except AssemblyError:
        return None
