"""Scopes: names of a program's parts, for the kernels launched within."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PRECISIONS = ("tf32", "16-bit", "8-bit")
"""Operand types of the tensor cores, each with a peak rate of its own."""


class Listener(Protocol):
    """Receiver of scopes while a profile is recorded."""

    def enter(self, entered: scope) -> None:
        """Begin a scope in the calling thread."""

    def leave(self, left: scope) -> None:
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


class scope:
    """Name the launches within a context, or within a function: `with scope("attention")`, `@scope("attention")`.

    Scopes nest. While nobody profiles, a scope does nothing. Kernels of a backward pass are in the scope that recorded
    their forward pass, under `backward`; those of a CUDA graph that was captured during the profile in the scope of
    their capture. Within a function that `torch.compile` compiles, a scope must be made in the function, and does
    nothing: the kernels are in the scope around the call.

    Parameters
    ----------
    name : str
    flops, bytes : float, optional
        Floating-point operations and bytes of memory that one pass needs, for TFLOP/s, TB/s and the roofline.
    precision : str
        Operands of the tensor cores, one of `PRECISIONS`, whose peak `flops` is compared with.

    Attributes
    ----------
    name, flops, bytes, precision
        As given; they may be set until the context ends.

    Raises
    ------
    ValueError
        If the precision is not one of `PRECISIONS`.

    Examples
    --------
    >>> with scope("attention", flops=4 * 128 * 128 * 64) as entered:
    ...     pass
    >>> entered.name
    'attention'
    """

    __slots__ = ("bytes", "flops", "name", "precision")

    def __init__(
        self, name: str, *, flops: float | None = None, bytes: float | None = None, precision: str = "16-bit"
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be {', '.join(PRECISIONS)}, got {precision!r}; name the operands' type")
        self.name, self.flops, self.bytes, self.precision = name, flops, bytes, precision

    def __enter__(self) -> scope:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Run a function within the scope at each call: a decorator."""

        @wraps(function)
        def scoped(*arguments: P.args, **named: P.kwargs) -> R:
            with self:
                return function(*arguments, **named)

        return scoped


def listen(recorder: Listener | None) -> None:
    """Set the recorder that receives scopes, or none.

    The methods of the class are replaced, so that a scope asks for nothing while nobody profiles, and so that a program
    that `torch.compile` has traced, which is compiled again where a value that it read has changed, has read none.
    """
    STATE.recorder = recorder
    if recorder is None:
        scope.__enter__, scope.__exit__ = _SILENT  # type: ignore[method-assign]
    else:
        scope.__enter__, scope.__exit__ = _enter, _leave  # type: ignore[method-assign]


_SILENT = scope.__enter__, scope.__exit__


def _is_traced() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def _enter(entered: scope) -> scope:
    if not _is_traced() and STATE.recorder is not None:
        STATE.recorder.enter(entered)
    return entered


def _leave(left: scope, *_: object) -> None:
    if not _is_traced() and STATE.recorder is not None:
        STATE.recorder.leave(left)
