"""Errors of Python, out of an instruction of a form that the simulator does not know, name the instruction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from cutepy.sim.errors import SimulationError, UnknownInstructionError
from cutepy.sim.ptx.model import Instruction

SITES = "SITES_"
"""Beginning of the names under which generated code keeps the instruction of each of its lines, by function."""
FORM_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    StopIteration,
    TypeError,
    ValueError,
)
"""Errors that Python raises in translating or executing an instruction of an unknown form."""
_LIBRARIES = ("builtins", "numpy")
_OWN = (*(str(Path(__file__).parents[2] / name) for name in ("sim", "layouts", "runtime")), "<")
"""Beginnings of the files of the simulator; files of generated code begin with ``<``."""


class InstructionNamed:
    """Context that converts an error of Python to an error of the instruction in translation or execution.

    Errors of cutepy that name no instruction are given the one that was executed. Errors of callers' code, such as an
    observer, pass as they are, and so do those of no instruction.

    Raises
    ------
    UnknownInstructionError
        With the error of Python as its cause.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, SimulationError):
            if error.instruction is None and (found := _executed(_own_frames(error))) is not None:
                error.locate(found)
        elif isinstance(error, FORM_ERRORS) and (found := _instruction_of(error)) is not None:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UnknownInstructionError(found, f"it is of a form that is not known ({said})") from error


def _instruction_of(error: Exception) -> Instruction | None:
    if type(error).__module__.partition(".")[0] not in _LIBRARIES:
        return None
    frames = _own_frames(error)
    found = _executed(frames)
    if found is not None:
        return found
    named = (frame.f_locals.get(name) for frame, _ in reversed(frames) for name in ("i", "instruction"))
    return next((one for one in named if isinstance(one, Instruction)), None)


def _executed(frames: list[tuple[FrameType, int]]) -> Instruction | None:
    """Return the instruction of the line of generated code that ran."""
    for frame, line in frames:
        sites = frame.f_globals.get(SITES + frame.f_code.co_name)
        number = line - frame.f_code.co_firstlineno - 1
        if sites is not None and 0 <= number < len(sites) and sites[number] is not None:
            found: Instruction = sites[number]
            return found
    return None


def _own_frames(error: Exception) -> list[tuple[FrameType, int]]:
    """List the frames that an error has passed, outermost first; none if callers' code is among them."""
    frames = [*_frames(error.__traceback__)]
    return frames if all(_is_own(frame) for frame, _ in frames) else []


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _is_own(frame: FrameType) -> bool:
    """Return whether code is the simulator's, or a library's that it calls."""
    library = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return frame.f_code.co_filename.startswith(_OWN) or library in ("numpy", "contextlib")
