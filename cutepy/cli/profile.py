"""`cutepy profile`: run a script and tell where its kernels' time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from json import dumps
from pathlib import Path

from cutepy.cli.failure import fail
from cutepy.cli.scripts import Script
from cutepy.cli.simulate import execute
from cutepy.profiling.comparison import slower
from cutepy.profiling.counters import CountersError
from cutepy.profiling.iket_trace import trace as iket_events
from cutepy.profiling.recording import Recording
from cutepy.profiling.session import Profile, profile
from cutepy.profiling.timeline import Timeline, timeline as recorded_timeline


def run(
    script: Script,
    *,
    simulate: bool = False,
    json: Path | None = None,
    trace: Path | None = None,
    against: Path | None = None,
    timeline: Path | None = None,
) -> int:
    """Run a script as `__main__`, and print a tree of its launches.

    Parameters
    ----------
    script : Script
    simulate : bool
        True if every launch is simulated, and device `cuda` served from host memory.
    json, trace : Path, optional
        Files for the recording, and for a trace of it.
    against : Path, optional
        A saved recording to compare with.
    timeline : Path, optional
        File for a trace of the warps of the script's kernels.

    Returns
    -------
    int
        The script's exit code, or 1 if something became slower.
    """
    before = None if against is None else _load(against)
    with _serving(simulate), _timeline(timeline) as warps, profile() as result:
        code = execute(script)
        if timeline is not None and warps is not None:
            _save_timeline(warps, timeline, script, simulate=simulate)
    result.print()
    if json is not None:
        result.save(json)
    if trace is not None:
        result.save_trace(trace)
    if before is not None and _tell_slower(result, before, script.echo):
        return code or 1
    return code


def run_under_ncu(script: Script, launches: int, measure: Callable[..., Iterable[object]]) -> int:
    """Run a script under ncu, and print the counters of each of its first launches.

    Returns
    -------
    int
        0, or 1 if nothing could be measured.
    """
    try:
        found = measure(script.path, script.arguments, launches)
    except CountersError as error:
        script.echo(f"error: {error}")
        return 1
    for each in found:
        print(each)
    return 0


def _serving(simulate: bool) -> AbstractContextManager[object]:
    if not simulate:
        return nullcontext()
    from cutepy.frontends import serve_cuda

    return serve_cuda()


def _timeline(path: Path | None) -> AbstractContextManager[Timeline | None]:
    return nullcontext() if path is None else recorded_timeline()


def _save_timeline(warps: Timeline, path: Path, script: Script, *, simulate: bool) -> None:
    """Write a timeline: of the ranges of cutepy's blocks, or if there are none, of a second run under IKET."""
    found = [] if simulate or warps.warps() else iket_events(script.path, script.arguments)
    if found:
        said = "cutepy: no kernel has ranges of cutepy.device; the script ran again under IKET, for the lives of warps"
        script.echo(said)
        path.write_text(dumps({"traceEvents": found, "displayTimeUnit": "ns"}))
        return
    warps.print()
    warps.save_trace(path)


def _load(path: Path) -> Recording:
    try:
        return Recording.load(path)
    except ValueError as error:
        fail(f"--against {error}")


def _tell_slower(now: Profile, before: Recording, echo: Callable[[str], None]) -> bool:
    """Print the kernels and scopes that became slower than in a saved recording."""
    found = slower(now.recording, before)
    echo(f"{len(found)} scopes and kernels became slower" + (":" if found else ""))
    for each in found:
        echo(f"  {each}")
    return bool(found)
