"""Names of operands that operations take beside parameters of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

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


def refuse_operands_of_none(operation: str, operands: Mapping[str, Any]) -> NoReturn:
    """Refuse operands where there is no epilogue that they could be of.

    Raises
    ------
    TypeError
        That says what it takes instead of an option that others have.
    """
    if found := sorted(operands.keys() & _OF_OTHERS.keys()):
        raise TypeError(f"{operation} has no option {found[0]}: {_OF_OTHERS[found[0]]}")
    raise TypeError(f"{operation} has no parameter {min(operands)}; pass the epilogue whose operand it is, epilogue=")


_BY_GROUPS = "use cutepy.ops.grouped_gemm or scaled_grouped_gemm, whose products are those of groups"
_SCALED = "use an operation of scaled operands, cutepy.ops.scaled_gemm or scaled_grouped_gemm"
_OF_OTHERS = {
    "activation": "apply it by an epilogue, such as epilogue=cutepy.epilogues.relu",
    "bias": "add it by an epilogue that has it as a Row",
    "c": "add it by an epilogue that has it as a Tile",
    "counts": _BY_GROUPS,
    "offs": _BY_GROUPS,
    "out": "it makes its results; leave it out, and copy them",
    "out_major": "the groups decide which extent of a result is contiguous; leave it out",
    "scale_a": _SCALED,
    "scale_b": _SCALED,
    "use_fast_accum": _SCALED,
}
"""What to do instead where an operation lacks what another has."""
