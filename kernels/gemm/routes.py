"""From tensors, an epilogue's graph and its operands to the kernel that is launched, compiled if need be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.device.rules import ragged as groups
from cutepy.epilogues.constants import number_for
from cutepy.epilogues.graph import Graph
from cutepy.kernels.gemm.compilation import compile_fused
from cutepy.kernels.gemm.copying import loads_pay
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.heuristic.choice import Chosen
from cutepy.kernels.gemm.op import check_tiles, choose_on, chosen_us_on
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description, matrix, reachable, reached, signature_of
from cutepy.kernels.gemm.results import Written, partial_description, result_descriptions, widened
from cutepy.kernels.gemm.scales import Scales
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemm.workspaces import with_workspace
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Take = Callable[[Any], Any]


def find_route(
    graph: Graph,
    a: torch.Tensor,
    b: torch.Tensor,
    operands: Sequence[Any],
    out_dtype: torch.dtype | None,
    out_major: str,
    scales: Scales | None = None,
    choose: Callable[..., Chosen] | None = None,
) -> Route:
    """Decide what is done for A (M, K) and B (N, K), or a batch (L, M, K) and (L, N, K), once for each description.

    What TMA can't reach is copied first, unless threads load it in less time; and so are results that it can't write.
    Compiles if need be. `choose` decides in the place of `choose_on`, for kernels to which all is copied that TMA can't
    reach; what it is called with and its hash tell all.
    """
    results = result_descriptions(graph, a, b, out_dtype, out_major)
    return _route(Asked.of(graph, a, b, operands, scales), tuple(results), choose)


class Asked(NamedTuple):
    """All that decides what is done, but for the results.

    Attributes
    ----------
    epilogue : str
        The text of the graph, of scales too.
    scale_rows : (int, int) or None
        Of the kernel's signature.
    tensors : tuple of (Description or None)
        A, B and operands; None of a number.
    on_device, invariant : bool
        Whether the kernel runs on a GPU; whether rows have the same bits in any batch.
    tma_scales : (bool, bool)
        Of the kernel's signature.
    """

    epilogue: str
    scale_rows: tuple[int, int] | None
    tensors: tuple[Description | None, ...]
    on_device: bool
    invariant: bool
    tma_scales: tuple[bool, bool] = (False, False)

    @classmethod
    def of(
        cls, graph: Graph, a: torch.Tensor, b: torch.Tensor, operands: Sequence[Any], scales: Scales | None
    ) -> Asked:
        """Describe what is given."""
        if scales is not None:
            graph, operands = scales.before(graph), (*scales.of_results, *operands)
        tensors = [each if isinstance(each, torch.Tensor) else None for each in (a, b, *operands)]
        described = tuple(None if each is None else Description.at(each) for each in tensors)
        rows, by_tma = (scales.rows, scales.by_tma) if scales else (None, (False, False))
        return cls(graph.text, rows, described, EXECUTION.backend is None, INVARIANCE.on, by_tma)

    def taken(
        self,
        graph: Graph,
        vectors: Callable[[str, int], tuple[int, ...]],
        modes: Sequence[int | None] = (None,) * 3,
        *,
        by_threads: bool = False,
    ) -> tuple[list[Take], list[Any]]:
        """Tell how A, B and each operand become what the kernel takes, and what that is, None for a number.

        `vectors` gives the extents of a "row" or "column" of so many elements; `modes` those of A, B and tiles along
        which groups follow one another; `by_threads`, whether threads load of A and B what they can and TMA can't.
        """
        kinds = [("a", "matrix", modes[0]), ("b", "matrix", modes[1])]
        kinds += [(operand.name, operand.shape, modes[2]) for operand in graph.operands]
        takes: list[Take] = []
        seen: list[Any] = []
        for (name, shape, mode), described in zip(kinds, self.tensors, strict=True):
            if described is None:
                take: Take = partial(number_for, name, graph.operands[len(seen) - 2].type)
            elif shape in ("matrix", "tile"):
                operand = shape == "matrix"
                take, described = taking(name, described, mode, is_operand=operand, by_threads=operand and by_threads)
            else:
                narrow = _NARROWED.get(described.dtype, described.dtype)
                extents = (1,) if shape == "scalar" else vectors(shape, described.shape[-1])
                take, described = partial(_as_vector, shape=extents, dtype=narrow), described._replace(dtype=narrow)
            takes.append(take)
            seen.append(described)
        return takes, seen


class Route(NamedTuple):
    """What is done for tensors of some descriptions.

    Attributes
    ----------
    kernel : callable
    sms : int
        To fill.
    turned : bool
        Whether the transposed product is computed.
    takes : tuple of callable
        How each of A, B and the operands, in the order given, becomes what the kernel takes.
    tiles : tuple of bool
        Which of the operands are.
    writes : tuple of Written
    device : int or None
        The GPU that must be current.
    rest : tuple
        What the kernel is passed last.
    """

    kernel: Callable[..., Any]
    sms: int
    turned: bool
    takes: tuple[Take, ...]
    tiles: tuple[bool, ...]
    writes: tuple[Written, ...]
    device: int | None
    rest: tuple[None, ...]

    @classmethod
    def of(
        cls,
        kernel: Callable[..., Any],
        config: ProductConfig,
        turned: bool,
        asked: Asked,
        takes: list[Take],
        writes: list[Written],
        rest: tuple[None, ...] = (),
    ) -> Route:
        """Give the route to a kernel."""
        device = writes[0].result.device
        sms = rules.fillable_sms(math.prod(config.cluster), gpu_of(device).sm_count)
        index = device.index if asked.on_device and device.type == "cuda" else None
        tiles = tuple(operand.shape == "tile" for operand in Graph.parse(asked.epilogue).operands)
        return cls(kernel, sms, turned, tuple(takes), tiles, tuple(writes), index, rest)

    def launch(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        scales: Scales | None = None,
        ends: tuple[torch.Tensor, ...] = (),
        outs: Sequence[torch.Tensor | None] = (),
    ) -> list[torch.Tensor]:
        """Compute the results, into `outs` if there are any; of groups with these `ends`."""
        if self.device is not None and self.device != torch.cuda.current_device():
            with torch.cuda.device(self.device):
                return self.launch(a, b, operands, scales, ends, outs)
        scale_a = scale_b = None
        if scales is not None:
            operands = (*scales.of_results, *operands)
            scale_a, scale_b = scales.along_k(self.turned)
        take_a, take_b, *take = self.takes
        a, b = take_a(a), take_b(b)
        given = [each(value) for each, value in zip(take, operands, strict=True)]
        outs = outs or (None,) * len(self.writes)
        made = [each.begin(out) for each, out in zip(self.writes, outs, strict=True)]
        results = made
        if self.turned:
            a, b = b, a
            given = [value.mT if tile else value for value, tile in zip(given, self.tiles, strict=True)]
            results = [got if each.reduction else got.mT for got, each in zip(made, self.writes, strict=True)]
        self.kernel(a, b, *ends, tuple(given) or None, tuple(results), self.sms, scale_a, scale_b, *self.rest)
        return [each.finished(got, out) for each, got, out in zip(self.writes, made, outs, strict=True)]


@lru_cache(maxsize=4096)
def _route(asked: Asked, results: tuple[Description, ...], choose: Callable[..., Chosen] | None) -> Route:
    graph, batch = Graph.parse(asked.epilogue), asked.tensors[0].shape[:-2] if asked.tensors[0] else ()
    tiles = [graph.reduction(result) is None for result in graph.results]
    direct = all(matrix(each) is not None for each, tile in zip(results, tiles, strict=True) if tile)
    writes = [each if direct or not tile else widened(each) for each, tile in zip(results, tiles, strict=True)]
    stored = [each for each, tile in zip(writes, tiles, strict=True) if tile]
    takes, problem = _cheaper(asked, graph, batch, stored, by_threads=choose is None)
    device, m, n = problem.device, problem.m, problem.n
    turned, config = (choose or choose_on)(*problem)
    if turned:
        m, n = n, m
    check_tiles(config, m, n, problem.k, problem.batch)
    final = config.signature.graph
    made = []
    for place, (result, each) in enumerate(zip(results, writes, strict=True)):
        reduction = final.reduction(final.results[place])
        seen = partial_description(final, place, config, batch, m, n, device) if reduction else each
        made.append(Written(result, seen, reduction, in_pairs=asked.invariant))
    kernel = with_workspace(compile_fused(config), config, device, gpu_of(device).sm_count)
    return Route.of(kernel, config, turned, asked, takes, made, (None,))


class _Problem(NamedTuple):
    """What a kernel is chosen for."""

    device: torch.device
    signature: GemmSignature
    m: int
    n: int
    k: int
    batch: int


def _cheaper(
    asked: Asked, graph: Graph, batch: tuple[int, ...], stored: list[Description], *, by_threads: bool
) -> tuple[list[Take], _Problem]:
    """Tell how all becomes what the kernel takes, with copies of A and B that TMA can't reach or without.

    With copies in any case unless threads may load (`by_threads`).
    """

    def taken(*, by_threads: bool) -> tuple[list[Take], _Problem]:
        takes, (a, b, *operands) = asked.taken(graph, lambda _, extent: (*batch, extent), by_threads=by_threads)
        more = {"batch_modes": len(batch), "scale_rows": asked.scale_rows, "tma_scales": asked.tma_scales}
        signature = signature_of(graph, a, b, operands, stored, **more)
        return takes, _Problem(a.device, signature, a.shape[-2], b.shape[-2], a.shape[-1], math.prod(batch))

    takes, problem = taken(by_threads=by_threads)
    loads = zip(asked.tensors[:2], problem.signature.by_threads, strict=True)
    saved_bytes = [tensor.stored_bytes for tensor, loaded in loads if tensor and loaded]
    if saved_bytes:
        with_copies = taken(by_threads=False)
        if not loads_pay(chosen_us_on(*problem), chosen_us_on(*with_copies[1]), saved_bytes):
            return with_copies
    return takes, problem


def taking(
    name: str, tensor: Description, ragged: int | None = None, *, is_operand: bool = False, by_threads: bool = False
) -> tuple[Take, Description]:
    """Tell how matrices become such as are reached, and what these are; `ragged` and what follows as of `matrix`.

    Raises
    ------
    ValueError
        If an extent or stride is more than TMA holds.
    """
    if ragged is not None:
        groups.check_ragged(tensor.shape[ragged - 2], UNIT_BYTES, name)
    found = None
    if 0 not in tensor.shape:
        found = matrix(tensor, ragged, is_operand=is_operand, by_threads=by_threads)
    if found is None:
        take = partial(reachable, mode=1 if ragged is None else 1 - ragged)
        copy = take(torch.empty_strided(*tensor[:2], dtype=tensor.dtype, device="meta"))
        seen = Description.of(copy)._replace(device=tensor.device)
        reached(name, seen, ragged)
        return take, seen
    if found.stride != tensor.stride:  # an extent of 1 leaves a stride open
        return partial(_viewed, stride=found.stride), tensor._replace(stride=found.stride)
    return _as_it_is, tensor


_NARROWED = {torch.float64: torch.float32}
"""The type that scalars of a wider one are passed as."""


def _as_it_is(given: Any) -> Any:  # noqa: ANN401
    return given


def _as_vector(tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Convert rows or columns, or a scalar; what all products of a batch share is repeated by a stride of 0."""
    vector = tensor.reshape(1) if shape == (1,) else tensor.contiguous()  # a scalar may have any modes of extent 1
    return vector.to(dtype).expand(shape)


def _viewed(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    return tensor.as_strided(tensor.shape, stride)
