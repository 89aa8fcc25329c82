"""The remarks of ptxas on the kernels that are launched, if there is a ptxas: it is asked once about each module."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from cutepy.binaries.ptxas import Assembly, AssemblyError, assemble

_answers: dict[bytes, Assembly | None] = {}
"""By digest of the PTX. A cubin is kept only where registers are spilled, which is asked about later."""


def ask_ptxas(ptx: str) -> Assembly | None:
    """Assemble a module with the ptxas that is installed; None if there is none, or it refuses."""
    digest = hashlib.sha256(ptx.encode()).digest()
    if digest not in _answers:
        _answers[digest] = _assembled(ptx)
    return _answers[digest]


def _assembled(ptx: str) -> Assembly | None:
    try:
        assembly = assemble(ptx)
    except AssemblyError:
        return None
    has_spills = any(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in assembly.resources)
    return assembly if has_spills else replace(assembly, image=b"")
