"""A decoder layer of Llama 3 in parts that cutepy and torch compute, for `cutepy bench layer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch.nn import functional

from cutepy import ops

Suite = Literal["train", "decode"]
THETA, EPS = 500_000.0, 1e-5


@dataclass(frozen=True)
class LayerSizes:
    """Sizes of a decoder layer: Llama 3 8B's by default.

    Attributes
    ----------
    hidden, intermediate : int
        Features of the residual stream, and within the gated activation.
    heads, key_heads, head : int
        Of queries, of keys and values, and features of each.
    """

    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    key_heads: int = 8
    head: int = 128

    @property
    def projected(self) -> int:
        """Features of queries, keys and values."""
        return (self.heads + 2 * self.key_heads) * self.head

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights, (outputs, inputs), by name."""
        return {
            "norm": (self.hidden,),
            "qkv": (self.projected, self.hidden),
            "out": (self.hidden, self.heads * self.head),
            "norm of mlp": (self.hidden,),
            "gate and up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
        }


@dataclass(frozen=True)
class LayerProblem:
    """A step of a layer in bfloat16: forward and backward of sequences, or a token of each with cached keys.

    Attributes
    ----------
    suite : str
        "train" or "decode".
    batch, tokens : int
        Sequences; tokens of each, or cached keys of each.
    sizes : LayerSizes
    """

    suite: Suite
    batch: int
    tokens: int
    sizes: LayerSizes = LayerSizes()

    def __str__(self) -> str:
        return f"{self.suite} {self.batch}x{self.tokens}"

    @property
    def rows(self) -> int:
        """Tokens that are computed."""
        return self.batch * (self.tokens if self.suite == "train" else 1)

    @property
    def flops(self) -> float:
        """Operations of the products, and of attention; backward takes two products for each, and attention 2.5.

        Examples
        --------
        >>> round(LayerProblem("train", 1, 4096).flops / 1e12, 2), round(LayerProblem("decode", 8, 4096).flops / 1e9, 2)
        (5.84, 4.03)
        """
        sizes = self.sizes
        products = 2.0 * self.rows * sum(n * k for n, *ks in sizes.weights.values() for k in ks)
        seen = self.tokens / 2 if self.suite == "train" else self.tokens
        attention = 4.0 * self.rows * seen * sizes.heads * sizes.head
        return 3 * products + 3.5 * attention if self.suite == "train" else products + attention

    @property
    def bytes(self) -> float:
        """Bytes of weights, read forward and backward, and of their gradients; or of weights and cached keys."""
        sizes = self.sizes
        weights = 2.0 * sum(n * k for n, *ks in sizes.weights.values() for k in ks)
        cached = 4.0 * self.batch * self.tokens * sizes.key_heads * sizes.head
        return 3 * weights if self.suite == "train" else weights + cached


class LayerFunctions(NamedTuple):
    """Functions of one library for the parts of a layer.

    Attributes
    ----------
    norm : callable
        (x, weight) -> normalised x.
    norm_of_sum : callable
        (x, residual, weight) -> normalised sum, sum.
    linear, linear_added : callable
        (x, weight) -> product; (x, weight, residual) -> product and residual.
    rotary : callable
        (q, cos, sin) -> rotated q, (batch, tokens, heads, head).
    rotary_cached : callable
        (q, k, v, cos, sin, keys, values, lengths) -> rotated q; rotated k, and v, go to the caches' last place.
    attention, attention_cached : callable
        (q, k, v) -> causal attention; (q, keys, values) -> that of a query of each sequence with cached keys.
    swiglu : callable
        (gate and up) -> silu(gate) * up.
    """

    norm: Callable[..., Any]
    norm_of_sum: Callable[..., Any]
    linear: Callable[..., Any]
    linear_added: Callable[..., Any]
    rotary: Callable[..., Any]
    rotary_cached: Callable[..., Any]
    attention: Callable[..., Any]
    attention_cached: Callable[..., Any]
    swiglu: Callable[..., Any]


def kit_of_torch() -> LayerFunctions:
    """Compute by torch's functions."""

    def norm_of_sum(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return functional.rms_norm(total, weight.shape, weight, EPS), total

    def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

    def rotary_cached(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        q, k = (rotary(each, cos[-1:], sin[-1:]) for each in (q, k))
        for cache, new in ((keys, k), (values, v)):
            cache[:, -1:].copy_(new)
        return q

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return found.transpose(1, 2)

    def swiglu(x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up

    return LayerFunctions(
        lambda x, weight: functional.rms_norm(x, weight.shape, weight, EPS),
        norm_of_sum,
        functional.linear,
        lambda x, weight, residual: residual + functional.linear(x, weight),
        rotary,
        rotary_cached,
        attention,
        lambda q, k, v: attention(q, k, v, causal=False),
        swiglu,
    )


def kit_of_cutepy() -> LayerFunctions:
    """Compute by cutepy's operations."""
    return LayerFunctions(
        lambda x, weight: ops.rms_norm(x, weight.shape, weight, EPS),
        lambda x, residual, weight: ops.rms_norm(x, weight.shape, weight, EPS, residual=residual),
        lambda x, weight: ops.gemm(x, weight),
        lambda x, weight, residual: ops.gemm(x, weight, c=residual),
        ops.rotary,
        ops.rotary_cached,
        lambda q, k, v: ops.attention(q, k, v, causal=True),
        ops.attention_decode,
        ops.swiglu,
    )


class ProblemTensors(NamedTuple):
    """Tensors of a problem.

    Attributes
    ----------
    x : list of Tensor (batch, tokens, hidden)
        One of each set.
    dy : Tensor, as x
    weights : dict of str to Tensor
    cos, sin : Tensor (tokens, head / 2)
        Of all positions.
    caches : tuple of Tensor (batch, tokens, key heads, head)
        Of keys and values, whose last place each step writes; of "decode" only.
    lengths : Tensor (batch,), int32
        Tokens that are cached before the step.
    """

    x: list[torch.Tensor]
    dy: torch.Tensor
    weights: dict[str, torch.Tensor]
    cos: torch.Tensor
    sin: torch.Tensor
    caches: tuple[torch.Tensor, ...]
    lengths: torch.Tensor

    def double(self) -> ProblemTensors:
        """Give the same in float64."""
        return ProblemTensors(
            [each.double() for each in self.x],
            self.dy.double(),
            {name: each.double() for name, each in self.weights.items()},
            self.cos.double(),
            self.sin.double(),
            tuple(each.double() for each in self.caches),
            self.lengths,
        )


def make(problem: LayerProblem, device: str = "cuda", sets: int = 2) -> ProblemTensors:
    """Make random tensors, of which weights have the variance that keeps a layer's."""
    sizes, chance = problem.sizes, torch.Generator(device).manual_seed(0)
    trains = problem.suite == "train"

    def drawn(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=chance, device=device) * scale).bfloat16()

    weights = {
        name: 1 + drawn(*shape, scale=0.1) if len(shape) == 1 else drawn(*shape, scale=shape[1] ** -0.5)
        for name, shape in sizes.weights.items()
    }
    tokens = problem.tokens if trains else 1
    positions = torch.arange(problem.tokens, device=device)
    angles = torch.outer(positions, THETA ** (-torch.arange(0, sizes.head, 2, device=device) / sizes.head))
    shape = problem.batch, tokens, sizes.hidden
    cache = problem.batch, problem.tokens, sizes.key_heads, sizes.head
    return ProblemTensors(
        [drawn(*shape) for _ in range(sets)],
        drawn(*shape),
        weights,
        angles.cos().bfloat16(),
        angles.sin().bfloat16(),
        () if trains else (drawn(*cache), drawn(*cache)),
        torch.full((problem.batch,), problem.tokens - 1, device=device, dtype=torch.int32),
    )


class Part(NamedTuple):
    """A part of a layer with its arguments.

    Attributes
    ----------
    name : str
    function : callable
    given : tuple of Tensor
    """

    name: str
    function: Callable[..., Any]
    given: tuple[torch.Tensor, ...]


class Watch(Protocol):
    """Function that is told of each part, and calls it."""

    def __call__(self, name: str, function: Callable[..., Any], *given: torch.Tensor) -> Any:  # noqa: ANN401
        """Call the part's function."""


def call(name: str, function: Callable[..., Any], *given: torch.Tensor) -> Any:  # noqa: ANN401
    """Call a part."""
    return function(*given)


def layer(
    problem: LayerProblem, kit: LayerFunctions, made: ProblemTensors, x: torch.Tensor, watch: Watch = call
) -> torch.Tensor:
    """Compute the layer, each part by way of `watch`."""
    sizes, weights, tables = problem.sizes, made.weights, (made.cos, made.sin)
    normal = watch("norm", kit.norm, x, weights["norm"])
    projected = watch("qkv", kit.linear, normal, weights["qkv"])
    parts = projected.unflatten(-1, (-1, sizes.head)).split((sizes.heads, sizes.key_heads, sizes.key_heads), -2)
    if made.caches:
        q = watch("rotary and cache", kit.rotary_cached, *parts, *tables, *made.caches, made.lengths)
        mixed = watch("attention", kit.attention_cached, q, *made.caches)
    else:
        q, k = (watch(f"rotary {name}", kit.rotary, each, *tables) for name, each in zip("qk", parts, strict=False))
        mixed = watch("attention", kit.attention, q, k, parts[2])
    update = watch("out", kit.linear, mixed.flatten(2), weights["out"])
    normal, total = watch("norm of mlp", kit.norm_of_sum, update, x, weights["norm of mlp"])
    gated = watch("swiglu", kit.swiglu, watch("gate and up", kit.linear, normal, weights["gate and up"]))
    result: torch.Tensor = watch("down", kit.linear_added, gated, weights["down"], total)
    return result


def parts_of(problem: LayerProblem, kit: LayerFunctions, made: ProblemTensors) -> list[Part]:
    """List the parts of a layer, each with its arguments of the first set."""
    found: list[Part] = []

    def keep(name: str, function: Callable[..., Any], *given: torch.Tensor) -> Any:  # noqa: ANN401
        found.append(Part(name, function, tuple(each.detach() for each in given)))
        return function(*given)

    with torch.no_grad():
        layer(problem, kit, made, made.x[0], keep)
    return found


def step(
    problem: LayerProblem, function: Callable[..., Any], given: Sequence[torch.Tensor], dy: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Compute the results of a function, and the gradients of its arguments where a layer is trained."""
    if problem.suite == "decode":
        with torch.no_grad():
            return _several(function(*given))
    own = [each.detach().requires_grad_() for each in given]
    results = _several(function(*own))
    grads = [each.to(result.dtype) for each, result in zip(dy, results, strict=True)]
    return (*results, *torch.autograd.grad(results, own, grads, allow_unused=True))


def _several(results: Any) -> tuple[torch.Tensor, ...]:  # noqa: ANN401
    return results if isinstance(results, tuple) else (results,)
