"""Line information with its callers: where an operation was traced, and from which lines that was called.

The DSL gives an operation the innermost line of Python that is not its own. Tracing inlines what a kernel calls, so
the line is often a library's. Here a location gets the lines of its callers too, up to the kernel's own. The compiler
writes them into the PTX as ``.loc ... inlined_at``; that of 4.8.1 keeps the first and the last. The code is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from types import CodeType, FrameType, ModuleType
from typing import Any

from cutepy.dsl.shared_change import SharedChange
from cutepy.dsl.version import require

_KERNEL = "kernel_wrapper"
"""The DSL's function that traces the body of a kernel."""
_OURS = "cutepy.dsl."
_LOCATE = "_get_location_from_frame_info"


def callers_known() -> AbstractContextManager[None]:
    """Give locations their callers in whatever is traced meanwhile; several threads may be in it."""
    return _CHANGE.made()


def _locating() -> tuple[ModuleType, dict[str, Any]]:
    operations: Any = require("cutlass._mlir_helpers.op", _LOCATE, "_is_framework_stack_frame")
    return operations, {_LOCATE: _Located(getattr(operations, _LOCATE), operations._is_framework_stack_frame)}


_CHANGE = SharedChange(_locating)


class _Located:
    """Makes the location of frame information, inlined at the lines that called it.

    Called for thousands of operations from some hundred places, so what was found is remembered: by the identity of
    code, which is held, and of the context, which the location holds.
    """

    def __init__(self, original: Callable[[Any], Any], is_framework: Callable[[FrameType], bool]) -> None:
        self._original = original
        self._is_framework = is_framework
        self._ir = require("cutlass._mlir.ir", "Location", "Context")
        self._kinds: dict[int, tuple[CodeType, bool | None]] = {}
        self._known: dict[tuple[Any, ...], Any] = {}

    def __call__(self, info: Any) -> Any:  # noqa: ANN401
        frames = self._frames(sys._getframe(1))
        key = (id(self._ir.Context.current), info.filename, info.lineno, *((id(f.f_code), f.f_lasti) for f in frames))
        location = self._known.get(key)
        if location is None:
            callers = [
                self._ir.Location.file(outer.f_code.co_filename, outer.f_lineno, 0)
                for inner, outer in pairwise(frames)
                if not _is_part_of(inner, outer)
            ]
            location = self._original(info)
            if frames:
                location = self._known[key] = self._ir.Location.callsite(location, callers) if callers else location
        return location

    def _frames(self, frame: FrameType | None) -> list[FrameType]:
        """Return the frames of a kernel that are not the DSL's, innermost first; none outside of a kernel."""
        frames, kinds = [], self._kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = kinds[id(code)] = code, self._is_users(frame)
            if kind[1]:
                frames.append(frame)
            elif kind[1] is None:
                return frames
            frame = frame.f_back
        return []

    def _is_users(self, frame: FrameType) -> bool | None:
        """Tell whether a frame is not the DSL's or of what wraps it; None for the one that traces a kernel."""
        if self._is_framework(frame):
            return None if frame.f_code.co_name == _KERNEL else False
        return not str(frame.f_globals.get("__name__")).startswith(_OURS)


def _is_part_of(inner: FrameType, outer: FrameType) -> bool:
    """Tell whether a frame is of a function within another: the DSL makes one of each loop body and branch."""
    return inner.f_code.co_qualname.startswith(f"{outer.f_code.co_qualname}.<locals>.")
