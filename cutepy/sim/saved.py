"""Saved runs, read: what CTAs did, who waited for whom, and shared memory at each step.

Files may come from strangers. Nothing in them is executed or unpickled, sizes are bounded before anything is unpacked,
and every value is checked: a file that is not what `Run.save` writes raises `SavedRunError`.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.checked import Checked, SavedRunError
from cutepy.sim.saving import FORMAT, INDEX, MAX_MEMBERS, VERSION, check_sizes
from cutepy.sim.shared_memory import view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutepy.layouts import ComposedLayout, Layout
    from cutepy.sim.lanes import Array

MAX_EVENTS = 500_000
MAX_SMEM = 1 << 18

_PHASES = ("begin", "wait", "issue", "complete", "do", "effect")


@dataclass(frozen=True)
class Wait:
    """Warps that waited at a barrier.

    Attributes
    ----------
    warps : tuple of int
    barrier : str
        What they waited for.
    begin, end : int
        Positions in `SavedCta.events`; `end` is None where they never went on.
    released_by : int or None
        Position of the event that completed the phase, where it is an mbarrier's.
    """

    warps: tuple[int, ...]
    barrier: str
    begin: int
    end: int | None
    released_by: int | None


@dataclass(frozen=True)
class SavedCta:
    """What one CTA did.

    Attributes
    ----------
    cta : (int, int, int)
    events : list of dict
        In order, as docs/explorer.md tells.
    instructions : list of dict
        ``ptx``, ``line`` and ``place`` of what events refer to.
    barriers : dict of int to str
        Address -> name of each mbarrier.
    followed : bool
        Whether all that was written to shared memory is in `events`.
    """

    cta: tuple[int, int, int]
    events: list[dict[str, Any]] = field(repr=False)
    instructions: list[dict[str, Any]] = field(repr=False)
    barriers: dict[int, str] = field(repr=False)
    followed: bool
    smem_bytes: int
    _contents: Array = field(repr=False)
    _shared: Array | None = field(repr=False)

    def smem(
        self,
        position: int | None = None,
        layout: Layout | ComposedLayout | str | None = None,
        dtype: object = "uint8",
        offset: int = 0,
    ) -> Array:
        """Return shared memory after an event, or as the CTA left it.

        Parameters
        ----------
        position : int, optional
            In `events`; bytes that nothing has written before it are 0. Default: the end.
        layout, dtype, offset
            As of `Run.smem`.

        Raises
        ------
        LookupError
            If shared memory was not kept.
        """
        return view(self._bytes(position), layout, dtype, offset)

    def writers(self, position: int | None = None) -> Array:
        """Return for each byte of shared memory the position of the event that wrote it last; -1 for none."""
        found = np.full(self.smem_bytes, -1, np.int64)
        for number, event in enumerate(self.events[: None if position is None else position + 1]):
            for start, length in event.get("writes", ()):
                found[start : start + length] = number
        return found

    def _bytes(self, position: int | None) -> Array:
        if position is None and self._shared is not None:
            return self._shared
        if not self.followed:
            raise LookupError(f"shared memory of CTA {self.cta} was not kept at each step; save it among the first")
        data = np.zeros(self.smem_bytes, np.uint8)
        for event in self.events[: None if position is None else position + 1]:
            at = event.get("contents", 0)
            for start, length in event.get("writes", ()):
                data[start : start + length] = self._contents[at : at + length]
                at += length
        return data

    @cached_property
    def waits(self) -> list[Wait]:
        """Who waited, where, and which event let them go on."""
        waiting: dict[tuple[int, int], tuple[int, str]] = {}
        found = []
        completed: dict[int, int] = {}
        phases: dict[int, int] = {}
        for number, event in enumerate(self.events):
            state = event.get("barrier")
            if state is not None:
                if state["phase"] > phases.get(state["address"], 0):
                    completed[state["address"]] = number
                phases[state["address"]] = state["phase"]
            key = event["instruction"]
            if event["phase"] == "begin":
                for warp in event["warps"]:
                    waiting.setdefault((warp, key), (number, event["name"]))
            elif event["phase"] == "wait":
                begun: dict[tuple[int, str], list[int]] = {}
                for warp in event["warps"]:
                    if (start := waiting.pop((warp, key), None)) is not None:
                        begun.setdefault(start, []).append(warp)
                by = completed.get(state["address"]) if state is not None else None
                found += [Wait(tuple(warps), name, start, number, by) for (start, name), warps in begun.items()]
        left: dict[tuple[int, str], list[int]] = {}
        for (warp, _), start in waiting.items():
            left.setdefault(start, []).append(warp)
        found += [Wait(tuple(warps), name, start, None, None) for (start, name), warps in left.items()]
        return sorted(found, key=lambda wait: (wait.begin, wait.warps))


@dataclass(frozen=True)
class SavedLaunch:
    """One kernel launch of a saved run; attributes are those of `Launch`."""

    name: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_bytes: int
    stats: dict[str, int]
    printf: str
    ctas: tuple[SavedCta, ...]

    def cta(self, cta: Sequence[int]) -> SavedCta:
        """Return what a CTA did.

        Raises
        ------
        LookupError
            If it is not in the file.
        """
        wanted = (*cta, 0, 0)[:3]
        for saved in self.ctas:
            if saved.cta == wanted:
                return saved
        raise LookupError(f"CTA {wanted} is not in the file, which has {', '.join(str(c.cta) for c in self.ctas)}")


@dataclass(frozen=True)
class SavedRun:
    """A run that `Run.save` wrote.

    Attributes
    ----------
    launches : tuple of SavedLaunch
    """

    launches: tuple[SavedLaunch, ...]


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
    cutepy.sim.checked.SavedRunError: not a saved run: File is not a zip file
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

    def json(self, name: str) -> Checked:
        return Checked(name, json.loads(self.read(name)))

    def array(self, name: str) -> Array:
        """Read an array of bytes: the header is checked against what follows it, so nothing else is allocated."""
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


def _launch(members: _Members, told: Checked) -> SavedLaunch:
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


def _cta(members: _Members, told: Checked, smem_bytes: int, warps: int) -> SavedCta:
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


def _event(told: Checked, limits: _Limits) -> dict[str, Any]:
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


def _writes(told: Checked, event: dict[str, Any], limits: _Limits) -> None:
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


def _box(told: Checked) -> dict[str, Any]:
    return {
        "operation": told["operation"].text(),
        "coordinates": [x.number(-(1 << 40), 1 << 40) for x in told["coordinates"].items(5)],
        "address": told["address"].number(0, MAX_SMEM),
        "dtype": told["dtype"].text(),
        "box": [x.number(1, 1 << 16) for x in told["box"].items(5)],
        "swizzle": told["swizzle"].text(),
    }
