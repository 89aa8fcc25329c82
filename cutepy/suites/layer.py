"""`cutepy bench layer`: time a decoder layer of Llama 3 8B part by part, and the gaps between its launches."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import typer
from torch.profiler import ProfilerActivity, profile

from cutepy.benchmark import Report, Row
from cutepy.suites.layer_parts import (
    LayerFunctions,
    LayerProblem,
    Part,
    ProblemTensors,
    kit_of_cutepy,
    kit_of_torch,
    layer,
    make,
    parts_of,
    step,
)
from cutepy.suites.measurement import Output, measure_all, timed
from cutepy.testing.numerics import relative_error

ALLOWED = 2.0
"""Largest ratio of our distance from float64 to torch's, which is that of bfloat16's rounding."""
PROBLEMS = {
    "train": (LayerProblem("train", 1, 4096), LayerProblem("train", 8, 512)),
    "decode": tuple(LayerProblem("decode", batch, 4096) for batch in (1, 8, 64)),
}
"""Problems of each suite."""


class Peer(NamedTuple):
    """Another way to compute a layer.

    Attributes
    ----------
    kit : callable
        Makes its functions.
    compiled : str
        Mode of torch.compile; empty if nothing is compiled.
    """

    kit: Callable[[], LayerFunctions]
    compiled: str = ""


PEERS = {
    "torch": Peer(kit_of_torch),
    "torch.compile": Peer(kit_of_torch, "default"),
    "max-autotune": Peer(kit_of_torch, "max-autotune-no-cudagraphs"),
}
"""Peers that `--peer` knows."""
OURS = {"cutepy": Peer(kit_of_cutepy)}


class Gaps(NamedTuple):
    """Launches of a step, and the time in which the GPU has none.

    Attributes
    ----------
    launches : int
    span_us, busy_us : float
        From the first begin to the last end; with a kernel running.
    """

    launches: int
    span_us: float
    busy_us: float


def gaps_of(spans: Iterable[tuple[float, float]]) -> Gaps:
    """Sum up the begins and ends of launches, in microseconds; launches may overlap.

    Examples
    --------
    >>> gaps_of([(0.0, 2.0), (1.0, 4.0), (5.0, 6.0)])
    Gaps(launches=3, span_us=6.0, busy_us=5.0)
    """
    ordered = sorted(spans)
    busy, until = 0.0, -math.inf
    for begin, end in ordered:
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    return Gaps(len(ordered), until - ordered[0][0] if ordered else 0.0, busy)


def run_layer(problems: Sequence[LayerProblem], peers: Mapping[str, Peer], output: Output, *, parts: bool) -> int:
    """Measure a layer against peers, and each of its parts if asked for.

    Parameters
    ----------
    problems : sequence of LayerProblem
    peers : mapping of str to Peer
    output : Output
        Files to write and to compare with.
    parts : bool

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    found: dict[str, dict[str, Gaps]] = {}
    measure = functools.partial(_measure, {**OURS, **peers}, parts, found)
    return measure_all("layer", problems, measure, _complaint, output, functools.partial(_gaps, found))


def _gaps(found: Mapping[str, Mapping[str, Gaps]], report: Report) -> str:
    """Format the launches of each problem, one contender a line."""
    return "\n".join(
        f"{problem}, {name}: {gaps.launches} launches in {gaps.span_us:.0f} us, none runs for "
        f"{gaps.span_us - gaps.busy_us:.0f} us"
        for problem, of_problem in found.items()
        for name, gaps in of_problem.items()
    )


def _complaint(problem: LayerProblem, rows: list[Row]) -> str | None:
    errors = {row.contender: row.error for row in rows if row.problem == str(problem)}
    own = errors.pop("cutepy")
    right = own <= ALLOWED * max(errors.values(), default=math.inf)  # not `>`: NaN must fail
    return None if right else f"{problem}: ours is over {ALLOWED:g} times as far from float64 as torch's"


def _measure(
    contenders: Mapping[str, Peer], parts: bool, gaps: dict[str, dict[str, Gaps]], problem: LayerProblem
) -> list[Row]:
    torch.compiler.reset()
    made = make(problem)
    exact = _step_of_layer(problem, kit_of_torch(), made.double())(0)
    steps, errors = dict[str, Callable[[int], Any]](), dict[str, float]()
    for name, contender in contenders.items():
        steps[name] = _step_of_layer(problem, contender.kit(), made, contender.compiled)
        errors[name] = _error(steps[name](0), exact)
    del exact
    rows = timed(problem, steps, errors, sets=len(made.x))
    gaps[str(problem)] = {name: _profiled(each) for name, each in steps.items()}
    if not parts:
        return rows
    of_each = {name: parts_of(problem, contender.kit(), made) for name, contender in contenders.items()}
    for same in zip(*of_each.values(), strict=True):
        steps = {
            name: _step_of_part(problem, part, contender.compiled)
            for part, (name, contender) in zip(same, contenders.items(), strict=True)
        }
        for each in steps.values():
            each(0)
        measured = timed(problem, steps, dict.fromkeys(steps, 0.0), sets=1)
        rows += [replace(row, problem=f"{problem}: {same[0].name}", flops=0.0, bytes=0.0) for row in measured]
    return rows


def _step_of_layer(
    problem: LayerProblem, kit: LayerFunctions, made: ProblemTensors, compiled: str = ""
) -> Callable[[int], Any]:
    """Make the function that computes a step of the layer on a set."""
    names = list(made.weights)

    def whole(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return layer(problem, kit, made._replace(weights=dict(zip(names, weights, strict=True))), x)

    function = _compiled(whole, compiled)
    return lambda index: step(problem, function, (made.x[index], *made.weights.values()), (made.dy,))


def _step_of_part(problem: LayerProblem, part: Part, compiled: str = "") -> Callable[[int], Any]:
    """Make the function that computes a part, and its gradients where a layer is trained."""
    function = _compiled(part.function, compiled)
    with torch.no_grad():
        results = function(*part.given)
    dy = [torch.randn_like(each) for each in (results if isinstance(results, tuple) else (results,))]
    if part.name.startswith("rotary"):  # whose tables have no gradients
        x, *tables = part.given
        return lambda index: step(problem, lambda x: function(x, *tables), (x,), dy)
    return lambda index: step(problem, function, part.given, dy)


def _compiled(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False, mode=mode) if mode else function


def _error(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    return max(relative_error(ours.detach(), truth.detach()) for ours, truth in zip(found, exact, strict=True))


def _profiled(run: Callable[[int], Any]) -> Gaps:
    """Replay a step in a CUDA graph, and find its launches."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        run(0)
    graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        graph.replay()
        torch.cuda.synchronize()
    events = [each for each in found.events() or () if each.device_type.name == "CUDA"]
    if not events:
        typer.echo("the profiler shows no launches", err=True)
    return gaps_of((each.time_range.start, each.time_range.end) for each in events)
