"""Compile CuTe DSL functions for Hopper on any machine, and pass matrices to what comes out.

Compilation needs no GPU: a `symbolic_matrix` stands for a tensor of any extents, and one compiled function serves
every size of its types and majors. `matrix_argument` describes a real matrix to it at launch, in the few bytes
that the compiled host code reads.
"""

import ctypes
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cutepy.dsl.cubin import KernelResources, read_resources
from cutepy.dsl.launches import read_launches
from cutepy.dsl.version import require

cutlass = require("cutlass", "Float16", "BFloat16", "Float32", "Float8E4M3FN", "Float8E5M2")
cute = require("cutlass.cute", "compile", "sym_int", "sym_int64")
runtime = require("cutlass.cute.runtime", "make_fake_stream", "make_fake_tensor")

TARGET = "sm_90a"

ELEMENT_TYPES: dict[str, Any] = {
    "float16": cutlass.Float16,
    "bfloat16": cutlass.BFloat16,
    "float32": cutlass.Float32,
    "float8_e4m3fn": cutlass.Float8E4M3FN,
    "float8_e5m2": cutlass.Float8E5M2,
}
"""Element types by torch's names for them."""

_TMA_ALIGNMENT_BITS = 128


@dataclass(frozen=True)
class Compiled:
    """A compiled function, callable with the arguments it was compiled for, and what the compiler made of it.

    Attributes
    ----------
    function : callable
        Launches: the DSL's own compiled function.
    ptx : str
        The PTX of its kernels.
    cubin : bytes
        The ELF image that the driver loads.
    """

    function: Any
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)

    def __call__(self, *arguments: object) -> None:
        """Run the host function, which launches its kernels on the stream it is given."""
        self.function(*arguments)

    @property
    def dynamic_smem_bytes(self) -> int:
        """Dynamic shared memory of the one launch in the host code.

        Raises
        ------
        ValueError
            If the host code does not launch just once with a constant size.
        """
        sizes = [launch.dynamic_smem_bytes for launch in read_launches(self.function.ir_module)]
        if len(sizes) != 1 or sizes[0] is None:
            raise ValueError(f"the host code must launch once, with a constant shared-memory size, found {sizes}")
        return sizes[0]

    @cached_property
    def resources(self) -> tuple[KernelResources, ...]:
        """Registers, stack frame and static shared memory of each kernel, read from the cubin."""
        return read_resources(self.cubin)


def compile_sm90a(function: Callable[..., Any], *arguments: object) -> Compiled:
    """Compile a `@cute.jit` function for SM90a; needs no GPU.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, or an object whose `__call__` is one.
    *arguments
        Example arguments: symbolic matrices, DSL numbers, `symbolic_stream()`, None for what is absent.
    """
    with tempfile.TemporaryDirectory(prefix="cutepy-") as folder:
        options = f"--gpu-arch={TARGET} --keep-ptx --keep-cubin --dump-dir={folder}"
        compiled = cute.compile(function, *arguments, options=options)
        artifacts = compiled.artifacts
        ptx = artifacts.PTX if isinstance(artifacts.PTX, str) else artifacts.PTX.decode()
    return Compiled(compiled, ptx.rstrip("\0"), artifacts.CUBIN)


def symbolic_matrix(dtype: str, contiguous_mode: int) -> object:
    """Stand for a matrix of any extents whose other stride and base address are multiples of 16 bytes.

    Parameters
    ----------
    dtype : str
        Torch's name of the element type, such as "float16".
    contiguous_mode : 0 or 1
        The mode of stride 1.
    """
    element_type = ELEMENT_TYPES[dtype]
    leading = cute.sym_int64(divisibility=_TMA_ALIGNMENT_BITS // element_type.width)
    stride = (leading, 1) if contiguous_mode == 1 else (1, leading)
    shape = (cute.sym_int(), cute.sym_int())
    stand_in: object = runtime.make_fake_tensor(element_type, shape, stride, assumed_align=16)
    return stand_in


def symbolic_stream() -> object:
    """Stand for a CUDA stream."""
    stand_in: object = runtime.make_fake_stream()
    return stand_in


class _Argument:
    """An argument of a compiled function in the form it is read: bytes at an address that stays for its lifetime."""

    __slots__ = ("_pointers", "_value")

    def __init__(self, value: Any) -> None:  # noqa: ANN401 - any ctypes object
        self._value = value
        self._pointers = [ctypes.addressof(value)]

    def __c_pointers__(self) -> list[int]:
        """Give the address, as the DSL's launcher asks for it."""
        return self._pointers


class _Matrix(ctypes.Structure):
    """The bytes that compiled host code reads for a symbolic matrix: address, both extents, the dynamic stride."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("leading_stride", ctypes.c_int64),
    )


class MatrixArgument(_Argument):
    """A matrix given by address, extents and leading stride, for a function compiled with a `symbolic_matrix`.

    Building one costs about a microsecond, where a DLPack exchange costs several; the caller keeps the memory alive
    until the launch, and answers for what `symbolic_matrix` assumed.

    Parameters
    ----------
    address : int
        Device address of element (0, 0), a multiple of 16.
    rows, columns : int
        Extents in elements, below 2**31.
    leading_stride : int
        Elements between neighbours along the mode that is not contiguous; a multiple of 16 bytes.
    """

    __slots__ = ()

    def __init__(self, address: int, rows: int, columns: int, leading_stride: int) -> None:
        super().__init__(_Matrix(address, rows, columns, leading_stride))


class Int32Argument(_Argument):
    """A 32-bit number, for a function compiled with a `cutlass.Int32`."""

    __slots__ = ()

    def __init__(self, value: int) -> None:
        super().__init__(ctypes.c_int32(value))


class StreamArgument(_Argument):
    """A CUDA stream given by its handle, for a function compiled with a `symbolic_stream`."""

    __slots__ = ()

    def __init__(self, handle: int) -> None:
        super().__init__(ctypes.c_void_p(handle))


class _Absent:
    """The argument of a parameter that was compiled as None: nothing is read."""

    def __c_pointers__(self) -> list[int]:
        return []


ABSENT = _Absent()
"""Passed to a compiled function for a parameter that was compiled as None."""
