"""EpilogueError: an inexpressible epilogue, reported with the line of the function."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Line:
    """A line of a function.

    Attributes
    ----------
    file : str
    number : int
        From 1; 0 where it is not known.
    function : str
    """

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.number).strip()
        place = f'  File "{self.file}", line {self.number}, in {self.function}'
        return f"{place}\n    {text}" if text else place


class EpilogueError(ValueError):
    """Error of an epilogue that no kernel can compute, or of an operand that it doesn't take.

    Attributes
    ----------
    line : Line or None
        Of the function that is traced.
    """

    # no __init__: torch.compile can't trace an exception's, and would report that instead of the message
    line: Line | None = None

    @classmethod
    def at(cls, message: str, line: Line | None) -> EpilogueError:
        """Make an error whose message has the line, where it is known."""
        error = cls(message if line is None or not line.number else f"{message}\n{line}")
        error.line = line
        return error


def callers_line() -> Line | None:
    """Find the line that is being traced: the innermost one outside this package."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if _is_callers(frame.f_code.co_filename):
            return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def raising_line(error: BaseException) -> Line | None:
    """Find the line that was being traced when an error was raised: the innermost one outside this package."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if _is_callers(code.co_filename):
            line = Line(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next
    return line


def _is_callers(file: str) -> bool:
    # torch and NumPy pass their functions' arguments back through frames of their own
    path = file.replace("\\", "/")
    return not file.startswith(_HERE) and "/torch/" not in path and "/numpy/" not in path
