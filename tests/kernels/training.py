"""Train a byte-level language model by torch, torch.compile and cutepy: `python -m tests.kernels.training` on a GPU.

Each contender begins with the same weights and sees the same batches of the documentation's text. The distance of two
loss curves is the largest difference of their means over 20 steps. That of torch and torch.compile, which round
differently, is the noise; cutepy's distance from torch is compared with it. A step's time is that of its kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

import cutepy
from cutepy.suites.layer_parts import LayerFunctions, LayerProblem, LayerSizes, kit_of_cutepy, kit_of_torch, layer, make

DOCS = Path(__file__).parents[2] / "docs"
CLASSES = 256
ALLOWED = 2.0
"""Largest ratio of cutepy's distance to the noise, which is known from one pair of runs alone; 1.12 was measured."""
WINDOW = 20
"""Steps over which losses are averaged before curves are compared."""
RATE, WARM_UP = 3e-4, 20
"""AdamW's learning rate, and the steps over which it rises to that."""

Watch = Callable[..., Any]


@dataclass(frozen=True)
class Model:
    """A decoder of `layers` layers of the problem's sizes, which predicts the next byte.

    Attributes
    ----------
    problem : LayerProblem
        Of suite "train".
    layers : int
    """

    problem: LayerProblem
    layers: int = 4

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights, by name."""
        hidden = self.problem.sizes.hidden
        each = self.problem.sizes.weights.items()
        of_layers = {f"{name} {index}": shape for index in range(self.layers) for name, shape in each}
        return {"embedding": (CLASSES, hidden), **of_layers, "last norm": (hidden,), "head": (CLASSES, hidden)}

    def draw(self, device: str) -> dict[str, torch.Tensor]:
        """Draw the weights, float32."""
        chance = torch.Generator(device).manual_seed(0)
        return {
            name: torch.ones(shape, device=device)
            if len(shape) == 1
            else torch.randn(shape, generator=chance, device=device) * 0.02
            for name, shape in self.shapes.items()
        }


class Contender(NamedTuple):
    """Way to compute a model.

    Attributes
    ----------
    kit : LayerFunctions
    loss : callable
        (hidden, weight, labels) -> mean cross entropy.
    compiled : bool
        True for torch.compile.
    """

    kit: LayerFunctions
    loss: Callable[..., torch.Tensor]
    compiled: bool = False


def of_torch(*, compiled: bool = False) -> Contender:
    """Compute by torch, or by the kernels that torch.compile makes."""

    def loss(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional.linear(hidden, weight).float(), labels)

    return Contender(kit_of_torch(), loss, compiled)


def of_cutepy() -> Contender:
    """Compute by cutepy's operations."""
    from cutepy import ops

    return Contender(kit_of_cutepy(), partial(ops.linear_cross_entropy, out_dtype=torch.float32))


def scoped(name: str, function: Callable[..., Any], *given: torch.Tensor) -> Any:
    """Call a part within a scope of its name, with both rotations in one."""
    with cutepy.scope(name.removesuffix(" q").removesuffix(" k")):
        return function(*given)


def loss_of(
    model: Model, contender: Contender, weights: dict[str, torch.Tensor], tables: Any, text: torch.Tensor
) -> torch.Tensor:
    """Return the mean loss of a batch of text, (sequences, tokens + 1) bytes, in bfloat16."""
    halves = scoped("cast", lambda: {name: each.bfloat16() for name, each in weights.items()})
    x = scoped("embedding", functional.embedding, text[:, :-1], halves["embedding"])
    for index in range(model.layers):
        own = {name: halves[f"{name} {index}"] for name in model.problem.sizes.weights}
        x = layer(model.problem, contender.kit, tables._replace(weights=own), x, scoped)
    hidden = scoped("last norm", contender.kit.norm, x, halves["last norm"])
    return scoped("loss", contender.loss, hidden.flatten(0, 1), halves["head"], text[:, 1:].flatten())


@dataclass(frozen=True)
class Training:
    """Outcome of a contender's training.

    Attributes
    ----------
    losses : list of float
        One of each step.
    step_us : float
        Median time of a step's kernels after the first fifth, by events on the stream.
    parts : dict of str to float
        Microseconds of a step's kernels, forward and backward, by part; "" has those of no part.
    """

    losses: list[float]
    step_us: float
    parts: dict[str, float]


def batches(model: Model, steps: int, device: str, text: bytes | None = None) -> list[torch.Tensor]:
    """Draw batches of a text, that of the documentation by default: (sequences, tokens + 1) int64 each."""
    if text is None:
        text = b"".join(file.read_bytes() for file in sorted(DOCS.glob("*.md")))
    codes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    chance, tokens = torch.Generator().manual_seed(1), model.problem.tokens
    firsts = torch.randint(len(codes) - tokens, (steps, model.problem.batch), generator=chance)
    return [torch.stack([codes[first : first + tokens + 1] for first in row]).long().to(device) for row in firsts]


def train(model: Model, contender: Contender, given: Sequence[torch.Tensor], *, profiled: bool = False) -> Training:
    """Train on batches, from the same weights each time."""
    device = given[0].device
    weights = {name: each.requires_grad_() for name, each in model.draw(device.type).items()}
    tables = make(model.problem, device.type, sets=0)
    adam = torch.optim.AdamW(list(weights.values()), lr=RATE, betas=(0.9, 0.95), fused=device.type == "cuda")
    function: Callable[..., torch.Tensor] = loss_of
    if contender.compiled:
        function = torch.compile(loss_of, dynamic=False)

    def step(index: int) -> torch.Tensor:
        for group in adam.param_groups:
            group["lr"] = RATE * min(1.0, (index + 1) / WARM_UP)
        loss = function(model, contender, weights, tables, given[index])
        loss.backward()
        with cutepy.scope("optimizer"):
            adam.step()
        adam.zero_grad()
        return loss.detach()

    losses, spans = [], []
    for index in range(len(given)):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "ab") if device.type == "cuda" else (None, None)
        if begin is not None:
            begin.record()
        losses.append(step(index))
        if end is not None:
            end.record()
            spans.append((begin, end))
    if spans:
        torch.cuda.synchronize()
    times = [begin.elapsed_time(end) * 1e3 for begin, end in spans[len(spans) // 5 :]]
    parts = parts_of(lambda: step(len(given) - 1)) if profiled else {}
    return Training([float(each) for each in losses], statistics.median(times) if times else 0.0, parts)


def parts_of(step: Callable[[], Any]) -> dict[str, float]:
    """Profile a step: microseconds of kernels by its outer scopes, without those that the kernel before ran too."""
    step()
    with cutepy.profile() as found:
        step()
    tree = found.tree()
    outer = [node for node in tree.children.values() if node.kind == "scope"]
    scopes = {node.name: (node.time_ns - node.overlap_ns) / 1e3 for node in outer}
    scopes[""] = (tree.time_ns - tree.overlap_ns) / 1e3 - sum(scopes.values())
    return scopes


def distance(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest difference of two curves, each averaged over `WINDOW` steps.

    Examples
    --------
    >>> distance([3.0] * 20 + [1.0] * 20, [3.0] * 20 + [1.5] * 20)
    0.5
    """
    means = [
        [statistics.fmean(curve[at : at + WINDOW]) for at in range(len(curve) - WINDOW + 1)]
        for curve in (losses, others)
    ]
    return max(abs(one - other) for one, other in zip(*means, strict=True))


def main() -> int:
    """Train by all contenders, print a table, and save it."""
    parser = argparse.ArgumentParser(description="Train a byte-level language model by torch and by cutepy.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = Model(LayerProblem("train", 8, 512, LayerSizes(2048, 5632, 16, 4, 128)))
    given = batches(model, options.steps, "cuda")
    found = {
        "torch": train(model, of_torch(), given, profiled=True),
        "torch.compile": train(model, of_torch(compiled=True), given),
        "cutepy": train(model, of_cutepy(), given, profiled=True),
    }
    noise = distance(found["torch"].losses, found["torch.compile"].losses)
    own = distance(found["torch"].losses, found["cutepy"].losses)
    for name, each in found.items():
        last = statistics.fmean(each.losses[-WINDOW:])
        print(f"{name}: loss {each.losses[0]:.3f} to {last:.4f}; a step in {each.step_us:.0f} us")
    print(f"distance from torch: cutepy {own:.4f}, torch.compile {noise:.4f}")
    by_torch, by_cutepy = found["torch"].parts, found["cutepy"].parts
    for part, us in by_torch.items():
        print(f"{part or 'others'}: torch {us:.0f} us, cutepy {by_cutepy.get(part, 0.0):.0f}")
    if options.json is not None:
        options.json.write_text(json.dumps({name: vars(each) for name, each in found.items()}) + "\n")
    return 0 if own <= ALLOWED * noise else 1


if __name__ == "__main__":
    sys.exit(main())
