"""`cutepy tune attention`: find the fastest configuration on this GPU, for `cutepy.ops.attention` to use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cutepy import benchmark
from cutepy.host.parallel_compilation import Variant, VariantsError, compile_many
from cutepy.kernels.attention import op, reference, tuned
from cutepy.kernels.attention.config import BackwardConfig
from cutepy.kernels.attention.tuned import Problem
from cutepy.runtime.dtypes import DTYPES
from cutepy.suites import tuning
from cutepy.testing.numerics import relative_error
from cutepy.tune import Settings, Tunable
from cutepy.tune.timing import Note
from cutepy.tune.winners import key_of

LARGEST_ERROR = {"float16": 2.0**-9, "bfloat16": 2.0**-6, "float8_e4m3fn": 2.0**-5}
"""Of the norm of a result: two roundings, or four of a gradient; of 8 bits one of probabilities to e4m3."""


def text_of(problem: Problem) -> str:
    """Write a problem as the command takes it.

    Examples
    --------
    >>> text_of(Problem("backward", "float16", 4, 2048, 2048, 16, 4, 128, 128, None, 0))
    'backward:float16:4x2048x16/4x128:causal'
    """
    heads = f"{problem.heads}" + (f"/{problem.kv_heads}" if problem.kv_heads != problem.heads else "")
    shape = f"{problem.batch}x{problem.queries}x{heads}x{problem.head}"
    return f"{problem.kind}:{problem.dtype}:{shape}{':causal' if problem.right == 0 else ''}"


class AttentionTunable(Tunable):
    """Attention as `Tuning` takes it.

    Parameters
    ----------
    most : int
        Candidates of each problem that are tried.
    """

    name = tuned.NAME

    def __init__(self, most: int = tuned.MOST) -> None:
        self.sources, self._most = op.SOURCES, most

    def candidates(self, problem: Settings) -> list[dict[str, Any]]:
        """List the candidates that waste least."""
        return tuned.candidates(tuned.problem_of(problem), self._most)

    def default(self, problem: Settings) -> dict[str, Any]:
        """Return the choice of the rules."""
        return tuned.candidate_of(tuned.rules_choice(tuned.problem_of(problem)))

    def variant(self, problem: Settings, candidate: Settings) -> Variant:
        """Return the variant of the kernel that is tuned."""
        return self.variants(problem, candidate)[0]

    def variants(self, problem: Settings, candidate: Settings) -> list[Variant]:
        """Return the variants of all kernels of a candidate, which `plan_forward` and `plan_backward` will find."""
        config = tuned.chosen_of(tuned.problem_of(problem), candidate).config
        if isinstance(config, BackwardConfig):
            before, gradients, after = op.backward_variants(config)
            return [gradients, before, after]
        return [op.forward_variant(config)]

    def compile(self, pairs: Sequence[tuple[Settings, Settings]], progress: bool) -> list[Any]:
        """Compile all kernels of candidates in parallel: (problem, candidate) -> its first one, or exception."""
        groups = [self.variants(problem, candidate) for problem, candidate in pairs]
        try:
            functions: list[Any] = list(compile_many([each for group in groups for each in group], progress=progress))
        except VariantsError as error:
            failed = iter(error.exceptions)
            functions = [next(failed) if function is None else function for function in error.functions]
        found = iter(functions)
        built = [[next(found) for _ in group] for group in groups]
        return [next((each for each in group if isinstance(each, Exception)), group[0]) for group in built]

    def prepare(self, problem: Settings) -> AttentionTrial:
        """Make random tensors."""
        return AttentionTrial(tuned.problem_of(problem))


class AttentionTrial:
    """Tensors of attention, on the current GPU unless another device is given."""

    def __init__(self, problem: Problem, device: str = "cuda") -> None:
        self._problem = problem
        of_q, of_k = (problem.batch, problem.queries, problem.heads), (problem.batch, problem.keys, problem.kv_heads)
        shapes = [(*of_q, problem.head), (*of_k, problem.head), (*of_k, problem.head_v), (*of_q, problem.head_v)]
        each = sum(map(math.prod, shapes)) * DTYPES[problem.dtype].bits // 8
        dtype = getattr(torch, problem.dtype)
        self._out_dtype = torch.bfloat16 if dtype == torch.float8_e4m3fn else dtype
        self.how = problem.head**-0.5, problem.left, problem.right
        self._given = [
            tuple(torch.randn(shape, device=device).to(dtype) for shape in shapes)
            for _ in range(benchmark.buffer_sets(each))
        ]
        self._results: list[tuple[torch.Tensor, ...]] = []
        for q, k, v, do in self._given:
            if problem.kind == "forward":
                lse = q.new_empty(problem.batch, problem.heads, problem.queries, dtype=torch.float32)
                self._results.append((torch.empty_like(do, dtype=self._out_dtype), lse))
            else:
                self._results.append((torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)))
        # Of gradients the speed does not depend on O and its logarithms: those of the first set are right.
        self._kept: tuple[torch.Tensor, ...] = ()
        if problem.kind == "backward":
            q, k, v, _ = self._given[0]
            o, lse = reference.forward(q, k, v, *self.how)
            self._kept = o.contiguous(), lse
        self._launches: dict[str, Callable[[int], None]] = {}
        self._wanted: list[torch.Tensor] = []

    @property
    def sets(self) -> int:
        """Number of sets of tensors."""
        return len(self._given)

    def launch(self, function: Any, candidate: Settings, index: int) -> None:  # noqa: ANN401
        """Launch the kernels of a candidate, which memory or the disk has."""
        key = key_of(candidate)
        if key not in self._launches:
            self._launches[key] = self._plan(candidate)
        self._launches[key](index)

    def _plan(self, candidate: Settings) -> Callable[[int], None]:
        chosen = tuned.chosen_of(self._problem, candidate)
        q, k, v, _ = self._given[0]
        if self._problem.kind == "forward":
            launch = op.plan_forward(q, k, v, *self.how, chosen=chosen)
            return lambda index: launch(*self._given[index][:3], *self._results[index])
        gradients = op.plan_backward(q, k, v, *self.how, chosen=chosen)

        def derive(index: int) -> None:
            q, k, v, do = self._given[index]
            gradients(do, q, k, v, *self._kept, None, self._results[index])

        return derive

    def complaint(self) -> str | None:
        """Compare with plain torch in float64."""
        found = self._results[0][:1] if self._problem.kind == "forward" else self._results[0]
        limit = LARGEST_ERROR[self._problem.dtype]
        errors = [relative_error(each, want) for each, want in zip(found, self._reference(), strict=True)]
        for each in found:
            each.fill_(float("nan"))
        wrong = [error for error in errors if not error <= limit]  # NaN too
        return f"the relative error is {wrong[0]:.1e}, and at most {limit:.1e} is expected" if wrong else None

    def _reference(self) -> list[torch.Tensor]:
        """Compute the results of the first set, once."""
        q, k, v, do = self._given[0]
        if not self._wanted and self._problem.kind == "forward":
            self._wanted = [reference.forward(q.to(self._out_dtype), k, v, *self.how)[0]]
        elif not self._wanted:
            self._wanted = [*reference.backward(do, q, k, v, None, *self.how)]
        return self._wanted


def run_tuning(problems: Sequence[Problem], *, most: int, resume: bool, note: Note) -> int:
    """Tune attention, with the parameters of `tuning.run` (except each problem's candidates) and its result."""
    described = [(text_of(problem), problem.settings) for problem in problems]
    return tuning.run("tune attention", AttentionTunable(most), described, resume=resume, note=note)
