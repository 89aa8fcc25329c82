"""`cutepy tune gemm`: find the fastest configuration of products on this GPU, for `cutepy.ops.gemm` to use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from cutepy.device import rules
from cutepy.host.parallel_compilation import Variant, compile_many
from cutepy.kernels.gemm import tuned
from cutepy.kernels.gemm.compilation import SOURCES, variant
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.op import plan_gemm
from cutepy.kernels.gemm.reference import gemm_reference
from cutepy.kernels.gemm.routes import Launch
from cutepy.kernels.gemm.signature import GemmSignature
from cutepy.ops.checking import describe
from cutepy.runtime.dtypes import DTYPES
from cutepy.suites import tuning
from cutepy.suites.gemm_prediction import model_of_this_gpu, predicted_us
from cutepy.suites.gemm_problems import GemmProblem, buffers, out_dtype, poison, tf32, tolerance
from cutepy.testing.numerics import relative_error
from cutepy.tune import Settings, Tunable
from cutepy.tune.timing import Note
from cutepy.tune.winners import key_of


def settings_of(problem: GemmProblem) -> dict[str, Any]:
    """Describe a problem of the benchmark as tuning does, with operands as aligned as their extents."""
    bits = DTYPES[problem.dtype].bits
    contiguous = (
        problem.k if major == "k" else rows
        for rows, major in ((problem.m, problem.a_major), (problem.n, problem.b_major))
    )
    a_align, b_align = (math.gcd(extent * bits // 8, rules.TMA_BYTES) for extent in contiguous)
    signature = GemmSignature(
        a_dtype=problem.dtype,
        b_dtype=problem.dtype,
        out_dtype=out_dtype(problem.dtype),
        a_major="k" if problem.a_major == "k" else "mn",
        b_major="k" if problem.b_major == "k" else "mn",
        a_align=a_align,
        b_align=b_align,
        batch_modes=len(problem.batch),
    )
    return tuned.problem_of(signature, problem.m, problem.n, problem.k, math.prod(problem.batch))


class GemmTunable(Tunable):
    """The GEMM as `Tuning` takes it.

    Parameters
    ----------
    problems : sequence of GemmProblem
        Problem to tune.
    most : int
        Candidates of each that are tried.
    """

    name = tuned.NAME

    def __init__(self, problems: Sequence[GemmProblem], most: int = tuned.MOST) -> None:
        self.sources = (*SOURCES, "cutepy.kernels.gemv")
        self._problems = {key_of(settings_of(problem)): problem for problem in problems}
        self._most = most

    def candidates(self, problem: Settings) -> list[dict[str, Any]]:
        """List the candidates with the shortest expected times."""
        return tuned.candidates(problem, self._most)

    def default(self, problem: Settings) -> dict[str, Any]:
        """Return the model's choice, for this GPU or, without one, an H200."""
        return tuned.default(problem, gpu_of(torch.device("cuda" if torch.cuda.is_available() else "cpu")))

    def variant(self, problem: Settings, candidate: Settings) -> Variant:
        """Return the variant to compile, which `compile_gemm` will find."""
        return variant(tuned.chosen_of(problem, candidate).config)

    def predict(self, pairs: Sequence[tuple[Settings, Settings]]) -> list[float | None]:
        """Predict times on this GPU, or without one on an H200, by `cutepy.predict`, on all cores."""
        return predicted_us(pairs, model_of_this_gpu())

    def prepare(self, problem: Settings) -> GemmTrial:
        """Make random operands."""
        return GemmTrial(self._problems[key_of(problem)])


def compile_chosen(problems: Sequence[GemmProblem]) -> None:
    """Compile in parallel the kernels that `cutepy.ops.gemm` launches for problems that have not been tuned.

    Raises
    ------
    VariantsError
        If a kernel can't be compiled, once all others are.
    """
    tunable, settings = GemmTunable(problems), [settings_of(problem) for problem in problems]
    compile_many([tunable.variant(problem, tunable.default(problem)) for problem in settings])


class GemmTrial:
    """Buffers of a product on the current GPU.

    Attributes
    ----------
    buffers : Buffers
        At most `most` sets, by default as many as exceed the L2 cache.
    """

    def __init__(self, problem: GemmProblem, *, most: int | None = None) -> None:
        self._problem = problem
        self.buffers = buffers(problem, most=most)
        self._a, self._b, self._out = self.buffers
        self._launches: dict[str, Launch] = {}
        self._reference: Any = None

    @property
    def sets(self) -> int:
        """Number of sets of buffers."""
        return len(self._a)

    def launch(self, function: Any, candidate: Settings, index: int) -> None:  # noqa: ANN401
        """Launch the kernel of a candidate."""
        key = key_of(candidate)
        if key not in self._launches:
            self._launches[key] = self._plan(candidate)
        self._launches[key](self._a[index], self._b[index], (), (self._out[index],), (None, None))

    @tf32()
    def _plan(self, candidate: Settings) -> Launch:
        described = describe(self._a[0], self._b[0], outs=(self._out[0],))
        return plan_gemm(described, tuned.chosen_of(settings_of(self._problem), candidate))

    def complaint(self) -> str | None:
        """Compare with the product in float64."""
        if self._reference is None:
            self._reference = gemm_reference(self._a[0], self._b[0])
        error = relative_error(self._out[0], self._reference)
        limit = tolerance(self._problem)
        poison(self._out[0])
        return None if error <= limit else f"the relative error is {error:.1e}, and at most {limit:.1e} is expected"


def run_tuning(
    problems: Sequence[GemmProblem], *, most: int, resume: bool, note: Note, prune: float | None = None
) -> int:
    """Tune products; parameters, but for the candidates of each problem, and the result are those of `tuning.run`."""
    described = [(problem, settings_of(problem)) for problem in problems]
    return tuning.run("tune gemm", GemmTunable(problems, most), described, resume=resume, note=note, prune=prune)
