"""What torch's operators read and write of the served device, told to observers as work of the current stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutepy.frontends.backend import is_watched, tell
from cutepy.frontends.torch_device import streams
from cutepy.sim.machine.host_events import HostAccess, StreamEvent
from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.model import SourceLine

_LIBRARIES = tuple(str(Path(file).parent) for file in (torch.__file__, __file__.removesuffix("frontends/torch_device")))


def touched(what: str, address: int, size_bytes: int, stream: int, *, writes: bool) -> None:
    """Tell of a range of bytes that something reads or writes."""
    if size_bytes and is_watched():
        tell(HostAccess(what, writes, np.array([address]), size_bytes, stream, _caller()))


def operator_touched(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:  # noqa: ANN401
    """Tell of the tensors that an operator has read, written and made; where its result is the host's, that waits."""
    if not is_watched():
        return
    schema = operator._schema
    given = {**dict(zip((a.name for a in schema.arguments), args, strict=False)), **kwargs}
    written, seen = [*_tensors(result)], set()
    read: list[torch.Tensor] = []
    for argument in schema.arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(_tensors(given.get(argument.name)))
    for tensors, writes in ((read, False), (written, True)):
        for tensor in tensors:
            if tensor.is_cuda and tensor.numel() and (id(tensor), writes) not in seen:
                seen.add((id(tensor), writes))
                tensor_touched(schema.name, tensor, writes=writes)
    if (written and not any(t.is_cuda for t in written)) or (not written and schema.returns):
        tell(StreamEvent("synchronise", streams.current_stream().cuda_stream))


def copy_touched(target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
    """Tell of a copy; the host waits for one from or to its own memory, unless it says otherwise."""
    if is_watched():
        for tensor, writes in ((source, False), (target, True)):
            if tensor.is_cuda and tensor.numel():
                tensor_touched("aten::copy_", tensor, writes=writes)
        if not non_blocking and not (target.is_cuda and source.is_cuda):
            tell(StreamEvent("synchronise", streams.current_stream().cuda_stream))


def tensor_touched(what: str, tensor: torch.Tensor, *, writes: bool) -> None:
    """Tell of a tensor of the device that the current stream reads or writes."""
    if not is_watched():
        return
    starts, size = _runs(tensor)
    tell(HostAccess(what, writes, starts, size, streams.current_stream().cuda_stream, _caller()))


def _tensors(value: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _runs(tensor: torch.Tensor) -> tuple[Array, int]:
    """Return where runs of bytes of a tensor begin, and how long each is."""
    size, starts = tensor.element_size(), np.array([tensor.data_ptr()])
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent == 1 or stride == 0:
            continue
        step = stride * tensor.element_size()
        if len(starts) == 1 and step == size:
            size *= extent
        else:
            starts = (starts[:, None] + np.arange(extent) * step).reshape(-1)
    return starts, size


def _caller() -> SourceLine | None:
    """Return the innermost line that is neither torch's nor of this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else SourceLine(frame.f_code.co_filename, frame.f_lineno)
