"""Flask application of the explorer: one page, its files, and its JSON.

The page: the ``id`` of a field is its parameter's name, on ``view=umma`` with ``umma-`` before names that other views
have, and Enter draws. A picture (``#layout-picture``, ``#steps-picture``, ...) is a table of ``role="grid"`` with
``data-row`` and ``data-column``. Facts are in ``#facts`` (``data-fact``), steps in ``#chain``, errors in elements of
``role="alert"``. ``aria-busy`` of ``body`` is ``false`` once all is drawn.

The JSON takes the parameters of the page's address; ``layout``, ``atom`` and ``umma`` also ``address``. A picture is
what `cutepy.layouts.render.render_raw` returns.

=========================  =========================================================================================
path                       answer
=========================  =========================================================================================
``/api/layout``            ``expression``, ``facts``, ``picture``
``/api/follow``            by ``index`` (colexicographic): ``steps`` of ``name``, ``value``, ``how``
``/api/steps``             ``picture`` of all steps, ``result``
``/api/compare``           ``picture``
``/api/atom``              ``atom``, ``ptx``, ``shape_mnk``, ``threads``, ``sA`` and ``sB``, ``partitions``,
                           ``smem_bytes``, ``fits``, ``picture``
``/api/umma``              ``atom``, ``ptx``, ``shape_mnk``, ``cta_group``, ``instruction_descriptor``, ``sA`` and
                           ``sB``, ``tensor_memory``, ``columns``, ``allocation``, ``load``, ``smem_bytes``,
                           ``fits``, ``picture``
``/api/runs``              ``runs``: ``id``, ``name``, ``launches``
``/api/runs/ID/timeline``  of ``launch``, ``cta``: ``events``, ``instructions``, ``barriers``, ``waits``, ``tiles``,
                           ``smem_bytes``, ``followed``
``/api/runs/ID/shared``    of ``launch``, ``cta``, ``at``, ``layout``, ``dtype``, ``offset``: ``picture``
``/api/profiles``          ``profiles``: ``id``, ``name``
``/api/profiles/ID/flame`` ``name``, ``gpu``, ``source``, ``notes``, ``unit``, ``root``
``/api/timelines``         ``timelines``: ``id``, ``name``, ``kind``
``/api/timelines/ID``      of ``process``: ``name``, ``kind``, ``processes``, ``process``, ``tracks`` of ``name``,
                           ``rows``, ``events`` (begin, end, name, row, args), ``sources``
=========================  =========================================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flask import Flask, Response, render_template, request
from werkzeug.exceptions import HTTPException

from cutepy.explorer.answers import OPERATIONS, PARTITIONS, SHOWN
from cutepy.explorer.calculator import LIMIT_S, Calculator
from cutepy.explorer.guard import protect
from cutepy.explorer.operands import PICTURES, SOURCES, TYPES
from cutepy.explorer.profiles import Profiles
from cutepy.explorer.shelf import DTYPES, MAX_FILE_BYTES, Shelf
from cutepy.explorer.tensor_core import (
    CTA_GROUPS,
    LOADS,
    UMMA_KINDS,
    UMMA_PICTURES,
    UMMA_SOURCES,
    UMMA_SWIZZLES,
    UMMA_TYPES,
)
from cutepy.explorer.timelines import Timelines
from cutepy.explorer.worker import error
from cutepy.layouts.render.palette import FILLS, INK, MARK
from cutepy.layouts.sm90.arch import MAJORS, SWIZZLE_MODES

UPLOADS = "/api/runs"
PROFILES = "/api/profiles"
TIMELINES = "/api/timelines"

BITS = ("", "4", "8", "16", "32", "64")


def create_app(
    *,
    hosts: tuple[str, ...] = (),
    runs: tuple[Path, ...] = (),
    profiles: tuple[Path, ...] = (),
    timelines: tuple[Path, ...] = (),
    limit_s: float = LIMIT_S,
) -> Flask:
    """Return the explorer as a WSGI application.

    Parameters
    ----------
    hosts : tuple of str
        Names under which a forwarding proxy on this machine serves the page, beside 127.0.0.1 and localhost.
    runs : tuple of Path
        Saved runs that the page offers from the start.
    profiles : tuple of Path
        Saved profiles, likewise.
    timelines : tuple of Path
        Traces of warps, predicted or measured, likewise.
    limit_s : float
        Seconds that an answer may take.

    Raises
    ------
    SavedRunError, RecordingError, TimelineError
        If a file is no saved run, no saved profile, or no trace.

    Examples
    --------
    >>> client = create_app().test_client()
    >>> client.get("/api/layout?expression=(2,3):(3,1)").json["picture"]["grids"][0]["cells"]["offset"]
    [0, 1, 2, 3, 4, 5]
    """
    app = Flask("cutepy.explorer", static_url_path="/static", root_path=str(Path(__file__).parent))
    app.config["MAX_CONTENT_LENGTH"] = MAX_FILE_BYTES
    protect(app, hosts, (UPLOADS, PROFILES, TIMELINES))
    calculator = Calculator(limit_s)
    app.extensions["calculator"] = calculator
    shelf = Shelf()
    for file in runs:
        shelf.add(file.read_bytes(), file.name, keep=True)
    saved = Profiles()
    for file in profiles:
        saved.add(file.read_bytes(), file.name, keep=True)

    traces = Timelines()
    for file in timelines:
        traces.add(file.read_bytes(), file.name, keep=True)

    @app.get("/")
    def page() -> str:
        return render_template("page.html", **_choices())

    @app.get("/palette.css")
    def palette() -> Response:
        return Response(_palette(), mimetype="text/css")

    @app.get("/api/<name>")
    def answer(name: str) -> Response:
        status, body = calculator.ask(name, request.args.to_dict())
        return Response(body, status, mimetype="application/json")

    @app.get(UPLOADS)
    def listed() -> Any:  # noqa: ANN401 - what Flask makes a response of
        return {"runs": shelf.listed()}

    @app.post(UPLOADS)
    def added() -> Any:  # noqa: ANN401
        return refused_type() or shelf.add(request.get_data(), request.args.get("name", "run.cutepy")[:200])

    def refused_type() -> Any:  # noqa: ANN401
        if request.mimetype != "application/octet-stream":
            return error("UnsupportedMediaType", "send the file's bytes as application/octet-stream"), 415
        return None

    @app.get(PROFILES)
    def listed_profiles() -> Any:  # noqa: ANN401
        return {"profiles": saved.listed()}

    @app.post(PROFILES)
    def added_profile() -> Any:  # noqa: ANN401
        return refused_type() or saved.add(request.get_data(), request.args.get("name", "profile.json")[:200])

    @app.get(f"{PROFILES}/<profile>/flame")
    def flame(profile: str) -> Any:  # noqa: ANN401
        return saved.flame(profile)

    @app.get(TIMELINES)
    def listed_timelines() -> Any:  # noqa: ANN401
        return {"timelines": traces.listed()}

    @app.post(TIMELINES)
    def added_timeline() -> Any:  # noqa: ANN401
        return refused_type() or traces.add(request.get_data(), request.args.get("name", "timeline.json")[:200])

    @app.get(f"{TIMELINES}/<timeline>")
    def tracks(timeline: str) -> Any:  # noqa: ANN401
        return traces.tracks(timeline, request.args.get("process", ""))

    @app.get(f"{UPLOADS}/<run>/<what>")
    def told(run: str, what: str) -> Any:  # noqa: ANN401
        return shelf.tell(run, what, request.args.to_dict())

    @app.errorhandler(HTTPException)
    def failed(raised: HTTPException) -> Any:  # noqa: ANN401
        return error(raised.name, raised.description or raised.name), raised.code or 500

    @app.errorhandler(ValueError)
    def wrong(raised: ValueError) -> Any:  # noqa: ANN401
        return error(type(raised).__name__, str(raised), getattr(raised, "field", None)), 400

    return app


def _palette() -> str:
    """Return the cells' colours, as in every picture: of tables (c0 ... c7) and of drawings (c0f ...)."""
    fills = "".join(
        f".c{key}{{background:{colour};color:{INK}}}.c{key}f{{fill:{colour}}}" for key, colour in enumerate(FILLS)
    )
    return f"{fills}table.cells td.m{{outline:3px solid {MARK};outline-offset:-3px}}"


def _choices() -> dict[str, Any]:
    """Return the options of the page's menus."""
    return {
        "bits": BITS,
        "shown": SHOWN,
        "operations": (*OPERATIONS, *PARTITIONS),
        "types": TYPES,
        "sources": SOURCES,
        "majors": MAJORS,
        "swizzles": SWIZZLE_MODES,
        "pictures": PICTURES,
        "dtypes": DTYPES,
        "umma_kinds": UMMA_KINDS,
        "umma_types": UMMA_TYPES,
        "umma_sources": UMMA_SOURCES,
        "umma_swizzles": UMMA_SWIZZLES,
        "umma_pictures": UMMA_PICTURES,
        "cta_groups": CTA_GROUPS,
        "loads": LOADS,
        "views": (
            ("layout", "Layout"),
            ("steps", "Operations"),
            ("compare", "Compare"),
            ("atom", "SM90 atom"),
            ("umma", "SM100 atom"),
            ("run", "Simulated run"),
            ("profile", "Profile"),
            ("timeline", "Timeline"),
        ),
    }
