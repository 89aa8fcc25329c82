"""PTX of any compiler, loaded and launched in the simulator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cutepy.frontends.backend import active_run, adopt, launch
from cutepy.frontends.ptx.arguments import Argument, pack_all
from cutepy.frontends.stream_state import handle_of
from cutepy.host.function import WrongDeviceError
from cutepy.runtime.device_tensors import inputs_of, is_tensor
from cutepy.runtime.devices import asked_arch, device
from cutepy.runtime.host_calls import RUNNING
from cutepy.runtime.untraced import keep_untraced, untraced
from cutepy.sim.machine.host_memory import storage_range
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.launch import KernelCall, Launch
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.machine.selected_ctas import Coordinates
from cutepy.sim.ptx.header import has_instructions
from cutepy.sim.ptx.model import Parameter
from cutepy.sim.ptx.tokens import PtxSyntaxError
from cutepy.sim.run import Run

_PATH = re.compile(r"[^\n{};]*(?:[/\\][^\n{};]*|\.ptx)\s*")
"""A line without any statement, which names a file."""
_ALIGNMENT = 512
"""Alignment of a copy, in bytes, where the array's address is a multiple of as many."""


def load_ptx(text: str | Path) -> PtxModule:
    """Load PTX of any compiler, to launch its kernels on the CPU.

    Parameters
    ----------
    text : str or Path
        A whole module for a GPU that is simulated, such as nvcc's with ``-ptx -arch=sm_90a`` or ``-arch=sm_100a``; or
        the path of its file, which reports then name.

    Returns
    -------
    PtxModule
        Each call gives a module with variables of its own.

    Raises
    ------
    PtxSyntaxError
        If a statement is not understood, or has operands that it does not take, or the module is for a newer GPU: with
        `file`, `line`, `column` and `statement`.
    OSError
        If there is no such file.

    Examples
    --------
    >>> import numpy as np
    >>> module = load_ptx('''.version 8.7
    ... .target sm_90a
    ... .address_size 64
    ... .global .u32 calls;
    ... .visible .entry scale(.param .u64 x, .param .f32 factor) {
    ...     .reg .b32 %r<3>; .reg .f32 %f<4>; .reg .b64 %rd<3>;
    ...     ld.param.u64 %rd0, [x];
    ...     mov.u32 %r0, %tid.x;
    ...     mad.wide.u32 %rd1, %r0, 4, %rd0;
    ...     ld.global.f32 %f0, [%rd1];
    ...     ld.param.f32 %f1, [factor];
    ...     mul.f32 %f0, %f0, %f1;
    ...     st.global.f32 [%rd1], %f0;
    ...     red.global.add.u32 [calls], 1;
    ...     ret;
    ... }''')
    >>> x = np.arange(4, dtype=np.float32)
    >>> module.launch("scale", grid=1, block=4, args=(x, 10))
    Launch(scale, grid=(1, 1, 1), block=(4, 1, 1), smem_bytes=0)
    >>> x
    array([ 0., 10., 20., 30.], dtype=float32)
    >>> module.variable("calls", "uint32")
    array([4], dtype=uint32)
    """
    return PtxModule(text)


class PtxModule:
    """A loaded PTX module, whose variables keep their values for as long as it lives.

    Attributes
    ----------
    text : str
        The PTX.
    """

    def __init__(self, text: str | Path) -> None:
        file = ""
        if isinstance(text, Path):
            file, text = str(text.resolve()), text.read_bytes().decode(errors="replace")
        if not isinstance(text, str):
            raise TypeError(
                f"expected the text of PTX, got {type(text).__name__}; bytes have a decode(), a file is a Path"
            )
        if _PATH.fullmatch(text):
            raise PtxSyntaxError(
                "expected the text of PTX, got what looks like the name of a file: pass a pathlib.Path",
                line=1, column=1, statement=text[:200],
            )  # fmt: skip
        self._loaded = LoadedModule(text, file)
        self.text = text
        keep_untraced()

    def __repr__(self) -> str:
        return f"PtxModule({', '.join(self.kernels)})"

    @property
    def loaded(self) -> LoadedModule:
        """The module as launches see it."""
        return self._loaded

    @property
    def kernels(self) -> Mapping[str, tuple[Parameter, ...]]:
        """The parameters of each kernel, by its name."""
        return MappingProxyType({name: entry.parameters for name, entry in self._loaded.module.functions.items()})

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of its variables in global and constant memory."""
        return tuple(self._loaded.variables)

    def variable(self, name: str, dtype: DTypeLike = "uint8") -> Array:
        """Return the present contents of a variable in global or constant memory.

        Parameters
        ----------
        name : str
            As PTX has it.
        dtype : str or numpy dtype
            Of its elements.

        Returns
        -------
        array
            A view, of one axis: what is written to it, kernels read.

        Raises
        ------
        ValueError
            If there is no such variable, or its size is no multiple of the type's.
        """
        placed = self._loaded.variables
        if name not in placed:
            raise ValueError(f"the module has no variable {name!r}; it has {', '.join(placed) or 'none'}")
        data, kind = placed[name].bytes, np.dtype(dtype)
        if data.nbytes % kind.itemsize:
            raise ValueError(f"{name} has {data.nbytes} bytes, which is no multiple of {kind.itemsize}, as {kind} has")
        view: Array = data.view(kind)
        return view

    @untraced("a launch of cutepy.load_ptx")
    def launch(
        self,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Argument] = (),
        *,
        cluster: int | Sequence[int] | None = None,
        smem: int = 0,
        cooperative: bool = False,
        known: Iterable[Any] = (),
        stream: Any = None,  # noqa: ANN401
        programmatic: bool = False,
        ctas: Coordinates | None = None,
    ) -> Launch | None:
        """Run a kernel to its end, in the innermost `cutepy.simulate`, or alone where none is active.

        Parameters
        ----------
        kernel : str
            One of `kernels`.
        grid, block, cluster : int or up to three of them
            Extents along x, y and z: of the grid in CTAs, of a CTA in threads, of a cluster in CTAs. Default: a launch
            without clusters, unless the kernel declares them.
        args : sequence
            One for each parameter.

            - A torch tensor or numpy array in host memory: its address. Kernels may touch all of its storage, and may
              not write to an array that is read-only.
            - None: a null pointer.
            - bytes, or an object with a buffer (`ctypes.Structure`, `bytearray`): a struct, or the 128 bytes of a
              tensor map, of exactly the parameter's size.
            - A number of the parameter's type. Unsigned integers are taken modulo 2^bits, because compilers declare
              C++'s int as .u32. A parameter of type .b32 takes an integer, or np.float32(x); so do .b16, .b64.
        smem : int
            Bytes of dynamic shared memory.
        cooperative : bool
            True if all CTAs must be resident at once.
        known : iterable of tensors or arrays
            Memory whose addresses the kernel finds in other memory: in structs, tensor maps, tables.
        stream : int or torch.cuda.Stream, optional
            Stream of the launch; launches run in order, in all streams.
        programmatic : bool
            True if it may begin before the kernel before it in its stream is over (programmatic dependent launch).
        ctas : sequence of coordinates, optional
            The CTAs to run, as for `cutepy.simulate`. Default: those of `cutepy.simulate`, or all.

        Returns
        -------
        Launch or None
            The launch, with `stats` and `printf`; None if its stream is captured: the graph then keeps the launch.

        Raises
        ------
        ValueError, TypeError
            If there is no such kernel, or an argument does not fit its parameter.
        SimulationError
            If the hardware would stop the kernel, or compute wrong results.
        WrongDeviceError
            If `cutepy.simulate` was asked for a GPU that does not run code for the module's .target.
        """
        asked, target = asked_arch(), self._loaded.module.target
        if asked is not None and not has_instructions(asked, target):
            raise WrongDeviceError(
                f"the module is for .target {target}, which {asked} does not run; leave out arch of cutepy.simulate, "
                f"or compile the module for {asked}"
            )
        if kernel not in self.kernels:
            raise ValueError(f"the module has no kernel {kernel!r}; it has {', '.join(self.kernels) or 'none'}")
        known = [*known]
        memory = [*filter(is_tensor, args), *known]
        try:
            packed = tuple(pack_all(kernel, self.kernels[kernel], args))
        except (TypeError, ValueError) as error:
            where, statement = self._loaded.place_of(kernel)
            raise type(error)(f"{where}: {error}\n  in `{statement}`") from error
        call = KernelCall(
            self._loaded,
            kernel,
            _extents("grid", grid),
            _extents("block", block),
            None if cluster is None else _extents("cluster", cluster),
            packed,
            smem,
            cooperative,
            handle_of(stream),
            programmatic,
            (),
            ctas,
            inputs=inputs_of(memory, storage_range),
            sm_count=device().sm_count,
        )
        run = active_run() or Run((), None)
        with RUNNING:
            for tensor in memory:
                adopt(run, tensor)
            before = len(run.launches)
            launch(run, call)
            return run.launches[-1] if len(run.launches) > before else None


def _extents(what: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    try:
        extents = tuple(map(index, value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        raise TypeError(f"{what} must be an int or one to three of them, got {value!r}") from None
    if not 1 <= len(extents) <= 3:
        raise ValueError(f"{what} must be an int or one to three of them, got {value!r}")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
