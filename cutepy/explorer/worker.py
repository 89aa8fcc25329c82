"""Worker process that computes answers: questions on standard input, answers on standard output.

Run as ``python -m cutepy.explorer.worker``; `calculator` starts it, and stops it where a question takes too long.
"""

from __future__ import annotations

import gc
import json
import resource
import struct
import sys
from typing import Any, BinaryIO

from cutepy.explorer.answers import ANSWERS
from cutepy.explorer.parameters import BadParameterError, Parameters

QUESTION = struct.Struct(">I")
"""Header of a question: its length in bytes."""
ANSWER = struct.Struct(">HI")
"""Header of an answer: the HTTP status, and its length."""

OK, BAD_REQUEST, NOT_FOUND, TOO_LARGE = 200, 400, 404, 413


def answer(name: str, parameters: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Answer a question, or describe its error.

    Returns
    -------
    (status, answer)
        An error is ``{"error": {"kind", "message", "field", "position"}}``.

    Examples
    --------
    >>> status, found = answer("layout", {"expression": "(2,3):(3,1)"})
    >>> status, found["picture"]["grids"][0]["cells"]["offset"]
    (200, [0, 1, 2, 3, 4, 5])
    >>> answer("layout", {"expression": "(2,"})[1]["error"]["field"]
    'expression'
    """
    if name not in ANSWERS:
        return NOT_FOUND, error("NotFound", f"there is no question {name!r}; there are {', '.join(ANSWERS)}")
    try:
        return OK, ANSWERS[name](Parameters(parameters))
    except BadParameterError as bad:
        cause = bad.__cause__
        kind = type(bad if cause is None else cause).__name__
        return BAD_REQUEST, error(kind, str(bad), bad.field, bad.position)
    except (ValueError, TypeError) as wrong:
        return BAD_REQUEST, error(type(wrong).__name__, str(wrong))
    except (MemoryError, RecursionError, OverflowError) as large:
        return TOO_LARGE, error(type(large).__name__, "this is too large to be computed here; ask for less")


def error(kind: str, message: str, field: str | None = None, position: int | None = None) -> dict[str, Any]:
    """Return the error that a page gets instead of an answer."""
    return {"error": {"kind": kind, "message": message, "field": field, "position": position}}


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer questions until there are no more."""
    while head := source.read(QUESTION.size):
        question = json.loads(source.read(QUESTION.unpack(head)[0]))
        status, found = answer(question["name"], question["parameters"])
        body = json.dumps(found, separators=(",", ":")).encode()
        sink.write(ANSWER.pack(status, len(body)) + body)
        sink.flush()


def main(memory_bytes: int) -> None:
    """Serve standard input within so much memory."""
    gc.freeze()  # imported objects stay: collections look at answers only
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
