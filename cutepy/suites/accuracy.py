"""`cutepy bench accuracy`: errors of 8-bit products against float64, by kinds of scales and of summation.

Computed on the CPU, with the sums of the tensor cores bit for bit (`cutepy.sim.arithmetic.tensor_core`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import typer

from cutepy.ops import dequantise, quantise
from cutepy.ops.quantising import expanded, read_scale
from cutepy.sim.arithmetic.tensor_core import multiply_accumulate
from cutepy.testing.numerics import relative_error

STEP, PROMOTED = 32, 128
"""K of an MMA, and K after which sums are promoted."""
_SIZE = 32


class Kind(NamedTuple):
    """Scales of A and B, and the way of summation.

    Attributes
    ----------
    name : str
    of_a, of_b : (int, int)
        Rows and columns that share a scale, as `quantise` takes them.
    promotes : bool
    """

    name: str
    of_a: tuple[int, int]
    of_b: tuple[int, int]
    promotes: bool


KINDS = (
    Kind("tensor, fast", (0, 0), (0, 0), False),
    Kind("tensor", (0, 0), (0, 0), True),
    Kind("row, fast", (1, 0), (1, 0), False),
    Kind("row", (1, 0), (1, 0), True),
    Kind("1x128 by 128x128", (1, 128), (128, 128), True),
    Kind("1x128 by 1x128", (1, 128), (1, 128), True),
)


def draw(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw normal weights, and activations whose rows differ, with one channel in 128 30 times as large."""
    chance = torch.Generator().manual_seed(k)
    x, weight = (torch.randn(_SIZE, k, generator=chance) for _ in range(2))
    x *= torch.exp(torch.randn(_SIZE, 1, generator=chance))
    x[:, 5::PROMOTED] *= 30
    return x, weight


def product(kind: Kind, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the kernel's product, before the rounding of the result, and the exact one of the quantised operands."""
    (a, scale_a), (b, scale_b) = quantise(x, kind.of_a), quantise(weight, kind.of_b)
    exact = dequantise(a, scale_a, torch.float64) @ dequantise(b, scale_b, torch.float64).mT
    wide_a, wide_b = (each.float().numpy() for each in (a, b))
    every_block: Any = np.float32(1)  # scales that differ along K, and scales that don't
    at_the_end: Any = np.float32(1)
    for mode, (scale, tensor) in enumerate(((scale_a, a), (scale_b, b))):
        own, block = read_scale("scale", scale, tensor.shape)
        whole = np.expand_dims(expanded(own, block, tensor.shape).expand(tensor.shape).numpy(), 1 - mode)
        if block.k:
            every_block = every_block * whole
        else:
            at_the_end = at_the_end * whole[..., 0]
    sums = acc = np.zeros((_SIZE, _SIZE), np.float32)
    for k in range(0, x.shape[1], STEP):
        acc = multiply_accumulate(wide_a[:, k : k + STEP], wide_b[:, k : k + STEP], acc, ("e4m3", "e4m3"), "f32")
        last = k + STEP == x.shape[1]
        if last or (kind.promotes and (k + STEP) % PROMOTED == 0):
            scales = every_block[..., k] if every_block.ndim else every_block
            sums = (sums + acc.astype(np.float64) * scales).astype(np.float32)
            acc = np.zeros_like(acc)
    sums = sums * at_the_end
    return torch.from_numpy(sums), exact


def run_accuracy(extents: list[int]) -> int:
    """Print the relative errors of each kind for these extents of K."""
    typer.echo(f"{'':18}" + "".join(f"{f'K = {k}':^20}" for k in extents).rstrip())
    typer.echo(f"{'scales, sums':18}" + "".join(f"{'of sums':>10}{'of all':>10}" for _ in extents))
    for kind in KINDS:
        figures = ""
        for k in extents:
            x, weight = draw(k)
            got, exact = product(kind, x, weight)
            errors = relative_error(got, exact), relative_error(got, x.double() @ weight.double().mT)
            figures += "".join(f"{error:10.1e}" for error in errors)
        typer.echo(f"{kind.name:18}{figures}")
    return 0
