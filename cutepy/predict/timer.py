"""Timer of a run's launches: it samples CTAs, traces them, and predicts the time of the whole grid."""

from __future__ import annotations

from dataclasses import replace

from cutepy.predict.gpu import Gpu, gpu_named
from cutepy.predict.launch import Prediction, Predictor
from cutepy.predict.trace import Tracer
from cutepy.sim.machine.lanes import cluster_order
from cutepy.sim.machine.launch import KernelCall, Launch, prepare, waits_for_others
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.machine.observer import Observer

SAMPLES = 9
"""Clusters of a grid that are traced: the first, the last, and those evenly between; 3 if all begin at once."""


class Timer:
    """Predicts the time of each launch of a run on a GPU.

    Only sampled CTAs of a launch run, unless CTAs wait for each other: results of the other CTAs are missing.

    Parameters
    ----------
    gpu : str or Gpu
        "h100" or "h200".
    samples : int
        Clusters of a launch that are traced.
    keeps_events : bool
        Whether predictions have a timeline.

    Attributes
    ----------
    predictions : list of Prediction
        One for each launch that ended.
    """

    def __init__(self, gpu: str | Gpu = "h200", *, samples: int = SAMPLES, keeps_events: bool = False) -> None:
        self.predictions: list[Prediction] = []
        self._gpu = gpu_named(gpu) if isinstance(gpu, str) else gpu
        self._samples, self._keeps_events = samples, keeps_events

    def begin(self, call: KernelCall, known: GlobalMemory) -> tuple[KernelCall, Observer]:
        """Choose the CTAs to run, and return the observer of their execution.

        Parameters
        ----------
        call : KernelCall
            Its `ctas` are the CTAs to run; None lets the timer sample.
        known : GlobalMemory
        """
        launch = prepare(replace(call, ctas=None))
        order = cluster_order(launch.grid, launch.cluster).tolist()
        size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        clusters = len(order) // size
        at_once = launch.ctas <= self._gpu.sms
        count = min(self._samples if not at_once else 3, clusters)
        picks = sorted({round(n * (clusters - 1) / max(count - 1, 1)) for n in range(count)})
        if call.ctas is not None:
            chosen = set(prepare(call).order.tolist())
        else:
            chosen = {block for n in picks for block in order[n * size : (n + 1) * size]}
            if not waits_for_others(launch):
                x, y, _ = launch.grid
                firsts = [order[n * size] for n in picks]
                call = replace(call, ctas=[(b % x, b // x % y, b // (x * y)) for b in firsts])

        def region(address: int) -> tuple[int, int, str]:
            found = known.find(address, address + 1)
            if found is None:
                return address, 1, "unknown memory"
            return found.start, found.end - found.start, str(found)

        self._tracer = Tracer(chosen.__contains__, region)
        return call, self._tracer

    def end(self, launch: Launch) -> None:
        """Predict the time of a launch whose sampled CTAs have ended."""
        found = Predictor(launch, self._tracer.trace, self._gpu).predict(keeps_events=self._keeps_events)
        self.predictions.append(found)
