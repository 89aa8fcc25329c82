"""Names of operands that operations take beside parameters of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from cutepy.epilogues.errors import EpilogueError
from cutepy.epilogues.tracing import Epilogue

_P = ParamSpec("_P")
_R = TypeVar("_R")
_PASSED_ON = {"bias", "c", "operands"}
"""Parameters that are an epilogue's operands if it has such."""


def refusing_its_own_names(operation: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make an operation raise EpilogueError of epilogues whose operands have the names of its own parameters.

    What is passed for such an operand Python takes for the parameter.
    """
    names = [name for name in inspect.signature(operation).parameters if name not in _PASSED_ON]
    own = getattr(operation, "__name__", "this operation")

    @functools.wraps(operation)
    def checked(*arguments: _P.args, **named: _P.kwargs) -> _R:
        epilogue = named.get("epilogue")
        if isinstance(epilogue, Epilogue):
            for operand in epilogue.operands:
                if operand.name in names:
                    raise EpilogueError(
                        f"{epilogue.name} has an operand {operand.name}, which can't be passed, since "
                        f"{own} takes {', '.join(names)} itself; give it another name"
                    )
        return operation(*arguments, **named)

    return checked


def refuse_operands_of_none(operation: str, epilogue: Epilogue | None, operands: Mapping[str, Any]) -> None:
    """Refuse operands where there is no epilogue that they could be of.

    Raises
    ------
    TypeError
        If there are any.
    """
    if epilogue is None and operands:
        raise TypeError(
            f"{operation} has no parameter {min(operands)}; pass the epilogue whose operand it is, epilogue="
        )
