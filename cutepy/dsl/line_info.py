"""Line information at the cost of the places in the source, not of the operations traced from them.

With line information the DSL asks, for every operation it makes, which line of Python that comes from. A kernel is
traced into thousands of operations from some hundred places, as loops are unrolled, and version 4.8.1 reads the whole
table of positions of a function for each. What a place is does not change while a function is traced, so it is looked
up once. For the GEMM that is the greater part of what line information costs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any

from cutepy.dsl.shared_change import SharedChange
from cutepy.dsl.version import require


def remembered(lookup: Callable[[FrameType], Any]) -> Callable[[FrameType], Any]:
    """Remember what a function says of frames, by their code and instruction.

    By the code's identity: code that is equal may be of another file.
    """
    known: dict[tuple[int, int], tuple[CodeType, Any]] = {}  # the code is held, so that no other gets its identity

    def answer(frame: FrameType) -> Any:  # noqa: ANN401
        place = id(frame.f_code), frame.f_lasti
        found = known.get(place)
        if found is None:
            found = known[place] = frame.f_code, lookup(frame)
        return found[1]

    return answer


def _remembering() -> tuple[ModuleType, dict[str, Any]]:
    operations = require(
        "cutlass._mlir_helpers.op", "_get_caller_frame_info", "_find_user_frame", "_is_framework_module"
    )
    return operations, _replacements(operations)


_CHANGE = SharedChange(_remembering)


def places_remembered() -> AbstractContextManager[None]:
    """Look each place in the source up once, in whatever is traced meanwhile; several threads may be in it."""
    return _CHANGE.made()


def _replacements(operations: Any) -> dict[str, Callable[..., Any]]:  # noqa: ANN401
    """Make what takes the place of the DSL's functions that are called for each operation."""
    # The one of 4.8 reads no source file again and again, as Python's does.
    place_of = remembered(getattr(operations, "_fast_frameinfo", inspect.getframeinfo))

    def caller() -> Any:  # noqa: ANN401
        """Tell where the function was called that called the one that calls this."""
        frame = operations._find_user_frame(sys._getframe(2))
        return None if frame is None else place_of(frame)

    return {"_get_caller_frame_info": caller, "_is_framework_module": cache(operations._is_framework_module)}
