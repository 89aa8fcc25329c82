"""`cutepy profile`: run a script and tell where its kernels' time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from cutepy.cli.failure import fail
from cutepy.cli.simulate import execute
from cutepy.profiling.comparison import slower
from cutepy.profiling.recording import Recording
from cutepy.profiling.session import Profile, profile


def run(
    script: Path,
    arguments: Sequence[str],
    echo: Callable[[str], None],
    *,
    simulate: bool = False,
    json: Path | None = None,
    trace: Path | None = None,
    against: Path | None = None,
) -> int:
    """Run a script as `__main__`, and print a tree of what it launched.

    Parameters
    ----------
    script : Path
    arguments : sequence of str
        Its `sys.argv[1:]`.
    echo : callable
        Prints a line beside the tree.
    simulate : bool
        Whether every launch is simulated, and device `cuda` served from host memory.
    json, trace : Path, optional
        Files for the recording, and for a trace of it.
    against : Path, optional
        A saved recording to compare with.

    Returns
    -------
    int
        The script's exit code, or 1 if something became slower.
    """
    before = None if against is None else _load(against)
    with _serving(simulate), profile() as result:
        code = execute(script, arguments, echo)
    result.print()
    if json is not None:
        result.save(json)
    if trace is not None:
        result.save_trace(trace)
    if before is not None and _tell_slower(result, before, echo):
        return code or 1
    return code


def _serving(simulate: bool) -> AbstractContextManager[object]:
    if not simulate:
        return nullcontext()
    from cutepy.frontends import serve_cuda

    return serve_cuda()


def _load(path: Path) -> Recording:
    try:
        return Recording.load(path)
    except ValueError as error:
        fail(f"--against {error}")


def _tell_slower(now: Profile, before: Recording, echo: Callable[[str], None]) -> bool:
    """Print what became slower than in a saved recording."""
    found = slower(now.recording, before)
    echo(f"{len(found)} scopes and kernels became slower" + (":" if found else ""))
    for each in found:
        echo(f"  {each}")
    return bool(found)
