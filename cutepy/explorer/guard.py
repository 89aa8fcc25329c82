"""Request guard: accepts requests from this machine only, under its own names, and from pages of this server.

A page of another site can make a browser send requests here. By DNS rebinding they bear a foreign Host, across sites a
foreign Origin or Sec-Fetch-Site: all are refused. The port is free: a forwarded port (ssh -L 9000:localhost:8765) has
another number on the near side, and Host and Origin must agree in any case.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from flask import Flask, Request, Response, render_template, request

from cutepy.explorer.worker import error

NAMES = ("127.0.0.1", "localhost", "[::1]")
FORBIDDEN = 403
TOO_LARGE, TOO_LONG = 413, 414
MAX_QUERY = 16 << 10
"""Bytes of a query."""

_CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def protect(app: Flask, hosts: tuple[str, ...], uploads: tuple[str, ...]) -> None:
    """Refuse requests that do not come from this machine's own pages, and bound their size.

    Parameters
    ----------
    app : Flask
    hosts : tuple of str
        Names that a Host may have beside this machine's.
    uploads : tuple of str
        The paths that take a body.
    """

    @app.before_request
    def check() -> Any:  # noqa: ANN401 - what Flask makes a response of
        if reason := refusal(request, hosts):
            if request.path == "/":  # navigation by a person, not a request of the page
                return render_template("refused.html", reason=reason), FORBIDDEN
            return error("Forbidden", reason), FORBIDDEN
        if len(request.query_string) > MAX_QUERY:
            return error("TooLong", f"a query may have {MAX_QUERY} bytes, got {len(request.query_string)}"), TOO_LONG
        if request.path not in uploads and (request.content_length or "Transfer-Encoding" in request.headers):
            return error("TooLarge", "this takes no body"), TOO_LARGE
        return None

    @app.after_request
    def protected(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response


def _name(host: str) -> str:
    """Return the name in a Host header, without the port; an address of version 6 keeps its brackets."""
    found = re.fullmatch(r"(\[[^]]*\]|[^:]*)(:.*)?", host.lower())
    return found[1] if found else host


def refusal(asked: Request, hosts: tuple[str, ...] = ()) -> str:
    """Return the reason why a request is refused; empty where it is not."""
    host = asked.headers.get("Host", "")  # the raw header: `asked.host` substitutes one where it is absent
    name = _name(host)
    hosts = tuple(each.lower() for each in hosts)
    if name not in (*NAMES, *hosts):
        return f"the host must be {', '.join((*NAMES, *hosts))}, got {host!r}"
    if not ipaddress.ip_address(asked.remote_addr or "0.0.0.0").is_loopback:
        return "requests must come from this machine"
    origin = asked.headers.get("Origin")
    schemes = ("http", "https") if name in hosts else ("http",)  # a proxy may use TLS
    if origin is not None and origin.lower() not in [f"{scheme}://{host.lower()}" for scheme in schemes]:
        return f"the page must be of this server, http://{host}, got the origin {origin!r}"
    site = asked.headers.get("Sec-Fetch-Site", "none")
    if asked.path.startswith("/api/") and site not in ("none", "same-origin"):
        return "the page must be of this server; this one is of another site"
    return ""
