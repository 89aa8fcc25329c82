"""Mutants tried several at a time, each in a fork of the process that has the memory of the launch.

What kills such a process, or takes too long, costs no other mutant anything.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from tests.sim.mutants.operators import Mutant
from tests.sim.mutants.trying import Verdict


@dataclass(frozen=True)
class _Child:
    process: int
    mutant: Mutant
    begun: float


def verdicts(
    of: Callable[[Mutant], Verdict], mutants: Sequence[Mutant], jobs: int, seconds: float
) -> Iterator[tuple[Mutant, Verdict, float]]:
    """Yield each mutant, what became of it and the seconds that it took, as they end.

    Parameters
    ----------
    of : callable
        Tries a mutant.
    mutants : sequence of Mutant
    jobs : int
        Processes at a time.
    seconds : float
        After which a mutant is "endless".
    """
    gc.freeze()  # collecting would copy the pages of what is shared
    waiting, children = list(mutants)[::-1], dict[Connection, _Child]()
    try:
        while waiting or children:
            while waiting and len(children) < jobs:
                pipe, child = _start(of, waiting.pop())
                children[pipe] = child
            soonest = min(child.begun for child in children.values()) + seconds
            ready = wait(list(children), max(0.0, soonest - time.perf_counter()))
            for pipe, child in list(children.items()):
                took = time.perf_counter() - child.begun
                if pipe in ready or took >= seconds:
                    del children[pipe]
                    verdict = _heard(pipe) if pipe in ready else Verdict("endless", f"{seconds:.0f} s")
                    _end(pipe, child)
                    yield child.mutant, verdict, took
    finally:
        for pipe, child in children.items():
            _end(pipe, child)
        gc.unfreeze()


def _start(of: Callable[[Mutant], Verdict], mutant: Mutant) -> tuple[Connection, _Child]:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python 3.12 warns of forks of processes with threads: what is forked runs one launch, on one thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if not process:
        try:
            ours.close()
            theirs.send(of(mutant))
        except BaseException as error:
            traceback.print_exc()
            theirs.send(Verdict("crash", f"{type(error).__name__}: {error}"))
        finally:
            os._exit(0)
    theirs.close()
    return ours, _Child(process, mutant, time.perf_counter())


def _heard(pipe: Connection) -> Verdict:
    try:
        verdict: Verdict = pipe.recv()
    except EOFError:
        return Verdict("crash", "its process died")
    return verdict


def _end(pipe: Connection, child: _Child) -> None:
    pipe.close()
    os.kill(child.process, signal.SIGKILL)
    os.waitpid(child.process, 0)
