"""Classes as arguments: they are compiled in, though nothing marks them.

The DSL's tracer takes a class as it is, where the parameter is annotated as `type[...]` or not at all, and so the class
that a classmethod is bound to. The part of it that makes packed entries (4.8.1) asks for `cutlass.Constexpr` instead,
and fails as it does for its own faults. So that part is told that these parameters are annotated so.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from cutepy.dsl.version import require

_lock = threading.RLock()


def class_parameter(function: Callable[..., Any]) -> tuple[str, ...]:
    """Name the parameter of a classmethod that takes the class; none for other functions."""
    if not inspect.ismethod(function) or not isinstance(function.__self__, type):
        return ()
    return tuple(inspect.signature(function.__func__).parameters)[:1]


@contextmanager
def left_out(names: Collection[str]) -> Iterator[None]:
    """Leave parameters out of the packed entries of what this thread compiles meanwhile.

    Parameters
    ----------
    names : collection of str
        Of parameters whose arguments are classes. With none, nothing is done.

    Raises
    ------
    ImportError
        If the DSL's internals are not those this was written for.
    """
    if not names:
        yield
        return
    tracer = require("cutlass.cutlass_dsl", "CuTeDSL").CuTeDSL._get_dsl()
    converter = require("cutlass.cute._tvm_ffi_args_spec_converter", "_tvm_ffi_args_spec_converter")
    constexpr = require("cutlass", "Constexpr").Constexpr
    thread = threading.get_ident()

    def convert(function: str, signature: inspect.Signature, *arguments: Any) -> Any:  # noqa: ANN401
        if threading.get_ident() == thread:
            parameters = signature.parameters.items()
            signature = signature.replace(
                parameters=[p.replace(annotation=constexpr) if name in names else p for name, p in parameters]
            )
        return converter._tvm_ffi_args_spec_converter(function, signature, *arguments)

    with _lock:
        before, tracer._tvm_ffi_args_spec_converter = tracer._tvm_ffi_args_spec_converter, convert
        try:
            yield
        finally:
            tracer._tvm_ffi_args_spec_converter = before
