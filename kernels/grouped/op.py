"""From a grouped product to what is launched for it: the kernel, compiled, and how it is to see the tensors."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from cutepy.device.rules import ragged
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph
from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.compilation import SOURCES as GEMM_SOURCES, fused_examples
from cutepy.kernels.gemm.model import fillable_sms
from cutepy.kernels.gemm.op import MOST_TILES, OPERAND_MAJORS, OUTPUT_MAJORS, sm_count_of
from cutepy.kernels.gemm.operands import Description, Matrix, dtype_name, matrix
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.grouped.choice import select_grouped
from cutepy.kernels.grouped.config import RAGGED, Along, GroupedConfig
from cutepy.runtime.execution import EXECUTION

SOURCES = (*GEMM_SOURCES, "cutepy.kernels.grouped")
"""The packages whose content, with a configuration, decides what is compiled."""

Launch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Sequence[Any], Sequence[torch.Tensor]], None]
"""Computes (a, b, ends, operands, results), into the results."""


class GroupedProblem(NamedTuple):
    """An epilogue of a product for each group, of tensors of these descriptions.

    Attributes
    ----------
    a, b : Description
        (M, K) and (N, K), or with a matrix for each group.
    results : tuple of Description
        (M, N), or with a matrix for each group; N over the result's width.
    groups : int
    along : "m", "n" or "k"
        Whose extents the groups have.
    padded : bool
        Whether all tensors have a matrix for each group.
    epilogue : str
        The text of the epilogue's graph.
    operands : tuple of (Description or None)
        Of its operands, None of a number: tiles as results; rows (N,) or (G, N), columns (M,) or (G, M), as `vector`
        says; scalars (1,).
    """

    a: Description
    b: Description
    results: tuple[Description, ...]
    groups: int
    along: Along
    padded: bool
    epilogue: str = identity.text
    operands: tuple[Description | None, ...] = ()

    @property
    def mnk(self) -> tuple[int, int, int]:
        """Extents, of all groups together where they follow one another."""
        m, k = self.a.shape[-2:]
        return m, self.b.shape[-2], k


def has_one_for_each(shape: str, along: Along, padded: bool) -> bool:
    """Tell whether a kernel takes a "row" or "column" for each group: where they don't follow one another along it."""
    return padded or RAGGED[along][2] != {"column": 0, "row": 1}[shape]


def reached(name: str, tensor: Description, ragged_mode: int | None) -> Matrix | None:
    """Tell how TMA reaches a tensor's groups as they lie, but for its address; None if it doesn't.

    As `matrix`, and the mode along which groups begin anywhere is not the contiguous one.

    Raises
    ------
    ValueError
        If there are more rows than TMA can hold, whatever they were copied to.
    """
    found = matrix(tensor)
    if ragged_mode is not None:
        ragged.check_ragged(tensor.shape[ragged_mode - 2], ragged.UNIT_BYTES, name)
        if found is not None:
            pitch_bytes = found.stride[ragged_mode - 2] * tensor.dtype.itemsize
            if found.contiguous_mode == ragged_mode or pitch_bytes >= ragged.PITCH_END_BYTES:
                return None
    return found


def plan_grouped(problem: GroupedProblem) -> Launch:
    """Choose and compile the kernel of a problem whose tensors TMA reaches.

    Raises
    ------
    ValueError
        If the GPU is no Hopper, an extent or stride is more than TMA holds, or there are more tiles than a kernel
        counts.
    """
    sm_count = sm_count_of(problem.a.device)
    graph, modes = Graph.parse(problem.epilogue), RAGGED[problem.along]
    a, b = _reached("a", problem.a, modes[0]), _reached("b", problem.b, modes[1])
    results = [_reached("out", each, modes[2]) for each in problem.results]
    operands: list[Matrix | None] = [
        _reached(operand.name, each, modes[2]) if operand.shape == "tile" and each else None
        for operand, each in zip(graph.operands, problem.operands, strict=True)
    ]
    signature = _signature(problem, graph, (a, b, results[0]), operands)
    turned, config = select_grouped(
        signature, problem.along, problem.mnk, problem.groups, sm_count, padded=problem.padded
    )
    gemm = config.gemm
    _check_tiles(problem, (gemm.tile_n, gemm.tile_m) if turned else (gemm.tile_m, gemm.tile_n))
    kernel = compile_grouped(config)
    sms = fillable_sms(gemm.cluster_m * gemm.cluster_n * gemm.split_k, sm_count)
    index = problem.a.device.index if EXECUTION.backend is None else None

    def launch(
        x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor, given: Sequence[Any], out: Sequence[torch.Tensor]
    ) -> None:
        if index is not None and index != torch.cuda.current_device():
            with torch.cuda.device(index):
                return launch(x, y, ends, given, out)
        x, y = _see(x, a), _see(y, b)
        given = [each if found is None else _see(each, found) for each, found in zip(given, operands, strict=True)]
        out = [_see(each, found) for each, found in zip(out, results, strict=True)]
        if turned:
            x, y, out = y, x, [each.mT for each in out]
            given = [each if found is None else each.mT for each, found in zip(given, operands, strict=True)]
        kernel(x, y, ends, tuple(given) or None, tuple(out), sms)
        return None

    return launch


def _signature(
    problem: GroupedProblem, graph: Graph, found: tuple[Matrix, Matrix, Matrix], operands: Sequence[Matrix | None]
) -> GemmSignature:
    types = [
        ("" if each is None else dtype_name(each.dtype), "" if seen is None else OUTPUT_MAJORS[seen.contiguous_mode])
        for each, seen in zip(problem.operands, operands, strict=True)
    ]
    pairs = zip(graph.results, problem.results, strict=True)
    open_dtypes = [each.dtype for result, each in pairs if graph.dtype(result) is None]
    a, b, out = (each.contiguous_mode for each in found)
    return GemmSignature(
        a_dtype=dtype_name(problem.a.dtype),
        b_dtype=dtype_name(problem.b.dtype),
        out_dtype=dtype_name(open_dtypes[0]) if open_dtypes else "float32",
        a_major=OPERAND_MAJORS[a],
        b_major=OPERAND_MAJORS[b],
        out_major=OUTPUT_MAJORS[out],
        epilogue=problem.epilogue,
        operand_types=tuple(types),
    )


def _reached(name: str, tensor: Description, ragged_mode: int | None) -> Matrix:
    found = reached(name, tensor, ragged_mode)
    if found is None:  # all else has been copied to where TMA reaches it
        raise ValueError(
            f"{name} must have extents below 2**31 and strides below 2**40 bytes, which TMA can hold, 2**34 between "
            f"rows of groups, got {tensor}; split it"
        )
    return found


def _see(tensor: torch.Tensor, found: Matrix) -> torch.Tensor:
    """View a tensor by the strides that are meant, even where an extent of 1 makes one meaningless."""
    return tensor if tensor.stride() == found.stride else tensor.as_strided(tensor.shape, found.stride)


def _check_tiles(problem: GroupedProblem, tile_mn: tuple[int, int]) -> None:
    """Refuse more tiles than are counted in 32 bits: each group has at most one more than its share of them all."""
    m, n, _ = problem.mnk
    rows, columns = -(-m // tile_mn[0]), -(-n // tile_mn[1])
    shared = not problem.padded and problem.along != "k"
    tiles = rows * columns * (1 if shared else problem.groups)
    if shared:
        tiles += problem.groups * (columns if problem.along == "m" else rows)
    if tiles >= MOST_TILES:
        raise ValueError(
            f"groups must have fewer than {MOST_TILES} tiles, which a kernel counts in 32 bits, got up to {tiles} of "
            f"{tile_mn[0]}x{tile_mn[1]}; split them"
        )


def examples(config: GroupedConfig) -> Mapping[str, Any]:
    """Describe the arguments of a kernel: A, B, the groups' ends, operands, results, and the SMs to fill."""
    described = fused_examples(config.gemm.signature, lambda name: int(config.grouping(name).batched))
    names = ("a", "b", "ends", "operands", "results", "sm_count")
    described = {**described, "ends": TensorSpec("int32", ("groups",), align=4)}
    return {name: described[name] for name in names}


@cache
def compile_grouped(config: GroupedConfig) -> Function:
    """Compile the kernel of a configuration, unless memory or disk has it; needs no GPU.

    The result is called with A, B, the groups' ends (int32), a tuple of the epilogue's operands (None if there is
    none), a tuple of the results, and the number of SMs to fill.
    """
    kernel = Deferred("cutepy.kernels.grouped.kernel:GroupedGemm", config)
    return compile(kernel, **examples(config), sources=SOURCES).of_resolved()
