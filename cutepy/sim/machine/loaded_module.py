"""Loaded modules: addresses and initial values of their variables, and the memory that a launch of a kernel adds.

References
----------
PTX ISA, "State Spaces: Global State Space, Constant State Space", "Initializers". CUDA C++ Programming Guide,
"__device__": a variable has the lifetime of the CUDA context in which it is created, which is that of its module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cutepy.sim.errors import LaunchError
from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.header import TARGETS, architecture
from cutepy.sim.ptx.linking import function_addresses
from cutepy.sim.ptx.model import Function, Module, Variable
from cutepy.sim.ptx.parser import without_comments
from cutepy.sim.ptx.reading import StatementReader
from cutepy.sim.ptx.tokens import PtxSyntaxError
from cutepy.sim.translate import load_module

_ALIGNMENT = 128


@dataclass(frozen=True)
class PlacedVariable:
    """A variable in memory.

    Attributes
    ----------
    variable : Variable
    address : int
    data : array of uint8
        Holds it, and a margin around it.
    """

    variable: Variable
    address: int
    data: Array

    @property
    def bytes(self) -> Array:
        """Current contents: a view."""
        start = self.address - self.data.ctypes.data
        return self.data[start : start + (self.variable.size_bytes or 0)]


class LoadedModule:
    """PTX as it is loaded: its variables keep their values between launches, for as long as it lives.

    Attributes
    ----------
    ptx : str
    file : str
        That it was read from; empty if it wasn't.
    module : Module
        The PTX, parsed.
    memory : dict
        State that mechanisms keep for it.

    Raises
    ------
    PtxSyntaxError
        If a statement is not understood, the module does not begin with .version and .target, or the target is a GPU
        that is not known.
    """

    def __init__(self, ptx: str, file: str = "") -> None:
        self.ptx, self.file, self.module = ptx, file, load_module(ptx, file)
        self._check_header()
        self._check_target(self.module.target)
        self.memory: dict[str, Any] = {}

    def _check_header(self) -> None:
        module = self.module
        if module.version is None or not module.target:
            needed, at = (".version 8.7", 0) if module.version is None else (".target sm_90a", module.version_end)
            raise self._placed(PtxSyntaxError(f"a module begins with .version and .target; write {needed} here"), at)

    def _check_target(self, target: str) -> None:
        if architecture(target) in TARGETS:
            return
        reason = (
            f"PTX for {target} does not run on a GPU that is simulated; compile it for sm_90a, sm_100a, sm_103a or "
            "sm_120a"
        )
        raise self._placed(PtxSyntaxError(reason, target), self.module.target_at)

    def _placed(self, error: PtxSyntaxError, at: int) -> PtxSyntaxError:
        return StatementReader(without_comments(self.ptx), self.file).placed(error, at)

    def entry(self, name: str) -> Function:
        """Return a kernel of the module by its name.

        Raises
        ------
        LaunchError
            If it has none of that name.
        """
        if name not in self.module.functions:
            raise LaunchError(f"the PTX defines no entry {name}")
        return self.module.functions[name]

    def place_of(self, kernel: str) -> tuple[str, str]:
        """Return where one of its kernels is declared, and how."""
        placed = self._placed(PtxSyntaxError(""), self.entry(kernel).at)
        line, column = placed.line, placed.column
        where = f"{self.file}:{line}:{column}" if self.file else f"line {line}, column {column} of the PTX"
        return where, placed.statement

    @cached_property
    def variables(self) -> dict[str, PlacedVariable]:
        """Global and constant variables by name, allocated at the first use.

        Raises
        ------
        LaunchError
            If an initial value is the address of something that has none.
        """
        return _made(self.module)


def _made(module: Module) -> dict[str, PlacedVariable]:
    placed = {}
    for variable in module.variables:
        if variable.space in ("global", "const") and not variable.is_extern:
            data = _zeros(variable)
            address = -(-data.ctypes.data // _ALIGNMENT) * _ALIGNMENT
            one = placed[variable.name] = PlacedVariable(variable, address, data)
            if variable.initial is not None:
                one.bytes[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
    addresses = {name: one.address for name, one in placed.items()} | function_addresses(module)
    for one in placed.values():
        for reference in one.variable.references:
            target = addresses.get(reference.name)
            if target is None:
                raise LaunchError(
                    f"{one.variable.name} is initialised with the address of {reference.name}, which has none here: "
                    "it is defined in another module, or is a texture or a surface, which are not simulated"
                )
            value = np.frombuffer(reference.encode(target), np.uint8)
            one.bytes[reference.position : reference.position + reference.size_bytes] = value
    return placed


def _zeros(variable: Variable) -> Array:
    try:
        return np.zeros((variable.size_bytes or 0) + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):  # numpy raises a ValueError for what has more bytes than addresses
        raise LaunchError(
            f"{variable.name} has {variable.size_bytes} bytes, for which this computer has no memory; declare fewer"
        ) from None
