"""Scopes: names of a program's parts, for the kernels launched within."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PRECISIONS = ("tf32", "16-bit", "8-bit")
"""Operand types of the tensor cores, each with a peak rate of its own."""


class Listener(Protocol):
    """Receiver of scopes while a profile is recorded."""

    def enter(self, scope: Scope) -> None:
        """Begin a scope in the calling thread."""

    def leave(self, scope: Scope) -> None:
        """End a scope in the calling thread."""


class State:
    """Recorder of this process, `STATE`.

    Attributes
    ----------
    recorder : Listener or None
        Receives scopes; None while nobody profiles.
    """

    __slots__ = ("recorder",)

    def __init__(self) -> None:
        self.recorder: Listener | None = None


STATE = State()
"""Recorder of this process."""


class Scope:
    """Context, or decorator, that names what is launched within.

    Parameters
    ----------
    name : str
    flops, bytes : float, optional
        Floating-point operations and bytes of memory that one pass through the scope needs.
    precision : str
        Operands of the tensor cores, one of `PRECISIONS`, whose peak `flops` is compared with.

    Attributes
    ----------
    name, flops, bytes, precision
        As given.

    Raises
    ------
    ValueError
        If the precision is not one of `PRECISIONS`.
    """

    __slots__ = ("bytes", "flops", "name", "precision")

    def __init__(
        self, name: str, flops: float | None = None, bytes: float | None = None, precision: str = "16-bit"
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be {', '.join(PRECISIONS)}, got {precision!r}; name the operands' type")
        self.name, self.flops, self.bytes, self.precision = name, flops, bytes, precision

    def __enter__(self) -> Scope:
        # Asked for before STATE, which a traced program would be compiled for again at each profile.
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            return self
        if STATE.recorder is not None:
            STATE.recorder.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            return
        if STATE.recorder is not None:
            STATE.recorder.leave(self)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Run a function within the scope at each call: a decorator."""

        @wraps(function)
        def scoped(*arguments: P.args, **named: P.kwargs) -> R:
            with self:
                return function(*arguments, **named)

        return scoped


def scope(
    name: str,
    *,
    flops: float | None = None,
    bytes: float | None = None,
    precision: str = "16-bit",
) -> Scope:
    """Name what is launched within a context, or within a function: `with scope("attention")`, `@scope("attention")`.

    Scopes nest. While nobody profiles, a scope does nothing. Kernels of a backward pass are in the scope that recorded
    their forward pass, under `backward`; those of a CUDA graph that was captured during the profile in the scope of
    their capture. Within a function that `torch.compile` compiles, a scope does nothing: the kernels are in the scope
    around the call.

    Parameters
    ----------
    name : str
    flops, bytes : float, optional
        Floating-point operations and bytes of memory that one pass needs, for TFLOP/s, TB/s and the roofline.
    precision : str
        Operands of the tensor cores: "tf32", "16-bit" or "8-bit".

    Returns
    -------
    Scope

    Raises
    ------
    ValueError
        If the precision is none of the three.

    Examples
    --------
    >>> with scope("attention", flops=4 * 128 * 128 * 64) as entered:
    ...     pass
    >>> entered.name
    'attention'
    """
    return Scope(name, flops, bytes, precision)
