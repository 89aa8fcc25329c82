"""From matrices, an epilogue's graph and its operands to the kernel that is launched, compiled if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.epilogues.graph import Graph
from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.choice import expected_us, fillable_sms, select_config
from cutepy.kernels.gemm.config import GemmConfig, GemmSignature
from cutepy.kernels.gemm.op import OPERAND_MAJORS, OUTPUT_MAJORS, SOURCES, sm_count_of
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description, dtype_name, matrix
from cutepy.runtime.execution import EXECUTION

FUSED_SOURCES = (*SOURCES, "cutepy.epilogues")
_JOINED: Mapping[str, Callable[..., torch.Tensor]] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


def result_descriptions(
    graph: Graph, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None, out_major: str
) -> list[Description]:
    """Describe an epilogue's results for A (L, M, K) and B (L, N, K), or both without L."""
    batch, m, n = tuple(a.shape[:-2]), a.shape[-2], b.shape[-2]
    found = []
    for result in graph.results:
        columns, reduction, rounded = n // graph.width(result), graph.reduction(result), graph.dtype(result)
        dtype = getattr(torch, rounded) if rounded else out_dtype or _default_dtype(a)
        if reduction is not None:
            shape = (*batch, *{0: (columns,), 1: (m,), None: ()}[reduction.dim])
            turned = False
        else:
            shape, turned = (*batch, m, columns), out_major == "col"
        stride: list[Any] = []
        step: Any = 1
        for extent in reversed((*shape[:-2], shape[-1], shape[-2]) if turned else shape):
            stride.insert(0, step)
            step = step * torch.sym_max(extent, 1)
        if turned:
            stride[-2:] = stride[-1], stride[-2]
        found.append(Description(shape, tuple(stride), dtype, a.device))
    return found


def _default_dtype(a: torch.Tensor) -> torch.dtype:
    return torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype


def launch_fused(
    graph: Graph,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Mapping[str, Any],
    out_dtype: torch.dtype | None,
    out_major: str,
) -> list[torch.Tensor]:
    """Compute an epilogue's results by its kernel: for A (M, K) and B (N, K), or for each of L such.

    What TMA can't reach is copied first, and so are results that it can't write.
    """
    found = result_descriptions(graph, a, b, out_dtype, out_major)
    results = [torch.empty_strided(*each[:2], dtype=each.dtype, device=each.device) for each in found]
    if a.dim() == 2:
        _launch(graph, a, b, operands, results)
        return results
    for n in range(a.shape[0]):
        own = {
            operand.name: operands[operand.name][n] if operand.shape in ("column", "tile") else operands[operand.name]
            for operand in graph.operands
        }
        _launch(graph, a[n], b[n], own, [result[n] for result in results])
    return results


def _launch(
    graph: Graph, a: torch.Tensor, b: torch.Tensor, operands: Mapping[str, Any], results: Sequence[torch.Tensor]
) -> None:
    """Compute the results of one product."""
    if a.device.type == "cuda" and EXECUTION.backend is None and a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return _launch(graph, a, b, operands, results)
    turned = _turned(graph, a, b)
    if turned is not None:
        operands = {
            operand.name: operands[operand.name].t() if operand.shape == "tile" else operands[operand.name]
            for operand in graph.operands
        }
        # The transpose of what has one dimension, or none, is itself.
        graph, a, b, results = turned, b, a, [result.t() for result in results]
    m, n = a.shape[0], b.shape[0]
    k = -(-a.shape[1] * a.itemsize // UNIT_BYTES) * UNIT_BYTES // a.itemsize
    a, b = _reached(a, k), _reached(b, k)
    given = [_taken(graph, place, operands[operand.name]) for place, operand in enumerate(graph.operands)]
    tiles = [graph.reduction(result) is None for result in graph.results]
    direct = all(_reaches(each) for each, tile in zip(results, tiles, strict=True) if tile)
    written = [
        (each if direct else _widened(each)) if tile else each for each, tile in zip(results, tiles, strict=True)
    ]
    plan = _plan(
        graph.text,
        _described(a),
        _described(b),
        tuple(_described(each) if isinstance(each, torch.Tensor) else type(each) for each in given),
        tuple(_described(each) for each, tile in zip(written, tiles, strict=True) if tile),
    )
    for place, result in enumerate(graph.results):
        reduction = graph.reduction(result)
        if reduction is not None:
            width = graph.width(result)
            shape = rules.partial_shape(reduction.dim, m, n // width, plan.columns // width)
            written[place] = torch.empty(shape, dtype=torch.float32, device=a.device)
    plan.kernel(a, b, tuple(given) or None, tuple(written), plan.sms)
    for result, got, into in zip(graph.results, written, results, strict=True):
        reduction = graph.reduction(result)
        if reduction is not None:
            into.copy_(_JOINED[reduction.kind](got, dim=(0, 1) if reduction.dim is None else 0))
        elif got is not into:
            into.copy_(got[:, : into.shape[1]])
    return None


def _turned(graph: Graph, a: torch.Tensor, b: torch.Tensor) -> Graph | None:
    """Give the transposed graph where the transposed product is expected to be faster, and computes the same.

    With few rows it is: wgmma multiplies 64 rows of A at least, but 8 of B.
    """
    turned = graph.transposed
    if turned is None:
        return None
    adds = any(operand.shape == "tile" for operand in graph.operands)
    straight, across = (
        expected_us(*mn, a.shape[1], 8 * a.itemsize, sm_count_of(a.device), adds=adds)
        for mn in ((a.shape[0], b.shape[0]), (b.shape[0], a.shape[0]))
    )
    return turned if across < straight else None


def _described(tensor: torch.Tensor) -> Description:
    return Description(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def _reaches(tensor: torch.Tensor) -> bool:
    return matrix(_described(tensor)) is not None and tensor.data_ptr() % UNIT_BYTES == 0


def _reached(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """Give a matrix as TMA reaches it, with these columns, those beyond its own zero."""
    if tensor.shape[1] == columns and _reaches(tensor):
        return tensor
    bytes_of = tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor  # torch has few operations on 8-bit floats
    copy = bytes_of.new_zeros(tensor.shape[0], columns)
    copy[:, : tensor.shape[1]] = bytes_of
    return copy.view(tensor.dtype)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Make a matrix like one, with rows of whole units of 16 bytes."""
    unit = UNIT_BYTES // tensor.itemsize
    return tensor.new_empty(tensor.shape[0], -(-tensor.shape[1] // unit) * unit)


def _taken(graph: Graph, place: int, given: Any) -> Any:  # noqa: ANN401
    """Give an operand as the kernel takes it."""
    operand = graph.operands[place]
    if not isinstance(given, torch.Tensor):
        return int(given) if operand.type == "i32" else float(given)
    if operand.shape == "tile":
        if 0 in given.stride():  # repeated by expand
            given = given.contiguous()
        return given if _reaches(given) else _reached(given, _widened(given[:0]).shape[1])
    if given.dtype in (torch.int64, torch.float64):
        given = given.to(torch.int32 if operand.type == "i32" else torch.float32)
    return given.reshape(-1).contiguous()


class _Plan(NamedTuple):
    """A compiled kernel, the SMs to fill, and the columns of its epilogue's subtiles."""

    kernel: Function
    sms: int
    columns: int


@lru_cache(maxsize=4096)
def _plan(
    text: str, a: Description, b: Description, operands: tuple[Any, ...], results: tuple[Description, ...]
) -> _Plan:
    graph = Graph.parse(text)
    majors = {name: _contiguous_mode(name, each) for name, each in (("a", a), ("b", b))}
    types = []
    for operand, given in zip(graph.operands, operands, strict=True):
        if not isinstance(given, Description):
            types.append(("", ""))
        elif operand.shape == "tile":
            types.append((dtype_name(given.dtype), OUTPUT_MAJORS[_contiguous_mode(operand.name, given)]))
        else:
            types.append((dtype_name(given.dtype), ""))
    open_dtypes = [
        dtype_name(each.dtype)
        for result, each in zip((r for r in graph.results if graph.reduction(r) is None), results, strict=True)
        if graph.dtype(result) is None
    ]
    signature = GemmSignature(
        a_dtype=dtype_name(a.dtype),
        b_dtype=dtype_name(b.dtype),
        out_dtype=open_dtypes[0] if open_dtypes else "float32",
        a_major=OPERAND_MAJORS[majors["a"]],
        b_major=OPERAND_MAJORS[majors["b"]],
        out_major=OUTPUT_MAJORS[_contiguous_mode("out", results[0])] if results else "row",
        epilogue=text,
        operand_types=tuple(types),
    )
    sm_count = sm_count_of(a.device)
    config = select_config(signature, a.shape[0], b.shape[0], a.shape[1], sm_count)
    sms = fillable_sms(config.cluster_m * config.cluster_n * config.split_k, sm_count)
    return _Plan(compile_fused(config), sms, config.epi_n)


def _contiguous_mode(name: str, tensor: Description) -> int:
    found = matrix(tensor)
    if found is None:
        raise ValueError(
            f"{name} must have extents below 2**31 and strides below 2**40 bytes, which TMA can hold, got {tensor}; "
            "split it"
        )
    return found.contiguous_mode


@cache
def compile_fused(config: GemmConfig) -> Function:
    """Compile the kernel of a configuration with an epilogue, unless memory or disk has it; needs no GPU.

    The result is called with A, B, a tuple of the operands (None if there is none), a tuple of the results, partial
    reductions among them (`cutepy.device.rules.partial_shape`), and the number of SMs to fill.
    """
    kernel = Deferred("cutepy.kernels.gemm.fused:FusedGemm", config)
    arguments: dict[str, Any] = {**fused_examples(config.signature)}
    return compile(kernel, **arguments, sources=FUSED_SOURCES).of_resolved()


def fused_examples(signature: GemmSignature) -> Mapping[str, Any]:
    """Describe the arguments of the kernels of a signature with an epilogue."""
    graph = signature.graph
    assert graph is not None
    operands: list[Any] = []
    for operand, (dtype, major) in zip(graph.operands, signature.operand_types, strict=True):
        if not dtype:
            operands.append(1 if operand.type == "i32" else 1.0)
        elif major:
            operands.append(_matrix_spec(operand.name, dtype, major))
        else:
            align = getattr(torch, dtype).itemsize
            operands.append(TensorSpec(dtype, (1 if operand.shape == "scalar" else operand.name,), align=align))
    dtypes = {place: dtype for place, _, dtype in signature.tile_results}
    results: list[Any] = []
    for place in range(len(graph.results)):
        name = f"result{place}"
        if place in dtypes:
            results.append(_matrix_spec(name, dtypes[place], signature.out_major))
        else:
            results.append(TensorSpec("float32", (f"{name}_rows", f"{name}_columns"), align=4))
    return {
        "a": _matrix_spec("a", signature.a_dtype, signature.a_major),
        "b": _matrix_spec("b", signature.b_dtype, signature.b_major),
        "operands": tuple(operands) or None,
        "results": tuple(results),
        "sm_count": 1,
    }


def _matrix_spec(name: str, dtype: str, major: str) -> TensorSpec:
    pitch = f"{name}_pitch"
    return TensorSpec(
        dtype,
        (f"{name}_rows", f"{name}_columns"),
        strides=(pitch, 1) if major in ("k", "row") else (1, pitch),
        divisibility={pitch: 16 // getattr(torch, dtype).itemsize},
    )
