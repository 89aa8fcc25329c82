"""Compiled programs: host code, PTX and kernels of a `@cute.jit` function, without the DSL.

A program is host code as a relocatable object with one symbol, its entry, and the PTX of its kernels, whose ELF image
the object holds. The host code is for any x86-64, whatever machine compiled it. What a program is called with, on a GPU
or in the simulator, is TVM-FFI's packed convention (`packed`); what it calls, `host_abi` says.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cutepy.runtime.host_abi import address_of, error_setters
from cutepy.runtime.host_calls import RUNNING, Backend
from cutepy.runtime.host_code import ServedHost
from cutepy.runtime.packed import PackedArguments, call

if TYPE_CHECKING:
    from cutepy.layouts.sm90 import SmemPlan

HOPPER = "sm_90a"
"""Architecture that kernels are compiled for where nothing chooses one, and that those of cutepy are for."""


@dataclass(frozen=True)
class LaunchFacts:
    """Facts of a launch known before it is made.

    Attributes
    ----------
    kernel : str
        Name of the entry function.
    block : (int, int, int) or None
        Threads of a CTA; None if they are computed from the arguments.
    cluster : (int, int, int) or None
        CTAs of a cluster, (1, 1, 1) for a launch without; None if they are computed.
    dynamic_smem_bytes : int or None
        Dynamic shared memory of a CTA; None if it is computed.
    """

    kernel: str
    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    dynamic_smem_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """Convert the facts to JSON's types."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaunchFacts:
        """Convert the output of `to_json` back."""
        known: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items()}
        return cls(**known)


@dataclass(frozen=True)
class Program:
    """Compiled `@cute.jit` function.

    Attributes
    ----------
    object : bytes
        Relocatable ELF object for x86-64; it defines `entry` and nothing else.
    entry : str
        Symbol of the host function, in TVM-FFI's packed convention.
    parameters : tuple of str
        Names of the entry's arguments, in order: constexpr parameters and streams are not among them.
    ptx : str
        The PTX of its kernels; with line information, unless it was compiled without; empty if it has none.
    cubin : bytes
        The kernels' ELF image, which `object` also holds; empty if there are none.
    seconds : mapping of str to float
        Seconds of compilation: "trace" (Python to MLIR), "lower" (MLIR to PTX), "assemble" (PTX to cubin) and "host"
        (host code to object). What can't be told from the stage after it is part of that one.
    launches : tuple of LaunchFacts
        Facts of the launches that are constants in the host code.
    plan : SmemPlan or None
        By which its kernels share memory, where that is known.
    arch : str
        That its kernels are compiled for, such as "sm_90a".
    """

    object: bytes = field(repr=False)
    entry: str
    parameters: tuple[str, ...]
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    seconds: Mapping[str, float]
    launches: tuple[LaunchFacts, ...] = ()
    plan: SmemPlan | None = None
    arch: str = HOPPER


class ServedProgram:
    """Program loaded for a backend: CUDA calls are served here, and launches forwarded.

    Parameters
    ----------
    program : Program
        Program to load.

    Examples
    --------
    `ServedProgram(program)(backend, tensor, 3)` runs the host code with these arguments.
    """

    def __init__(self, program: Program) -> None:
        self._error: tuple[str, str] = ("", "")
        self._functions = self._errors()
        errors = {name: address_of(f) for name, f in self._functions.items()}
        self._host = ServedHost(program.object, program.entry, program.ptx, errors, program.plan)

    def __call__(self, backend: Backend, *arguments: object) -> None:
        """Run the host function; its launches go to the backend.

        Raises
        ------
        TypeError, ValueError
            If the compiled checks refuse an argument, in their words.
        """
        with RUNNING:
            self._run(backend, arguments)

    def _run(self, backend: Backend, arguments: Sequence[object]) -> None:
        packed = PackedArguments(arguments)
        self._adopt(backend, arguments)
        self._error = ("", "")
        with self._host.calls.launching_on(backend):
            code = call(self._host.address, packed)
        self._host.calls.check(0)
        kind, message = self._error
        if code:
            raise {"TypeError": TypeError, "ValueError": ValueError}.get(kind, RuntimeError)(message)

    def _adopt(self, backend: Backend, arguments: Sequence[object]) -> None:
        for argument in arguments:
            if isinstance(argument, (tuple, list)):
                self._adopt(backend, argument)
            elif hasattr(argument, "__dlpack__"):
                backend.adopt(argument)

    def _errors(self) -> dict[str, Any]:
        """Serve the functions by which an entry raises, without `tvm_ffi`."""

        def note(kind: str, text: str) -> None:
            self._error = self._error if self._error[0] else (kind, text)  # later errors are consequences of the first

        def raise_parts(kind: int, parts: int, count: int) -> None:
            texts = (ctypes.c_char_p * count).from_address(parts)
            note(ctypes.string_at(kind).decode(), "".join(text.decode() for text in texts if text))

        def raise_text(kind: int, text: int) -> None:
            note(ctypes.string_at(kind).decode(), ctypes.string_at(text).decode())

        return error_setters(raise_text, raise_parts)
