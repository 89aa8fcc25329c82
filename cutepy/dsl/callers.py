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
        self._places: dict[tuple[Any, ...], int] = {}
        self._last: tuple[FrameType, list[FrameType], int] | None = None

    def __call__(self, info: Any) -> Any:  # noqa: ANN401
        chain = self._last = self._chain(sys._getframe(1))
        if chain is None:
            return self._original(info)
        innermost, frames, place = chain
        context = id(self._ir.Context.current)
        key = context, info.filename, info.lineno, id(innermost.f_code), innermost.f_lasti, place
        location = self._known.get(key)
        if location is None:
            callers = [
                self._ir.Location.file(outer.f_code.co_filename, outer.f_lineno, 0)
                for inner, outer in pairwise(frames)
                if not _is_part_of(inner, outer)
            ]
            location = self._original(info)
            location = self._known[key] = self._ir.Location.callsite(location, callers) if callers else location
        return location

    def _chain(self, frame: FrameType | None) -> tuple[FrameType, list[FrameType], int] | None:
        """Return the frames of a kernel that are not the DSL's, innermost first, and a number for all but that one.

        None outside of a kernel. While a frame runs, those that called it stay where they are: they are found once.
        """
        while frame is not None and (kind := self._kind(frame)) is False:
            frame = frame.f_back
        if frame is None or kind is None:
            return None
        if self._last is not None and self._last[0] is frame:
            return self._last
        frames, outer = [frame], frame.f_back
        while outer is not None and (kind := self._kind(outer)) is not None:
            if kind:
                frames.append(outer)
            outer = outer.f_back
        if outer is None:
            return None
        place = tuple((id(f.f_code), f.f_lasti) for f in frames[1:])
        return frame, frames, self._places.setdefault(place, len(self._places))

    def _kind(self, frame: FrameType) -> bool | None:
        known = self._kinds.get(id(frame.f_code))
        if known is None:
            known = self._kinds[id(frame.f_code)] = frame.f_code, self._is_users(frame)
        return known[1]

    def _is_users(self, frame: FrameType) -> bool | None:
        """Tell whether a frame is not the DSL's or of what wraps it; None for the one that traces a kernel."""
        if self._is_framework(frame):
            return None if frame.f_code.co_name == _KERNEL else False
        return not str(frame.f_globals.get("__name__")).startswith(_OURS)


def _is_part_of(inner: FrameType, outer: FrameType) -> bool:
    """Tell whether a frame is of a function within another: the DSL makes one of each loop body and branch."""
    return inner.f_code.co_qualname.startswith(f"{outer.f_code.co_qualname}.<locals>.")
