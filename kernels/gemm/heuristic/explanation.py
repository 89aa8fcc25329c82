"""Explanation of a choice: the best candidates of a problem, and the part of their time that decided."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.gpu import H200, Gpu
from cutepy.kernels.gemm.heuristic.choice import (
    candidates,
    problems_of,
    select_config,
    straight_and_transposed,
    ways_of,
)
from cutepy.kernels.gemm.signature import GemmSignature

if TYPE_CHECKING:
    from cutepy.kernels.gemm.families import ProductConfig

COUNT = 10
"""Candidates that an explanation lists."""
_CONSIDERED = 100
"""Candidates among which the model's own first is looked for: those that the trees correct, and some more."""


class ExplainedCandidate(NamedTuple):
    """A candidate of a problem, with its expected time.

    Attributes
    ----------
    config : GemmConfig or GemvConfig
        The kernel, with or without tensor cores.
    transposed : bool
        True if the kernel computes the transposed product.
    expected_us : float
        Expected microseconds, by which candidates are ordered: the model's, corrected by the trees.
    model_us : float
        The model's microseconds.
    waves : float
        Times that the clusters fill the GPU.
    parts : dict of str to float
        Parts of the model's time, each as if nothing else took time, in microseconds; many of them overlap.
    """

    config: ProductConfig
    transposed: bool
    expected_us: float
    model_us: float
    waves: float
    parts: dict[str, float]

    @property
    def correction(self) -> float:
        """The trees' correction, as a fraction of the model's time."""
        return self.expected_us / self.model_us - 1

    @property
    def name(self) -> str:
        """Name of the tile, such as `128x256x64 cluster 2x1`."""
        config = self.config
        if not isinstance(config, GemmConfig):
            return f"{config.tile_m}x{config.tile_n} without tensor cores" + " transposed" * self.transposed
        text = f"{config.tile_m}x{config.tile_n}x{config.tile_k} cluster {config.cluster_m}x{config.cluster_n}"
        text += " ping-pong" * (config.consumers > 1) + f" split {config.split_k}" * (config.split_k > 1)
        return text + " transposed" * self.transposed

    @property
    def longest(self) -> str:
        """Longest parts of the model's time, as text."""
        ranked = sorted(self.parts.items(), key=lambda part: -part[1])[:2]
        return ", ".join(f"{name} {us:.1f}" for name, us in ranked)


class Explanation(NamedTuple):
    """Why a configuration was chosen: as text, a table and a sentence.

    Attributes
    ----------
    problem : str
        Extents, types and SMs.
    candidates : tuple of ExplainedCandidate
        Best candidates, the chosen one first.
    decided : str
        The part of the model, or the trees' correction, that put the first before the others.
    """

    problem: str
    candidates: tuple[ExplainedCandidate, ...]
    decided: str

    def __str__(self) -> str:
        width = max(len(each.name) for each in self.candidates)
        head = f"{'expected':>10}  {'model':>8}  {'trees':>6}  {'waves':>6}  {'tile':<{width}}  longest parts, us"
        rows = [
            f"{each.expected_us:7.1f} us  {each.model_us:8.1f}  {each.correction:+6.1%}  {each.waves:6.2f}  "
            f"{each.name:<{width}}  {each.longest}"
            for each in self.candidates
        ]
        return "\n".join([self.problem, head, *rows, f"decided by {self.decided}"])


def explain_choice(signature: GemmSignature, m: int, n: int, k: int, *, batch: int = 1, gpu: Gpu = H200) -> Explanation:
    """Print and return the ten best candidates of a problem, and the reason for the first.

    A candidate may compute the transposed product. `cutepy.ops.gemm` takes the first, but for a winner of `cutepy tune
    gemm`. For up to eight rows the choice of `cutepy.kernels.gemv`, without tensor cores, is among them.

    Parameters
    ----------
    signature : GemmSignature
        Types, majors and epilogue.
    m, n, k : int
        Extents, positive.
    batch : int
        Products of these extents.
    gpu : Gpu
        GPU that computes the product, an H200 by default.

    Raises
    ------
    TypeError, ValueError
        As `select_config` does.

    Examples
    --------
    >>> half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    >>> explanation = explain_choice(half, 4096, 4096, 4096)  # doctest: +ELLIPSIS
    4096x4096x4096, float16 by float16 to float16, 132 SMs
      expected     model   trees   waves  tile ...
      ... us ... 128x256x64 cluster ...
    decided by ...
    >>> len(explanation.candidates), explanation.candidates[0].config.tile_n
    (10, 256)
    """
    extents = m, n, k, batch
    problems = problems_of(ways_of(signature), extents)
    table = candidates(problems[0].table)
    estimates, parts = table.estimates(problems, gpu), [table.estimates.parts(each, gpu) for each in problems]
    found = []
    for candidate in islice(straight_and_transposed(signature, extents, gpu), _CONSIDERED):
        try:
            config = candidate.config()
        except ValueError:  # no kernel with this epilogue
            continue
        at = int(candidate.transposed), table.choices.index(candidate.choice)
        of_parts = {name: float(us[at[1]]) for name, us in parts[at[0]].items() if us[at[1]] > 0}
        model_us, waves = float(estimates.us[at]), float(estimates.waves[at])
        found.append(ExplainedCandidate(config, candidate.transposed, candidate.expected_us, model_us, waves, of_parts))
    found = sorted([*found, *_without_tensor_cores(signature, extents, gpu)], key=lambda each: each.expected_us)
    if not found:
        select_config(signature, m, n, k, batch=batch, gpu=gpu)  # its error tells why
    types = f"{signature.a_dtype} by {signature.b_dtype} to {signature.out_dtype}"
    title = f"{f'{batch} x ' * (batch > 1)}{m}x{n}x{k}, {types}, {gpu.sm_count} SMs"
    explanation = Explanation(title, tuple(found[:COUNT]), _decided(found))
    print(explanation)
    return explanation


def _without_tensor_cores(
    signature: GemmSignature, extents: tuple[int, int, int, int], gpu: Gpu
) -> Iterator[ExplainedCandidate]:
    """Yield the choice of `cutepy.kernels.gemv`, if products of such extents and types are computed so."""
    from cutepy.kernels.gemv import choice as gemv  # which chooses between both families
    from cutepy.kernels.gemv.config import GemvConfig

    m, n, k, batch = extents
    found = gemv.expected(signature, m, n, k, batch=batch, gpu=gpu)
    if found is not None:
        transposed, config = found.chosen
        assert isinstance(config, GemvConfig)
        rows, columns = (n, m) if transposed else (m, n)
        ctas = -(-rows // config.tile_m) * -(-columns // config.tile_n)
        waves = ctas / (gpu.sm_count * config.ctas_per_sm)
        yield ExplainedCandidate(config, transposed, found.us, found.us, waves, found.parts)


def _decided(found: list[ExplainedCandidate]) -> str:
    """Name the reason why the first candidate is before the others: a part of the model's time, or the trees."""
    first, by_model = found[0], min(found, key=lambda each: each.model_us)
    if by_model is not first:
        ahead = first.model_us / by_model.model_us - 1
        return (
            f"the trees: the model alone prefers {by_model.name} by {ahead:.1%}; the trees add "
            f"{by_model.correction:+.1%} to that, {first.correction:+.1%} to {first.name}"
        )
    if len(found) == 1:
        return "the model: there is no other candidate"
    following = found[1]
    if following.model_us > first.model_us:
        less = {name: us - first.parts.get(name, 0.0) for name, us in following.parts.items()}
        if type(first.config) is not type(following.config):  # whose parts differ
            less = {name: us for name, us in less.items() if name in first.parts}
        name = max(less, key=less.__getitem__)
        return f"the model: {name} {less[name]:.1f} us less than in the next candidate"
    if following.expected_us > first.expected_us:
        return f"the trees: to the next candidate, equal by the model, they add {following.correction:+.1%}"
    return "the order of the table: the model expects as much of the next candidate"
