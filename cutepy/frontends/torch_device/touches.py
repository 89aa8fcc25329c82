"""Reads and writes of torch's operators on the served device, told to observers as work of the current stream."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutepy.frontends import backend, stream_state
from cutepy.frontends.backend import tell
from cutepy.sim.machine.host_events import HostAccess, StreamEvent
from cutepy.sim.machine.lanes import Array
from cutepy.sim.ptx.model import SourceLine

_LIBRARIES = str(Path(torch.__file__).parent), str(Path(__file__).parents[1])


class _ThreadHiding(threading.local):
    hidden = 0


_thread = _ThreadHiding()


@contextmanager
def hidden() -> Iterator[None]:
    """Hide from observers the computations of the calling thread that a GPU would not make."""
    _thread.hidden += 1
    try:
        yield
    finally:
        _thread.hidden -= 1


def is_watched() -> bool:
    """Return whether an observer watches the reads and writes of the calling thread."""
    return not _thread.hidden and backend.is_watched()


def touched(what: str, address: int, size_bytes: int, stream: int, *, writes: bool) -> None:
    """Tell of a range of bytes that something reads or writes."""
    if size_bytes and is_watched():
        tell(HostAccess(what, writes, np.array([address]), size_bytes, stream, _caller()))


def operator_touched(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:  # noqa: ANN401
    """Tell of the tensors that an operator has read, written and made; where its result is the host's, that waits."""
    if not is_watched():
        return
    schema = operator._schema
    read, changed = arguments_of(operator, args, kwargs)
    written, seen = [*tensors_in(result), *changed], set()
    for tensors, writes in ((read, False), (written, True)):
        for tensor in tensors:
            if tensor.is_cuda and tensor.numel() and (id(tensor), writes) not in seen:
                seen.add((id(tensor), writes))
                tensor_touched(schema.name, tensor, writes=writes)
    if (written and not any(t.is_cuda for t in written)) or (not written and schema.returns):
        tell(StreamEvent("synchronise", stream_state.current()))


def arguments_of(
    operator: Any,  # noqa: ANN401
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that an operator is given to read, and those to write."""
    given = {**dict(zip((a.name for a in operator._schema.arguments), args, strict=False)), **kwargs}
    read: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    for argument in operator._schema.arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(tensors_in(given.get(argument.name)))
    return read, written


def copy_touched(target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
    """Tell of a copy; the host waits for one from or to its own memory, unless it says otherwise."""
    if is_watched():
        for tensor, writes in ((source, False), (target, True)):
            if tensor.is_cuda and tensor.numel():
                tensor_touched("aten::copy_", tensor, writes=writes)
        if not non_blocking and not (target.is_cuda and source.is_cuda):
            tell(StreamEvent("synchronise", stream_state.current()))


def tensor_touched(what: str, tensor: torch.Tensor, *, writes: bool) -> None:
    """Tell of a tensor of the device that the current stream reads or writes."""
    if not is_watched():
        return
    starts, size = _runs(tensor)
    tell(HostAccess(what, writes, starts, size, stream_state.current(), _caller()))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401
    """Give a tensor, and the tensors in lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


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
