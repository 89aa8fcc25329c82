"""Compiled functions: launched on the GPU, or run in the simulator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cutepy.extras import require
from cutepy.host import environment
from cutepy.host.arguments import (
    EmptyArgumentError,
    NotOnGpuError,
    Parameter,
    check_arguments,
    conversion,
    flattened,
    is_lazy,
    leaves,
    may_be_lazy,
    refused_for_tma,
    refused_number,
)
from cutepy.host.copies import HostCopies, is_host_array, mapped
from cutepy.host.entry import Entry
from cutepy.runtime.cuda import CudaError, CudaProgram
from cutepy.runtime.device_tensors import as_tensor, inputs_kept, inputs_of, is_read_only
from cutepy.runtime.devices import DEVICES, device
from cutepy.runtime.execution import EXECUTION, Backend
from cutepy.runtime.packed import plain_number
from cutepy.runtime.program import LaunchFacts, Program, ServedProgram
from cutepy.runtime.untraced import keep_untraced, untraced

if TYPE_CHECKING:
    import torch

    from cutepy.host.inspection import Cost, Resources
    from cutepy.layouts.sm90 import SmemPlan


class WrongDeviceError(RuntimeError):
    """Error of a GPU that the kernels were not compiled for."""

    @classmethod
    def check(cls, what: str, arch: str, index: int) -> None:
        """Raise unless a GPU of this machine has the compute capability of an architecture."""
        import torch

        if (found := torch.cuda.get_device_capability(index)) != DEVICES[arch].capability:
            raise cls(
                f"{_are_for(what, arch)}, and cuda:{index} ({torch.cuda.get_device_name(index)}) has compute "
                f'capability {found[0]}.{found[1]}; on the CPU they run within cutepy.simulate(arch="{arch}")'
            )

    @classmethod
    def check_simulated(cls, what: str, arch: str) -> None:
        """Raise unless the simulated GPU is of an architecture."""
        if (gpu := device()).arch != arch:
            raise cls(
                f"{_are_for(what, arch)}, and the simulated GPU is an {gpu.name} ({gpu.arch}); they run within "
                f'cutepy.simulate(arch="{arch}")'
            )


def _are_for(what: str, arch: str) -> str:
    return f"{what} are for {DEVICES[arch].family} ({arch})"


class WrongEntryError(RuntimeError):
    """Error of a program for an architecture that this version of cutepy doesn't know."""


def to_entry(program: Program, described: Sequence[Parameter], known: Mapping[str, Any]) -> Entry:
    """Convert a program to an entry, with further metadata."""
    metadata = {
        **known,
        "arch": program.arch,
        "entry": program.entry,
        "parameters": [parameter.to_json() for parameter in described],
        "seconds": dict(program.seconds),
        "launches": [launch.to_json() for launch in program.launches],
        "created": time.time(),
    }
    return Entry(metadata, {"object": program.object, "ptx": program.ptx.encode(), "cubin": program.cubin})


class Function:
    """A compiled function: call it with tensors of the types that it was compiled for.

    On a GPU it launches on torch's current stream of the tensors' device, checks its arguments, and allocates nothing.
    Within `cutepy.simulate()` it runs on the CPU. It may be called from several threads, on several streams and
    devices, and while a CUDA graph is captured.

    Parameters
    ----------
    name : str
        Name of the function in errors.
    program : Program
        Compiled program.
    parameters : sequence of Parameter
        Parameters of the program, in order.
    metadata : mapping
        Facts of the compilation.
    """

    def __init__(
        self, name: str, program: Program, parameters: Sequence[Parameter], metadata: Mapping[str, Any]
    ) -> None:
        self.__name__ = name
        self.program = program
        self.parameters = tuple(parameters)
        self.metadata = metadata
        self._resolved = False
        self._instead = "return before the call where a tensor has no elements"
        self._check: Callable[..., None] | None = None
        self._lock = threading.Lock()
        self._cuda: CudaProgram | None = None
        self._served: ServedProgram | None = None
        self._convert = conversion(self.parameters)
        self._launch: Any = self._prepare_and_launch
        keep_untraced()

    @classmethod
    def of_entry(cls, entry: Entry, described: Sequence[Parameter], spent: Mapping[str, float]) -> Function:
        """Make a function of an entry; `spent` has this process's seconds by stage.

        Raises
        ------
        WrongEntryError
            If it was compiled for another architecture.
        """
        known = entry.metadata
        if known["arch"] not in DEVICES:
            raise WrongEntryError(
                f"{known['function']} was compiled for {known['arch']}, and this version of cutepy runs "
                f"{', '.join(DEVICES)}; remove the entry with `cutepy cache clear`"
            )
        program = Program(
            entry.sections["object"],
            known["entry"],
            tuple(parameter.name for parameter in described),
            entry.sections["ptx"].decode(),
            entry.sections["cubin"],
            known["seconds"],
            tuple(map(LaunchFacts.from_json, known["launches"])),
            arch=known["arch"],
        )
        listed = [parameter.to_json() for parameter in described]
        return cls(known["function"], program, described, {**known, "parameters": listed, "spent": dict(spent)})

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}({', '.join(map(str, self.parameters))})>"

    def __copy__(self) -> Function:
        """Return the function itself, which is a value."""
        return self

    def __deepcopy__(self, _: object) -> Function:
        """Return the function itself, which is a value."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the compiled program."""
        sections = {"object": self.program.object, "ptx": self.program.ptx.encode(), "cubin": self.program.cubin}
        return _reopened, (dict(self.metadata), sections, self.program.plan)

    @untraced("a function of cutepy.compile")
    def __call__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        """Launch the function.

        Parameters
        ----------
        *arguments, **named
            For each of `parameters`: a torch tensor on a GPU, a number (Python's, a numpy scalar, or the DSL's, such as
            `cutlass.Float32(2.0)`), or None. NumPy arrays and what has `__dlpack__` are taken too, more slowly: arrays
            in host memory are copied to the GPU and back. Tensors may require grad; autograd does not see what is done
            to them. Where the last ones stay None they may be left out.

        Raises
        ------
        ArgumentError, TypeError
            If an argument does not fit the function's examples.
        WrongDeviceError
            If the GPU is not of the architecture that the kernels were compiled for.
        CudaError
            If CUDA refuses.
        """
        if named:
            arguments = self._positional(arguments, named)
        if (backend := EXECUTION.backend) is not None:
            self._simulate(backend, arguments)
            return
        try:
            self._launch(*arguments)
        except Exception as error:
            self._recover(error, arguments)

    @property
    def ptx(self) -> str:
        """PTX of the kernels, with line information."""
        return self.program.ptx

    @property
    def cubin(self) -> bytes:
        """ELF image of the kernels."""
        return self.program.cubin

    @property
    def sass(self) -> str:
        """Machine code of the kernels, as nvdisasm prints it, with source lines."""
        from cutepy.binaries.sass import disassemble

        return (
            disassemble(self.program.cubin, environment.cuda_home(), self.metadata.get("moved", {}))
            if self.program.cubin
            else ""
        )

    @property
    def resources(self) -> tuple[Resources, ...]:
        """GPU resources of each kernel."""
        from cutepy.host.inspection import resources

        return resources(self.program)

    def cost(self) -> Cost:
        """Return the seconds that it took to make the function, by stage."""
        from cutepy.host.inspection import Cost

        return Cost(self.metadata["spent"], self.metadata["seconds"])

    def without_lazy_check(self) -> Function:
        """Return a copy that does not check for lazily negated tensors: its callers pass none.

        The check takes 0.1 us for each tensor that could be negated when torch reads it.
        """
        return self._with(_resolved=True)

    def with_smem_plan(self, plan: SmemPlan | None) -> Function:
        """Return a copy whose kernels' shared memory has the regions of a plan.

        In the simulator `run.smem(name=)` then knows the regions by their names.
        """
        return self._with(program=replace(self.program, plan=plan))

    def with_empty_hint(self, hint: str) -> Function:
        """Return a copy whose error for an empty tensor ends with a hint, such as another function to call."""
        return self._with(_instead=hint)

    def with_check(self, check: Callable[..., None]) -> Function:
        """Return a copy whose arguments are checked before each launch in the simulator.

        `check` is called with the arguments, and may read memory; on a GPU that would take a synchronisation.
        """
        return self._with(_check=check)

    def _with(self, *, program: Program | None = None, **settings: Any) -> Function:  # noqa: ANN401 - of its attributes
        """Return a copy with another program, or other settings."""
        made = Function(self.__name__, program or self.program, self.parameters, self.metadata)
        for name in ("_resolved", "_instead", "_check"):
            setattr(made, name, settings.get(name, getattr(self, name)))
        return made

    def prepare(self, device: int | str | torch.device | None = None) -> Function:
        """Load the kernels now, on a GPU or in the simulator, rather than at the first call; gives the function itself.

        Parameters
        ----------
        device : int, str or torch.device, optional
            Index of the GPU, or torch's name of it, such as "cuda:0". Default: torch's current one.

        Raises
        ------
        TypeError
            If `device` is none of these.
        ValueError
            If `device` is no CUDA device.
        CudaError
            If there is neither a GPU nor a simulation.
        WrongDeviceError
            If the GPU is not of the architecture that the kernels were compiled for.
        """
        index = _cuda_index(device)
        if EXECUTION.backend is not None:
            if index:  # the simulator has a device
                raise WrongDeviceError(
                    f"the device must be 0, the only one of the simulator, got {device}; leave it out"
                )
            self._ready_to_simulate()
            return self
        require(f"{self.__name__}.prepare on a GPU", "torch")
        import torch

        self._require_cuda()
        with self._lock:
            index = torch.cuda.current_device() if index is None else index
            WrongDeviceError.check(f"the kernels of {self.__name__}", self.program.arch, index)
            if self._cuda is None:
                self._cuda = CudaProgram(self.program, index)
                self._launch = self._guarded(self._cuda)
            else:
                self._cuda.make_ready(index)
        return self

    def _prepare_and_launch(self, *arguments: Any) -> None:  # noqa: ANN401
        require(f"a launch of {self.__name__} on a GPU", "torch")
        if any(map(is_read_only, leaves(arguments))):
            self._launch_on_copies(arguments)
            return
        arguments = self._convert(mapped(_as_passed, arguments))
        self._refuse(arguments)
        _require_gpu(self.parameters, arguments)
        self.prepare(_device_index(arguments))
        self._launch(*arguments)

    def _simulate(self, backend: Backend, arguments: tuple[Any, ...]) -> None:
        passed = [*leaves(arguments)]
        given = mapped(_as_passed, arguments)
        arguments = self._convert(given)
        if any(map(_is_without_memory, leaves(arguments))):
            self._refuse(arguments)
        inputs = inputs_of(passed)
        if inputs:
            backend.synchronise(backend.current_stream())  # on a GPU they are copied, for which the host waits
        if self._check is not None:
            self._check(*given)
        for argument in leaves(given) if arguments is not given else ():
            if hasattr(argument, "__dlpack__"):  # also a tensor whose address alone is passed
                backend.adopt(argument)
        served = self._ready_to_simulate()
        try:
            with inputs_kept(inputs):
                served(backend, *arguments)
        except (TypeError, ValueError) as error:
            self._refuse(arguments)
            raise self._explained(error, arguments) from None

    def _ready_to_simulate(self) -> ServedProgram:
        WrongDeviceError.check_simulated(f"the kernels of {self.__name__}", self.program.arch)
        with self._lock:
            if self._served is None:
                self._served = ServedProgram(self.program)
            return self._served

    def _refuse(self, arguments: tuple[Any, ...]) -> None:
        """Raise the error of the first argument that the function does not take."""
        try:
            check_arguments(self.__name__, self.parameters, arguments)
        except EmptyArgumentError as error:
            raise EmptyArgumentError(f"{error}; {self._instead}") from None

    def _explained(self, error: Exception, arguments: tuple[Any, ...]) -> Exception:
        """Convert an error of compiled code to the caller's terms."""
        text = str(error)
        return (
            refused_number(text, self.parameters, arguments)
            or refused_for_tma(text, self.parameters, arguments)
            or error
        )

    def _positional(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Convert named arguments to positional ones; trailing None may be left out."""
        parameters = [parameter for parameter in self.parameters if parameter.kind != "stream"]
        names = [parameter.name for parameter in parameters]
        rest = parameters[len(arguments) :]
        named = {**{parameter.name: None for parameter in rest if parameter.kind == "none"}, **named}
        missing = [name for name in names[len(arguments) :] if name not in named]
        unknown = [name for name in named if name not in names[len(arguments) :]]
        if missing or unknown:
            raise TypeError(
                f"{self.__name__} takes ({', '.join(names)}), each once; "
                f"missing {', '.join(missing) or 'none'}, not expected {', '.join(unknown) or 'none'}"
            )
        return (*arguments, *(named[name] for name in names[len(arguments) :]))

    def _recover(self, error: Exception, given: tuple[Any, ...]) -> None:
        """Handle a failed launch: find its cause, and retry if possible.

        Causes are host arrays, foreign or wrong arguments, trailing arguments left out, or a device that is not yet
        initialised in this thread.
        """
        if any(is_host_array(argument) or is_read_only(argument) for argument in leaves(given)):
            self._launch_on_copies(given)
            return
        passed = self._convert(mapped(_as_passed, given))
        self._refuse(passed)
        _require_gpu(self.parameters, passed)
        device = _device_index(passed)
        if self._cuda is None:
            raise error
        made_ready = device is not None and self._cuda.make_ready(device)
        same = len(passed) == len(given) and all(
            new is old for new, old in zip(leaves(passed), leaves(given), strict=True)
        )
        # A CUDA error may follow a launch that was made: it is not repeated.
        if not made_ready and (same or "CUDA error" in str(error)):
            raise self._explained(error, passed) from None
        launch = self._launch
        launch(*passed)
        if len(passed) > len(given):
            self._launch = lambda *arguments: launch(*self._convert(arguments))

    def _launch_on_copies(self, arguments: tuple[Any, ...]) -> None:
        """Copy arrays that are in host memory, or may not be written to, launch, and copy back the changes."""
        self._refuse(self._convert(mapped(_as_passed, arguments)))
        self._require_cuda()
        index = _device_index(arguments)
        copies = HostCopies(arguments, "cuda" if index is None else f"cuda:{index}")
        self(*copies.arguments)
        copies.bring_back()

    def _require_cuda(self) -> None:
        require(f"a launch of {self.__name__} on a GPU", "torch")
        import torch

        if not torch.cuda.is_available():
            raise CudaError(
                f"{self.__name__} needs a GPU that torch can use, and there is none; "
                "run it on the CPU within `with cutepy.simulate():`"
            )

    def _guarded(self, cuda: CudaProgram) -> Any:  # noqa: ANN401
        """Return the launcher: compiled code itself, where it detects every bad argument.

        It doesn't see that torch would negate a tensor's values when it reads them. And of several kernels, one may run
        on a device before another is found not to be ready there.
        """
        launch, devices = cuda.function, cuda.devices
        lazy = [n for n, parameter in enumerate(self.parameters) if not self._resolved and may_be_lazy(parameter)]

        def guarded_from_lazy(*arguments: Any) -> None:  # noqa: ANN401
            for n in lazy:
                if arguments[n].is_neg():
                    raise ValueError("torch negates an argument when it reads it")
            launch(*arguments)

        guarded = guarded_from_lazy if lazy else launch
        if not all(parameter.is_plain for parameter in self.parameters):
            return lambda *arguments: guarded(*self._convert(arguments))
        if len({facts.kernel for facts in self.program.launches}) < 2:
            return guarded

        first = next((n for n, parameter in enumerate(self.parameters) if parameter.spec is not None), None)

        def guarded_from_new_devices(*arguments: Any) -> None:  # noqa: ANN401
            if (_device_index(arguments) if first is None else arguments[first].get_device()) not in devices:
                raise ValueError("the kernels are not ready on a device")
            guarded(*arguments)

        return guarded_from_new_devices


def _reopened(metadata: dict[str, Any], sections: dict[str, bytes], plan: SmemPlan | None) -> Function:
    """Make a function of a pickle."""
    described = tuple(map(Parameter.from_json, metadata["parameters"]))
    return Function.of_entry(Entry(metadata, sections), described, metadata["spent"]).with_smem_plan(plan)


def _cuda_index(device: object) -> int | None:
    """Return the index of a GPU in torch's forms; None for the current one."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    require("the name of a device", "torch")
    import torch

    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"device must be an int, a str such as 'cuda:0', a torch.device or None, got {device!r}")
    try:
        named = torch.device(device)
    except RuntimeError:
        named = None
    if named is None or named.type != "cuda":
        raise ValueError(f"device must be a CUDA device, such as 0 or 'cuda:0', got {device!r}")
    return named.index


def _device_index(arguments: Sequence[Any]) -> int | None:
    """Return the GPU to launch on: that of the first tensor on one, or the current one; None if there is none."""
    import torch

    on_gpu = (a.device.index for a in leaves(arguments) if getattr(a, "is_cuda", False))
    return next(on_gpu, torch.cuda.current_device() if torch.cuda.is_available() else None)


def _is_without_memory(argument: Any) -> bool:  # noqa: ANN401
    """Return whether an argument is a torch tensor without readable memory at its address."""
    if getattr(argument, "is_meta", False) or getattr(argument, "is_nested", False) or is_lazy(argument):
        return True
    return str(getattr(argument, "layout", "torch.strided")) != "torch.strided"


def _as_passed(argument: Any) -> Any:  # noqa: ANN401
    """Convert a foreign object with DLPack to a torch tensor, and a foreign number to Python's."""
    if hasattr(argument, "data_ptr"):
        return argument
    number = plain_number(argument)
    return as_tensor(argument) if number is None else number


def _require_gpu(parameters: Sequence[Parameter], arguments: Sequence[Any]) -> None:
    for name, _, argument in flattened(parameters, arguments):
        if getattr(argument, "is_cuda", True) is False:
            raise NotOnGpuError(
                f"argument {name}: must be on a GPU, got {argument.device}; "
                "on the CPU, call within `with cutepy.simulate():`"
            )
