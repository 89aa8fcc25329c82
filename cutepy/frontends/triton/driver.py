"""Triton's kernels in the simulator: a driver and a backend that take the place of the GPU's while a run is active.

The backend compiles for the run's GPU; the driver launches the PTX. Triton is touched only if the program imports
it, before the run or within it.

References
----------
Triton 3.5 and 3.9: `triton/backends/driver.py`, `triton/backends/nvidia`, `triton/compiler/compiler.py`.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from cutepy.binaries.cubin import KernelResources, read_resources
from cutepy.frontends import stream_state
from cutepy.frontends.kernel_handles import LoadedKernel, handle_of_kernel
from cutepy.frontends.ptx.modules import PtxModule, load_ptx
from cutepy.frontends.torch_device import streams
from cutepy.frontends.triton.arguments import KernelArguments
from cutepy.frontends.triton.cublas import CublasLt
from cutepy.layouts.sm90.arch import (
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_CTA,
    REGISTERS_PER_SM,
    SM_COUNT,
    SMEM_BYTES_PER_CTA,
    WARP_THREADS,
)
from cutepy.runtime import devices

_DEVICE = -1
"""No device of CUDA has this number: Triton keeps the kernels compiled for each apart."""
_PTX_FOLLOWS = b"\0cutepy: the PTX of this image\0"
"""Parts a binary from its PTX; an ELF image may have bytes behind its end."""
_INTERFACE = SimpleNamespace(
    Event=streams.Event,
    Stream=streams.Stream,
    current_device=lambda: 0,
    current_stream=streams.current_stream,
    device_count=lambda: 1,
    stream=streams.using,
    synchronize=lambda device=None: None,
)
"""Calls of `torch.cuda` that `triton.testing` makes, for tensors in host memory."""


@contextmanager
def served() -> Iterator[None]:
    """Let Triton's kernels run in the active simulation, while the context is active."""
    with ExitStack() as stack:
        if "triton" in sys.modules:
            _install(stack)
        else:
            finder = _ImportHook("triton", lambda: _install(stack))
            sys.meta_path.insert(0, finder)
            stack.callback(finder.remove)
        yield


class _ImportHook(MetaPathFinder):
    """Calls a function once a module has been imported."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module as without this, and let its loader call the function."""
        if fullname != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_act(module: ModuleType) -> None:
                load(module)
                self._action()

            spec.loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec

    def remove(self) -> None:
        """Look at no more imports."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _install(stack: ExitStack) -> None:
    """Put driver and backend in their places, until the stack is closed."""
    backends = importlib.import_module("triton.backends")
    config = importlib.import_module("triton.runtime.driver").driver
    original = backends.backends.get("nvidia")
    if original is None:
        return  # a Triton without NVIDIA's backend has nothing that could be simulated
    stack.callback(setattr, config, "_active", config._active)
    config.set_active(_driver())
    library: Any = getattr(getattr(importlib.import_module("triton._C.libtriton"), "nvidia", None), "cublas", None)
    if library is not None:
        stack.callback(setattr, library, "CublasLt", library.CublasLt)
        library.CublasLt = CublasLt
    profiler: Any = getattr(importlib.import_module("triton.knobs"), "proton", None)
    if hasattr(profiler, "disable"):
        stack.enter_context(profiler.scope())
        profiler.disable = True  # there are no counters of a GPU to ask
    stack.callback(backends.backends.__setitem__, "nvidia", original)
    backends.backends["nvidia"] = backends.Backend(_compiler_class(original.compiler), original.driver)


def _compiler_class(original: type[Any]) -> type[Any]:
    """Return a backend that makes the PTX and the binary of kernels as `original` does, and puts both into one file.

    Triton reads the binary alone from its cache and hands it to the driver, which simulates the PTX.
    """
    if original.__name__ == "_BackendWithPtx":
        return original  # of a run around this one

    class _BackendWithPtx(original):  # type: ignore[misc]
        def add_stages(self, stages: dict[str, Any], options: Any, *more: Any) -> None:  # noqa: ANN401
            super().add_stages(stages, options, *more)
            assemble = stages["cubin"]

            def cubin(ptx: str, metadata: dict[str, Any]) -> bytes:
                try:
                    image = bytes(assemble(ptx, metadata))
                except RuntimeError as error:
                    if "ptxas" not in str(error) or "find" not in str(error):
                        raise
                    image = b""  # a Triton that was built without an assembler
                return image + _PTX_FOLLOWS + ptx.encode()

            stages["cubin"] = cubin

        def hash(self) -> str:
            return f"{super().hash()}-cubin-ptx"  # of what Triton keeps on disk

    return _BackendWithPtx


@cache
def _driver() -> Any:  # noqa: ANN401
    """Return the driver: one for all runs, as Triton keeps its compiled and loaded kernels."""
    base = importlib.import_module("triton.backends.driver").DriverBase
    compiler = importlib.import_module("triton.backends.compiler")
    nvidia = importlib.import_module("triton.backends.nvidia.driver")

    class SimulatedDriver(base):  # type: ignore[misc, valid-type]
        """Triton's driver of a GPU, answered as an H200 would."""

        def __init__(self) -> None:
            self.compiles_only = False
            self.fitted_call: object = None
            self.launcher_cls = _launcher_class(self)
            self.utils = SimpleNamespace(
                get_device_properties=lambda device: {
                    "max_shared_mem": SMEM_BYTES_PER_CTA,
                    "max_num_regs": REGISTERS_PER_SM,
                    "multiprocessor_count": SM_COUNT,
                    "warpSize": WARP_THREADS,
                    "sm_clock_rate": devices.device().clock_khz,
                    "mem_clock_rate": devices.device().memory_clock_khz,
                    "mem_bus_width": devices.device().memory_bus_bits,
                },
                load_binary=_load,
                unload_module=lambda module: None,
                set_printf_fifo_size=lambda size: None,
                cuOccupancyMaxActiveClusters=lambda function, shared, size: devices.device().max_active_clusters(size),
            )

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:  # noqa: ANN401
            major, minor = devices.device().capability
            return compiler.GPUTarget("cuda", 10 * major + minor, WARP_THREADS)

        def get_device_capability(self, device: object = None) -> tuple[int, int]:
            return devices.device().capability

        def get_current_device(self) -> int:
            return _DEVICE

        def set_current_device(self, device: object) -> None:
            pass

        def get_current_stream(self, device: object = None) -> int:
            return stream_state.current()

        def get_active_torch_device(self) -> Any:  # noqa: ANN401
            torch = importlib.import_module("torch")
            return torch.device("cuda", 0) if _cuda_is_served() else torch.device("cpu")

        def get_device_interface(self) -> Any:  # noqa: ANN401
            return importlib.import_module("torch").cuda if _cuda_is_served() else _INTERFACE

        def map_python_to_cpp_type(self, ty: str) -> str:
            name: str = nvidia.ty_to_cpp(ty)
            return name

        def get_empty_cache_for_benchmark(self) -> Any:  # noqa: ANN401
            return importlib.import_module("torch").empty(0)

        def clear_cache(self, cache: object) -> None:
            pass

        def get_benchmarker(self) -> Callable[..., Any]:
            return self._compile_only

        def _compile_only(
            self, kernel_call: Callable[[], object], *, quantiles: Sequence[float] = (), **_: object
        ) -> Any:  # noqa: ANN401
            """Compile the candidates that would be timed, and call them all equally fast: there is no model of time.

            The tuner takes the fastest, so where one fits, the others are called slow and not compiled.
            """
            call = _tuned_call(kernel_call)
            seconds = 1.0
            if call is not None and call is self.fitted_call:
                seconds = math.inf
            else:
                self.compiles_only = True
                try:
                    kernel_call()
                finally:
                    self.compiles_only = False
                self.fitted_call = call
            return [seconds] * len(quantiles) if quantiles else seconds

    return SimulatedDriver()


def _tuned_call(kernel_call: Callable[[], object]) -> object:
    """Return the arguments of a call of an autotuned kernel, which identify it and which the tuner keeps meanwhile."""
    tuner = inspect.getclosurevars(kernel_call).nonlocals.get("self")
    return getattr(tuner, "nargs", None)


def _cuda_is_served() -> bool:
    from cutepy.frontends.torch_device import is_served

    return is_served()


class _Function(int):
    """The handle of a loaded kernel: an integer, as CUDA's `CUfunction` is to Triton, which holds the kernel.

    Parameters
    ----------
    module : PtxModule
    name : str
    resources : KernelResources, optional
        Of its machine code.
    """

    def __new__(cls, module: PtxModule, name: str, resources: KernelResources | None) -> _Function:
        handle = super().__new__(cls, handle_of_kernel(LoadedKernel(module.loaded, name, resources)))
        handle.module, handle.name = module, name
        return handle

    module: PtxModule
    name: str


def _load(name: str, binary: bytes, shared: int, device: object) -> tuple[None, _Function, int, int, int]:
    """Load a kernel: the handle to unload, the kernel, its registers and spills, and the most threads of a CTA.

    Spills are 32-bit words of local memory, as Triton counts them. Without an assembler nothing is known of either:
    scripts that divide by the registers get as many as a thread can have.
    """
    image, _, ptx = binary.partition(_PTX_FOLLOWS)
    kernels = read_resources(image) if image else ()
    found = next((kernel for kernel in kernels if kernel.name == name), None)
    registers, spills = (found.registers, found.frame_bytes // 4) if found else (MAX_REGISTERS_PER_THREAD, 0)
    return None, _Function(load_ptx(ptx.decode()), name, found), registers, spills, MAX_THREADS_PER_CTA


def _launcher_class(driver: Any) -> type[Any]:  # noqa: ANN401
    allocation = importlib.import_module("triton.runtime._allocation")

    class Launcher:
        """Launches one compiled kernel."""

        def __init__(self, src: Any, metadata: Any) -> None:  # noqa: ANN401
            self._signature = tuple(src.signature.values())
            self._metadata = metadata

        def __call__(
            self,
            x: int,
            y: int,
            z: int,
            stream: int,
            function: _Function,
            packed_metadata: object,
            launch_metadata: object,
            enter: Callable[[object], None] | None,
            leave: Callable[[object], None] | None,
            *arguments: Any,  # noqa: ANN401
        ) -> None:
            if driver.compiles_only:
                return
            driver.fitted_call = None
            if x * y * z == 0:
                return
            meta = self._metadata
            ctas = meta.num_ctas
            flat = KernelArguments(getattr(meta, "tensordesc_meta", None) or ())
            parameters = [*flat.parameters(self._signature, arguments)]
            for kind, allocator in (
                ("global", allocation._allocator),
                ("profile", allocation._profile_allocator),
            ):
                size = getattr(meta, f"{kind}_scratch_size", 0) * x * y * z * ctas
                align = getattr(meta, f"{kind}_scratch_align", 1)
                parameters.append(flat.pointer(allocator.get()(size, align, stream) if size else None))
            if enter is not None:
                enter(launch_metadata)
            function.module.launch(
                function.name,
                (x * ctas, y, z),
                meta.num_warps * WARP_THREADS,
                parameters,
                cluster=ctas if ctas > 1 else None,
                smem=meta.shared,
                cooperative=bool(getattr(meta, "launch_cooperative_grid", False)),
                known=flat.memory,
                stream=stream,
                programmatic=bool(getattr(meta, "launch_pdl", False)),
            )
            if leave is not None:
                leave(launch_metadata)

    return Launcher
