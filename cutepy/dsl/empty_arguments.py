"""Checks in host code that declared-nonempty extents are not 0, before it makes or launches anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutepy.dsl.refusals import add_support, constant, plain, refuse_unless, scalars
from cutepy.dsl.version import require

_SIGN = -(1 << 63)
"""Sign bit of 64 bits, which is set in an extent of 0 minus 1."""


def check_not_empty(module: Any, names: Sequence[str], nonempty: Mapping[str, Sequence[int]]) -> None:  # noqa: ANN401
    """Add checks to traced host code that refuse tensors without elements along given dimensions.

    Parameters
    ----------
    module : Module
        As it was traced; to be compiled for TVM-FFI, through which a refusal is raised.
    names : sequence of str
        Of the tensors among the function's arguments, in order.
    nonempty : mapping of str to sequence of int
        The dimensions whose extents are at least 1, by the tensor's name.
    """
    if not nonempty:
        return
    functions = [o.operation for o in module.body.operations if o.operation.name == "func.func"]
    (function,) = (f for f in functions if len(_tensors(f)) == len(names) and len(f.regions[0].blocks))
    add_support(module)
    ir = require("cutlass._mlir.ir", "InsertionPoint")
    arith, cute = require("cutlass._mlir.dialects.arith"), require("cutlass._mlir.dialects.cute")
    with module.context, function.location, ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]):
        arguments = dict(zip(names, _tensors(function), strict=True))
        any_is_0, one = constant(0), constant(1)
        for name, dimensions in nonempty.items():
            extents = scalars(cute.get_shape(cute.get_layout(plain(arguments[name]))))
            for dimension in dimensions:
                any_is_0 = arith.ori(any_is_0, arith.subi(extents[dimension], one))
        refuse_unless(module, "cutepy_is_empty", _text(nonempty), constant(2), any_is_0, (1, 0, _SIGN))


def _text(nonempty: Mapping[str, Sequence[int]]) -> str:
    """Return the text of a refusal for all extents together: one comparison of all costs least."""
    each = (f"{name} (dim {' or '.join(map(str, dimensions))})" for name, dimensions in nonempty.items())
    return f"an extent is 0, must be at least 1, of argument {' or '.join(each)}"


def _tensors(function: Any) -> list[Any]:  # noqa: ANN401
    """List the tensors among the arguments of a function."""
    return [a for a in function.regions[0].blocks[0].arguments if str(plain(a).type).startswith("!cute.memref")]
