"""Problems of `cutepy bench attention`, and their buffers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch

from cutepy import benchmark

Suite = Literal["forward", "backward", "varlen", "masks", "decode", "e4m3", "mla"]
SUITES = get_args(Suite)
Rule = Literal["", "causal", "window", "soft cap", "documents"]
RULES: tuple[Rule, ...] = ("causal", "window", "soft cap", "documents")
"""Of the masks suite: the position, at most `WINDOW` keys, scores bent by `SOFT_CAP`, keys of the same document."""
WINDOW, SOFT_CAP, DOCUMENTS = 1024, 30.0, 16
_TOKENS, _COLUMNS, _MASKED = 16384, 2048, 4096
"""Tokens, and columns of all heads, of the problems of the first four suites; keys of those with masks."""
_SEQUENCES = 64
"""Sequences of the varlen suite."""
_LATENT, _LATENT_PAGE = (576, 512), 64
"""Elements of a latent row, and those of them that are values; rows of a page."""
_LATENT_BATCHES = ((128, 128, 1), (128, 128, 2), (128, 16, 1), (1, 128, 1))
"""Sequences, heads and new queries of the mla suite."""
PAGED = ("decode", "mla")
"""Suites of new queries and of keys in pages."""


@dataclass(frozen=True)
class AttentionProblem:
    """Attention of a batch.

    Attributes
    ----------
    suite : str
        "forward" and "backward" have one length, "varlen" packed sequences of different ones, "decode" one query a
        sequence and pages of keys, "masks" one length and a rule, "e4m3" one length and 8-bit inputs, "mla" pages of
        latent rows.
    batch, keys, heads, kv_heads, head : int
        `keys` are those of each sequence, and its queries, but for decoding; with "varlen", those of all together.
    causal : bool
    page : int
        Keys of a page.
    new : int
        Queries of each sequence, of the suites of pages.
    rule : str
        One of `RULES`, of the masks suite. Each is causal too.
    """

    suite: Suite
    batch: int
    keys: int
    heads: int
    kv_heads: int
    head: int
    causal: bool = False
    page: int = 0
    new: int = 1
    rule: Rule = ""

    def __str__(self) -> str:
        shape = f"{self.batch}x{self.keys}" + (f" pages of {self.page}" if self.page else "")
        shape += f" {self.new} queries" if self.new > 1 else ""
        words = self.suite, shape, f"{self.heads}:{self.kv_heads}x{self.head}", self.rule or "causal" * self.causal
        return " ".join(filter(None, words))

    @property
    def lengths(self) -> list[int]:
        """Keys of each sequence: with "varlen" they fall off as 1, 1/2, 1/3, ..., in any order.

        Examples
        --------
        >>> AttentionProblem("varlen", 3, 110, 1, 1, 64).lengths
        [30, 20, 60]
        """
        return falling_lengths(self.keys, self.batch) if self.suite == "varlen" else [self.keys] * self.batch

    @property
    def documents(self) -> list[int]:
        """Tokens of each document of a sequence, with the rule of that name; else of one."""
        return falling_lengths(self.keys, DOCUMENTS) if self.rule == "documents" else [self.keys]

    @property
    def queries(self) -> list[int]:
        """Queries of each sequence."""
        return [self.new] * self.batch if self.suite in PAGED else self.lengths

    @property
    def value(self) -> int:
        """Extent of a row of values."""
        return _LATENT[1] if self.suite == "mla" else self.head

    @property
    def flops(self) -> float:
        """Operations of the products; of half the pairs with a causal mask, as FlashAttention counts."""
        columns = 5 * self.head if self.suite == "backward" else self.head + self.value
        return 2.0 * columns * self._pairs * self.heads

    @property
    def _pairs(self) -> float:
        """Pairs of a query and a key that it sees, of one head."""
        if self.suite in PAGED:
            return float(self.batch * self.new * self.keys)
        if self.rule == "window":
            return self.batch * (self.keys * WINDOW - WINDOW**2 / 2)
        lengths = self.documents * self.batch if self.rule else self.lengths
        return sum(length**2 for length in lengths) / (2 if self.causal else 1)

    @property
    def bytes(self) -> float:
        """Bytes of the inputs and results, once each."""
        q = 2.0 * sum(self.queries) * self.heads * self.head
        k = 2.0 * sum(self.lengths) * self.kv_heads * self.head
        if self.suite == "mla":  # values are a part of the keys
            return q / self.head * (self.head + self.value) + k
        if self.suite == "e4m3":
            return 1.5 * q + k
        return 4 * q + 4 * k if self.suite == "backward" else 2 * q + 2 * k


def falling_lengths(tokens: int, parts: int) -> list[int]:
    """Divide tokens into parts as large as 1, 1/2, 1/3, ..., in any order.

    Examples
    --------
    >>> falling_lengths(110, 3)
    [30, 20, 60]
    """
    shares = [1 / (rank + 1) for rank in range(parts)]
    lengths = [int(tokens * share / sum(shares) + 1e-9) for share in shares]
    lengths[0] += tokens - sum(lengths)
    random.Random(parts).shuffle(lengths)
    return lengths


def attention_problems(suite: Suite, heads: Sequence[int], keys: Sequence[int]) -> list[AttentionProblem]:
    """List the problems of a suite.

    Parameters
    ----------
    suite : str
    heads : sequence of int
        Extents of a row; of "mla" it is 576.
    keys : sequence of int
        Keys of a sequence, where all have as many.

    Examples
    --------
    >>> print(*attention_problems("forward", [128], [512]), sep=", ")
    forward 32x512 16:16x128, forward 32x512 16:16x128 causal
    >>> print(attention_problems("decode", [128], [8192])[0])
    decode 1x8192 pages of 16 64:8x128
    >>> print(attention_problems("mla", [], [4096])[1])
    mla 128x4096 pages of 64 2 queries 128:1x576 causal
    """
    if suite == "mla":
        return [
            AttentionProblem(suite, batch, each, count, 1, _LATENT[0], new > 1, _LATENT_PAGE, new)
            for each in keys
            for batch, count, new in _LATENT_BATCHES
        ]
    found = []
    for head in heads:
        count = _COLUMNS // head
        if suite == "varlen":
            found += [
                AttentionProblem(suite, _SEQUENCES, _TOKENS, count, kv_heads, head, causal)
                for kv_heads in (count, max(count // 8, 1))
                for causal in (False, True)
            ]
        elif suite == "masks":
            found += [
                AttentionProblem(suite, batch, _TOKENS // batch, count, max(count // 8, 1), head, True, rule=rule)
                for rule in RULES
                for batch in (_TOKENS // _MASKED if rule != "documents" else 1,)
            ]
        elif suite == "decode":
            found += [
                AttentionProblem(suite, batch, each, 64, 8, head, False, page)
                for each in keys
                for batch in (1, 16, 128)
                for page in (16, 64, 256)
                if batch * each <= 1 << 21
            ]
        else:
            found += [
                AttentionProblem(suite, max(_TOKENS // each, 1), each, count, count, head, causal)
                for each in keys
                for causal in (False, True)
            ]
    return found


class Buffers(NamedTuple):
    """Sets of the tensors of a problem, with more bytes than the L2 cache.

    Attributes
    ----------
    q, k, v, do : list of Tensor
        One of each set; `do` of "backward" only.
    bounds : Tensor
        First query of each sequence, and the end.
    lengths : Tensor
        Keys of each sequence.
    table : Tensor
        Pages of each sequence; without columns where there are none.
    """

    q: list[torch.Tensor]
    k: list[torch.Tensor]
    v: list[torch.Tensor]
    do: list[torch.Tensor]
    bounds: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor


def buffers(problem: AttentionProblem, device: str = "cuda") -> Buffers:
    """Make sets of random normal tensors; pages of the sequences are in any order."""
    lengths = torch.tensor(problem.lengths, device=device, dtype=torch.int32)
    bounds = torch.tensor([0, *problem.queries], device=device).cumsum(0).int()
    page = problem.page or 1
    pages = problem.batch * -(-problem.keys // page) if problem.page else 0
    table = torch.randperm(pages, device=device).int().view(problem.batch, -1)
    heads = {"q": problem.heads, "k": problem.kv_heads, "v": problem.kv_heads, "do": problem.heads}
    shapes = {
        "varlen": ((problem.keys,),) * 2,
        **dict.fromkeys(PAGED, ((problem.batch, problem.new), (pages, page))),
    }.get(problem.suite, ((problem.batch, problem.keys),) * 2)
    dtype = torch.float8_e4m3fn if problem.suite == "e4m3" else torch.bfloat16
    sets = Buffers([], [], [], [], bounds, lengths, table)
    for _ in range(benchmark.buffer_sets(int(problem.bytes))):
        for name, kept in zip(heads, sets[:4], strict=True):
            if name == "v" and problem.suite == "mla":
                kept.append(sets.k[-1][..., : problem.value])
            elif name != "do" or problem.suite == "backward":
                tokens = shapes[name in "kv"]
                kept.append(torch.randn(*tokens, heads[name], problem.head, device=device).to(dtype))
    return sets


Result = Callable[[int], "torch.Tensor"]
"""Function that computes the result of one set: O, or dQ, dK and dV in a row."""


def wanted(problem: AttentionProblem, made: Buffers) -> torch.Tensor:
    """Compute the result of the first set in float64, a head at a time."""
    q, k, v = (each[0] for each in made[:3])
    group = problem.heads // problem.kv_heads
    parts = []
    for head in range(problem.heads):
        tensors = [q[..., head, :], k[..., head // group, :], v[..., head // group, :]]
        if problem.suite in PAGED:
            tensors[1:] = [each[made.table.long()].flatten(1, 2)[:, : problem.keys] for each in tensors[1:]]
        rows = [each.double().requires_grad_(problem.suite == "backward") for each in tensors]
        if problem.suite == "varlen":
            cuts = (each.split(problem.lengths) for each in rows)
            found = torch.cat([_attend(*each, causal=problem.causal) for each in zip(*cuts, strict=True)])
        elif problem.rule:
            found = torch.stack([_attend_by_rule(problem, *each) for each in zip(*rows, strict=True)])
        else:
            found = torch.stack([_attend(*each, causal=problem.causal) for each in zip(*rows, strict=True)])
        if problem.suite == "backward":
            grads = torch.autograd.grad(found, rows, made.do[0][..., head, :].double())
            found = torch.stack([each.detach() for each in grads])
        parts.append(found.detach())
    return torch.stack(parts, -2)


def _attend_by_rule(problem: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend to one sequence with the rule of the masks suite; documents one after the other."""
    if problem.rule == "documents":
        cuts = (each.split(problem.documents) for each in (q, k, v))
        return torch.cat([_attend(*each, causal=True) for each in zip(*cuts, strict=True)])
    if problem.rule == "causal":
        return _attend(q, k, v, causal=True)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if problem.rule == "soft cap":
        scores = SOFT_CAP * torch.tanh(scores / SOFT_CAP)
    seen = torch.ones(scores.shape, dtype=torch.bool, device=q.device).tril()
    if problem.rule == "window":
        seen = seen.triu(1 - WINDOW)
    return torch.where(seen, scores, -torch.inf).softmax(-1) @ v


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape, dtype=torch.bool, device=q.device).triu(1 + k.shape[0] - q.shape[0])
        scores = scores.masked_fill(hidden, -torch.inf)
    found: torch.Tensor = scores.softmax(-1) @ v
    return found
