"""`cutepy bench grouped`: time products of groups (mixture of experts) against torch's, and check every result."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from cutepy.suites.measuring import Output, measure_all, timed

if TYPE_CHECKING:
    import torch

    from cutepy.benchmark import Row
    from cutepy.benchmark.protocol import Contender

Along = Literal["m", "k"]
Routing = Literal["balanced", "skewed"]
ROUTINGS = get_args(Routing)
FORMS = get_args(Along)


@dataclass(frozen=True)
class GroupedProblem:
    """Tokens that are routed to experts: their products by the experts' weights, or those weights' gradients.

    Attributes
    ----------
    groups, tokens, n, k : int
        Experts; rows of all; columns of the result and of the tokens.
    routing : "balanced" or "skewed"
        Whether experts get equal shares, or such as fall off as 1, 1/2, 1/3, ...
    along : "m" or "k"
        Rows by weights, (tokens, k) x (groups, n, k); or (n, tokens) x (k, tokens), a product for each expert.
    dtype : str
    """

    groups: int
    tokens: int
    n: int
    k: int
    routing: Routing = "balanced"
    along: Along = "m"
    dtype: str = "bfloat16"

    def __str__(self) -> str:
        return f"{self.dtype} {self.groups} {self.routing} along {self.along} {self.tokens}x{self.n}x{self.k}"

    @property
    def sizes(self) -> list[int]:
        """Tokens of each expert.

        Examples
        --------
        >>> GroupedProblem(4, 64, 8, 8).sizes, sum(GroupedProblem(4, 64, 8, 8, "skewed").sizes)
        ([16, 16, 16, 16], 64)
        """
        if self.routing == "balanced":
            cuts = [self.tokens * group // self.groups for group in range(self.groups + 1)]
            return [end - start for start, end in itertools.pairwise(cuts)]
        chance = random.Random(self.groups)
        chosen = chance.choices(range(self.groups), [1 / (group + 1) for group in range(self.groups)], k=self.tokens)
        sizes = [chosen.count(group) for group in range(self.groups)]
        chance.shuffle(sizes)
        return sizes

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term."""
        return 2.0 * self.tokens * self.n * self.k

    @property
    def bytes(self) -> float:
        """Inputs once, weights of experts that have tokens, and the result once."""
        experts = sum(size > 0 for size in self.sizes) if self.along == "m" else self.groups
        return 2.0 * (self.tokens * (self.n + self.k) + experts * self.n * self.k)


def grouped_problems(
    groups: Sequence[int], routings: Sequence[Routing], forms: Sequence[Along]
) -> list[GroupedProblem]:
    """List the problems: 4096 tokens, between 7168 and 4096 columns, either way.

    Examples
    --------
    >>> print(*grouped_problems([8], ["skewed"], ["m"]), sep=", ")
    bfloat16 8 skewed along m 4096x4096x7168, bfloat16 8 skewed along m 4096x7168x4096
    """
    return [
        GroupedProblem(count, 4096, n, k, routing, along)
        for along in forms
        for count in groups
        for routing in routings
        for n, k in ((4096, 7168), (7168, 4096))
    ]


class Buffers(NamedTuple):
    """Sets of the tensors of a problem, more bytes of them than the L2 cache has.

    Attributes
    ----------
    a, b, out : list of Tensor
        One of each set.
    ends : Tensor
        The groups' ends.
    """

    a: list[torch.Tensor]
    b: list[torch.Tensor]
    out: list[torch.Tensor]
    ends: torch.Tensor


def buffers(problem: GroupedProblem, device: str = "cuda") -> Buffers:
    """Make sets of random normal operands and of results."""
    import torch

    from cutepy.benchmark import buffer_sets

    dtype, sets = getattr(torch, problem.dtype), range(buffer_sets(int(problem.bytes)))
    groups, tokens, n, k = problem.groups, problem.tokens, problem.n, problem.k

    def operand(*extents: int) -> torch.Tensor:
        return torch.randn(extents, device=device, dtype=dtype)

    if problem.along == "m":
        a, b = [operand(tokens, k) for _ in sets], [operand(groups, n, k) for _ in sets]
    else:
        a, b = [operand(tokens, n).mT for _ in sets], [operand(tokens, k).mT for _ in sets]
    shape = (tokens, n) if problem.along == "m" else (groups, n, k)
    out = [torch.empty(shape, device=device, dtype=dtype) for _ in sets]
    return Buffers(a, b, out, torch.tensor(problem.sizes, device=device).cumsum(0).int())


def torchs(made: Buffers) -> Contender:
    """Multiply as torch does, into new results, for it has no `out`."""
    import torch

    multiply = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    return lambda index: multiply(made.a[index], made.b[index].mT, offs=made.ends)


def run_grouped(problems: Sequence[GroupedProblem], output: Output) -> int:
    """Measure our grouped product against torch's.

    Parameters
    ----------
    problems : sequence of GroupedProblem
    output : Output
        What to write, and what to compare with.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    return measure_all("grouped", problems, _measure, _complaint, output)


def _complaint(problem: GroupedProblem, rows: list[Row]) -> str | None:
    from cutepy.testing.numerics import gemm_tolerance

    terms = problem.k if problem.along == "m" else max(problem.sizes)
    right = all(row.error <= gemm_tolerance(terms, 16, problem.dtype) for row in rows)
    return None if right else f"{problem} is beyond its tolerance"


def _measure(problem: GroupedProblem) -> list[Row]:
    """Measure a problem."""
    import torch

    from cutepy.kernels.grouped.reference import grouped_reference
    from cutepy.ops import grouped_gemm
    from cutepy.testing.numerics import relative_error

    made = buffers(problem)
    a, b, out, ends = made
    contenders: dict[str, Contender] = {
        "cutepy": lambda index: grouped_gemm(a[index], b[index], offs=ends, out=out[index]),
        "torch": torchs(made),
    }
    reference = grouped_reference(a[0], b[0], ends, torch.empty_like(out[0], dtype=torch.float64), problem.along)
    errors = {}
    for name, contender in contenders.items():
        out[0].fill_(float("nan"))
        errors[name] = relative_error(contender(0), reference)
    del reference
    return timed(problem, contenders, errors, sets=len(a))
