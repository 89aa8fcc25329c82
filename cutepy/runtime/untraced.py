"""Launches under `torch.compile`: a graph break at them, at no cost to a call.

Dynamo reads an attribute of a function that it meets, as `torch.compiler.disable` sets it. Its wrapper would slow each
call, so that the attribute here is an object: where Dynamo asks for its truth, the function's code is marked to be run
with all that it calls untraced, and a warning says once how to have the launch in the graph.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_ADVICE = (
    "{what} is no operation of torch, so that torch.compile breaks the graph around it; register it by "
    "`cutepy.ops.register` to have it in the graph (docs/pytorch.md)"
)
_known: set[CodeType] = set()
_told: set[str] = set()


class _DynamoQuestion:
    """True value whose evaluation Dynamo does while it traces a call."""

    def __init__(self, codes: Iterable[CodeType], advice: str) -> None:
        self._codes, self._advice = tuple(codes), advice

    def __bool__(self) -> bool:
        for code in self._codes:
            _mark(code)
        if self._advice not in _told:
            _told.add(self._advice)
            warnings.warn(self._advice, stacklevel=2)
        return True


def untraced(what: str, *around: CodeType) -> Callable[[_F], _F]:
    """Return a decorator for functions that launch: Dynamo breaks the graph at their calls, and traces none of them.

    Parameters
    ----------
    what : str
        Name of the callee, for the warning that says once how to register it, and the error under ``fullgraph=True``.
    *around : code
        Of functions that call this one before all else: they run untraced too.

    Examples
    --------
    >>> @untraced("a launch of my module")
    ... def launch(): ...
    >>> launch._torchdynamo_disable_msg.partition(",")[0]
    'a launch of my module is no operation of torch'
    """

    def mark(function: _F) -> _F:
        codes, advice = (function.__code__, *around), _ADVICE.format(what=what)
        _known.update(codes)
        function._torchdynamo_disable = _DynamoQuestion(codes, advice)  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = advice  # type: ignore[attr-defined]
        return function

    return mark


def keep_untraced() -> None:
    """Keep launches untraced where Dynamo never asks, as in functions that it skips; needs torch to be loaded."""
    while _known and sys.modules.get("torch") is not None:
        _mark(_known.pop())


def _mark(code: CodeType) -> None:
    """Mark a function's code, and its callees, to run untraced under Dynamo."""
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

    set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
