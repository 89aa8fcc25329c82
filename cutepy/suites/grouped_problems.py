"""Problems of `cutepy bench grouped`, and their buffers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch

from cutepy import benchmark
from cutepy.ops import quantise

Along = Literal["m", "k"]
Routing = Literal["balanced", "skewed"]
Kind = Literal["bfloat16", "row", "block"]
ROUTINGS = get_args(Routing)
FORMS = get_args(Along)
KINDS = get_args(Kind)
_BLOCKS = {("row", "m"): ((1, 0), (1, 0)), ("block", "m"): ((1, 128), (128, 128)), ("block", "k"): ((1, 128), (1, 128))}
"""Blocks of A and B with one scale."""


@dataclass(frozen=True)
class GroupedProblem:
    """Tokens routed to experts: their products by the experts' weights, or the weights' gradients.

    Attributes
    ----------
    groups, tokens, n, k : int
        Experts; rows of all; columns of the result and of the tokens.
    routing : "balanced" or "skewed"
        True if experts get equal shares, or such as fall off as 1, 1/2, 1/3, ...
    along : "m" or "k"
        Rows by weights, (tokens, k) x (groups, n, k); or (n, tokens) x (k, tokens), a product for each expert.
    kind : "bfloat16", "row" or "block"
        Of elements; or of scales of e4m3 ones. Experts have whole 128 tokens where groups of such are along K.
    """

    groups: int
    tokens: int
    n: int
    k: int
    routing: Routing = "balanced"
    along: Along = "m"
    kind: Kind = "bfloat16"

    def __str__(self) -> str:
        kind = self.kind if self.kind == "bfloat16" else f"fp8 {self.kind}"
        return f"{kind} {self.groups} {self.routing} along {self.along} {self.tokens}x{self.n}x{self.k}"

    @property
    def sizes(self) -> list[int]:
        """Tokens of each expert.

        Examples
        --------
        >>> GroupedProblem(4, 64, 8, 8).sizes, sum(GroupedProblem(4, 64, 8, 8, "skewed").sizes)
        ([16, 16, 16, 16], 64)
        """
        unit = 128 if self.kind != "bfloat16" and self.along == "k" else 1
        units = self.tokens // unit
        if self.routing == "balanced":
            cuts = [units * group // self.groups for group in range(self.groups + 1)]
            return [unit * (end - start) for start, end in itertools.pairwise(cuts)]
        chance = random.Random(self.groups)
        chosen = chance.choices(range(self.groups), [1 / (group + 1) for group in range(self.groups)], k=units)
        sizes = [unit * chosen.count(group) for group in range(self.groups)]
        chance.shuffle(sizes)
        return sizes

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term."""
        return 2.0 * self.tokens * self.n * self.k

    @property
    def bytes(self) -> float:
        """Bytes of the inputs, weights of experts with tokens only, and of the result, once each."""
        experts = sum(size > 0 for size in self.sizes) if self.along == "m" else self.groups
        operand = 2.0 if self.kind == "bfloat16" else 1.0
        x, y, weights = self.tokens * self.k, self.tokens * self.n, experts * self.n * self.k
        return operand * (x + weights) + 2.0 * y if self.along == "m" else operand * (x + y) + 2.0 * weights


def grouped_problems(
    groups: Sequence[int], routings: Sequence[Routing], forms: Sequence[Along], kinds: Sequence[Kind] = ("bfloat16",)
) -> list[GroupedProblem]:
    """List the problems: 4096 tokens, between 7168 and 4096 columns, either way; those along K have no scales of rows.

    Examples
    --------
    >>> print(*grouped_problems([8], ["skewed"], ["m"]), sep=", ")
    bfloat16 8 skewed along m 4096x4096x7168, bfloat16 8 skewed along m 4096x7168x4096
    """
    return [
        GroupedProblem(count, 4096, n, k, routing, along, kind)
        for kind in kinds
        for along in forms
        if kind == "bfloat16" or (kind, along) in _BLOCKS
        for count in groups
        for routing in routings
        for n, k in ((4096, 7168), (7168, 4096))
    ]


class Buffers(NamedTuple):
    """Sets of the tensors of a problem, with more bytes than the L2 cache.

    Attributes
    ----------
    a, b : list of Tensor
        One of each set.
    scale_a, scale_b : list of Tensor
        Of 8-bit ones.
    ends : Tensor
        The groups' ends.
    """

    a: list[torch.Tensor]
    b: list[torch.Tensor]
    scale_a: list[torch.Tensor]
    scale_b: list[torch.Tensor]
    ends: torch.Tensor


def buffers(problem: GroupedProblem, device: str = "cuda") -> Buffers:
    """Make sets of random normal operands."""
    ends = torch.tensor(problem.sizes, device=device).cumsum(0).int()
    sets = Buffers([], [], [], [], ends)
    groups, tokens, n, k = problem.groups, problem.tokens, problem.n, problem.k
    shapes = ((tokens, k), (groups, n, k)) if problem.along == "m" else ((tokens, n), (tokens, k))
    for _ in range(benchmark.buffer_sets(int(problem.bytes))):
        for kept, scales, shape, of in zip(sets[:2], sets[2:4], shapes, (0, 1), strict=True):
            x = torch.randn(shape, device=device, dtype=torch.bfloat16)
            x = x if problem.along == "m" else x.mT
            if problem.kind != "bfloat16":
                each = [
                    quantise(part, _BLOCKS[problem.kind, problem.along][of]) for part in (x if x.dim() > 2 else [x])
                ]
                x, scale = (torch.stack(made) if len(shape) > 2 else made[0] for made in zip(*each, strict=True))
                scales.append(scale)
            kept.append(x)
    return sets
