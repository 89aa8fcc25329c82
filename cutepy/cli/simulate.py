"""`cutepy simulate`: run a GPU script on a machine without one."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path


def run(script: Path, arguments: Sequence[str], echo: Callable[[str], None]) -> int:
    """Run a script as `__main__`, with device `cuda` served from host memory and every launch simulated.

    Parameters
    ----------
    script : Path
    arguments : sequence of str
        Its `sys.argv[1:]`.
    echo : callable
        Prints a line of the summary.

    Returns
    -------
    int
        The script's exit code; what it raises passes through.
    """
    from cutepy.sim.served import serve_cuda

    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.resolve().parent)
    code: object = 0
    try:
        with serve_cuda() as simulation:
            try:
                runpy.run_path(str(script), run_name="__main__")
            except SystemExit as leaving:
                code = leaving.code
            kernels = Counter(launch.kernel for launch in simulation.launches)
    finally:
        sys.argv, sys.path[:] = argv, path
    launches = sum(kernels.values())
    echo(f"cutepy: simulated {launches} launches of {len(kernels)} kernels on the CPU; times are not a GPU's")
    if code is None or isinstance(code, int):
        return code or 0
    echo(str(code))
    return 1
