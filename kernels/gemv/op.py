"""Compute products of few rows without tensor cores, bypassing the GEMM's heuristic."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cutepy.epilogues.functions import identity
from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.heuristic.choice import ChosenKernel
from cutepy.kernels.gemm.op import planned
from cutepy.kernels.gemm.operands import Description, Problem, reachable
from cutepy.kernels.gemm.results import result_descriptions
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.kernels.gemv.choice import choose_gemv


def gemv(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    epilogue: Epilogue = identity,
    out_dtype: torch.dtype | None = None,
    settings: Mapping[str, int] | None = None,
    **operands: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Compute an epilogue of a @ b.mT for few rows of a, or, transposed, of b: on the GPU or in the simulator.

    `cutepy.ops.gemm` checks its arguments, has derivatives, and takes this way where tuning found it to be the fastest;
    here nothing is checked but what the kernel can't do. Results without elements, of no rows of a or b, need no
    launch.

    Parameters
    ----------
    a : Tensor, (M, K)
    b : Tensor, (N, K)
    epilogue : Epilogue
        Without reductions.
    out_dtype : dtype, optional
        Of results that the epilogue doesn't round itself.
    settings : mapping, optional
        Fields of `GemvConfig` that are not to be chosen.
    **operands
        The epilogue's.

    Raises
    ------
    ValueError
        If a and b are not matrices of one K, or the kernel has no such configuration.
    """
    if not a.dim() == b.dim() == 2 or a.shape[1] != b.shape[1]:
        raise ValueError(
            "a must be (M, K) and b (N, K), as of one row x[None], with the same K; got shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )
    given, graph = tuple(epilogue.bind(operands).values()), epilogue.graph
    results = result_descriptions(graph, Description.of(a), Description.of(b), a.shape[:1], out_dtype, "row")
    if 0 in (a.shape[0], b.shape[0]) and not graph.reductions:
        return epilogue.pack([each.new() for each in results])
    if a.shape[1] == 1:  # would be taken as it lies, as contiguous along M and N
        a, b = reachable(a), reachable(b)
    chooser = _Chooser(tuple((settings or {}).items()))
    problem = Problem(epilogue.text, Description.at(a), Description.at(b), Description.each(given), tuple(results))
    launch = planned(problem, chooser)
    return epilogue.pack(launch(a, b, given, [None] * len(results), (None, None)))


@dataclass(frozen=True)
class _Chooser:
    """Chooser like `cutepy.kernels.gemm.op.choose_on`, with some settings given."""

    settings: tuple[tuple[str, int], ...]

    def __call__(
        self, device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int
    ) -> ChosenKernel:
        return choose_gemv(signature, m, n, k, gpu_of(device).sm_count, dict(self.settings))
