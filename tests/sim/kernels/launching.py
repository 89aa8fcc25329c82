"""Launch PTX, and our GEMM, in the simulator."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cutepy.runtime.host_calls import Backend, LaunchRequest
from cutepy.sim import CompletionPolicy, Observer, Run
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule

_SYSTEM = """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
"""
_REGISTERS = ".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<32>;"


NAMES = """.section .debug_str
{
$L__info_string0:
.b8 102
.b8 0
$L__info_string1:
.b8 103
.b8 0
}
"""
"""Names of functions that lines are inlined from."""


def ptx_module(body: str, parameters: int, target: str = "sm_90a") -> str:
    """Wrap statements into an entry `k` whose 64-bit parameters are in %rd0, %rd1 ..."""
    names = ", ".join(f".param .u64 p{n}" for n in range(parameters))
    loads = "\n".join(f"ld.param.u64 %rd{n}, [p{n}];" for n in range(parameters))
    return (
        f'.version 8.8\n.target {target}\n.address_size 64\n.file 1 "kernel.py"\n'
        ".extern .shared .align 1024 .b8 smem[];\n"
        f"{_SYSTEM}.visible .entry k({names})\n{{\n{_REGISTERS}\n.loc 1 1 0\n{loads}\n{body}\nret;\n}}\n{NAMES}"
    )


def kernel_call(
    text: str,
    arrays: Sequence[np.ndarray[Any, Any]] = (),
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (1, 1, 1),
    **more: Any,
) -> KernelCall:
    """Call the entry `k` of a module, loaded for this, with the addresses of arrays as parameters."""
    pointers = tuple(array.ctypes.data.to_bytes(8, "little") for array in arrays)
    return KernelCall(LoadedModule(text), "k", grid, block, parameters=pointers, **more)


def launch(
    body: str,
    arrays: Sequence[np.ndarray[Any, Any]] = (),
    *,
    block: tuple[int, int, int] = (32, 1, 1),
    grid: tuple[int, int, int] = (1, 1, 1),
    cluster: tuple[int, int, int] = (1, 1, 1),
    smem: int = 0,
    observers: Sequence[Observer] = (),
    policy: CompletionPolicy | None = None,
    known: bool = True,
    inspect: bool = False,
    processes: int | None = None,
    target: str = "sm_90a",
) -> Run:
    """Launch statements once, with the addresses of arrays as parameters."""
    run = Run(observers, policy, inspect=inspect, processes=processes)
    for array in arrays if known else ():
        run.register(array)
    text = ptx_module(body, len(arrays), target)
    run.launch(kernel_call(text, arrays, grid, block, cluster=cluster, dynamic_smem_bytes=smem))
    return run


class EditedPtx:
    """A backend that changes the PTX of each launch before another backend runs it."""

    def __init__(self, backend: Backend, edit: Callable[[str], str]) -> None:
        self._backend = backend
        self._edit = edit

    def launch(self, request: LaunchRequest) -> None:
        edited = self._edit(request.ptx)
        assert edited != request.ptx
        self._backend.launch(replace(request, ptx=edited))

    def adopt(self, tensor: object) -> None:
        self._backend.adopt(tensor)

    def current_stream(self) -> int:
        return self._backend.current_stream()

    def capture_of(self, stream: int) -> int:
        return self._backend.capture_of(stream)

    def synchronise(self, stream: int | None) -> None:
        self._backend.synchronise(stream)
