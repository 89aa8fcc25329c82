"""The memory that a launch brings along: variables of its module, its parameters, and its grid's workspace."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.loaded_module import LoadedModule
    from cutepy.sim.machine.memory import GlobalMemory


@contextmanager
def its_memory(memory: GlobalMemory, launch: Launch, loaded: LoadedModule) -> Iterator[None]:
    """Make parameters known while their kernel runs, and variables as long as their module is loaded."""
    for placed in launch.variables:
        if memory.register(placed.data.ctypes.data, placed.data.nbytes, placed.data, placed.variable.name):
            weakref.finalize(loaded, _forget, weakref.ref(memory), placed.data.ctypes.data)
    block = launch.parameter_block
    assert block is not None
    own = [(block, "the kernel's parameters")]
    if launch.grid_workspace is not None:
        own.append((launch.grid_workspace, "the grid's workspace"))
    for data, name in own:
        memory.register(data.ctypes.data, data.nbytes, data, name)
    try:
        yield
    finally:
        for data, _ in own:
            memory.forget(data.ctypes.data)


def _forget(memory: weakref.ref[GlobalMemory], address: int) -> None:
    known = memory()
    if known is not None:
        known.forget(address)
