"""Launch grouped products: choose, compile if necessary, and call the kernel."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph
from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.launches import Launches
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.compilation import SOURCES as GEMM_SOURCES, fused_examples
from cutepy.kernels.gemm.gpu import HOPPER, gpu_of
from cutepy.kernels.gemm.op import check_tiles
from cutepy.kernels.gemm.operands import Description, Problem, address_bytes, signature_of
from cutepy.kernels.gemm.routes import ResultRoute, Route, TensorStep, as_vector, converted, in_turn, taking, transposed
from cutepy.kernels.gemm.scales import Scales
from cutepy.kernels.grouped.choice import select_grouped
from cutepy.kernels.grouped.config import Along, GroupedConfig, has_one_for_each, ragged_modes
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

SOURCES = (*GEMM_SOURCES, "cutepy.kernels.grouped")
"""Packages whose source, with a configuration, is the key of a compiled kernel."""
INSTEAD = "use cutepy.ops.grouped_gemm, which takes empty tensors"
"""Operation to name in errors about matrices without elements."""


def launch_groups(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    outs: Sequence[torch.Tensor],
    graph: Graph = identity.graph,
    operands: Sequence[Any] = (),
    scales: Scales | None = None,
) -> None:
    """Compute an epilogue of the product of each group into results; rows outside all groups keep their values.

    Arguments have been checked. Rows, columns and scales are of all groups, or one for each where that is allowed.
    Operands that TMA can't reach are copied first, and results that it can't write afterwards.

    Raises
    ------
    WrongDeviceError
        If the GPU is no Hopper.
    ValueError
        If an extent or stride is more than TMA holds, or there are more tiles than a kernel counts.
    """
    if not groups.shape[0] or 0 in outs[0].shape:
        return
    shape = (*outs[0].shape[:-1], b.shape[-2])
    operands = [
        value.expand(*shape[:-1], shape[-1] // operand.width)
        if operand.shape == "tile" and isinstance(value, torch.Tensor)
        else value
        for operand, value in zip(graph.operands, operands, strict=True)
    ]
    key: list[Any] = [graph.text, along, groups.shape, EXECUTION.backend is None, INVARIANCE.on, scales and scales.how]
    for value in (a, b, *operands, *outs):  # in place: a function of `host` would hand the operands back
        if isinstance(value, torch.Tensor):
            key += (value.shape, value.stride(), value.dtype, value.device, address_bytes(value))
        else:
            key.append(type(value))
    route = _routes.get(tuple(key))
    given = operands if scales is None else (*scales.of_results, *operands)
    if route is None:
        whole = graph if scales is None else scales.before(graph)
        scaled = (None, (False, False)) if scales is None else (scales.rows, scales.by_tma)
        results = tuple(map(Description.at, outs))
        problem = Problem(whole.text, Description.at(a), Description.at(b), Description.each(given), results, *scaled)
        route = _routes.keep(tuple(key), find_groups_route(problem, along, groups.shape[0]))
    along_k = (None, None) if scales is None else scales.along_k
    route.launch(a, b, given, outs, along_k, (groups.contiguous(),))


_routes: Launches[Route] = Launches()


def find_groups_route(problem: Problem, along: Along, count: int) -> Route:
    """Choose the route of a grouped product: tensors (M, K), (N, K) and (M, N), or one matrix for each group."""
    graph, padded = problem.graph, len(problem.a.shape) == len(problem.b.shape) == 3
    modes = ragged_modes(along, 8 * problem.a.dtype.itemsize)
    of_a, of_b = (
        taking(name, each, mode, is_operand=True)
        for name, each, mode in zip("ab", (problem.a, problem.b), modes, strict=False)
    )
    a, b = of_a.seen, of_b.seen
    takes: list[TensorStep | None] = [of_a.take, of_b.take]
    operands: list[Description | None] = []
    tiles = []
    for operand, given in zip(graph.operands, problem.operands, strict=True):
        step, seen = converted(operand, given)
        take: TensorStep | None = None
        if seen is not None and operand.shape == "tile":
            take, seen, _ = taking(operand.name, seen, modes[2], is_operand=False)
            tiles.append(len(takes))
        elif seen is not None and operand.shape == "scalar":
            take = as_vector(seen, (1,), (1,))
        elif seen is not None:
            many = has_one_for_each(operand.shape, along, padded)
            shape, stride = seen.shape[-1:], seen.stride[-1:]
            if many:
                shape, stride = (count, *shape), (seen.stride[0] if len(seen.shape) == 2 else 0, *stride)
            take = as_vector(seen, shape, stride)
        takes.append(in_turn(step, take))
        operands.append(seen)
    written = [taking("out", result, modes[2], is_operand=False) for result in problem.results]
    stored = [each.seen for each in written]
    # Groups of rows that follow one another begin anywhere, and TMA reads scales from whole 16 bytes on.
    begins_anywhere = not padded and along == "m", not padded and along == "n"
    by_tma = tuple(loads and not anywhere for loads, anywhere in zip(problem.tma_scales, begins_anywhere, strict=True))
    more = {"scale_rows": problem.scale_rows, "tma_scales": by_tma}
    signature = signature_of(graph, a, b, operands, stored, **more)
    mnk = (a.shape[-2], b.shape[-2], a.shape[-1])
    is_transposed, config = select_grouped(signature, along, mnk, count, padded=padded, gpu=gpu_of(a.device))
    (m, n), gemm = (mnk[1::-1] if is_transposed else mnk[:2]), config.gemm
    if config.along == "k" or padded:
        check_tiles(gemm, m, n, mnk[2], count)
    else:  # along one mode each group has at most one tile more than its share of the total
        along_m = config.along == "m"
        check_tiles(gemm, m + along_m * count * gemm.tile_m, n + (not along_m) * count * gemm.tile_n, mnk[2], 1)
    for place in tiles if is_transposed else ():
        takes[place] = in_turn(takes[place], _transpose)
    writes = []
    for result, each in zip(problem.results, written, strict=True):
        way = transposed(each.seen[:2]) if is_transposed else each.seen[:2]
        if each.copied:  # what belongs to no group stays, so that it is copied too
            writes.append(ResultRoute(result, None, each.seen, way, fill=each.take))
        else:
            writes.append(ResultRoute(result, None if way == result[:2] else way))
    return Route.of(compile_grouped(config), gemm, is_transposed, takes, writes)


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mT


@cache
def compile_grouped(config: GroupedConfig) -> Function:
    """Compile the kernel of a configuration, unless memory or disk has it; needs no GPU.

    The result is called with A, B, the groups' ends (int32), a tuple of the epilogue's operands (None if there is
    none), a tuple of the results, the number of SMs to fill, and the scales of A and B for every 128 of K, or None.
    Extents that are 0 are refused, but for the one along which groups follow one another: all of them may be empty.
    """
    named = {**fused_examples(config.gemm.signature, lambda name: int(config.grouping(name).batched), config.free_mode)}
    first = {name: named.pop(name) for name in "ab"}
    ends = TensorSpec("int32", ("groups",), align=4, nonempty=("groups",))
    kernel = Deferred("cutepy.kernels.grouped.kernel:GroupedGemm", config)
    function = compile(kernel, **first, ends=ends, **named, arch=HOPPER, sources=SOURCES)
    return function.without_lazy_check().with_smem_plan(config.gemm.smem).with_empty_hint(INSTEAD)
