"""Who may ask: this machine, by its own name, from a page that this server served.

A page of another site can make a browser send requests here. By its own name (DNS rebinding) they bear a foreign Host,
across sites a foreign Origin or Sec-Fetch-Site: both are refused.
"""

from __future__ import annotations

import ipaddress

from flask import Flask, Request, Response, request

from cutepy.explorer.worker import error

NAMES = ("127.0.0.1", "localhost")
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


def protect(app: Flask, port: int | None, uploads: str) -> None:
    """Refuse what does not come from this machine's own pages, and bound what comes.

    Parameters
    ----------
    app : Flask
    port : int or None
        The port that a Host must name; None where it is not known, as in tests.
    uploads : str
        The path that takes a body.
    """

    @app.before_request
    def check() -> tuple[dict[str, object], int] | None:
        if reason := refusal(request, port):
            return error("Forbidden", reason), FORBIDDEN
        if len(request.query_string) > MAX_QUERY:
            return error("TooLong", f"a query may have {MAX_QUERY} bytes, got {len(request.query_string)}"), TOO_LONG
        if request.path != uploads and (request.content_length or "Transfer-Encoding" in request.headers):
            return error("TooLarge", "this takes no body"), TOO_LARGE
        return None

    @app.after_request
    def protected(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response


def refusal(asked: Request, port: int | None) -> str:
    """Return why a request is refused; empty where it is not."""
    host = asked.headers.get("Host", "")  # as it was sent: `asked.host` makes one up where there is none
    name, _, given = host.partition(":")
    if name not in NAMES or (port is not None and given != str(port)):
        return f"the host must be {' or '.join(NAMES)} with this server's port, got {host!r}"
    if not ipaddress.ip_address(asked.remote_addr or "0.0.0.0").is_loopback:
        return "requests must come from this machine"
    origin = asked.headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return f"the page must be of this server, http://{host}, got the origin {origin!r}"
    site = asked.headers.get("Sec-Fetch-Site", "none")
    if asked.path.startswith("/api/") and site not in ("none", "same-origin"):
        return "the page must be of this server; this one is of another site"
    return ""
