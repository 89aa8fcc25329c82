"""From matrices, an epilogue's graph and its operands to the kernel that is launched, compiled if need be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.epilogues.graph import Graph, Reduction
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
    given = [operands[operand.name] for operand in graph.operands]
    if a.dim() == 2:
        return find_route(graph, a, b, given, out_dtype, out_major).launch(a, b, given)
    found = result_descriptions(graph, a, b, out_dtype, out_major)
    results = [torch.empty_strided(*each[:2], dtype=each.dtype, device=each.device) for each in found]
    for n in range(a.shape[0]):
        own = [
            value[n] if operand.shape in ("column", "tile") else value
            for operand, value in zip(graph.operands, given, strict=True)
        ]
        route = find_route(graph, a[n], b[n], own, out_dtype, out_major)
        for result, got in zip(results, route.launch(a[n], b[n], own), strict=True):
            result[n] = got
    return results


def find_route(
    graph: Graph,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[Any],
    out_dtype: torch.dtype | None,
    out_major: str,
) -> Route:
    """Decide what is done for tensors like these, once for each description of them; compiles if need be."""
    tensors = (a, b, *operands)
    return _route(
        graph.text,
        tuple(_described(each) if isinstance(each, torch.Tensor) else None for each in tensors),
        tuple(isinstance(each, torch.Tensor) and each.data_ptr() % UNIT_BYTES != 0 for each in tensors),
        tuple(result_descriptions(graph, a, b, out_dtype, out_major)),
        EXECUTION.backend is None,
    )


class Written(NamedTuple):
    """How a result comes about.

    Attributes
    ----------
    result : Description
    kernel : Description
        Of what the kernel writes: the result, or one with more columns, or partial reductions.
    reduction : Reduction or None
    """

    result: Description
    kernel: Description
    reduction: Reduction | None


class Route(NamedTuple):
    """What is done for tensors of some descriptions.

    Attributes
    ----------
    kernel : Function
    sms : int
        To fill.
    turned : bool
        Whether the transposed product is computed.
    takes : tuple of callable
        How each of A, B and the operands, in the order given, becomes what the kernel takes.
    writes : tuple of Written
        As the kernel sees them, which is transposed if that is.
    device : int or None
        The GPU that must be current.
    """

    kernel: Function
    sms: int
    turned: bool
    takes: tuple[Callable[[Any], Any], ...]
    writes: tuple[Written, ...]
    device: int | None

    def launch(self, a: torch.Tensor, b: torch.Tensor, operands: Sequence[Any]) -> list[torch.Tensor]:
        """Compute the results of one product."""
        if self.device is not None and self.device != torch.cuda.current_device():
            with torch.cuda.device(self.device):
                return self.launch(a, b, operands)
        take_a, take_b, *take = self.takes
        a, b = take_a(a), take_b(b)
        if self.turned:
            a, b = b, a
        given = tuple([each(value) for each, value in zip(take, operands, strict=True)])
        written = tuple([_new(each.kernel) for each in self.writes])
        self.kernel(a, b, given or None, written, self.sms)
        return [self._result(each, got) for each, got in zip(self.writes, written, strict=True)]

    def _result(self, each: Written, got: torch.Tensor) -> torch.Tensor:
        if each.reduction is not None:
            return _JOINED[each.reduction.kind](got, dim=(0, 1) if each.reduction.dim is None else 0)
        if each.kernel is not each.result:
            got = _new(each.result).copy_(got[:, : each.result.shape[1]])
        return got.t() if self.turned else got


def _new(described: Description) -> torch.Tensor:
    return torch.empty_strided(described.shape, described.stride, dtype=described.dtype, device=described.device)


@lru_cache(maxsize=4096)
def _route(
    text: str,
    tensors: tuple[Description | None, ...],
    misaligned: tuple[bool, ...],
    results: tuple[Description, ...],
    on_device: bool,
) -> Route:
    graph = Graph.parse(text)
    a, b, *_ = tensors
    assert a is not None
    assert b is not None
    better = _turned(graph, a, b)
    takes, seen = [], []
    for n, (described, off) in enumerate(zip(tensors, misaligned, strict=True)):
        turn = n > 1 and better is not None and graph.operands[n - 2].shape == "tile"
        shape = "matrix" if n < 2 else graph.operands[n - 2].shape
        take, description = _taking(shape, described, off, turn)
        if described is None:
            take = int if graph.operands[n - 2].type == "i32" else float
        takes.append(take)
        seen.append(description)
    if better is not None:
        seen[:2] = seen[1], seen[0]
    final = better or graph
    own = [_transposed(each) if better and len(each.shape) == 2 else each for each in results]
    tiles = [final.reduction(result) is None for result in final.results]
    direct = all(matrix(each) is not None for each, tile in zip(own, tiles, strict=True) if tile)
    writes = [each if direct else _widened(each) for each, tile in zip(own, tiles, strict=True) if tile]
    config = _configure(final, seen, writes)
    sms = fillable_sms(config.cluster_m * config.cluster_n * config.split_k, sm_count_of(a.device))
    written, rest = [], iter(writes)
    m, n = seen[0].shape[0], seen[1].shape[0]
    for result, each in zip(final.results, own, strict=True):
        reduction, width = final.reduction(result), final.width(result)
        if reduction is None:
            written.append(Written(each, next(rest), None))
        else:
            extents = rules.partial_shape(reduction.dim, m, n // width, config.epi_n // width)
            written.append(Written(each, Description(extents, (extents[1], 1), torch.float32, a.device), reduction))
    device = a.device.index if on_device and a.device.type == "cuda" else None
    return Route(compile_fused(config), sms, better is not None, tuple(takes), tuple(written), device)


def _taking(
    shape: str, described: Description | None, misaligned: bool, turn: bool
) -> tuple[Callable[[Any], Any], Any]:
    """Tell how a tensor becomes what the kernel takes, and what that is; of a number, that there is none."""
    if described is None:
        return _as_it_is, None
    if shape not in ("matrix", "tile"):
        count = 1 if shape == "scalar" else described.shape[0]
        narrow = _NARROWED.get(described.dtype, described.dtype)
        return partial(_as_vector, dtype=narrow), Description((count,), (1,), narrow, described.device)
    found = None if misaligned or 0 in described.stride else matrix(described)
    unit = UNIT_BYTES // described.dtype.itemsize
    columns = -(-described.shape[1] // unit) * unit
    if found is None or (shape == "matrix" and columns != described.shape[1]):
        take: Callable[[Any], Any] = partial(_padded, columns=columns)
        result = described._replace(shape=(described.shape[0], columns), stride=(columns, 1))
    elif found.stride != described.stride:  # an extent of 1 leaves a stride open
        take, result = partial(_viewed, stride=found.stride), described._replace(stride=found.stride)
    else:
        take, result = _as_it_is, described
    return (partial(_turning, take), _transposed(result)) if turn else (take, result)


_NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}


def _as_it_is(given: Any) -> Any:  # noqa: ANN401
    return given


def _as_vector(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.reshape(-1).to(dtype).contiguous()


def _viewed(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    return tensor.as_strided(tensor.shape, stride)


def _turning(take: Callable[[Any], Any], tensor: torch.Tensor) -> torch.Tensor:
    turned: torch.Tensor = take(tensor).t()
    return turned


def _padded(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """Copy a matrix to one with contiguous rows of these columns, those beyond its own zero."""
    bytes_of = tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor  # torch has few operations on 8-bit floats
    copy = bytes_of.new_zeros(tensor.shape[0], columns)
    copy[:, : tensor.shape[1]] = bytes_of
    return copy.view(tensor.dtype)


def _transposed(each: Description) -> Description:
    return each._replace(shape=each.shape[::-1], stride=each.stride[::-1])


def _widened(each: Description) -> Description:
    """Describe a matrix like one, with contiguous rows of whole units of 16 bytes."""
    unit = UNIT_BYTES // each.dtype.itemsize
    columns = -(-each.shape[1] // unit) * unit
    return each._replace(shape=(each.shape[0], columns), stride=(columns, 1))


def _turned(graph: Graph, a: Description, b: Description) -> Graph | None:
    """Give the transposed graph where the transposed product is expected to be faster, and computes the same.

    With few rows it is: wgmma multiplies 64 rows of A at least, but 8 of B.
    """
    turned = graph.transposed
    if turned is None:
        return None
    adds = any(operand.shape == "tile" for operand in graph.operands)
    straight, across = (
        expected_us(*mn, a.shape[1], 8 * a.dtype.itemsize, sm_count_of(a.device), adds=adds)
        for mn in ((a.shape[0], b.shape[0]), (b.shape[0], a.shape[0]))
    )
    return turned if across < straight else None


def _described(tensor: torch.Tensor) -> Description:
    return Description(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def _configure(graph: Graph, tensors: Sequence[Any], results: Sequence[Description]) -> GemmConfig:
    """Choose the configuration for A, B, operands and results that are tiles, as the kernel takes them."""
    a, b, *operands = tensors
    types = []
    for operand, given in zip(graph.operands, operands, strict=True):
        if given is None:
            types.append(("", ""))
        elif operand.shape == "tile":
            types.append((dtype_name(given.dtype), OUTPUT_MAJORS[_contiguous_mode(operand.name, given)]))
        else:
            types.append((dtype_name(given.dtype), ""))
    tiles = [result for result in graph.results if graph.reduction(result) is None]
    open_dtypes = [each.dtype for result, each in zip(tiles, results, strict=True) if graph.dtype(result) is None]
    signature = GemmSignature(
        a_dtype=dtype_name(a.dtype),
        b_dtype=dtype_name(b.dtype),
        out_dtype=dtype_name(open_dtypes[0]) if open_dtypes else "float32",
        a_major=OPERAND_MAJORS[_contiguous_mode("a", a)],
        b_major=OPERAND_MAJORS[_contiguous_mode("b", b)],
        out_major=OUTPUT_MAJORS[_contiguous_mode("out", results[0])] if results else "row",
        epilogue=graph.text,
        operand_types=tuple(types),
    )
    return select_config(signature, a.shape[0], b.shape[0], a.shape[1], sm_count_of(a.device))


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
    dtypes = {kind.place: kind.dtype for kind in signature.stored}
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
