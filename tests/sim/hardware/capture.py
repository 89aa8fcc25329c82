"""Capture the simulator's launches: PTX, extents, parameters, and the memory they can reach, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.run import Run
from tests.sim.hardware.launches import Block, CapturedLaunch, pointers_in, without_pointers

_TENSOR_MAP_BYTES, _TENSOR_MAP_USED = 128, 64


@contextmanager
def capturing() -> Iterator[list[CapturedLaunch]]:
    """Collect the launches that end without an error in the simulator, whose wgmma sums as the hardware's."""
    found: list[CapturedLaunch] = []
    adopt, launch = Run.adopt, Run.launch

    def adopting(run: Any, tensor: object) -> None:
        adopt(run, tensor)
        run.__dict__.setdefault("_adopted", []).append(tensor)

    def launching(run: Any, call: KernelCall) -> None:
        run._exact_mma = True
        captured, sources, spans = _capture(run, call)
        launch(run, call)
        captured.after = [
            without_pointers(data, pointers_in(data, spans, start % 8))
            for data, (start, _) in zip(sources, spans, strict=True)
        ]
        found.append(captured)

    with mock.patch.object(Run, "adopt", adopting), mock.patch.object(Run, "launch", launching):
        yield found


def _capture(run: Any, call: KernelCall) -> tuple[CapturedLaunch, list[np.ndarray[Any, Any]], list[tuple[int, int]]]:
    """Copy a launch; also returns views of the memory that it can reach, and where it is."""
    adopted = [(_span(tensor), _kind(tensor)) for tensor in run.__dict__.get("_adopted", [])]
    regions = []
    for (start, end), _ in adopted:  # in the order of adoption, which does not depend on addresses
        region = run._memory.find(start, end)
        if region is not None and region not in regions:
            regions.append(region)
    views, kinds = [], []
    for region in regions:
        views.append(region.bytes[region.start - region.base : region.end - region.base])
        found = {kind for (start, end), kind in adopted if region.start <= start < region.end}
        kinds.append(found.pop() if len(found) == 1 else "u1")
    spans = [(region.start, region.end) for region in regions]
    before = []
    for view, kind, (start, _) in zip(views, kinds, spans, strict=True):
        pointers = pointers_in(view, spans, start % 8)
        before.append(Block(without_pointers(view, pointers), pointers, kind, start % 1024))
    parameters = []
    for value in call.parameters:
        data = np.frombuffer(value, np.uint8).copy()
        pointers = pointers_in(data, spans, 0)
        if len(data) == _TENSOR_MAP_BYTES and pointers and pointers[0].at == 0:
            data[_TENSOR_MAP_USED:] = 0  # the rest of a tensor map is not initialised
            pointers = pointers[:1]
        parameters.append(Block(without_pointers(data, pointers), pointers))
    captured = CapturedLaunch(
        call.loaded.ptx,
        call.kernel,
        call.grid,
        call.block,
        call.cluster,
        call.dynamic_smem_bytes,
        call.cooperative,
        parameters,
        before,
    )
    return captured, views, spans


def _span(tensor: Any) -> tuple[int, int]:
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    low, high = np.lib.array_utils.byte_bounds(np.asarray(tensor))
    return int(low), int(high)


def _kind(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return {"float16": "f2", "float32": "f4", "float64": "f8"}.get(name, "u1")
