"""Worker processes that compile: each is spawned, takes one task at a time, and fails alone.

The DSL compiles on one core, and holds Python's lock meanwhile. Workers are spawned, not forked: a process that has
used CUDA, or MLIR, has threads and state that do not survive in a forked copy.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple


class WorkerDiedError(RuntimeError):
    """Error of a worker process that ended before its task."""


class Outcome(NamedTuple):
    """Outcome of a task.

    Attributes
    ----------
    task : str
        Its name.
    error : Exception or None
        Exception of the task, if it failed.
    """

    task: str
    error: Exception | None


class TaskStarted(NamedTuple):
    """Event: a worker has taken a task."""

    task: str


class _Worker:
    """Worker process with its pipe."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True, name="cutepy-compile")
        self.process.start()
        theirs.close()
        self.task: str | None = None

    def give(self, task: str, data: bytes) -> None:
        """Send a task; `take` detects a worker that died meanwhile."""
        self.task = task
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(data)

    def take(self) -> Exception | None:
        """Receive a task's outcome, once there is something to receive."""
        try:
            error = pickle.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self.process.join()
            return WorkerDiedError(
                f"the process that compiled it ended with exit code {self.process.exitcode}; what it printed says why. "
                "If it could not start, guard what your script does with `if __name__ == '__main__':`, since "
                "processes that compile import the script"
            )
        assert error is None or isinstance(error, Exception)
        return error

    def stop(self) -> None:
        """Kill the process at any point: an entry of the cache is written atomically."""
        self.connection.close()
        self.process.terminate()
        self.process.join()


def run(tasks: Mapping[str, bytes], processes: int) -> Iterator[TaskStarted | Outcome]:
    """Compile in several processes; they are ended when the iteration ends, in any way.

    Parameters
    ----------
    tasks : mapping of str to bytes
        By name, the pickled (function, arguments, named arguments, settings).
    processes : int
        Largest number of processes.

    Yields
    ------
    Started or Outcome
        Of each task, as it happens.
    """
    waiting = list(tasks)[::-1]
    workers: list[_Worker] = []
    try:
        for _ in range(min(processes, len(tasks))):
            workers.append(_Worker())
            yield _give_next(workers[-1], waiting, tasks)
        while busy := [worker for worker in workers if worker.task is not None]:
            ready = wait([worker.connection for worker in busy])
            for worker in [worker for worker in busy if worker.connection in ready]:
                assert worker.task is not None
                task, worker.task = worker.task, None
                error = worker.take()
                yield Outcome(task, error)
                if isinstance(error, WorkerDiedError):
                    worker.stop()
                    workers.remove(worker)
                    worker = _Worker() if waiting else worker
                    workers += [worker] if waiting else []
                if waiting:
                    yield _give_next(worker, waiting, tasks)
    finally:
        for worker in workers:
            worker.stop()


def _give_next(worker: _Worker, waiting: list[str], tasks: Mapping[str, bytes]) -> TaskStarted:
    task = waiting.pop()
    worker.give(task, tasks[task])
    return TaskStarted(task)


def _serve(connection: Connection) -> None:
    """Compile tasks until the other end is closed. Ctrl-C is handled by the other end, which then ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "__mp_main__" in sys.modules:
        _rename(vars(sys.modules["__mp_main__"]), "__mp_main__", "__main__")
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            connection.send_bytes(_compile(connection.recv_bytes()))


def _rename(names: Mapping[str, Any], old: str, new: str) -> None:
    """Rename the module of a script's functions and classes to the name it has in the parent.

    Spawned processes import a script under another name, so that what it guards does not run. But names are part of
    the key by which a program is found.
    """
    for value in list(names.values()):
        while value is not None and getattr(value, "__module__", None) == old:
            with contextlib.suppress(AttributeError, TypeError):  # an object, whose class has the name
                value.__module__ = new
            if isinstance(value, type):
                _rename(vars(value), old, new)
            if getattr(value, "__globals__", {}).get("__name__") == old:
                value.__globals__["__name__"] = new
            value = getattr(value, "__wrapped__", None)


def _compile(task: bytes) -> bytes:
    """Compile a task into the disk cache; return its error, pickled."""
    try:
        from cutepy.host.compilation import Call, compile
        from cutepy.runtime.devices import DEVICES, simulating

        arch, function, arguments, named, settings = pickle.loads(task)
        with simulating(DEVICES[arch]):  # as where the task is from, which decides where the settings don't
            if settings["sources"]:
                compile(function, *arguments, **named, **settings)
            else:
                Call(function, arguments, named, settings).compile(cached=True)
    except Exception as error:
        return _pickled(error, traceback.format_exc())
    return pickle.dumps(None)


def _pickled(error: Exception, trace: str) -> bytes:
    """Pickle an error with its traceback as a note; if that fails, its text."""
    note = f"in a process that compiles:\n{trace}"
    sent: Any
    for sent in (error, RuntimeError(f"{type(error).__qualname__}: {error}")):
        with contextlib.suppress(Exception):
            sent.add_note(note)
            data = pickle.dumps(sent)
            pickle.loads(data)
            return data
    raise AssertionError("a RuntimeError with a text can be pickled")
