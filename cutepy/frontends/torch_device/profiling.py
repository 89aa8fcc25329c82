"""Torch's profiler under the served device: an event for each simulated launch, which lasted as long as its simulation.

Events of the device are named after the kernel and say so: `NAME (time of the simulator)`. They follow each other from
the profile's start on, without the time between launches. There is no model of a GPU's time. Operations that torch
itself computes on the served device run on the CPU, and are events of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.autograd.profiler
from torch.autograd.profiler_util import FunctionEvent

from cutepy.sim.run import Run

SUFFIX = " (time of the simulator)"


def serve(put: Callable[[Any, str, Any], None], run: Run) -> None:
    """Replace the profile that torch makes, also for `torch.profiler`, through `put(owner, name, value)`."""
    original: Any = torch.autograd.profiler.profile

    class ServedProfile(original):  # type: ignore[misc]
        """Profile whose device is the served one."""

        def __init__(
            self,
            enabled: bool = True,
            *,
            use_cuda: bool = False,
            use_device: str | None = None,
            **more: Any,  # noqa: ANN401 - torch's own
        ) -> None:
            self._is_asked = use_cuda or use_device == "cuda"
            self._wants_cpu = more.pop("use_cpu", True)
            super().__init__(enabled, use_device=None if self._is_asked else use_device, **more)
            if enabled and self._is_asked:
                self.use_device = "cuda"

        def _start_trace(self) -> None:
            self._first = len(run.launches)
            super()._start_trace()

        def __exit__(self, *raised: object) -> Any:  # noqa: ANN401
            left = super().__exit__(*raised)
            if self.enabled:
                self._launched = [(launch.name, launch.seconds) for launch in run.launches[self._first :]]
            return left

        def _parse_kineto_results(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            events = super()._parse_kineto_results(*given, **named) if self._wants_cpu else []
            return events + self._of_device() if self._is_asked else events

        def _of_device(self) -> list[FunctionEvent]:
            found: list[FunctionEvent] = []
            start_us = 0.0
            for number, (name, seconds) in enumerate(self._launched):
                end_us = start_us + seconds * 1e6
                found.append(
                    FunctionEvent(
                        id=-1 - number,
                        name=name + SUFFIX,
                        thread=0,
                        start_us=start_us,
                        input_shapes=[],
                        stack=[],
                        end_us=end_us,
                        use_device="cuda",
                        device_type=torch.autograd.DeviceType.CUDA,  # type: ignore[attr-defined]
                        device_index=0,
                        trace_name=name + SUFFIX,
                    )
                )
                start_us = end_us
            return found

    put(torch.autograd.profiler, "profile", ServedProfile)
