"""Workspaces in global memory for stream-K and dynamic scheduling, one for each stream.

A workspace has flags, which are 0 before and after each launch, and fp32 sums (`stream_k`): at most one tile for each
SM, which is 16.5 MiB for 132 SMs and tiles of 128x256. The first flag counts the tiles that were taken (`dynamic`).
Each stream of a GPU has one workspace, which grows to the largest requested size. A launch captured into a CUDA graph
gets flags of its own for good, from a stock that is allocated beforehand, because no event tells when a graph is
destroyed, and replays may go to any stream. The sums of the launch are memory of the graph. When the stock is empty,
the graph sets the flags of each launch to 0 by a node of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from cutepy.device import rules
from cutepy.host.launches import raw_stream
from cutepy.kernels.gemm.families import ProductConfig
from cutepy.runtime.cuda import capture_of
from cutepy.runtime.execution import EXECUTION

STOCK = 64
"""Flag buffers kept ready for graph captures; 8 KiB each."""


class Workspace(NamedTuple):
    """Flags and sums of a launch (`rules.workspace_shapes`), and the first row of flags, where tiles are counted."""

    flags: torch.Tensor
    sums: torch.Tensor
    counters: torch.Tensor


class Workspaces:
    """Workspaces of one GPU.

    Parameters
    ----------
    device : torch.device
    slots : int
        SMs.
    """

    def __init__(self, device: torch.device, slots: int) -> None:
        self.device, self.slots = device, slots
        self.of_streams: dict[int, Workspace] = {}
        self.stock: list[torch.Tensor] = []
        self.captured: dict[tuple[int, int], torch.Tensor] = {}

    def take(self, elements: int) -> Workspace:
        """Return the current stream's workspace with at least a given number of sums; a capture gets one of its own."""
        if self.device.type != "cuda":
            # in the simulator a launch that ends in an error may leave flags that are not 0
            return self._made(elements)
        stream = raw_stream(self.device.index)
        if torch.cuda.is_current_stream_capturing():
            key = capture_of(stream), stream
            if key not in self.captured and self.stock:
                self.captured[key] = self.stock.pop()
            return self._made(elements, self.captured.get(key))
        if not self.stock:
            self.fill_stock()
        found = self.of_streams.get(stream)
        if found is None or found.sums.numel() < elements:
            # The allocator may give freed memory to later work of this stream only.
            found = self.of_streams[stream] = self._made(elements, found and found.flags)
        return found

    def fill_stock(self) -> None:
        """Allocate flags for later captures; not while capturing."""
        made = self._flags(STOCK * self.slots)
        torch.cuda.current_stream(self.device).synchronize()  # a graph may be replayed in another stream
        self.stock.extend(made.split(self.slots))

    def _made(self, elements: int, flags: torch.Tensor | None = None) -> Workspace:
        sums = torch.empty(elements, dtype=torch.float32, device=self.device)
        flags = self._flags(self.slots) if flags is None else flags
        return Workspace(flags, sums, flags[0])

    def _flags(self, slots: int) -> torch.Tensor:
        return torch.zeros(slots, rules.FLAGS, dtype=torch.int32, device=self.device)


@cache
def workspaces_of(device: torch.device, slots: int) -> Workspaces:
    """Return the workspaces of a GPU."""
    return Workspaces(device, slots)


def with_workspace(
    kernel: Callable[..., Any], config: ProductConfig, device: torch.device, sm_count: int
) -> Callable[..., Any]:
    """Wrap a kernel so that None as its workspace, the last argument, is replaced by the stream's."""
    if config.workspace is None:
        return kernel
    workspaces = (workspaces_of if EXECUTION.backend is None else Workspaces)(device, sm_count)
    _, (elements,) = rules.workspace_shapes(sm_count, config.tile_m, config.tile_n)

    def launch(*arguments: Any) -> None:  # noqa: ANN401
        kernel(*arguments[:-1], workspaces.take(elements)[:2])

    def launch_with_flags(*arguments: Any) -> None:  # noqa: ANN401
        kernel(*arguments[:-1], (workspaces.take(0).flags, None))

    return launch if config.workspace == "sums" else launch_with_flags
