"""The contexts in which every compiler's launches are simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from cutepy.extras import require
from cutepy.frontends.assembler import ask_ptxas
from cutepy.frontends.dsl.context import simulate as simulate_the_dsl
from cutepy.frontends.inherited import inheriting
from cutepy.frontends.torch_device import serve_cuda as serve_cuda_to_the_dsl
from cutepy.frontends.triton import driver as triton
from cutepy.runtime.contexts import reentrant
from cutepy.sim.run import Run
from cutepy.sim.sanitize.assembler import assembled_by

_P = ParamSpec("_P")
_Run = TypeVar("_Run", bound=Run)


def _for_all_compilers(
    context: Callable[_P, AbstractContextManager[_Run]],
) -> Callable[_P, AbstractContextManager[_Run]]:
    """Let a context that takes the launches of the DSL take those of the other compilers, and inherit options."""
    needed = ("numpy", "cutlass", *(("torch",) if context is serve_cuda_to_the_dsl else ()))

    @reentrant
    @wraps(context)
    def entered(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_Run]:
        require(f"cutepy.frontends.{context.__name__}", *needed)

        def enter(options: Mapping[str, Any]) -> AbstractContextManager[_Run]:
            return context(*args, **options)

        with assembled_by(ask_ptxas), inheriting(kwargs, enter) as run, triton.served():
            yield run

    return entered


simulate = _for_all_compilers(simulate_the_dsl)
serve_cuda = _for_all_compilers(serve_cuda_to_the_dsl)
