"""Plan of a product: the copies and the kernel for any epilogue, scales and strides.

A plan views the tensors as matrices or batches of matrices (`batch_folding`), decides which tensors are copied
(`copies`), chooses and compiles the kernel, and fixes the route from each tensor to an argument of the kernel
(`routes`). A plan is made once for all tensors of one description, and every launch follows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from cutepy.device import rules
from cutepy.epilogues.graph import Graph
from cutepy.epilogues.standard import standard_of
from cutepy.host.launches import OptionalTensor
from cutepy.kernels.gemm.batch_folding import join, keeps_order
from cutepy.kernels.gemm.compilation import compile_fused, compile_gemm
from cutepy.kernels.gemm.copies import Copies, Copy, cheapest
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel, chosen_us
from cutepy.kernels.gemm.operands import Description, Problem, reached, signature_of
from cutepy.kernels.gemm.results import partial_description
from cutepy.kernels.gemm.routes import (
    Launch,
    ResultRoute,
    Route,
    TensorStep,
    View,
    as_vector,
    converted,
    current_device,
    in_turn,
    transposed,
    view,
    viewing,
)
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemm.tuned import TunedKernel, tuned
from cutepy.kernels.gemm.workspaces import with_workspace
from cutepy.kernels.gemv.choice import fastest
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Choose = Callable[[torch.device, GemmSignature, int, int, int, int], ChosenKernel]

MOST_TILES = 2**31 - 2**16
"""Largest number of tiles: the tile index after a CTA's last step stays within 32 bits."""
MOST_SHARED_K = 2**27
"""Largest K with stream-K: K tiles of the remaining output tiles, fewer than 256, are counted in 32 bits."""

# Torch's compiled code allocates by this, at a third of what an operator costs a call.
_empty_on_gpu: Callable[..., torch.Tensor] | None = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)


def plan_gemm(problem: Problem, chosen: ChosenKernel | None = None, *, choose: Choose | None = None) -> Launch:
    """Plan a product: see its tensors as matrices, choose the copies, and choose and compile the kernel.

    Parameters
    ----------
    problem : Problem
        Not empty; its tensors where they are.
    chosen : ChosenKernel, optional
        How to compute it; by default what was found by tuning on such a GPU, or else what the model expects to be
        fastest.
    choose : callable, optional
        Chooses instead, as `choose_on` does, for kernels whose threads load no operands.

    Raises
    ------
    WrongDeviceError
        If the GPU is no Hopper.
    ValueError
        If an extent or stride is more than TMA holds, or there are more tiles than a kernel counts.
    """
    graph, sm_count = problem.graph, gpu_of(problem.a.device).sm_count
    conversions = [converted(*pair) for pair in zip(graph.operands, problem.operands, strict=True)]
    steps = [step for step, _ in conversions]
    given = problem._replace(operands=tuple(described for _, described in conversions))
    views = join(given)
    if views is None:
        return _flattened(problem) if keeps_order(problem) else _part_by_part(problem)
    copies = cheapest(views, planned_us, by_threads=choose is None)
    extents = _extents(copies.joined)
    m, n, k, batch = extents
    is_transposed, config = chosen or (choose or choose_on)(views.a.device, _signature(copies.joined), *extents)
    if is_transposed:
        m, n = n, m
    check_tiles(config, m, n, k, batch)
    ways = _TensorViews(given, views, copies, is_transposed)
    takes = ways.takes(steps)
    writes = [ways.written(place, config, m, n) for place in range(len(graph.results))]
    device = problem.a.device
    if not _is_standard(graph, problem, copies.joined):
        kernel = with_workspace(compile_fused(config), config, device, sm_count)
        return Route.of(lambda *given: kernel(*given, None), config, is_transposed, takes, writes).launch
    kernel = with_workspace(compile_gemm(config), config, device, sm_count)
    names = [operand.name for operand in graph.operands]
    c, bias = (names.index(name) if name in names else None for name in ("c", "bias"))
    if any((copies.a, copies.b, *copies.operands, *copies.results, *steps)) or not ways.takes_as_it_is(bias):

        def called(a: Any, b: Any, operands: Any, results: Any, sms: int, *_: None) -> None:  # noqa: ANN401
            added, vector = (None if place is None else operands[place] for place in (c, bias))
            kernel(a, b, added, results[0], sms, vector, None)

        return Route.of(called, config, is_transposed, takes, writes).launch
    return _plain(kernel, config, is_transposed, ways, c, bias, problem.results[0], sm_count)


def _plain(
    kernel: Callable[..., Any],
    config: ProductConfig,
    is_transposed: bool,
    ways: _TensorViews,
    c: int | None,
    bias: int | None,
    result: Description,
    sm_count: int,
) -> Launch:
    """Launch a standard kernel on views of tensors, at the least cost to the host; `c` and `bias` are places."""
    shape, stride, dtype, device = result[:4]
    index = None if EXECUTION.backend is not None else device.index  # of the GPU that must be current
    empty: Any = _empty_on_gpu if index is not None and _empty_on_gpu else lambda *_: result.new()
    sms = rules.fillable_sms(math.prod(config.cluster), sm_count)
    way_a, way_b, way_out = ways.of_a, ways.of_b, ways.of_result(0)
    way_c = None if c is None else ways.of_tile(c)
    as_they_are = not (is_transposed or way_a or way_b or way_c or way_out)

    def launch(
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        outs: Sequence[OptionalTensor],
        scales: object = None,
    ) -> Sequence[torch.Tensor]:
        if index is not None and index != current_device():
            with torch.cuda.device(index):
                return launch(a, b, operands, outs)
        out = outs[0]
        if out is None:
            out = empty(shape, stride, dtype)
        added, vector = None if c is None else operands[c], None if bias is None else operands[bias]
        if as_they_are:
            kernel(a, b, added, out, sms, vector, None)
        else:
            first, second = _see(a, way_a), _see(b, way_b)
            if is_transposed:
                first, second = second, first
            kernel(first, second, _see(added, way_c), _see(out, way_out), sms, vector, None)
        return (out,)

    return launch


def _see(tensor: Any, way: View | None) -> Any:  # noqa: ANN401
    """View a tensor by a shape and strides, or return the tensor if none are given."""
    return tensor if way is None else view(tensor, *way)


class _TensorViews:
    """Views and copies by which each tensor of a problem becomes an operand of the kernel.

    Parameters
    ----------
    given, views : Problem
        The tensors as they are, except those converted first, and their views.
    copies : Copies
    is_transposed : bool
        True if the transposed product is computed, so that tiles and results are transposed.
    """

    def __init__(self, given: Problem, views: Problem, copies: Copies, is_transposed: bool) -> None:
        self.given, self.views, self.copies, self.is_transposed = given, views, copies, is_transposed
        self.graph, self.joined = given.graph, copies.joined

    def takes(self, steps: Sequence[TensorStep | None]) -> list[TensorStep | None]:
        """Return the steps that prepare A, B and each operand for the kernel, after the given conversions."""
        copies = self.copies
        found = [self._take(copies.a, self.given.a, self.views.a, self.of_a)]
        found.append(self._take(copies.b, self.given.b, self.views.b, self.of_b))
        for place, (step, operand) in enumerate(zip(steps, self.graph.operands, strict=True)):
            given, seen = self.given.operands[place], self.views.operands[place]
            if given is None or seen is None:
                found.append(step)
            elif operand.shape == "tile":
                own = self._take(copies.operands[place], given, seen, self.of_tile(place))
                found.append(in_turn(step, own))
            else:
                found.append(in_turn(step, self._vector(place)))
        return found

    @staticmethod
    def _take(copy: Copy | None, given: Description, seen: Description, way: View | None) -> TensorStep | None:
        if copy is None:
            return None if way is None else viewing(way)
        first = None if seen[:2] == given[:2] else viewing((seen.shape, seen.stride))
        return in_turn(first, copy.of, None if way is None else viewing(way))

    def _vector(self, place: int) -> TensorStep | None:
        """Return the step that makes a scalar, a row or a column an operand."""
        given, joined = self.given.operands[place], self.joined.operands[place]
        assert given is not None
        assert joined is not None
        if self.graph.operands[place].shape == "scalar":
            return as_vector(given, (1,), (1,))
        shape, stride = joined.shape, joined.stride
        if _is_standard(self.graph, self.given, self.joined):  # whose bias has no batch
            shape, stride = shape[-1:], stride[-1:]
        return as_vector(given, shape, stride)

    def takes_as_it_is(self, bias: int | None) -> bool:
        """Return whether the kernel takes a bias as it is."""
        return bias is None or self._vector(bias) is None

    @property
    def of_a(self) -> View | None:
        """The kernel's view of A, or of the copy of A; None if that is the tensor itself."""
        return self._way("a", self.joined.a, self.copies.rest.a if self.copies.a else self.given.a, by_threads=True)

    @property
    def of_b(self) -> View | None:
        """The kernel's view of B, or of the copy of B; None if that is the tensor itself."""
        return self._way("b", self.joined.b, self.copies.rest.b if self.copies.b else self.given.b, by_threads=True)

    def of_tile(self, place: int) -> View | None:
        """Return the kernel's view of a tile operand, or of its copy; None if that is the tensor itself."""
        given = self.copies.rest.operands[place] if self.copies.operands[place] else self.given.operands[place]
        joined = self.joined.operands[place]
        assert given is not None
        assert joined is not None
        return self._way(self.graph.operands[place].name, joined, given, self.is_transposed)

    def of_result(self, place: int) -> View | None:
        """Return the kernel's view of a tile result, or of the buffer that the kernel writes in its place."""
        written = self.copies.rest.results[place] if self.copies.results[place] else self.given.results[place]
        return self._way("out", self.joined.results[place], written, self.is_transposed)

    @staticmethod
    def _way(
        name: str, seen: Description, given: Description, is_transposed: bool = False, *, by_threads: bool = False
    ) -> View | None:
        shape, stride = seen.shape, reached(name, seen, by_threads=by_threads).stride
        if is_transposed:
            shape, stride = transposed((shape, stride))
        return None if (shape, stride) == given[:2] else (shape, stride)

    def written(self, place: int, config: ProductConfig, m: int, n: int) -> ResultRoute:
        """Return the route of a result, for a kernel that computes M x N products."""
        result, seen = self.given.results[place], self.views.results[place]
        if self.graph.reduction(self.graph.results[place]) is None:
            if not self.copies.results[place]:
                return ResultRoute(result, self.of_result(place))
            own = None if seen[:2] == result[:2] else (seen.shape, seen.stride)
            return ResultRoute(result, own, self.copies.rest.results[place], self.of_result(place))
        final, batch = config.signature.graph, self.joined.a.shape[:-2]
        parts = partial_description(final, place, config.epi_n, batch, m, n, result.device)
        joined = self.joined.results[place]
        own = None if joined[:2] == result[:2] else (joined.shape, joined.stride)
        reduction = final.reduction(final.results[place])
        return ResultRoute(result, own, parts, reduction=reduction, in_pairs=INVARIANCE.on)


def _is_standard(graph: Graph, problem: Problem, joined: Problem) -> bool:
    """Return whether the kernel has names for the addends: C, and a bias of all products, without scales."""
    standard = standard_of(graph) if problem.scale_rows is None else None
    if standard is None or standard.is_transposed:
        return False
    pairs = zip(graph.operands, joined.operands, strict=True)
    return all(given is None or operand.shape == "tile" or not any(given.stride[:-1]) for operand, given in pairs)


def planned(problem: Problem, choose: Choose | None = None) -> Launch:
    """Plan as `plan_gemm`, once for each problem; the arguments of `choose`, and their hash, must identify the plan."""
    return _planned(problem, choose, EXECUTION.backend is None, INVARIANCE.on)


@lru_cache(maxsize=4096)
def _planned(problem: Problem, choose: Choose | None, _on_device: bool, _invariant: bool) -> Launch:
    return plan_gemm(problem, choose=choose)


def _part_by_part(problem: Problem) -> Launch:
    """Multiply one part of a batch after another, along its shortest dimension."""
    graph, leading, batched = problem.graph, problem.leading, len(problem.b.shape) > 2
    along = min(range(len(leading) - 1), key=leading.__getitem__)

    def part(tensor: Any, shape: str, n: int) -> Any:  # noqa: ANN401
        """Take a part of A, a tile or a column, or of B or a row where each product has its own."""
        if not isinstance(tensor, torch.Tensor) or shape == "scalar":
            return tensor
        has_rows, behind = shape not in ("b", "row"), {"b": 2, "column": 0}.get(shape, 1)
        if not has_rows and (not batched or tensor.dim() == behind):
            return tensor
        own = along - (len(leading) - (not has_rows) + behind - tensor.dim())
        return tensor if own < 0 else tensor.select(own, n if tensor.shape[own] > 1 else 0)

    def launch(
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        outs: Sequence[OptionalTensor],
        scales: tuple[OptionalTensor, OptionalTensor] = (None, None),
    ) -> Sequence[torch.Tensor]:
        made = [each.new() if out is None else out for each, out in zip(problem.results, outs, strict=True)]
        for n in range(leading[along]):
            own_a, own_b = part(a, "a", n), part(b, "b", n)
            given = [part(value, each.shape, n) for each, value in zip(graph.operands, operands, strict=True)]
            into = [each.select(along, n) for each in made]
            smaller = problem._replace(results=tuple(map(Description.of, into))).at(
                Description.at(own_a), Description.at(own_b), Description.each(given), Description.each(into)
            )
            planned(smaller)(own_a, own_b, given, into, scales)
        return made

    return launch


def _flattened(problem: Problem) -> Launch:
    """Multiply copies whose rows, and the products of whose batch, follow each other in their order."""
    graph, leading = problem.graph, problem.leading
    batch, rows = (leading[:-1], leading[-1:]) if len(problem.b.shape) > 2 else ((), leading)

    def flat(tensor: Any, modes: tuple[int, ...], columns: tuple[int, ...]) -> Any:  # noqa: ANN401
        """Write out the rows of a tensor as one mode after that of the batch."""
        shape = [math.prod(batch)] * bool(batch) + [math.prod(modes)] * bool(modes)
        return tensor.expand((*batch, *modes, *columns)).reshape((*shape, *columns))

    def seen(shape: str, tensor: Any, width: int, n: int) -> Any:  # noqa: ANN401
        if not isinstance(tensor, torch.Tensor) or shape == "scalar" or (shape == "row" and tensor.dim() == 1):
            return tensor
        return flat(tensor, () if shape == "row" else rows, () if shape == "column" else (n // width,))

    def launch(
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        outs: Sequence[OptionalTensor],
        scales: tuple[OptionalTensor, OptionalTensor] = (None, None),
    ) -> Sequence[torch.Tensor]:
        n, k = b.shape[-2:]
        pairs = zip(graph.operands, operands, strict=True)
        given = [seen(each.shape, value, each.width, n) for each, value in pairs]
        a, b = flat(a, rows, (k,)), flat(b, (n,), (k,)) if batch else b
        made = [each.new() if out is None else out for each, out in zip(problem.results, outs, strict=True)]
        own = []
        for result, whole in zip(graph.results, made, strict=True):
            reduction, columns = graph.reduction(result), whole.shape[-1:]
            modes, behind = (
                {0: ((), columns), 1: (rows, ()), None: ((), ())}[reduction.dim] if reduction else (rows, columns)
            )
            own.append(flat(whole, modes, behind))
        smaller = problem._replace(results=tuple(map(Description.of, own))).at(
            Description.at(a), Description.at(b), Description.each(given), Description.each(own)
        )
        planned(smaller)(a, b, given, own, scales)
        for whole, written in zip(made, own, strict=True):
            if written.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
                whole.copy_(written.view(whole.shape))
        return made

    return launch


def choose_on(device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int) -> ChosenKernel:
    """Return the choice that tuning found on such a GPU, or else the heuristic's."""
    if found := _tuned_on(device, signature, m, n, k, batch):
        return found.chosen
    return fastest(signature, m, n, k, batch=batch, gpu=gpu_of(device))


def chosen_us_on(device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int) -> float:
    """Return the tuned time of the choice in microseconds, or else the expected time."""
    if found := _tuned_on(device, signature, m, n, k, batch):
        return found.us
    return chosen_us(signature, m, n, k, batch=batch, gpu=gpu_of(device))


def planned_us(views: Problem) -> float:
    """Return the time in microseconds of the kernel that `plan_gemm` chooses for a problem."""
    return chosen_us_on(views.a.device, _signature(views), *_extents(views))


def _tuned_on(device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int) -> TunedKernel | None:
    if device.type != "cuda" or EXECUTION.backend is not None:
        return None
    found = tuned(torch.cuda.get_device_name(device), signature, m, n, k, batch)
    if found is None or (INVARIANCE.on and (signature.graph.reductions or not found.chosen.config.is_batch_invariant)):
        return None
    return found


def _extents(views: Problem) -> tuple[int, int, int, int]:
    """Return M, N, K and the number of products of a batch."""
    *batch, m, k = views.a.shape
    return m, views.b.shape[-2], k, math.prod(batch)


def _signature(views: Problem) -> GemmSignature:
    graph = views.graph
    tiles = [each for each, of in zip(views.results, graph.results, strict=True) if graph.reduction(of) is None]
    more = {"batch_modes": len(views.a.shape) - 2, "scale_rows": views.scale_rows, "tma_scales": views.tma_scales}
    return signature_of(graph, views.a, views.b, views.operands, tiles, **more)


def check_tiles(config: ProductConfig, m: int, n: int, k: int, batch: int) -> None:
    """Check that a kernel's 32-bit counters hold the tiles of a batch, and the K tiles with stream-K.

    Raises
    ------
    ValueError
        If there are too many.
    """
    tiles = -(-m // config.tile_m) * -(-n // config.tile_n) * batch
    if tiles >= MOST_TILES:
        raise ValueError(
            f"products must have fewer than {MOST_TILES} tiles, which a kernel counts in 32 bits, got up to {tiles} of "
            f"{config.tile_m}x{config.tile_n}; split them"
        )
    if config.workspace == "sums" and k >= MOST_SHARED_K:
        raise ValueError(f"K must be less than {MOST_SHARED_K} where it is shared, got {k}; use no stream_k")
