"""Line information with its callers: where an operation was traced, and from which lines that was called.

The DSL gives an operation the innermost line of Python that is not its own. Tracing inlines what a kernel calls, so
the line is often a library's. Here a location gets the lines of its callers too, up to the kernel's own. The compiler
writes them into the PTX as ``.loc ... inlined_at``; that of 4.8.1 keeps the first and the last. The code is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

from cutepy.dsl.version import require

_KERNEL = "kernel_wrapper"
"""The DSL's function that traces the body of a kernel."""


def with_callers(original: Callable[[Any], Any], info: Any) -> Any:  # noqa: ANN401
    """Make the location of frame information, inlined at the lines that called it."""
    location = original(info)
    ir = require("cutlass._mlir.ir", "Location")
    frames = _frames(sys._getframe(1))
    callers = [
        ir.Location.file(outer.f_code.co_filename, outer.f_lineno, 0)
        for inner, outer in pairwise(frames)
        if not _is_part_of(inner, outer)
    ]
    return ir.Location.callsite(location, callers) if callers else location


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a kernel that are not the DSL's, innermost first; none outside of a kernel."""
    is_framework = require("cutlass._mlir_helpers.op", "_is_framework_stack_frame")._is_framework_stack_frame
    found = []
    while frame is not None:
        if not is_framework(frame):
            if frame.f_globals.get("__name__", "") not in _OURS:
                found.append(frame)
        elif frame.f_code.co_name == _KERNEL:
            return found
        frame = frame.f_back
    return []


_OURS = (__name__, "cutepy.dsl.execution")


def _is_part_of(inner: FrameType, outer: FrameType) -> bool:
    """Tell whether a frame is of a function within another: the DSL makes one of each loop body and branch."""
    return inner.f_code.co_qualname.startswith(f"{outer.f_code.co_qualname}.<locals>.")
