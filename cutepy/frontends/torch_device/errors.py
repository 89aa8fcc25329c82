"""Errors of calls that the served device does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from cutepy.dsl.version import require
from cutepy.sim.errors import LaunchError


class NotServedError(NotImplementedError):
    """A part of the CUDA interface that the simulated device does not have was used."""


def not_served(name: str, instead: str = "use what simulates (docs: The simulator)") -> Callable[..., Any]:
    """Return a function that refuses by name, and names the remedy."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotServedError(f"{name} is not served on the simulated cuda device; {instead}, or run this on a GPU")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse


def refused_launch(error: LaunchError) -> LaunchError:
    """Return an error that is also the DSL's error of a refused launch, for scripts that catch that."""
    runtime = require("cuda.bindings.runtime", "cudaError_t")
    dsl_error = require("cutlass.base_dsl.common", "DSLCudaRuntimeError").DSLCudaRuntimeError

    class RefusedLaunchError(LaunchError, dsl_error):  # type: ignore[misc, valid-type]
        line = 0  # the DSL's error sets it

        def __init__(self) -> None:
            code = runtime.cudaError_t(error.cuda_error)
            dsl_error.__init__(self, code, code.name)
            self.cuda_error, self.instruction, self.line = error.cuda_error, error.instruction, error.line

        def __str__(self) -> str:
            return str(error)

    return RefusedLaunchError()
