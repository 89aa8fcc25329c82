"""From a problem to what is launched for it: the kernel, compiled, and how it is to see the tensors."""

import math
from collections.abc import Callable
from typing import Any

import torch

from cutepy.device import rules
from cutepy.epilogues.standard import standard
from cutepy.kernels.gemm.compilation import compile_gemm
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.heuristic.choice import Chosen, chosen_us
from cutepy.kernels.gemm.operands import Problem, new_result, reached, signature_of
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemm.tuned import Tuned, tuned
from cutepy.kernels.gemm.workspaces import with_workspace
from cutepy.kernels.gemv.choice import fastest
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Given = torch.Tensor | None
Launch = Callable[[torch.Tensor, torch.Tensor, Given, Given, Given], torch.Tensor]
"""Multiplies (a, b, c, bias, out), into a new tensor if out is None; gives the result."""
Way = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides by which a tensor is seen: those that are meant, where an extent of 1 leaves a stride open."""

MOST_TILES = 2**31 - 2**16
"""A CTA's last step beyond them stays within 32 bits."""
MOST_SHARED_K = 2**27
"""A kernel counts the tiles of K, of 16 and more, of all output tiles that are left, fewer than 256, in 32 bits."""

# Torch's compiled code allocates and makes views by these, at a third of what operators cost a call.
_empty_on_gpu: Callable[..., torch.Tensor] | None = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
_view: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", torch.as_strided)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)


def plan_gemm(problem: Problem, views: Problem, chosen: Chosen | None = None) -> Launch:
    """Choose and compile the kernel of a problem, whose tensors are seen as matrices, or batches, that are reached.

    The result, and C, may have more columns than B has rows, as many as fill their last 16 bytes: what the kernel
    writes there means nothing.

    Parameters
    ----------
    problem, views : Problem
        The tensors as they are, and as they are seen.
    chosen : Chosen, optional
        How to compute it; by default what was found by tuning on such a GPU, or else what the model expects to be
        fastest.

    Raises
    ------
    ValueError
        If the GPU is no Hopper, an extent or stride is more than TMA holds, or there are more tiles than a kernel
        counts.
    """
    sm_count = gpu_of(problem.a.device).sm_count
    given = problem.a, problem.b, problem.c, problem.out
    seen = zip(("a", "b", "c", "out"), views[:4], strict=True)
    ways: list[Way | None] = [
        view and (view.shape, reached(name, view, by_threads=name in "ab").stride) for name, view in seen
    ]
    m, n, k, batch = _extents(views)
    turned, config = chosen or choose_on(views.a.device, _signature(views), m, n, k, batch)
    if turned:
        m, n = n, m
    check_tiles(config, m, n, k, batch)
    kernel = with_workspace(compile_gemm(config), config, problem.a.device, sm_count)
    sms = rules.fillable_sms(math.prod(config.cluster), sm_count)
    if turned:
        ways[2:] = [way and _transposed(way) for way in ways[2:]]
    way_a, way_b, way_c, way_out = (
        None if each is None or way == each[:2] else way for each, way in zip(given, ways, strict=True)
    )
    as_they_are = not (turned or way_a or way_b or way_c or way_out)
    shape, stride, dtype, device = problem.out[:4]
    index = None if EXECUTION.backend is not None else device.index  # of the GPU that must be current
    empty: Any = _empty_on_gpu if index is not None and _empty_on_gpu else lambda *_: problem.out.new()

    def launch(a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        if index is not None and index != _current_device():
            with torch.cuda.device(index):
                return launch(a, b, c, bias, out)
        if out is None:
            out = empty(shape, stride, dtype)
        if as_they_are:
            kernel(a, b, c, out, sms, bias, None)
        else:
            first, second = _see(a, way_a), _see(b, way_b)
            if turned:
                first, second = second, first
            kernel(first, second, _see(c, way_c), _see(out, way_out), sms, bias, None)
        return out

    return launch


def choose_on(device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int) -> Chosen:
    """Choose what tuning on such a GPU found, or else what the model expects to be fastest."""
    if found := _tuned_on(device, signature, m, n, k, batch):
        return found.chosen
    return fastest(signature, m, n, k, batch=batch, gpu=gpu_of(device))


def chosen_us_on(device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int) -> float:
    """Give the microseconds that what is chosen took when it was tuned, or else is expected to take."""
    if found := _tuned_on(device, signature, m, n, k, batch):
        return found.us
    return chosen_us(signature, m, n, k, batch=batch, gpu=gpu_of(device))


def planned_us(views: Problem) -> float:
    """Give such microseconds of what `plan_gemm` plans for a problem."""
    return chosen_us_on(views.a.device, _signature(views), *_extents(views))


def _tuned_on(device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int) -> Tuned | None:
    if device.type != "cuda" or EXECUTION.backend is not None:
        return None
    found = tuned(torch.cuda.get_device_name(device), signature, m, n, k, batch)
    if found is None or (INVARIANCE.on and (signature.graph.reductions or not found.chosen.config.is_batch_invariant)):
        return None
    return found


def _extents(views: Problem) -> tuple[int, int, int, int]:
    """Give M, N, K and the products of a batch."""
    *batch, m, k = views.a.shape
    return m, views.b.shape[-2], k, math.prod(batch)


def _transposed(way: Way) -> Way:
    shape, stride = ((*each[:-2], each[-1], each[-2]) for each in way)
    return shape, stride


def _see(tensor: Any, way: Way | None) -> Any:  # noqa: ANN401
    """View a tensor by shape and strides; as it is without these."""
    return tensor if way is None else _view(tensor, *way)


def _signature(views: Problem) -> GemmSignature:
    a, b, c, out, bias, activation = views
    graph = standard(c=c is not None, bias=bias is not None, activation=activation).graph
    vector = None if bias is None else new_result(b.shape[-2:-1], bias, "row", b.device)
    operands = [c if operand.name == "c" else vector for operand in graph.operands]
    return signature_of(graph, a, b, operands, [out], batch_modes=len(a.shape) - 2)


def check_tiles(config: ProductConfig, m: int, n: int, k: int, batch: int) -> None:
    """Check that a kernel can count the tiles of a batch, and those of K where it shares them.

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
