"""Line information with inlined callers, at a cost per source location instead of per operation.

With line information the DSL looks up, for every operation that it makes, the innermost line of Python outside its own
code. A kernel is traced into thousands of operations from some hundred source locations, as loops are unrolled, and
tens of calls deep. So each source location is looked up once, and the stack only as far down as it has changed. Tracing
inlines the functions that a kernel calls, so the innermost line is often a library's. Here a location also gets the
lines of its callers, up to the kernel's own. The compiler writes each into the PTX as ``.loc ... inlined_at`` if the
line has a scope: a function, with its file, in the form of LLVM's debug information for functions. Of lines without a
scope it keeps the first and the last. The code is the same. References: MLIR's LLVM dialect (``#llvm.di_subprogram``);
PTX ISA, "Debugging Directives: .loc".
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType, FrameType, ModuleType
from typing import Any

from cutepy.dsl.shared_change import SharedChange
from cutepy.dsl.version import require

_KERNEL = "kernel_wrapper"
"""Function of the DSL that traces the body of a kernel."""
_OURS = ("cutepy.dsl.", "cutepy.frontends.dsl.")
_CALLER = "_get_caller_frame_info"
_LOCATE = "_get_location_from_frame_info"
_PART = re.compile(r"\w*(body|region|block)_\d+|<\w+>")
"""Names that the DSL gives to functions made of loop bodies and branches, and names of lambdas and comprehensions."""
_COLUMNS = 1 << 15
"""Bound on columns: LLVM has 16 bits for a column."""
_USERS, _RESUMED, _FRAMEWORKS, _BOTTOM = range(4)
"""Kinds of code: users'; users' that several callers resume in turn; the DSL's; the bottom of a kernel."""


def lines_known() -> AbstractContextManager[None]:
    """Cache source locations, and add callers, in all traces meanwhile; several threads may enter."""
    return _CHANGE.made()


def _knowing() -> list[tuple[ModuleType | type, dict[str, Any]]]:
    operations: Any = require("cutlass._mlir_helpers.op", _CALLER, _LOCATE, "_is_framework_stack_frame")
    compiler: Any = require("cutlass.base_dsl.compiler", "Compiler.compile").Compiler
    threads = threading.local()

    def caller() -> Any:  # noqa: ANN401
        """Return the location of the call to the caller's function."""
        if getattr(operations, "_INCLUDE_LIB_FRAME", False):  # a debugger of the DSL itself wants the DSL's lines
            return caller_of_dsl()
        try:
            lines = threads.lines
        except AttributeError:
            lines = threads.lines = _Lines(operations, locate_of_dsl)
        return lines.caller(sys._getframe(2))

    def locate(info: Any) -> Any:  # noqa: ANN401
        lines = getattr(threads, "lines", None)
        return locate_of_dsl(info) if lines is None else lines.locate(info)

    def compile_scoped(self: Any, module: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        """Compile a module with scopes of lines; if that fails, compile it without, as its messages are complete."""
        lines = getattr(threads, "lines", None)
        if lines is None:
            return compile_of_dsl(self, module, *arguments, **named)
        plain = module.operation.clone()
        lines.scope(module.operation)
        try:
            return compile_of_dsl(self, module, *arguments, **named)
        except Exception as error:
            failed = error
        compile_of_dsl(self, plain, *arguments, **named)
        raise failed

    caller_of_dsl, locate_of_dsl = getattr(operations, _CALLER), getattr(operations, _LOCATE)
    compile_of_dsl = compiler.compile
    changed = {_CALLER: _in_place_of(caller_of_dsl, caller), _LOCATE: _in_place_of(locate_of_dsl, locate)}
    return [(operations, changed), (compiler, {"compile": compile_scoped})]


def _in_place_of(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a replacement of a DSL function so that programs which hash functions hash the original.

    QuACK hashes functions with their references for the key of its cache, and refuses objects that it can't hash. It
    hashes the `__wrapped__` of an object that is no function. A partial object adds no frame to the stack; `caller`
    relies on a distance of two frames.
    """
    return functools.update_wrapper(functools.partial(function), original)


_CHANGE = SharedChange(_knowing)


class _Place:
    """Instruction, with the place that called its function."""

    __slots__ = ("caller", "code", "info", "line", "location")

    def __init__(self, frame: FrameType | None = None, caller: _Place | None = None) -> None:
        self.code = frame.f_code if frame else None
        self.line = frame.f_lineno if frame else 0
        self.caller = caller
        self.info: Any = None
        self.location: Any = None


_OUTSIDE, _INSIDE = _Place(), _Place()
"""Callers of the outermost frames, outside of a kernel and within one."""


class _Lines:
    """Cache of source locations of one thread, in one context of MLIR."""

    def __init__(self, operations: Any, locate: Callable[[Any], Any]) -> None:  # noqa: ANN401
        self._ir = require("cutlass._mlir.ir", "Location", "Context", "Attribute", "MLIRError")
        self._is_framework = operations._is_framework_stack_frame
        # The DSL 4.8 has its own, which does not read source files again and again, as Python's does.
        self._look_up = getattr(operations, "_fast_frameinfo", inspect.getframeinfo)
        self._locate = locate
        self._context: Any = None
        self._functions: dict[tuple[str, int], CodeType | None] = {}
        self._scopes: dict[tuple[str, str], Any] = {}
        self._ways: dict[tuple[str, int], dict[tuple[tuple[str, int], ...], int]] = {}
        self._kinds: dict[int, tuple[CodeType, int]] = {}
        self._places: dict[tuple[int, int, int], _Place] = {}
        # Users' frames at the last look-up, outermost first, each with its calling place. As long as a frame lives, its
        # callers stay where they called it.
        self._stack: list[tuple[FrameType, _Place]] = []
        self._depths: dict[int, int] = {}
        self._innermost: FrameType | None = None
        self._frameworks: set[int] = set()
        self._last = _OUTSIDE

    def caller(self, frame: FrameType) -> Any:  # noqa: ANN401
        """Return the user's line that a frame is called from."""
        if (context := self._ir.Context.current) is not self._context:
            self._context = context
            self._places.clear()
            self._scopes.clear()
            self._ways.clear()
            self._functions.clear()
        self._last = place = self._place(frame)
        return place.info

    def locate(self, info: Any) -> Any:  # noqa: ANN401
        """Make the location of a line, inlined at the lines of its callers."""
        place = self._last
        if place.info is not info:
            return self._locate(info)
        if place.location is None:
            self._functions[info.filename, info.lineno] = place.code
            place.location = self._inlined(self._locate(info), place)
        return place.location

    def _place(self, frame: FrameType) -> _Place:
        """Find the innermost place in user code."""
        at: FrameType | None = frame
        frameworks = self._frameworks
        while at is not None and id(at.f_code) in frameworks:
            at = at.f_back
        if at is None or at is not self._innermost:
            place = self._after_a_call(frame)
        else:
            place = self._called(at, self._stack[-1][1])
        if place.info is None:
            place.info = self._look_up(self._stack[-1][0])
        return place

    def _after_a_call(self, frame: FrameType) -> _Place:
        """Find the innermost place after the stack of functions has changed, and drop the frames that have returned."""
        at: FrameType | None = frame
        new: list[FrameType] = []
        caller, kept = _OUTSIDE, 0
        while at is not None:
            known = self._kinds.get(id(at.f_code))
            kind = self._kind(at) if known is None else known[1]
            if kind <= _RESUMED:
                depth = self._depths.get(id(at)) if kind == _USERS else None
                if depth is not None and self._stack[depth][0] is at:
                    new.append(at)
                    caller, kept = self._stack[depth][1], depth
                    break
                new.append(at)
            elif kind == _BOTTOM and new:
                caller = _INSIDE
                break
            at = at.f_back
        for gone, _ in self._stack[kept:]:
            self._depths.pop(id(gone), None)
        del self._stack[kept:]
        for at in reversed(new or [frame]):
            self._depths[id(at)] = len(self._stack)
            self._stack.append((at, caller))
            caller = self._called(at, caller)
        innermost = self._stack[-1][0]
        self._innermost = innermost if self._kinds[id(innermost.f_code)][1] == _USERS else None
        return caller

    def _called(self, frame: FrameType, caller: _Place) -> _Place:
        """Return the place of a frame, one object for equal calling places; None outside of kernels."""
        if caller is not _INSIDE and caller.caller is None:
            caller = _OUTSIDE
        key = id(frame.f_code), frame.f_lasti, id(caller)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(frame, None if caller is _OUTSIDE else caller)
        return place

    def _inlined(self, location: Any, place: _Place) -> Any:  # noqa: ANN401
        """Make a location of a line and all lines of its callers."""
        lines: list[tuple[str, int]] = []
        inner, outer = place, place.caller
        while outer is not None and outer.code is not None:
            if not _is_part_of(inner.code, outer.code):
                lines.append((outer.code.co_filename, outer.line))
                self._functions[lines[-1]] = outer.code
            inner, outer = outer, outer.caller
        if not lines:
            return location
        columns = [self._column(*lines[n:]) for n in range(len(lines))]
        called = [self._ir.Location.file(*line, column) for line, column in zip(lines, columns, strict=True)]
        return self._ir.Location.callsite(location, called)

    def _column(self, line: tuple[str, int], *callers: tuple[str, int]) -> int:
        """Return an artificial column that identifies a path to a line: PTX names a caller by line and column, once.

        The numbers begin beyond the columns of source lines. The kernel's own lines have a single path.
        """
        ways = self._ways.setdefault(line, {})
        column = _COLUMNS + ways.setdefault(callers, len(ways)) if callers else 0
        return column if column < 1 << 16 else 0

    def scope(self, operation: Any) -> None:  # noqa: ANN401
        """Put the lines of a module's operations into the scopes of their functions, except the kernel's own."""
        if not _can_scope(self._ir):
            return
        known: dict[Any, Any] = {}

        def visit(one: Any) -> Any:  # noqa: ANN401
            location = one.location
            if location.is_a_callsite():
                if location not in known:
                    known[location] = self._with_scopes(location)
                one.location = known[location]
            return advance

        advance = self._ir.WalkResult.ADVANCE
        operation.walk(visit)

    def _with_scopes(self, location: Any) -> Any:  # noqa: ANN401
        callee, caller, callers = location.callee, location.caller, []
        while caller.is_a_callsite():
            callers.append(self._scoped(caller.callee))
            caller = caller.caller
        return self._ir.Location.callsite(self._scoped(callee), [*callers, caller])

    def _scoped(self, line: Any) -> Any:  # noqa: ANN401
        """Put a line into the scope of its function; a compiler without such scopes gets the line alone."""
        place = line.child_loc if line.is_a_name() else line
        if not place.is_a_file():
            return line
        code = self._functions.get((place.filename, place.start_line))
        name = code.co_name if code else ""
        if (place.filename, name) not in self._scopes:
            try:
                scope = self._ir.Attribute.parse(scope_of(place.filename, name))
            except self._ir.MLIRError:
                scope = None
            self._scopes[place.filename, name] = scope
        scope = self._scopes[place.filename, name]
        return line if scope is None else self._ir.Location.fused([line], scope)

    def _kind(self, frame: FrameType) -> int:
        code = frame.f_code
        if self._is_framework(frame):
            kind = _BOTTOM if code.co_name == _KERNEL else _FRAMEWORKS
        elif str(frame.f_globals.get("__name__")).startswith(_OURS):
            kind = _FRAMEWORKS
        else:
            kind = _RESUMED if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE) else _USERS
        self._kinds[id(code)] = code, kind
        if kind == _FRAMEWORKS:
            self._frameworks.add(id(code))
        return kind


def _can_scope(ir: Any) -> bool:  # noqa: ANN401
    """Return whether locations of operations can be read and changed, which older versions of the DSL forbid."""
    is_known = hasattr(ir, "WalkResult") and hasattr(ir.Location, "is_a_callsite")
    location = getattr(ir.Operation, "location", None)
    return is_known and getattr(location, "fset", None) is not None


def _is_part_of(inner: CodeType | None, outer: CodeType) -> bool:
    """Return whether a function is a loop body or branch that the DSL made of another function."""
    within = f"{outer.co_qualname}.<locals>."
    if inner is None or not inner.co_qualname.startswith(within):
        return False
    return all(map(_PART.fullmatch, inner.co_qualname.removeprefix(within).split(".<locals>.")))


def scope_of(file: str, function: str) -> str:
    r"""Format the scope of a function's lines as an MLIR attribute.

    A function is defined in a compile unit, which says that line information is all that there is. Both are distinct
    from others of the same text.

    Examples
    --------
    >>> scope_of("a.py", "f").partition(", ")[0]
    '#llvm.di_subprogram<id = distinct[0]<>'
    """
    at = f'<{_quoted(file)} in "">'
    return (
        "#llvm.di_subprogram<id = distinct[0]<>, compileUnit = <id = distinct[1]<>, sourceLanguage = DW_LANG_C, "
        f'file = {at}, producer = "", isOptimized = true, emissionKind = DebugDirectivesOnly>, '
        f"scope = #llvm.di_file{at}, name = {_quoted(function)}, file = {at}, "
        'subprogramFlags = "Definition|Optimized", type = <>>'
    )


def _quoted(text: str) -> str:
    """Format a string of MLIR: bytes that are not printable ASCII are two hexadecimal digits behind a backslash."""
    written = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in os.fsencode(text))
    return f'"{"".join(written)}"'
