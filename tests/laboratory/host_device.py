"""Device `cuda` of host memory, on which calls cost the host what they cost it on a GPU, but for torch's own kernels.

Tensors are torch's `cuda` tensors. A C++ library (`host_device.cpp`) allocates them, and torch's engine computes
gradients in a thread of the device. Torch's other operators are the CPU's, on the same memory. Compiled functions are
called as on a GPU, and launch nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from cutepy.host import compilation
from cutepy.host.function import Function
from cutepy.runtime import cuda
from cutepy.runtime.program import Program

SOURCE = Path(__file__).with_suffix(".cpp")
DRIVER = Path(__file__).parents[1] / "aot" / "stand_in" / "driver.c"
NAME, CAPABILITY, SMS, MEMORY_BYTES = "NVIDIA H200", (9, 0), 132, 150 << 30


def build(folder: Path) -> Path:
    """Build the library in a folder, unless it is there."""
    root = Path(torch.__file__).parent
    digest = hashlib.sha256(SOURCE.read_bytes() + DRIVER.read_bytes() + torch.__version__.encode()).hexdigest()
    library = folder / f"host_device_{digest[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        driver, made = folder / "driver.o", library.with_suffix(".new")
        _run("gcc", "-O2", "-fPIC", "-c", DRIVER, "-o", driver)
        where = [f"-I{root / 'include'}", f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}"]
        libraries = ["-ltorch", "-ltorch_cpu", "-lc10"]
        _run("g++", "-std=c++20", "-O2", "-fPIC", "-shared", *where, SOURCE, driver, *libraries, "-o", made)
        made.rename(library)
    return library


def _run(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True)


@contextmanager
def host_device(folder: Path, *, launches: bool = False) -> Iterator[None]:
    """Have device `cuda`, built in a folder; operators on it stay for the life of the process.

    To be entered before `cutepy.ops` is imported, which looks up what this torch has for CUDA.

    Parameters
    ----------
    folder : Path
    launches : bool
        True to compile functions, and run their host code, whose driver does nothing. Otherwise they are not compiled,
        and a call ends where compiled code would begin.
    """
    library = build(folder)
    torch.ops.load_library(str(library))
    properties = SimpleNamespace(
        major=CAPABILITY[0], minor=CAPABILITY[1], multi_processor_count=SMS, total_memory=MEMORY_BYTES
    )
    answers: dict[str, Callable[..., Any]] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: CAPABILITY,
        "get_device_name": lambda device=None: NAME,
        "get_device_properties": lambda device=None: properties,
        "is_current_stream_capturing": lambda: False,
        "current_stream": lambda device=None: SimpleNamespace(cuda_stream=0, synchronize=lambda: None),
    }
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        for owner, name, answer in (
            (torch._C, "_cuda_getDevice", int),  # 0, at the cost of a function in C
            (torch._C, "_cuda_getCurrentRawStream", lambda device: 0),
            (torch._C, "_cuda_isCurrentStreamCapturing", bool),
            (torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided),
        ):
            stack.enter_context(patch.object(owner, name, answer, create=True))
        driver = ctypes.CDLL(str(library))
        for name in ("driver", "runtime"):
            stack.enter_context(patch.object(cuda, name, lambda: driver))
        if not launches:
            stack.enter_context(patch.object(compilation._DeclaredFunction, "compile", empty_function))
        yield


def _empty_strided(shape: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device="cuda")


class EmptyFunction(Function):
    """Function whose compiled code is one of C's that takes any arguments and does nothing with them."""

    def _prepare_and_launch(self, *arguments: Any) -> None:
        self._launch = self._guarded(SimpleNamespace(function="".format, devices={0}))  # type: ignore[arg-type]
        self._launch(*arguments)

    def _with(self, *, program: Program | None = None, **settings: Any) -> Function:
        made = EmptyFunction(self.__name__, self.program, self.parameters, self.metadata)
        made._resolved = settings.get("_resolved", self._resolved)
        return made


def empty_function(declared: Any, start: float, *, verify: bool) -> Function:
    """Make a function of a declared one, in the place of `_DeclaredFunction.compile`."""
    call = compilation.Call(declared._function, *declared._arguments)
    return EmptyFunction(call.name, Program(b"", "", (), "", b"", {}), call.parameters, {"seconds": {}})
