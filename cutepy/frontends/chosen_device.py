"""The GPU that a simulating context stands for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from cutepy.host.architecture import chosen_arch
from cutepy.runtime.devices import DEVICES, Device, simulating


def simulating_chosen(arch: str | None) -> AbstractContextManager[Device]:
    """Simulate the GPU of an architecture; of None that of the context around, of CUTE_DSL_ARCH, or an H200.

    Raises
    ------
    ValueError
        If no such GPU is simulated.
    """
    return simulating(DEVICES[chosen_arch(arch)], arch)
