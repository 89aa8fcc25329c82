"""Calculator: sends questions to the worker process, within limits of time and memory."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping

from cutepy.explorer.worker import ANSWER, OK, QUESTION, TOO_LARGE, error

LIMIT_S = 5.0
MEMORY_BYTES = 1 << 30
BUSY = 503
KEPT = 32
"""Number of answers to cache."""


class Calculator:
    """Answers of a worker process, one at a time, each within limits of time and memory.

    The process is started by the first question, and again after one that it did not survive. It reads texts and
    computes; it is given no code.

    Parameters
    ----------
    limit_s : float
        Seconds that an answer may take, waiting for others' included.
    memory_bytes : int
        Address space of the process.
    """

    def __init__(self, limit_s: float = LIMIT_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], Calculator] | None = None

    def ask(self, name: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        """Return the HTTP status and the JSON of an answer."""
        end = time.monotonic() + self._limit_s
        question = json.dumps({"name": name, "parameters": dict(parameters)}, sort_keys=True).encode()
        if (known := self._answers.get(question)) is not None:
            return OK, known
        if not self._lock.acquire(timeout=self._limit_s):
            return BUSY, _said("Busy", f"other questions took {self._limit_s:g} s; ask again")
        try:
            status, answer = self._asked(question, end)
            if status == OK:  # cached without limit of time: answers depend on the question alone
                self._answers[question] = answer
                if len(self._answers) > KEPT:
                    self._answers.popitem(last=False)
            return status, answer
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process; a later question starts another."""
        if self._finalizer is not None:
            self._finalizer()
        self._process = None

    def _asked(self, question: bytes, end: float) -> tuple[int, bytes]:
        try:
            process = self._running()
            assert process.stdin is not None
            process.stdin.write(QUESTION.pack(len(question)) + question)
            process.stdin.flush()
            status, length = ANSWER.unpack(self._read(process, ANSWER.size, end))
            return status, self._read(process, length, end)
        except TimeoutError:
            self.close()
            return TOO_LARGE, _said("TimedOut", f"this takes longer than {self._limit_s:g} s; ask for less")
        except (EOFError, BrokenPipeError):
            self.close()
            return TOO_LARGE, _said("MemoryError", "this is too large to be computed here; ask for less")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # -P: nothing is imported from the command's folder; this process's paths are used.
            path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # noqa: PTH100 - "" is the folder
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cutepy.explorer.worker", str(self._memory_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C goes to the server, which ends the worker
            )
            self._finalizer = weakref.finalize(self, _end, self._process)
        return self._process

    def _read(self, process: subprocess.Popen[bytes], length: int, end: float) -> bytes:
        assert process.stdout is not None
        parts = []
        while length:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = os.read(process.stdout.fileno(), min(length, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except BrokenPipeError:  # a question that it did not read
            continue
    process.wait()


def _said(kind: str, message: str) -> bytes:
    return json.dumps(error(kind, message)).encode()
