"""Measure the host's time in calls of `cutepy.ops`, forward and backward, without a GPU.

    python -m tests.laboratory.host_time --call attention --call "rms_norm, residual" --json before.json

Calls are on a device of host memory (`host_device`), where kernels are not launched: what is left is the host's time up
to compiled code. Three figures are printed for each: of a call whose tensors require no grad, of one whose tensors do,
and of its backward pass. Times are of the process's CPU, medians of calls: another process does not count, and the
engine's thread does. "torch's own" is an `autograd.Function` that allocates as attention does, and nothing more. Steps
of a layer include torch's operators, on few tokens by the CPU's kernels.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer

from tests.laboratory.host_device import host_device
from tests.laboratory.llama_model import LlamaConfig, LlamaForCausalLM

ROUNDS, CALLS, WARM = 15, 60, 3
"""Rounds of the three kinds of calls in turns; calls of each in a round; calls before."""
TOKENS = (2, 16)
"""Batch and tokens of a step."""
SMALL = LlamaConfig(hidden=128, intermediate=256, layers=4, heads=4, key_heads=2, head=32)

Case = tuple[Callable[..., Any], Sequence[Any]]
"""A function, and its arguments; those of floating point require grad."""


class Times(NamedTuple):
    """Microseconds of a call without gradients, of one with, and of the backward pass."""

    plain: float
    recorded: float
    backward: float


def _rows(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cuda")


def _labels(rows: int) -> torch.Tensor:
    return torch.zeros(rows, dtype=torch.int64, device="cuda")


def _whole(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32, device="cuda")


def _torchs() -> Case:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            o, lse = torch.empty_like(q), q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)
            ctx.save_for_backward(q, k, v, o, lse)
            return o

        @staticmethod
        def backward(ctx: Any, do: Any) -> Any:
            return tuple(torch.empty_like(each) for each in ctx.saved_tensors[:3])

    return Function.apply, [_rows(4, 512, 16, 64) for _ in range(3)]


def _gemm(**options: Any) -> Case:
    from cutepy.ops import gemm

    if options.pop("bias", False):
        return lambda a, b, bias: gemm(a, b, bias=bias, **options), [_rows(512, 1024), _rows(768, 1024), _rows(768)]
    return lambda a, b: gemm(a, b, **options), [_rows(512, 1024), _rows(768, 1024)]


def _attention(*, causal: bool) -> Case:
    from cutepy.ops import attention

    return lambda q, k, v: attention(q, k, v, causal=causal), [_rows(4, 512, 16, 64) for _ in range(3)]


def _by_heads() -> Case:
    from cutepy.ops import scaled_dot_product_attention

    return scaled_dot_product_attention, [_rows(4, 16, 512, 64) for _ in range(3)]


def _varlen() -> Case:
    from cutepy.ops import attention_varlen

    bounds = torch.tensor([0, 100, 512, 2048], dtype=torch.int32).to("cuda")
    return (
        lambda q, k, v: attention_varlen(q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, causal=True),
        [_rows(2048, 16, 64) for _ in range(3)],
    )


def _decode() -> Case:
    from cutepy.ops import attention_decode

    q, k, v = _rows(8, 1, 32, 128), _rows(64, 64, 8, 128), _rows(64, 64, 8, 128)
    table, lengths = _whole(8, 8), _whole(8)
    return lambda: attention_decode(q, k, v, cache_seqlens=lengths, block_table=table, causal=True), []


def _mla() -> Case:
    from cutepy.ops import attention_mla

    q, cache, table, lengths = _rows(8, 1, 16, 576), _rows(64, 64, 576), _whole(8, 8), _whole(8)
    return lambda: attention_mla(q, cache, cache_seqlens=lengths, block_table=table, causal=True), []


def _joined() -> Case:
    from cutepy.ops import joined_linear

    rows = _rows(1536, 1024)
    parts = [each.detach() for each in rows.split((1024, 256, 256))]
    return lambda x, q, k, v: joined_linear(x, (q, k, v)), [_rows(4, 512, 1024), *parts]


def _norm(*, residual: bool = False, centres: bool = False) -> Case:
    from cutepy.ops import layer_norm, rms_norm

    rows = [_rows(4, 512, 1024) for _ in range(1 + residual)]
    if centres:
        return lambda x, weight, bias: layer_norm(x, (1024,), weight, bias), [*rows, _rows(1024), _rows(1024)]
    if residual:
        return lambda x, r, weight: rms_norm(x, (1024,), weight, residual=r), [*rows, _rows(1024)]
    return lambda x, weight: rms_norm(x, (1024,), weight), [*rows, _rows(1024)]


def _rotary() -> Case:
    from cutepy.ops import rotary

    cos, sin = (_rows(512, 32, dtype=torch.float32) for _ in range(2))
    return lambda x: rotary(x, cos, sin), [_rows(4, 512, 16, 64)]


def _swiglu() -> Case:
    from cutepy.ops import swiglu

    return swiglu, [_rows(4, 512, 1024) for _ in range(2)]


def _softmax() -> Case:
    from cutepy.ops import softmax

    return lambda x: softmax(x, -1), [_rows(4, 512, 1024)]


def _cross_entropy(*, reduction: str) -> Case:
    from cutepy.ops import cross_entropy

    labels = _labels(64)
    return lambda x: cross_entropy(x, labels, reduction=reduction), [_rows(64, 512)]


def _linear_cross_entropy() -> Case:
    from cutepy.ops import linear_cross_entropy

    labels = _labels(64)
    return lambda x, w: linear_cross_entropy(x, w, labels, reduction="sum"), [_rows(64, 64), _rows(512, 64)]


def _layer(*, replaces: bool) -> Case:
    from cutepy.nn import replace

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LlamaForCausalLM(SMALL)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tables = self.model.rotary_emb(x, positions)
            result: torch.Tensor = self.model.layers[0](x, tables)
            return result

    layer = Layer().bfloat16().to("cuda")
    positions = torch.arange(TOKENS[1]).to("cuda")[None]
    if replaces:
        replace(layer)
    own = [*layer.model.layers[0].parameters()]
    return lambda x, *_: layer(x), [torch.zeros(*TOKENS, SMALL.hidden, dtype=torch.bfloat16).to("cuda"), *own]


def _model(*, replaces: bool) -> Case:
    from cutepy.nn import replace

    model = LlamaForCausalLM(SMALL).bfloat16().to("cuda")
    if replaces:
        replace(model)
    tokens = torch.zeros(TOKENS, dtype=torch.int64).to("cuda")
    return lambda *_: model(tokens, tokens), [*model.parameters()]


CASES: dict[str, Callable[[], Case]] = {
    "torch's own": _torchs,
    "gemm": _gemm,
    "gemm, bias": lambda: _gemm(bias=True),
    "gemm, bias, relu": lambda: _gemm(bias=True, activation="relu"),
    "gemm, bias, silu": lambda: _gemm(bias=True, activation="silu"),
    "attention": lambda: _attention(causal=False),
    "attention, causal": lambda: _attention(causal=True),
    "scaled_dot_product_attention": _by_heads,
    "attention_varlen": _varlen,
    "attention_decode": _decode,
    "attention_mla": _mla,
    "joined_linear": _joined,
    "rms_norm": _norm,
    "rms_norm, residual": lambda: _norm(residual=True),
    "layer_norm": lambda: _norm(centres=True),
    "rotary": _rotary,
    "swiglu": _swiglu,
    "softmax": _softmax,
    "cross_entropy, sum": lambda: _cross_entropy(reduction="sum"),
    "cross_entropy": lambda: _cross_entropy(reduction="mean"),
    "linear_cross_entropy": _linear_cross_entropy,
    "layer, torch": lambda: _layer(replaces=False),
    "layer, cutepy": lambda: _layer(replaces=True),
    "model, torch": lambda: _model(replaces=False),
    "model, cutepy": lambda: _model(replaces=True),
}


def times_of(make: Callable[[], Case], rounds: int = ROUNDS, calls: int = CALLS) -> Times:
    """Measure a case."""
    function, given = make()
    tensors = [each.requires_grad_() for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()]

    def clock(run: Callable[[], object], count: int) -> list[float]:
        times = []
        for _ in range(count):
            start = time.process_time()
            run()
            times.append((time.process_time() - start) * 1e6)
        return times

    def forward() -> torch.Tensor:
        results = function(*given)
        return results if isinstance(results, torch.Tensor) else results[0]

    def record(outs: list[torch.Tensor]) -> None:
        outs.append(forward())

    def differentiate(waiting: Iterator[torch.Tensor], grad: torch.Tensor) -> None:
        torch.autograd.grad(next(waiting), tensors, grad)

    if not tensors:  # the call has no derivative
        with torch.no_grad():
            clock(forward, WARM)
            return Times(statistics.median(clock(forward, rounds * calls)), math.nan, math.nan)
    found: list[tuple[list[float], ...]] = []
    for n in range(rounds + 1):
        count, outs = WARM if n == 0 else calls, list[torch.Tensor]()
        with torch.no_grad():
            plain = clock(forward, count)
        recorded = clock(partial(record, outs), count)
        backward = clock(partial(differentiate, iter(outs), torch.ones_like(outs[0])), count)
        found.append((plain, recorded, backward))
    return Times(*(statistics.median(chain(*times)) for times in zip(*found[1:], strict=True)))


def table(found: dict[str, Times]) -> str:
    """Format times."""
    lines = [f"{'us of the host':<24} {'no grad':>8} {'grad':>8} {'backward':>9}"]
    lines += [f"{name:<24} {t.plain:>8.1f} {t.recorded:>8.1f} {t.backward:>9.1f}" for name, t in found.items()]
    return "\n".join(lines)


def main(
    call: Annotated[list[str] | None, typer.Option(help="Name of a call. Default: all.")] = None,
    rounds: int = ROUNDS,
    calls: int = CALLS,
    folder: Annotated[Path, typer.Option(help="Folder of the device's library.")] = Path("build/host_device"),
    launches: Annotated[bool, typer.Option(help="Compile functions, and run their host code.")] = False,
    output: Annotated[Path | None, typer.Option("--json", help="Save the times here.")] = None,
) -> None:
    """Measure calls."""
    with host_device(folder, launches=launches):
        found = {name: times_of(CASES[name], rounds, calls) for name in call or CASES}
    print(table(found))
    if output:
        output.write_text(json.dumps({name: times._asdict() for name, times in found.items()}, indent=1))


if __name__ == "__main__":
    typer.run(main)
