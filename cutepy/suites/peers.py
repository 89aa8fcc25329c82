"""Peers of the GEMM: each takes a problem and its buffers, and returns a launcher.

Others are added from outside, as entry points of the group "cutepy.gemm_peers", or named as "package.module:name" on
the command line: a function (problem, buffers) -> contender, or None for a problem that it doesn't take. It may raise
ImportError, which says what to install.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from cutepy.suites.gemm_problems import Buffers, GemmProblem, out_dtype

if TYPE_CHECKING:
    from cutepy.benchmark.protocol import Contender

Peer = Callable[[GemmProblem, Buffers], "Contender | None"]
"""Function that returns the launcher of a problem on one set of buffers; None if unsupported."""

GROUP = "cutepy.gemm_peers"
_HALVES = ("float16", "bfloat16")


def cublas(problem: GemmProblem, buffers: Buffers) -> Contender | None:
    """Multiply by torch: `torch.mm` and `torch.bmm`; one by one `torch._int_mm`, and `torch._scaled_mm`.

    Fast accumulation sums 8-bit products in the tensor cores alone, as our kernel does.
    """
    import torch

    a, b, out = buffers
    if a[0].dtype.itemsize > 1:
        multiply = torch.bmm if problem.batch else torch.mm

        def launch(index: int) -> None:
            multiply(a[index], b[index].mT, out=out[index])

        return launch
    if problem.dtype == "int8":
        # the limits of torch, whatever cuBLAS supports
        if problem.m <= 16 or problem.n % 8 or problem.k % 8:
            return None

        def summed(index: int) -> None:
            own = (a[index], b[index], out[index])
            for x, y, result in zip(*own, strict=True) if problem.batch else [own]:
                torch._int_mm(x, y.t(), out=result)

        return summed
    one, dtype = torch.ones((), device=a[0].device), getattr(torch, out_dtype(problem.dtype))

    def scaled(index: int) -> None:
        own = (a[index], b[index], out[index])
        for x, y, result in zip(*own, strict=True) if problem.batch else [own]:
            torch._scaled_mm(x, y.t(), one, one, out_dtype=dtype, use_fast_accum=True, out=result)

    return scaled


def quack(problem: GemmProblem, buffers: Buffers) -> Contender | None:
    """Multiply by QuACK, tuned, with any split of K of its tuner; 16-bit floats only."""
    if problem.dtype not in _HALVES:
        return None
    from quack.gemm_interface import gemm  # type: ignore[import-not-found]

    a, b, out = buffers
    return lambda index: gemm(a[index], b[index].mT, out=out[index], tuned=True, split_k=None)


def gemv(problem: GemmProblem, buffers: Buffers) -> Contender | None:
    """Multiply by our kernel without tensor cores, as its model chooses it: `--peer cutepy.suites.peers:gemv`.

    K-major matrices of 8 or 16-bit floats only, in rows of whole 16 bytes, of which one has few rows.
    """
    from cutepy.kernels.gemm.tuned import signature_of
    from cutepy.kernels.gemv.choice import MOST_ROWS, choose_gemv, configs
    from cutepy.suites.gemm_tuning import settings_of

    kind = signature_of(settings_of(problem))
    many = min(problem.m, problem.n) > MOST_ROWS
    if many or problem.dtype == "float32" or not configs(kind, problem.m, problem.n, problem.k):
        return None
    from cutepy.kernels.gemm.op import plan_gemm
    from cutepy.ops.checking import describe

    a, b, out = buffers
    described = describe(a[0], b[0], outs=(out[0],))
    launch = plan_gemm(described, choose_gemv(kind, problem.m, problem.n, problem.k))
    return lambda index: launch(a[index], b[index], (), (out[index],), (None, None))


def deep_gemm(problem: GemmProblem, buffers: Buffers) -> Contender | None:
    """Multiply by DeepGEMM, which must be installed; matrices of bfloat16 only."""
    if problem.dtype != "bfloat16" or problem.batch:
        return None
    import deep_gemm as theirs  # type: ignore[import-not-found]

    a, b, out = buffers
    multiply = theirs.bf16_gemm_nt  # with an operand of either major
    return lambda index: multiply(a[index], b[index], out[index])


PEERS: dict[str, Peer] = {
    "cuBLAS": cublas,
    "QuACK": quack,
    "DeepGEMM": deep_gemm,
}
"""Peers that come with cutepy."""


def find(name: str) -> tuple[str, Peer]:
    """Find a peer by its name, in any case, or by "package.module:name"; return the name to print, too.

    Raises
    ------
    ValueError
        If no peer has this name.
    """
    for known, peer in PEERS.items():
        if known.lower() == name.lower():
            return known, peer
    outside = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    if name in outside:
        return name, cast("Peer", outside[name].load())
    module, _, attribute = name.partition(":")
    if not attribute:
        known = ", ".join([*PEERS, *outside])
        raise ValueError(f"a peer must be one of {known}, or package.module:name, got {name!r}")
    try:
        return attribute, cast("Peer", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the peer {name!r} can't be imported: {error}") from error
