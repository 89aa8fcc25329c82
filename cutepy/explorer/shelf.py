"""Saved runs on the page, and answers about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cutepy.explorer.files import Files
from cutepy.explorer.parameters import BadParameterError, Parameters
from cutepy.layouts import Layout
from cutepy.layouts.grids.axes import orientation, sides
from cutepy.layouts.modes import LayoutBase
from cutepy.layouts.render import Cell, Grid, layout_grid, render_raw
from cutepy.layouts.sm90.arch import DTYPE_BITS, UNIT_BYTES
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.sim.inspect.history import SavedCta, SavedLaunch, SavedRun
from cutepy.sim.inspect.saved import load_run

MAX_FILE_BYTES = 64 << 20

DTYPES = ("uint8", "float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "int32", "uint32")

_NUMPY_OF = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "tf32": "float32", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "s8": "int8", "s32": "int32", "u32": "uint32",
}  # fmt: skip


class Shelf:
    """Saved runs by the hash of their bytes: the same file has the same address."""

    def __init__(self) -> None:
        self._files: Files[SavedRun] = Files("run", "run")

    def add(self, data: bytes, name: str, *, keep: bool = False) -> dict[str, Any]:
        """Add a run.

        Parameters
        ----------
        data : bytes
            The file.
        name : str
            Shown in the page's menu.
        keep : bool
            Keep the run as long as the server runs; an upload makes room for later ones.

        Raises
        ------
        SavedRunError
            If the file is no saved run.
        """
        run = load_run(data)
        return _told(self._files.add(data, name, run, keep=keep), name, run)

    def listed(self) -> list[dict[str, Any]]:
        """List the runs."""
        return [_told(*each) for each in self._files.all()]

    def tell(self, identity: str, what: str, given: Mapping[str, str]) -> dict[str, Any]:
        """Answer a question about one CTA of a run."""
        if what not in _QUESTIONS:
            raise BadParameterError("what", f"there is no question {what!r}; there are {', '.join(_QUESTIONS)}")
        _, run = self._files.named(identity)
        asked = Parameters(given)
        if not run.launches:
            raise BadParameterError("run", "nothing was launched in this run")
        launch = run.launches[asked.number("launch", 0, len(run.launches) - 1, 0)]
        if not launch.ctas:
            raise BadParameterError("launch", "no CTA of this launch is in the file")
        return _QUESTIONS[what](launch, _cta(asked, launch), asked)


def _cta(asked: Parameters, launch: SavedLaunch) -> SavedCta:
    if not asked.has("cta"):
        return launch.ctas[0]
    try:
        x, y, z = (int(part) for part in (*asked.text("cta").split(","), "0", "0")[:3])
        return launch.cta((x, y, z))
    except (ValueError, LookupError) as error:
        raise BadParameterError("cta", f"cta must be coordinates such as 0,0,0: {error}") from error


def _told(identity: str, name: str, run: SavedRun) -> dict[str, Any]:
    launches = [
        {
            "name": launch.name,
            "grid": launch.grid,
            "block": launch.block,
            "cluster": launch.cluster,
            "smem_bytes": launch.smem_bytes,
            "stats": launch.stats,
            "ctas": [{"cta": cta.cta, "events": len(cta.events), "followed": cta.followed} for cta in launch.ctas],
        }
        for launch in run.launches
    ]
    return {"id": identity, "name": name, "launches": launches}


def timeline(launch: SavedLaunch, cta: SavedCta, asked: Parameters) -> dict[str, Any]:
    """Return a CTA's events, and its waits with their wakers."""
    asked.known("launch", "cta")
    return {
        "events": cta.events,
        "instructions": cta.instructions,
        "barriers": {str(address): name for address, name in cta.barriers.items()},
        "waits": [
            {
                "warps": wait.warps,
                "for": wait.barrier,
                "begin": wait.begin,
                "end": wait.end,
                "released_by": wait.released_by,
            }
            for wait in cta.waits
        ],
        "tiles": _tiles(cta),
        "smem_bytes": cta.smem_bytes,
        "followed": cta.followed,
    }


def _tiles(cta: SavedCta) -> list[dict[str, Any]]:
    """List the tiles of tensor copies: their place and layout in shared memory."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in cta.events:
        for box in event.get("boxes", ()):
            dtype = box["dtype"].partition(".")[0]
            bits = DTYPE_BITS.get(dtype)
            if bits is None:
                continue
            shape = tuple(extent for extent in box["box"] if extent > 1)[:2] or (1,)
            layout = Layout(shape[::-1], (shape[0], 1) if len(shape) > 1 else (1,))
            swizzle = byte_swizzle(box["swizzle"])
            text = f"{swizzle} o smem_ptr[{bits}b](unset) o {layout}" if swizzle.bits else str(layout)
            key = box["address"], text
            found.setdefault(
                key,
                {"offset": box["address"], "layout": text, "dtype": _NUMPY_OF.get(dtype, "uint8"), "box": box["box"]},
            )
    return sorted(found.values(), key=lambda tile: tile["offset"])


def shared(launch: SavedLaunch, cta: SavedCta, asked: Parameters) -> dict[str, Any]:
    """Draw shared memory after an event: as a map of the last writers of 16 bytes, or as values through a layout."""
    asked.known("launch", "cta", "at", "layout", "dtype", "offset")
    at = asked.number("at", 0, max(0, len(cta.events) - 1), max(0, len(cta.events) - 1))
    writers = cta.writers(at) if cta.followed else np.full(cta.smem_bytes, -1)
    if not asked.has("layout"):
        return {"picture": render_raw(_map(cta, writers))}
    dtype, offset = asked.choice("dtype", DTYPES, "uint8"), asked.number("offset", 0, cta.smem_bytes, 0)
    layout = asked.layout("layout", 1 << 14)
    return {"picture": render_raw(_values(cta, layout, dtype, offset, at, writers))}


def _map(cta: SavedCta, writers: Any) -> Grid:  # noqa: ANN401 - an array
    units = cta.smem_bytes // UNIT_BYTES
    rows, columns = sides((-(-units // 8), 8), ("line of 32 banks", "16 bytes"))
    lines = rows.axis.called(lambda i: hex(i * 8 * UNIT_BYTES))
    last = writers[: units * UNIT_BYTES].reshape(-1, UNIT_BYTES).max(axis=1).tolist() if units else []

    def cell(i: int, j: int) -> Cell:
        unit = 8 * i + j
        writer = last[unit] if unit < units else -1
        byte = unit * UNIT_BYTES
        return Cell(
            str(writer) if writer >= 0 else "",
            (i, j),
            None,
            None,
            byte,
            4 * j,
            colour=None if writer < 0 else writer % 8,
            notes=_written(cta, writer),
        )

    said = f"{orientation(rows.axis, columns.axis)}; the number of the event that wrote a unit of 16 bytes last"
    return Grid(lines, columns.axis, cell, title="shared memory", caption=(said,), colours="event mod 8")


def _values(
    cta: SavedCta,
    layout: LayoutBase,
    dtype: str,
    offset: int,
    at: int,
    writers: Any,  # noqa: ANN401 - an array
) -> Grid:
    try:
        data = cta.smem(at if cta.followed else None, layout, dtype, offset)  # type: ignore[arg-type]
    except (ValueError, LookupError) as error:
        raise BadParameterError("layout", str(error)) from error
    places = cta_places(layout, dtype, offset, cta.smem_bytes)
    flat, where = data.reshape(-1, order="F").tolist(), places.reshape(-1, order="F").tolist()
    drawn = layout_grid(layout)  # only its axes are used

    def cell(i: int, j: int) -> Cell:
        found = drawn.cell(i, j)
        index = found.flat or 0
        byte = where[index]
        writer = int(writers[byte])
        value = flat[index]
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        return found._replace(
            text=text,
            data=text,
            byte=byte,
            bank=byte // 4 % 32,
            colour=None if writer < 0 else writer % 8,
            notes=_written(cta, writer),
        )

    def bulk() -> dict[str, Any]:
        down, across = drawn.parts()
        order = [start + step for start in down.indices for step in across.indices]
        texts = [f"{x:.4g}" if isinstance(x, float) else str(x) for x in (flat[index] for index in order)]
        bytes_ = [where[index] for index in order]
        last = [int(writers[byte]) for byte in bytes_]
        notes = {writer: dict(_written(cta, writer)) for writer in set(last)}
        return {
            "text": texts,
            "data": texts,
            "byte": bytes_,
            "bank": [byte // 4 % 32 for byte in bytes_],
            "colour": [None if writer < 0 else writer % 8 for writer in last],
            "notes": {name: [notes[writer].get(name) for writer in last] for name in ("written by", "line")},
        }

    said = f"{orientation(drawn.rows, drawn.columns)}; values of {dtype} from byte {offset:#x}"
    return Grid(
        drawn.rows, drawn.columns, cell, title=str(layout), caption=(said,), colours="writing event mod 8", bulk=bulk
    )


def cta_places(layout: LayoutBase, dtype: str, offset: int, size: int) -> Any:  # noqa: ANN401 - an array
    """Return the byte of each element of a tile: a view of shared memory whose bytes are their addresses."""
    from cutepy.sim.machine.shared_memory import view

    width = {"uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2}.get(dtype, 4)
    numbers = np.zeros(size // width * width, np.uint8)
    kind = {1: "uint8", 2: "uint16", 4: "uint32"}[width]
    found: Any = 0
    for shift in range(0, 32, 8 * width):
        numbers.view(kind)[:] = (np.arange(size // width) * width >> shift).astype(kind)
        part = view(numbers, layout, kind, offset).astype(np.int64) << shift  # type: ignore[arg-type]
        found = found | part
    return found


def _written(cta: SavedCta, writer: int) -> tuple[tuple[str, str], ...]:
    if writer < 0:
        return ()
    event = cta.events[writer]
    line = cta.instructions[event["instruction"]]["line"]
    return ("written by", f"event {writer}: {event['name']}, {event['threads']}"), ("line", line)


_QUESTIONS = {"timeline": timeline, "shared": shared}
