"""Reader of saved runs.

Files may come from strangers. Nothing in them is executed or unpickled, sizes are bounded before anything is unpacked,
and every value is checked: a file that is not what `Run.save` writes raises `SavedRunError`.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutepy.sim.inspect.checked import JsonValue, SavedRunError
from cutepy.sim.inspect.history import SavedCta, SavedLaunch, SavedRun
from cutepy.sim.inspect.saving import FORMAT, INDEX, MAX_MEMBERS, VERSION, check_sizes
from cutepy.sim.machine.lanes import Array

MAX_EVENTS = 500_000
MAX_SMEM = 1 << 18

_PHASES = ("begin", "wait", "issue", "complete", "do", "effect")


def load_run(source: str | Path | bytes) -> SavedRun:
    """Read a run that `Run.save` wrote.

    Parameters
    ----------
    source : str, Path or bytes
        The file, or its contents. It may come from a stranger.

    Returns
    -------
    SavedRun

    Raises
    ------
    SavedRunError
        If it is no such file, is damaged, of another version of the format, or too large.
    OSError
        If the file can't be read.

    Examples
    --------
    >>> load_run(b"PK")
    Traceback (most recent call last):
        ...
    cutepy.sim.inspect.checked.SavedRunError: not a saved run: File is not a zip file
    """
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read(_Members(archive))
    except SavedRunError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, MemoryError, RuntimeError, ValueError, OSError) as error:
        raise SavedRunError(f"not a saved run: {error}") from error


class _Members:
    """The members of an archive, each read once they are known to be small enough."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        members = archive.infolist()
        check_sizes(members)
        self._known = {member.filename: member for member in members}
        if len(self._known) != len(members):
            raise SavedRunError("a saved run has no two members of one name")

    def read(self, name: str) -> bytes:
        if name not in self._known:
            raise SavedRunError(f"not a saved run: it has no {name}")
        with self._archive.open(self._known[name]) as member:
            return member.read(self._known[name].file_size)  # no more than was told, and was counted

    def json(self, name: str) -> JsonValue:
        return JsonValue(name, json.loads(self.read(name)))

    def array(self, name: str) -> Array:
        """Read an array of bytes: the header is checked against the data's length before anything is allocated."""
        buffer = io.BytesIO(self.read(name))
        if np.lib.format.read_magic(buffer) != (1, 0):
            raise SavedRunError(f"{name} must be an array of format 1.0")
        shape, _, dtype = np.lib.format.read_array_header_1_0(buffer)
        rest = buffer.getvalue()[buffer.tell() :]
        if dtype != np.uint8 or shape != (len(rest),):
            raise SavedRunError(f"{name} must be an array of {len(rest)} bytes, got {shape} of {dtype}")
        return np.frombuffer(rest, np.uint8)


def _read(members: _Members) -> SavedRun:
    index = members.json(INDEX)
    if index["format"].text() != FORMAT:
        raise SavedRunError(f"not a saved run: its format is {index['format'].text()!r}")
    if (version := index["version"].number(0, 1 << 30)) != VERSION:
        raise SavedRunError(f"the file is of version {version} of the format, and this cutepy reads {VERSION}")
    launches = tuple(_launch(members, told) for told in index["launches"].items(1000))
    return SavedRun(launches)


def _launch(members: _Members, told: JsonValue) -> SavedLaunch:
    smem_bytes = told["smem_bytes"].number(0, MAX_SMEM)
    threads = int(np.prod([1, *told["block"].triple()]))
    return SavedLaunch(
        told["name"].text(),
        told["kernel"].text(),
        told["grid"].triple(),
        told["block"].triple(),
        told["cluster"].triple(),
        smem_bytes,
        {name: count.number(0, 1 << 62) for name, count in told["stats"].members(1000)},
        told["printf"].text(1 << 24),
        tuple(_cta(members, cta, smem_bytes, -(-threads // 32)) for cta in told["ctas"].items(MAX_MEMBERS)),
    )


def _cta(members: _Members, told: JsonValue, smem_bytes: int, warps: int) -> SavedCta:
    contents = members.array(told["contents"].text())
    history = members.json(told["events"].text())
    instructions = [
        {name: instruction[name].text() for name in ("ptx", "line", "place")}
        for instruction in history["instructions"].items(MAX_EVENTS)
    ]
    barriers = {}
    for address, name in history["barriers"].members(MAX_SMEM):
        if not address.isdecimal() or not address.isascii() or int(address) >= MAX_SMEM:
            raise SavedRunError(f"{history.where}: a barrier's address must be below {MAX_SMEM}, got {address[:20]!r}")
        barriers[int(address)] = name.text()
    limits = _Limits(len(instructions), warps, smem_bytes, len(contents))
    events = [_event(event, limits) for event in history["events"].items(MAX_EVENTS)]
    shared = None
    if told["shared"].value is not None:
        shared = members.array(told["shared"].text())
        if len(shared) != smem_bytes:
            raise SavedRunError(f"{told['shared'].where} must have {smem_bytes} bytes, got {len(shared)}")
    return SavedCta(
        told["cta"].triple(), events, instructions, barriers, told["followed"].truth(), smem_bytes, contents, shared
    )


@dataclass(frozen=True)
class _Limits:
    instructions: int
    warps: int
    smem_bytes: int
    contents: int


def _event(told: JsonValue, limits: _Limits) -> dict[str, Any]:
    event: dict[str, Any] = {
        "step": told["step"].number(0, 1 << 40),
        "phase": told["phase"].choice(_PHASES),
        "kind": told["kind"].text(),
        "name": told["name"].text(),
        "instruction": told["instruction"].number(0, limits.instructions - 1),
        "warps": [warp.number(0, limits.warps - 1) for warp in told["warps"].items(limits.warps)],
        "threads": told["threads"].text(),
    }
    if "operation" in told:
        event["operation"] = told["operation"].number(0, 1 << 40)
    if "from" in told:
        event["from"] = told["from"].text()
    if "barrier" in told:
        state, large = told["barrier"], 1 << 62
        event["barrier"] = {
            "address": state["address"].number(0, MAX_SMEM),
            **{name: state[name].number(-large, large) for name in ("phase", "pending", "expected", "pending_bytes")},
        }
    if "writes" in told:
        _writes(told, event, limits)
    if "wgmma" in told:
        mma = told["wgmma"]
        event["wgmma"] = {
            "shape": list(mma["shape"].triple()),
            **{name: [part.text() for part in mma[name].items(64)] for name in ("types", "a", "b")},
        }
    if "boxes" in told:
        event["boxes"] = [_box(box) for box in told["boxes"].items(1024)]
    return event


def _writes(told: JsonValue, event: dict[str, Any], limits: _Limits) -> None:
    pieces = []
    for piece in told["writes"].items(limits.smem_bytes):
        start, length = (part.number(0, limits.smem_bytes) for part in piece.items(2, 2))
        if start + length > limits.smem_bytes:
            raise SavedRunError(f"{piece.where}: shared memory ends at {limits.smem_bytes}, got {[start, length]}")
        pieces.append([start, length])
    event["writes"] = pieces
    event["contents"] = told["contents"].number(0, limits.contents)
    if event["contents"] + sum(length for _, length in pieces) > limits.contents:
        raise SavedRunError(f"{told.where}: writes more than the {limits.contents} bytes that were kept")


def _box(told: JsonValue) -> dict[str, Any]:
    return {
        "operation": told["operation"].text(),
        "coordinates": [x.number(-(1 << 40), 1 << 40) for x in told["coordinates"].items(5)],
        "address": told["address"].number(0, MAX_SMEM),
        "dtype": told["dtype"].text(),
        "box": [x.number(1, 1 << 16) for x in told["box"].items(5)],
        "swizzle": told["swizzle"].text(),
    }
