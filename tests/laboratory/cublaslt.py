"""Peer cuBLASLt, called by its C interface: times all candidates that its heuristic lists.

`cutepy bench gemm --peer tests.laboratory.cublaslt:cublaslt`, from the repository's root.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from cutepy.suites.gemm_problems import Buffers, GemmProblem, out_dtype

if TYPE_CHECKING:
    import torch

    from cutepy.benchmark.protocol import Contender

WORKSPACE_BYTES = 64 << 20
"""Workspace of a candidate, in bytes."""
MOST = 8
"""So many candidates are asked for."""

# Of library_types.h, cublas_api.h and cublasLt.h (CUDA 12 and 13).
_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14, "float8_e4m3fn": 28, "float8_e5m2": 29}
_COMPUTE, _COMPUTE_TF32 = 68, 77
_TRANSPOSE_A, _TRANSPOSE_B, _SCALE_A, _SCALE_B, _FAST_SUMS = 3, 4, 17, 18, 25
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_MOST_WORKSPACE = 1


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", c_uint64 * 8),)


class _Found(ctypes.Structure):
    """A candidate of the heuristic."""

    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace_bytes", c_size_t),
        ("status", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@cache
def _library() -> Any:
    """Load the library that torch has loaded."""
    import torch

    version = (torch.version.cuda or "").partition(".")[0]
    try:
        return ctypes.CDLL(f"libcublasLt.so.{version}")
    except OSError as error:
        raise ImportError(
            f"the peer cuBLASLt needs the cuBLASLt of torch's CUDA ({version or 'none'}): {error}"
        ) from error


def _call(name: str, *arguments: object) -> None:
    """Call a function of the library.

    Raises
    ------
    RuntimeError
        If it returns a status other than success.
    """
    status = getattr(_library(), name)(*arguments)
    if status:
        raise RuntimeError(f"{name} gave status {status}")


@cache
def _handle() -> c_void_p:
    handle = c_void_p()
    _call("cublasLtCreate", byref(handle))
    return handle


def _set(kind: str, thing: c_void_p, attribute: int, value: Any) -> None:
    _call(f"cublasLt{kind}SetAttribute", thing, attribute, byref(value), c_size_t(ctypes.sizeof(value)))


class _Operand(NamedTuple):
    """A matrix as cuBLASLt takes it, column-major: whether it is transposed, its layout, and its tensors."""

    transposed: bool
    layout: c_void_p
    tensors: list[torch.Tensor]


class _Product:
    """A product in cuBLASLt's terms: its columns are our rows, so that B comes first, and D is transposed.

    Parameters
    ----------
    problem : GemmProblem
    buffers : Buffers
    """

    def __init__(self, problem: GemmProblem, buffers: Buffers) -> None:
        import torch

        self._made: list[tuple[str, c_void_p]] = []
        weakref.finalize(self, _destroy, self._made)
        batch = problem.batch[0] if problem.batch else 1
        own = _TYPES[problem.dtype]
        a, b, out = buffers
        self._first = self._operand(own, b, problem.n, problem.k, problem.b_major, problem.b_major == "k", batch)
        self._second = self._operand(own, a, problem.m, problem.k, problem.a_major, problem.a_major != "k", batch)
        result = self._layout(_TYPES[out_dtype(problem.dtype)], problem.n, problem.m, batch)
        self._out = _Operand(False, result, out)
        compute = _COMPUTE_TF32 if problem.dtype == "float32" else _COMPUTE
        self._product = self._make("MatmulDesc", compute, _TYPES["float32"])
        _set("MatmulDesc", self._product, _TRANSPOSE_A, c_int32(self._first.transposed))
        _set("MatmulDesc", self._product, _TRANSPOSE_B, c_int32(self._second.transposed))
        if problem.dtype.startswith("float8"):
            self._one = torch.ones((), device=a[0].device)
            _set("MatmulDesc", self._product, _SCALE_A, c_void_p(self._one.data_ptr()))
            _set("MatmulDesc", self._product, _SCALE_B, c_void_p(self._one.data_ptr()))
            _set("MatmulDesc", self._product, _FAST_SUMS, c_int8(1))
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=a[0].device)

    def _make(self, kind: str, *arguments: object) -> c_void_p:
        made = c_void_p()
        _call(f"cublasLt{kind}Create", byref(made), *arguments)
        self._made.append((f"cublasLt{kind}Destroy", made))
        return made

    def _layout(self, kind: int, rows: int, columns: int, batch: int) -> c_void_p:
        layout = self._make("MatrixLayout", kind, c_uint64(rows), c_uint64(columns), c_int64(rows))
        if batch > 1:
            _set("MatrixLayout", layout, _BATCH_COUNT, c_int32(batch))
            _set("MatrixLayout", layout, _BATCH_STRIDE, c_int64(rows * columns))
        return layout

    def _operand(
        self, kind: int, tensors: list[torch.Tensor], extent: int, k: int, major: str, transposed: bool, batch: int
    ) -> _Operand:
        """Describe a factor, whose columns are what is contiguous."""
        rows, columns = (k, extent) if major == "k" else (extent, k)
        return _Operand(transposed, self._layout(kind, rows, columns, batch), tensors)

    def candidates(self) -> list[_Found]:
        """Ask the heuristic."""
        preference = self._make("MatmulPreference")
        _set("MatmulPreference", preference, _MOST_WORKSPACE, c_size_t(WORKSPACE_BYTES))
        found, count = (_Found * MOST)(), c_int()
        layouts = (self._first.layout, self._second.layout, self._out.layout, self._out.layout)
        asked = (_handle(), self._product, *layouts, preference, MOST, found, byref(count))
        _call("cublasLtMatmulAlgoGetHeuristic", *asked)
        return [each for each in found[: count.value] if each.status == 0]

    def launch(self, candidate: _Found) -> Callable[[int], None]:
        """Give what launches a candidate on one of the sets of buffers."""
        import torch

        multiply, one, zero = _library().cublasLtMatmul, byref(c_float(1.0)), byref(c_float(0.0))
        workspace, size = c_void_p(self._workspace.data_ptr()), c_size_t(WORKSPACE_BYTES)

        def run(index: int) -> None:
            first, second, out = (
                (c_void_p(each.tensors[index].data_ptr()), each.layout)
                for each in (self._first, self._second, self._out)
            )
            stream = c_void_p(torch.cuda.current_stream().cuda_stream)
            own = (self._product, one, *first, *second, zero, *out, *out, byref(candidate.algorithm))
            status = multiply(_handle(), *own, workspace, size, stream)
            if status:
                raise RuntimeError(f"cublasLtMatmul gave status {status}")

        return run


def _destroy(made: list[tuple[str, c_void_p]]) -> None:
    for name, thing in reversed(made):
        getattr(_library(), name)(thing)


def cublaslt(problem: GemmProblem, buffers: Buffers) -> Contender | None:
    """Multiply by the fastest candidate that cuBLASLt's heuristic lists, each timed first; no integers."""
    from cutepy.benchmark import compare
    from cutepy.tune.heats import HEAT

    if problem.dtype not in _TYPES or len(problem.batch) > 1:
        return None
    product = _Product(problem, buffers)
    launches = {str(place): product.launch(each) for place, each in enumerate(product.candidates())}
    if not launches:
        return None
    took = compare(launches, sets=len(buffers.a), protocol=HEAT)
    return launches[min(took, key=lambda name: took[name].device_us)]
