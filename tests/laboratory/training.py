"""Train a language model of four layers of width 2048 on the bytes of the documentation, by torch and by cutepy.

    python -m tests.laboratory.training --json training.json

needs a GPU, and takes two minutes. Each contender makes 300 steps from the same weights, by the same seed, on the same
tokens; one more run of torch's has another seed. Losses that round otherwise part slowly, and those of another seed at
once: ours must be no further from torch's than the latter, and nearly as near as those of torch.compile. A profile of a
step tells where its time goes.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from tests.laboratory.llama_model import LlamaConfig

SEED, RATE, SMOOTHED = 20261130, 3e-4, 20
"""Seed of weights and tokens; rate of learning; steps that a point of a curve is the mean of."""
KINDS = {
    "attention": ("attention", "flash", "fmha", "sdpa"),
    "norm": ("norm",),
    "loss": ("cross_entropy", "nll_loss", "log_softmax", "logsoftmax"),
    "rotary": ("rotary",),
    "gate": ("swiglu", "silu", "gated"),
    "optimizer": ("adam", "multi_tensor"),
    "products": ("gemm", "cutlass", "nvjet", "cublas", "gemv", "split_k", "splitk"),
}
"""Parts of names of kernels, by the part of a step that they are; the others are elementwise, copies and sums."""


class Contender(NamedTuple):
    """A way to train.

    Attributes
    ----------
    replaces : bool
        True if `cutepy.nn.replace` swaps the model's modules.
    compiles : bool
        True if torch.compile compiles the model.
    seed : int
    """

    replaces: bool = False
    compiles: bool = False
    seed: int = SEED


CONTENDERS = {
    "torch": Contender(),
    "torch, another seed": Contender(seed=SEED + 1),
    "torch.compile": Contender(compiles=True),
    "cutepy": Contender(replaces=True),
    "cutepy, compiled": Contender(replaces=True, compiles=True),
}


class Run(NamedTuple):
    """Losses of all steps, the median time of one, by the wall clock, and a profile: microseconds of its parts."""

    losses: list[float]
    step_us: float
    parts: dict[str, float]


def corpus(root: Path) -> bytes:
    """Join the pages of documentation beneath a folder.

    Examples
    --------
    >>> len(corpus(Path("docs"))) > 100_000
    True
    """
    return b"\n".join(path.read_bytes() for path in sorted(root.rglob("*.md")))


def batches(text: bytes, shape: tuple[int, int], seed: int, device: str) -> Iterator[tuple[Any, Any]]:
    """Draw tokens (batch, tokens) and the next ones without end."""
    import torch

    held = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device)
    chance, (batch, tokens) = torch.Generator().manual_seed(seed), shape
    while True:
        first = torch.randint(len(text) - tokens - 1, (batch, 1), generator=chance).to(device)
        drawn = held[first + torch.arange(tokens + 1, device=device)].long()
        yield drawn[:, :-1], drawn[:, 1:]


def trainer(contender: Contender, config: LlamaConfig, device: str) -> Callable[[Any, Any], Any]:
    """Make a function (tokens, labels) -> loss that makes a step: bfloat16, with float32 weights of the optimizer."""
    import torch

    from cutepy.nn import replace
    from tests.laboratory.llama_model import LlamaForCausalLM

    torch.manual_seed(contender.seed)
    model = LlamaForCausalLM(config).to(device)  # drawn on the CPU: the same on all GPUs
    wide = [each.detach().clone().requires_grad_() for each in model.parameters()]
    model.bfloat16()
    if contender.replaces:
        print(replace(model))
    own = [*model.parameters()]
    optimizer = torch.optim.AdamW(wide, lr=RATE, betas=(0.9, 0.95), fused=device == "cuda")
    called = torch.compile(model, dynamic=False) if contender.compiles else model

    def step(tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = called(tokens, labels)
        for parameter, grad in zip(wide, torch.autograd.grad(loss, own), strict=True):
            parameter.grad = grad.float()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(own, wide)
        return loss.detach()

    return step


def train(contender: Contender, config: LlamaConfig, text: bytes, shape: tuple[int, int], steps: int) -> Run:
    """Make so many steps on a GPU."""
    import time

    import torch

    step, tokens = trainer(contender, config, "cuda"), batches(text, shape, contender.seed, "cuda")
    losses, times = [], []
    for _ in range(steps):
        given = next(tokens)
        torch.cuda.synchronize()
        start = time.perf_counter()
        losses.append(step(*given))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    found = [float(loss) for loss in losses]
    return Run(found, statistics.median(times[-steps // 2 :]), profiled(lambda: step(*next(tokens))))


def profiled(run: Callable[[], Any]) -> dict[str, float]:
    """Sum up the microseconds of a step's kernels, by parts, and those in which none runs."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from cutepy.suites.layer import gaps_of

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    events = [each for each in found.events() or () if each.device_type.name == "CUDA"]
    parts = dict.fromkeys([*KINDS, "others"], 0.0)
    for each in events:
        parts[kind_of(each.name)] += each.time_range.elapsed_us()
    gaps = gaps_of((each.time_range.start, each.time_range.end) for each in events)
    return parts | {"none runs": gaps.span_us - gaps.busy_us, "launches": float(gaps.launches)}


def kind_of(name: str) -> str:
    """Return the part of a step that a kernel is, by its name.

    Examples
    --------
    >>> kind_of("cutepy_rms_norm_backward_8x256x1"), kind_of("nvjet_tst_128x256"), kind_of("vectorized_elementwise")
    ('norm', 'products', 'others')
    """
    return next((kind for kind, words in KINDS.items() if any(word in name.lower() for word in words)), "others")


def curve(losses: list[float]) -> list[float]:
    """Smooth losses: means of neighbouring steps."""
    return [statistics.fmean(losses[n : n + SMOOTHED]) for n in range(0, len(losses), SMOOTHED)]


def distance(losses: list[float], others: list[float]) -> float:
    """Return the mean distance of two curves.

    Examples
    --------
    >>> distance([1.0, 3.0], [2.0, 2.5])
    0.25
    """
    return statistics.fmean(abs(x - y) for x, y in zip(curve(losses), curve(others), strict=True))


def complaint(runs: dict[str, Run]) -> str | None:
    """Say what is wrong with the losses of contenders, or None."""
    torchs, noise = runs["torch"].losses, runs["torch, another seed"].losses
    for name, run in runs.items():
        if not all(map(math.isfinite, run.losses)):
            return f"{name} has losses that are no numbers"
        if name.startswith("cutepy") and not distance(run.losses, torchs) <= distance(noise, torchs):
            return f"{name} is further from torch's losses than torch's of another seed"
    return None


def table(runs: dict[str, Run]) -> str:
    """Format the losses, and the time of a step by parts."""
    torchs = runs["torch"].losses
    lines = [f"{'contender':<20} {'loss at 1/3':>11} {'at 2/3':>8} {'at end':>8} {'from torch':>11} {'us a step':>10}"]
    for name, run in runs.items():
        points = curve(run.losses)
        thirds = (points[len(points) * n // 3 - 1] for n in (1, 2, 3))
        shown = " ".join(f"{each:>{width}.4f}" for each, width in zip(thirds, (11, 8, 8), strict=True))
        lines.append(f"{name:<20} {shown} {distance(run.losses, torchs):>11.4f} {run.step_us:>10.0f}")
    names = list(runs["torch"].parts)
    lines += ["", f"{'us of kernels':<20} " + " ".join(f"{name:>10}" for name in names)]
    lines += [f"{name:<20} " + " ".join(f"{run.parts[each]:>10.0f}" for each in names) for name, run in runs.items()]
    return "\n".join(lines)


def main(
    steps: int = 300,
    batch: int = 8,
    tokens: int = 512,
    contender: Annotated[list[str] | None, typer.Option(help="Besides torch's two. Default: all.")] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Save losses and times here.")] = None,
) -> None:
    """Train, and compare losses and times."""
    text, runs = corpus(Path(__file__).parents[2] / "docs"), dict[str, Run]()
    wanted = {"torch", "torch, another seed", *(contender or CONTENDERS)}
    for name, each in CONTENDERS.items():
        if name in wanted:
            runs[name] = train(each, LlamaConfig(), text, (batch, tokens), steps)
            if output:
                output.write_text(json.dumps({key: run._asdict() for key, run in runs.items()}, indent=1))
    print(table(runs))
    if reason := complaint(runs):
        print(f"WRONG: {reason}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
