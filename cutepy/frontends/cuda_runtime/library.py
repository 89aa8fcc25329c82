"""Shared libraries of nvcc, whose functions are called from Python and launch their kernels in the simulator."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

from cutepy.frontends.backend import Simulator, active_run
from cutepy.frontends.cuda_runtime.calls import LoadedCudaModule, RuntimeCalls
from cutepy.frontends.cuda_runtime.stand_in import provide
from cutepy.frontends.ptx.arguments import address_of
from cutepy.runtime.device_tensors import is_tensor
from cutepy.runtime.host_calls import RUNNING, Library
from cutepy.runtime.untraced import keep_untraced, untraced
from cutepy.sim.run import Run
from cutepy.sim.translate import load_module

_NOW = 2
"""RTLD_NOW: what is missing is found as a library is loaded, and does not end the process later."""
_MISSING = re.compile(r"undefined symbol: (_?_?cu\w+)")


def load_cuda_library(path: str | Path, ptx: str) -> CudaLibrary:
    """Load host code of CUDA C++, to launch its kernels on the CPU.

    Parameters
    ----------
    path : str or Path
        A shared library of nvcc, whose calls of the CUDA runtime are left open: made with ``-shared -Xcompiler -fPIC
        -cudart none -gencode arch=compute_90a,code=compute_90a``. Its functions that are called from here are
        ``extern "C"``.
    ptx : str
        PTX of the same source, by nvcc with ``-ptx -arch=sm_90a``.

    Returns
    -------
    CudaLibrary

    Raises
    ------
    PtxSyntaxError
        If a statement of the PTX is not understood.
    RuntimeError
        If there is no C compiler.
    OSError
        If the library can't be loaded: it needs another, or calls a function that is in none.

    Notes
    -----
    Calls of CUDA that are not served end in a NotImplementedError by name, if they are called.
    """
    return CudaLibrary(path, ptx)


class CudaLibrary:
    """Loaded host code.

    Attributes
    ----------
    path : Path
    """

    def __init__(self, path: str | Path, ptx: str) -> None:
        self.path = Path(path)
        keep_untraced()
        load_module(ptx)
        runtime = _runtime()
        with RUNNING:
            runtime.loading = LoadedCudaModule(ptx, Library())
            try:
                self._library = _loaded(self.path, runtime)
            finally:
                runtime.loading = None

    @untraced("a call of cutepy.load_cuda_library")
    def call(self, name: str, *arguments: Any) -> int:  # noqa: ANN401
        """Call a function that returns an int, in the innermost `cutepy.simulate`, or alone where none is active.

        Parameters
        ----------
        name : str
        *arguments
            Torch tensors and numpy arrays in host memory are passed by address, None as a null pointer, ints as ints of
            any size, floats as doubles; others as what they are of `ctypes`, such as ``ctypes.c_float(0.5)``.

        Raises
        ------
        SimulationError
            If the kernel does something that the hardware would not do.
        NotImplementedError
            If the host code calls something that is not served.
        """
        runtime = _runtime()
        function = getattr(self._library, name)
        run = active_run() or Run((), None)
        passed = [_passed(f"{name}, argument {n}", value) for n, value in enumerate(arguments)]
        with RUNNING, runtime.launching_on(Simulator(run)):
            for value in arguments:
                if is_tensor(value):
                    run.adopt(value)
            result = int(function(*passed))
            runtime.check(0)
        return result


def _passed(where: str, value: Any) -> Any:  # noqa: ANN401
    if value is None or is_tensor(value):
        return ctypes.c_void_p(None if value is None else address_of(where, value))
    if isinstance(value, int):
        return ctypes.c_int64(value)
    return ctypes.c_double(value) if isinstance(value, float) else value


def _loaded(path: Path, runtime: RuntimeCalls) -> ctypes.CDLL:
    """Load a library, with refusing stand-ins for the other CUDA functions that it calls.

    Templates such as CUB's link more than they call.
    """
    while True:
        try:
            return ctypes.CDLL(str(path.resolve()), mode=ctypes.DEFAULT_MODE | _NOW)
        except OSError as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            runtime.stand_ins.append(provide(runtime.functions([missing[1]])))


@cache
def _runtime() -> RuntimeCalls:
    """Return the runtime of this process, whose functions libraries find by their names."""
    calls = RuntimeCalls()
    calls.stand_ins.append(provide(calls.functions()))
    return calls
