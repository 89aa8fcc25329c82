"""Benchmark protocol: interleaved contenders, two times for each, medians.

Contenders run in one process on the same inputs and take turns (A B C A B C ...), so that a drifting clock hurts all
alike. Two times are taken for each. *device* is what the GPU spends: the launches of one turn are captured into a
CUDA graph, whose replay is timed between events; launches that wait for the GPU, which no graph takes, are timed
between events without one. *call* is what a Python caller waits: the same launches made eagerly, back to back, by the
wall clock. Either is the median over the rounds, per launch.

Each launch of a turn uses another set of buffers, enough sets that their bytes exceed the L2 cache, so that inputs
come from device memory as they do in a model. Inputs must be random: a GPU draws less power on zeros or small
integers and then runs faster than it will on data.

A kernel that overlaps its own next launch gains less beside others. So another kernel, the company, may be launched
after each launch; its time, from turns without contenders, is subtracted.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Contender = Callable[[int], Any]
"""Function that launches once, on the buffer set of an index, on torch's current stream."""


@dataclass(frozen=True)
class Protocol:
    """Lengths of a measurement.

    Attributes
    ----------
    rounds : int
        Turns of each contender; the figure is their median.
    turn_us : float
        Device time to aim at in a turn, which sets the number of launches in it.
    max_launches : int
        Launches in a turn at most.
    cache_bytes : int
        Least size of all buffer sets together: the L2 of an H100 or H200 is 60 MB.
    """

    rounds: int = 7
    turn_us: float = 4000.0
    max_launches: int = 200
    cache_bytes: int = 60 * 10**6

    def __post_init__(self) -> None:
        """Refuse a protocol without a median or without launches."""
        if self.rounds < 1 or self.max_launches < 1 or self.turn_us <= 0:
            raise ValueError(
                f"rounds, max_launches and turn_us must be positive, got {self.rounds}, {self.max_launches} and "
                f"{self.turn_us}"
            )

    def launches(self, estimate_us: float, sets: int) -> int:
        """Return the launches of a turn: whole rounds over the buffer sets, about `turn_us` long.

        Examples
        --------
        >>> Protocol().launches(200.0, 3), Protocol().launches(10_000.0, 3), Protocol().launches(1.0, 30)
        (21, 3, 180)
        """
        wanted = min(self.max_launches, self.turn_us / max(estimate_us, 0.1))
        if wanted >= self.max_launches:
            return max(sets, self.max_launches // sets * sets)
        return sets * max(1, -(-int(wanted) // sets))


@dataclass(frozen=True)
class Timing:
    """Time of one launch of a contender, in microseconds.

    Attributes
    ----------
    device_us : float
        On the GPU, launches back to back in a graph; with company between them, less its time.
    call_us : float
        To a Python caller, launches back to back.
    """

    device_us: float
    call_us: float


def buffer_sets(bytes_per_set: int, protocol: Protocol | None = None) -> int:
    """Return the number of buffer sets whose bytes together exceed the L2 cache; at least 2.

    Examples
    --------
    >>> buffer_sets(8 * 10**6), buffer_sets(100 * 10**6)
    (8, 2)
    """
    cache_bytes = (protocol or Protocol()).cache_bytes
    return max(2, cache_bytes // max(bytes_per_set, 1) + 1)


def compare(
    contenders: Mapping[str, Contender],
    *,
    sets: int,
    protocol: Protocol | None = None,
    company: Contender | None = None,
) -> dict[str, Timing]:
    """Time contenders in turns; return the `Timing` of each.

    Parameters
    ----------
    contenders : mapping of str to callable
        Each launches its kernel on the buffer set whose index it is given, and is capturable into a CUDA graph after
        a first eager run.
    sets : int
        Buffer sets there are.
    protocol : Protocol, optional
        Durations and numbers of rounds.
    company : callable, optional
        Launches another kernel, after each launch of a graph.
    """
    protocol = protocol or Protocol()
    turns = {name: _Turn(run, sets, protocol, company) for name, run in contenders.items()}
    alone = None if company is None else _Turn(company, sets, protocol)
    device: dict[str, list[float]] = {name: [] for name in turns}
    call: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(protocol.rounds):
        of_company = 0.0 if alone is None else alone.device_us()
        for name, turn in turns.items():
            device[name].append(turn.device_us() - of_company)
    for _ in range(protocol.rounds):
        for name, turn in turns.items():
            call[name].append(turn.call_us())
    return {name: Timing(statistics.median(device[name]), statistics.median(call[name])) for name in turns}


class _Turn:
    """Launches of one contender in a turn, ready to be replayed or made anew."""

    def __init__(self, run: Contender, sets: int, protocol: Protocol, company: Contender | None = None) -> None:
        import torch

        self._run, self._sets = run, sets
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for index in range(sets):  # the first run compiles, allocates, and fills caches
                run(index)
            stream.synchronize()
            start = time.perf_counter()
            for index in range(sets):
                run(index)
            stream.synchronize()
            estimate_us = (time.perf_counter() - start) / sets * 1e6
        self._launches = protocol.launches(estimate_us, sets)

        def launch_all() -> None:
            for index in range(self._launches):
                run(index % sets)
                if company is not None:
                    company(index % sets)

        self._replay = _captured(launch_all, stream)
        self._replay()
        torch.cuda.synchronize()

    def device_us(self) -> float:
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self._replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / self._launches

    def call_us(self) -> float:
        import torch

        torch.cuda.synchronize()
        start = time.perf_counter()
        for index in range(self._launches):
            self._run(index % self._sets)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / self._launches * 1e6


def _captured(launch_all: Callable[[], None], stream: torch.cuda.Stream) -> Callable[[], None]:
    """Capture launches into a graph, and return its replay; the launches themselves where they wait for the GPU."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.current_stream()):  # a capture that fails leaves its own stream current
        try:
            with torch.cuda.graph(graph, stream=stream):
                launch_all()
        except RuntimeError as error:
            torch.cuda.synchronize()
            warnings.warn(f"timed without a CUDA graph, which takes no such launches: {error}", stacklevel=4)
            return launch_all
    return graph.replay
