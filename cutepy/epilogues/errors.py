"""What an epilogue can't express, said with the line of the function that asked for it."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path

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
    """An epilogue asks for what no kernel does, or is given what it doesn't take.

    Attributes
    ----------
    line : Line or None
        Of the function that is traced.
    """

    # It has no __init__: torch.compile can't trace an exception's, and would tell of that in place of the message.
    line: Line | None = None

    @classmethod
    def at(cls, message: str, line: Line | None) -> EpilogueError:
        """Make one whose message has the line, where it is known."""
        error = cls(message if line is None or not line.number else f"{message}\n{line}")
        error.line = line
        return error


def callers_line() -> Line | None:
    """Find the line that is being traced: the innermost one outside this package."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        # torch hands its functions' arguments back by frames of its own.
        if not code.co_filename.startswith(_HERE) and "/torch/" not in code.co_filename.replace("\\", "/"):
            return Line(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return None
