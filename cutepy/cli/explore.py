"""`cutepy explore`: the explorer's page, served on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cutepy.extras import require


def run(port: int, files: list[Path], *, hosts: list[str], open_browser: bool, say: Callable[[str], None]) -> None:
    """Serve the explorer until Ctrl-C.

    Raises
    ------
    MissingPackagesError
        If a package that it needs is not installed.
    ValueError
        If the port is taken, or a file is no saved run.
    """
    require("cutepy explore", "flask", "numpy", extra="explore")
    from cutepy.explorer.serving import serve

    try:
        serve(port, tuple(files), hosts=tuple(hosts), open_browser=open_browser, say=say)
    except OSError as error:
        raise ValueError(f"cannot serve on port {port}: {error.strerror or error}") from error
