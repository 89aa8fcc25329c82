"""Peers for grouped products: each takes a problem and its buffers, and returns a launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import typer

from cutepy.benchmark.protocol import Contender
from cutepy.ops import grouped_gemm, scaled_grouped_gemm
from cutepy.suites.grouped_problems import Buffers, GroupedProblem

ALIGNMENT = 128
"""Alignment of DeepGEMM's groups in rows."""


class Entry(NamedTuple):
    """Launcher to time, and rows to check.

    Attributes
    ----------
    launch : callable
        Multiplies one of the sets of buffers, and gives the result.
    rows : Tensor or None
        Those of the result that are asked for; all by default.
    """

    launch: Contender
    rows: torch.Tensor | None = None

    def result(self) -> torch.Tensor:
        """Multiply the first set."""
        found: torch.Tensor = self.launch(0)
        return found if self.rows is None else found[self.rows]


Peer = Callable[["GroupedProblem", "Buffers"], Entry | None]
"""Function that returns an entry for a problem and its buffers; None if unsupported."""


def ours(problem: GroupedProblem, made: Buffers) -> Entry:
    """Multiply by cutepy; bfloat16 into given results."""
    if problem.kind != "bfloat16":
        return Entry(lambda i: scaled_grouped_gemm(*(each[i] for each in made[:4]), offs=made.ends))
    out = grouped_gemm(made.a[0], made.b[0], offs=made.ends)
    outs = [out, *(out.clone() for _ in made.a[1:])]
    return Entry(lambda i: grouped_gemm(made.a[i], made.b[i], offs=made.ends, out=outs[i]))


def torchs(problem: GroupedProblem, made: Buffers) -> Entry | None:
    """Multiply by torch into new results, for it has no `out`; None where it has no such kernel."""
    if problem.kind == "bfloat16":
        multiply = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
        return Entry(lambda i: multiply(made.a[i], made.b[i].mT, offs=made.ends))
    if problem.kind != "row":
        typer.echo(f"torch doesn't multiply {problem}", err=True)
        return None

    def launch(i: int) -> torch.Tensor:
        a, b, scale_a, scale_b = (each[i] for each in made[:4])
        scales = scale_a.squeeze(-1), scale_b.squeeze(-1)
        return torch._scaled_grouped_mm(a, b.mT, *scales, offs=made.ends, out_dtype=torch.bfloat16)

    try:
        launch(0)
    except (AttributeError, RuntimeError, ValueError) as error:
        typer.echo(f"torch doesn't multiply {problem}: {error}", err=True)
        return None
    return Entry(launch)


def deep_gemm(problem: GroupedProblem, made: Buffers) -> Entry | None:
    """Multiply by DeepGEMM, which must be installed, from rows padded to its alignment before the timing.

    Rows by weights only, of bfloat16, and of 8-bit floats with scales of blocks.
    """
    if problem.along != "m" or problem.kind == "row":
        return None
    import deep_gemm as theirs  # type: ignore[import-not-found]

    group, rows, start = list[int](), list[int](), 0
    for index, size in enumerate(problem.sizes):
        filled = -(-size // ALIGNMENT) * ALIGNMENT
        rows += range(start, start + size)
        group += [index] * size + [-1] * (filled - size)
        start += filled
    device = made.a[0].device
    of, kept = torch.tensor(group, device=device, dtype=torch.int32), torch.tensor(rows, device=device)

    def padded(x: torch.Tensor) -> torch.Tensor:
        wide = torch.zeros(start, x.shape[1], device=device)
        wide[kept] = x.float()
        return wide.to(x.dtype)

    a = [padded(each) for each in made.a]
    out = torch.empty(start, problem.n, device=device, dtype=torch.bfloat16)
    if problem.kind == "bfloat16":

        def multiply(i: int) -> torch.Tensor:
            theirs.m_grouped_bf16_gemm_nt_contiguous(a[i], made.b[i], out, of)
            return out

        return Entry(multiply, kept)
    scale_a = [padded(each).t().contiguous().t() for each in made.scale_a]  # the layout of `quantise`

    def scaled(i: int) -> torch.Tensor:
        pairs = (a[i], scale_a[i]), (made.b[i], made.scale_b[i])
        theirs.m_grouped_fp8_gemm_nt_contiguous(*pairs, out, of)
        return out

    return Entry(scaled, kept)


PEERS: dict[str, Peer] = {"torch": torchs, "DeepGEMM": deep_gemm}
"""Peers that come with cutepy."""
