"""Time a Llama-style decoder layer, forward and backward, with torch's linear layers, ours, and ours joined.

`python -m tests.laboratory.llama --tokens 2048 --tokens 8192 --json llama.json` on a Hopper GPU.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any

import typer

from cutepy.suites.measurement import Output, measure_all

_SETS = 2
"""Inputs to take turns with; the weights alone exceed the L2 cache."""

_ALLOWED = 2.0
"""Largest ratio of our distance from float64 to torch's, which is that of bfloat16's rounding."""


def layer_flops(tokens: int, hidden: int, intermediate: int, kv: int) -> float:
    """Count the floating-point operations of a step over one sequence: linear layers, and causal attention's half.

    Backward takes two products for each of forward's, in attention two and a half.

    Examples
    --------
    >>> round(layer_flops(2048, 4096, 14336, 1024) / 1e12, 2)
    2.8
    """
    weights = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * intermediate
    attention = 2 * 2 * tokens * tokens * hidden / 2
    return 3 * 2.0 * tokens * weights + 3.5 * attention


def run_llama(tokens: list[int], output: Output) -> int:
    """Measure a layer of Llama 3 8B in bfloat16, its linear layers torch's or ours.

    Parameters
    ----------
    tokens : list of int
        Lengths of the one sequence of a step.
    output : Output
        Where to write the figures.

    Returns
    -------
    int
        Exit status: 1 where our result is wrong, 2 where nothing could be measured.
    """
    return measure_all("llama", tokens, _measure, _complaint, output)


def _complaint(tokens: int, rows: list[Any]) -> str | None:
    errors = {row.contender: row.error for row in rows}
    theirs = errors.pop("torch")
    wrong = [name for name, error in errors.items() if not error <= _ALLOWED * theirs]
    if not wrong:
        return None
    return f"of {tokens} tokens {' and '.join(wrong)} is over {_ALLOWED:g} times as far from float64 as torch's"


def _measure(tokens: int) -> list[Any]:
    import torch

    from cutepy.benchmark import Row, compare
    from cutepy.nn import replace, replace_linears
    from tests.laboratory.llama_layer import LlamaLayer, LlamaSizes

    torch.manual_seed(20261121)
    sizes = LlamaSizes()
    layers = {"torch": LlamaLayer(sizes, device="cuda", dtype=torch.bfloat16)}
    layers["cutepy"] = copy.deepcopy(layers["torch"])
    replace_linears(layers["cutepy"])
    layers["cutepy, joined"] = copy.deepcopy(layers["torch"])
    typer.echo(replace(layers["cutepy, joined"], lambda name, module: "proj" in name))
    x = [torch.randn((1, tokens, sizes.hidden), device="cuda").bfloat16() for _ in range(_SETS)]
    grad = torch.randn_like(x[0])

    def step(layer: Any, index: int) -> tuple[Any, ...]:
        given = x[index].to(layer.q_proj.weight.dtype).detach().requires_grad_()
        result = layer(given)
        return (result, *torch.autograd.grad(result, (given, *layer.parameters()), grad.to(result.dtype)))

    exact = step(copy.deepcopy(layers["torch"]).double(), 0)
    errors = {name: _worst_error(step(layer, 0), exact) for name, layer in layers.items()}
    del exact
    contenders = {name: (lambda index, layer=layer: step(layer, index)) for name, layer in layers.items()}
    timings = compare(contenders, sets=_SETS)
    flops = layer_flops(tokens, sizes.hidden, sizes.intermediate, sizes.hidden // sizes.heads * sizes.key_heads)
    # Weights are read forward and backward, and their gradients written.
    moved = 3.0 * sum(p.numel() * p.itemsize for p in layers["torch"].parameters())
    return [
        Row(f"Llama 3 8B layer, {tokens} tokens", name, timing.device_us, timing.call_us, flops, moved, errors[name])
        for name, timing in timings.items()
    ]


def _worst_error(found: tuple[Any, ...], exact: tuple[Any, ...]) -> float:
    from cutepy.testing.numerics import relative_error

    return max(relative_error(ours.detach(), truth.detach()) for ours, truth in zip(found, exact, strict=True))


def main(
    tokens: Annotated[list[int] | None, typer.Option(help="Length of the sequence; may be given again.")] = None,
    json: Annotated[Path | None, typer.Option(help="Save the measurements here.")] = None,
) -> None:
    """Time a decoder layer of Llama 3 8B; of 2,048 and of 8,192 tokens by default."""
    raise typer.Exit(run_llama(tokens or [2048, 8192], Output(json)))


if __name__ == "__main__":
    typer.run(main)
