"""Server of the explorer on this machine's loopback, until it is interrupted."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path

from werkzeug.serving import WSGIRequestHandler, make_server

from cutepy.explorer.app import create_app
from cutepy.explorer.timelines import is_trace

HOST = "127.0.0.1"


class QuietHandler(WSGIRequestHandler):
    """Request handler without a log line for each request."""

    timeout = 30
    """Seconds that a connection may stay silent."""

    def log_request(self, *arguments: object) -> None:
        """Log nothing."""


def serve(
    port: int, files: tuple[Path, ...], *, hosts: tuple[str, ...] = (), open_browser: bool, say: Callable[[str], None]
) -> None:
    """Serve the page until Ctrl-C.

    Parameters
    ----------
    port : int
        0 takes one that is free.
    files : tuple of Path
        Saved runs, saved profiles, and traces of warps, to offer.
    hosts : tuple of str
        Names under which a forwarding proxy serves the page.
    open_browser : bool
        True to open the page.
    say : callable
        Is told the address.

    Raises
    ------
    OSError
        If the port is taken.
    SavedRunError, RecordingError, TimelineError
        If a file is no saved run, no saved profile, or no trace.
    """
    timelines = tuple(file for file in files if file.suffix == ".trace" or is_trace(file.read_bytes()))
    profiles = tuple(file for file in files if file.suffix == ".json" and file not in timelines)
    runs = tuple(file for file in files if file not in (*profiles, *timelines))
    # Bound here: the port is known before the application is made, and werkzeug would end the process if it is taken.
    with socket.create_server((HOST, port)) as listening:
        port = listening.getsockname()[1]
        app = create_app(hosts=hosts, runs=runs, profiles=profiles, timelines=timelines)
        server = make_server(HOST, port, app, threaded=True, request_handler=QuietHandler, fd=listening.fileno())
        shown = {"run": runs, "profile": profiles, "timeline": timelines}
        page = f"http://{HOST}:{port}/" + next((f"?view={view}" for view, given in shown.items() if given), "")
        say(f"cutepy explorer: {page} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(page)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")
        finally:
            server.server_close()
            app.extensions["calculator"].close()
