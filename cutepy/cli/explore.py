"""`cutepy explore`: the explorer's page, served on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

NEEDED = {"flask": "flask", "werkzeug": "flask", "jinja2": "flask", "numpy": "numpy"}
"""What the explorer imports beyond cutepy's own needs."""


def run(port: int, files: list[Path], *, hosts: list[str], open_browser: bool, say: Callable[[str], None]) -> None:
    """Serve the explorer until Ctrl-C.

    Raises
    ------
    ValueError
        If what it needs is not installed, the port is taken, or a file is no saved run.
    """
    try:
        from cutepy.explorer.serving import serve
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise ValueError(f"the explorer needs {NEEDED[error.name]}: pip install 'cutepy[explore]'") from error
    try:
        serve(port, tuple(files), hosts=tuple(hosts), open_browser=open_browser, say=say)
    except OSError as error:
        raise ValueError(f"cannot serve on port {port}: {error.strerror or error}") from error
