"""Writer of runs to files, format version 1: a zip archive of JSON and numpy arrays.

- ``run.json``: ``format`` is ``"cutepy-run"`` and ``version`` 1. ``launches`` have ``name``, ``kernel``, ``grid``,
  ``block``, ``cluster``, ``smem_bytes``, ``stats``, ``printf`` and ``ctas``. A CTA has ``cta``, the names of its
  members ``events``, ``contents`` and ``shared`` (null if it never ran), and ``followed``: all writes are in
  ``events``.
- ``events`` (JSON): ``instructions`` (``ptx``, ``line``, ``place``), ``barriers`` (names by shared address),
  ``events``.
- ``contents`` and ``shared`` (``.npy``): the bytes that events wrote, and the bytes that the CTA left.

An event has ``step`` (an order, not a time), ``phase`` (``do``; ``begin`` and ``wait``; ``issue`` and ``complete``,
which share ``operation``; ``effect``), ``kind``, ``name``, ``instruction``, ``warps`` and ``threads``. Where they
apply it has ``barrier`` (``address``, ``phase``, ``pending`` of ``expected``, ``pending_bytes``), ``writes``
(``[offset, length]``), ``boxes`` (``operation``, ``coordinates``, ``address``, ``dtype``, ``box``, ``swizzle``),
``wgmma`` (``shape``, ``types``, ``a``, ``b``) and ``from`` (other CTAs of the cluster).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cutepy.sim.inspect.checked import SavedRunError
from cutepy.sim.inspect.tracing import Event, Recorder, Write
from cutepy.sim.machine.events import BarrierState, TmaEvent, WgmmaEvent
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.launch import Launch
from cutepy.sim.ptx.barrier_names import barrier_name
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.ptx.source_lines import described

FORMAT, VERSION = "cutepy-run", 1
INDEX = "run.json"

MAX_BYTES, MAX_JSON_BYTES = 512 << 20, 64 << 20
"""Of all members of a file, unpacked, and of those that are JSON."""
MAX_MEMBERS = 10_000

_WHEN = (1980, 1, 1, 0, 0, 0)
"""Of the archive's members: equal runs give equal files."""


def save(
    launches: Sequence[Launch],
    smem: Callable[[tuple[int, int, int], int], Array],
    recorder: Recorder,
    path: Path,
    ctas: Sequence[Sequence[int]] | None,
) -> Path:
    """Write a run to a file; see `Run.save`.

    Parameters
    ----------
    launches : sequence of Launch
    smem : callable
        Gives the shared memory of a CTA of a launch, by its number; raises LookupError if it was not kept.
    recorder : Recorder
        Events.
    path : Path
    ctas : sequence of coordinates, or None
    """
    wanted = None if ctas is None else [_coordinate(cta) for cta in ctas]
    for cta in wanted or ():
        if not any(_is_in(cta, launch) for launch in launches):
            raise IndexError(f"CTA {cta} is in no launch's grid: {', '.join(str(x.grid) for x in launches)}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        told = []
        for number, launch in enumerate(launches):
            chosen = _first(recorder, number, launch) if wanted is None else [c for c in wanted if _is_in(c, launch)]
            saved = [_save_cta(archive, launch, smem, recorder, number, cta) for cta in chosen]
            told.append(_launch(launch, saved))
        index = {"format": FORMAT, "version": VERSION, "launches": told}
        _write(archive, INDEX, json.dumps(index, indent=1).encode())
    try:
        check_sizes(archive.infolist())
    except SavedRunError as error:
        path.unlink()
        raise ValueError(f"this is too much to save; save fewer CTAs with ctas=[...]: {error}") from error
    return path


def check_sizes(members: Sequence[zipfile.ZipInfo]) -> None:
    """Raise SavedRunError if the members of an archive are more, or larger, than is read."""
    total = sum(member.file_size for member in members)
    texts = sum(member.file_size for member in members if not member.filename.endswith(".npy"))
    if len(members) > MAX_MEMBERS or total > MAX_BYTES or texts > MAX_JSON_BYTES:
        raise SavedRunError(
            f"a saved run may have {MAX_MEMBERS} members of {MAX_BYTES} bytes, {MAX_JSON_BYTES} of them JSON, got "
            f"{len(members)} of {total}, {texts} of them JSON"
        )


def _coordinate(cta: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*cta, 0, 0)[:3]
    return x, y, z


def _is_in(cta: Sequence[int], launch: Launch) -> bool:
    return all(0 <= c < extent for c, extent in zip(cta, launch.grid, strict=True))


def _first(recorder: Recorder, number: int, launch: Launch) -> list[tuple[int, int, int]]:
    assert recorder.writes is not None
    x, y, _ = launch.grid
    return [(b % x, b // x % y, b // (x * y)) for b in recorder.writes.followed(number).tolist()]


def _launch(launch: Launch, ctas: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": launch.name,
        "kernel": launch.kernel,
        "grid": launch.grid,
        "block": launch.block,
        "cluster": launch.cluster,
        "smem_bytes": launch.smem_bytes,
        "stats": launch.stats,
        "printf": launch.printf,
        "ctas": ctas,
    }


def _save_cta(
    archive: zipfile.ZipFile,
    launch: Launch,
    smem: Callable[[tuple[int, int, int], int], Array],
    recorder: Recorder,
    number: int,
    cta: tuple[int, int, int],
) -> dict[str, Any]:
    """Write the events of one CTA, and return its entry in the index."""
    history = _History(recorder, number, cta)
    events, contents, shared = (
        f"launch{number}/cta{'_'.join(map(str, cta))}/{name}" for name in ("events.json", "contents.npy", "shared.npy")
    )
    _write(archive, events, json.dumps(history.told(), separators=(",", ":")).encode())
    _write_array(archive, contents, history.contents())
    try:
        _write_array(archive, shared, smem(cta, number))
        left: str | None = shared
    except LookupError:  # it never ran: the launch was stopped before
        left = None
    assert recorder.writes is not None
    x, y, _ = launch.grid
    followed = cta[0] + x * (cta[1] + y * cta[2]) in recorder.writes.followed(number) and not recorder.writes.full
    return {"cta": cta, "events": events, "contents": contents, "shared": left, "followed": bool(followed)}


class _History:
    """The events of one CTA; facts that several events share are stored once."""

    def __init__(self, recorder: Recorder, launch: int, cta: tuple[int, int, int]) -> None:
        self._instructions: dict[int, int] = {}
        self._described: list[dict[str, Any]] = []
        self._made_by: dict[int, Instruction] = {}
        self._contents: list[Array] = []
        self._length = 0
        self._cta = cta
        self._events = [
            told
            for step, event, slot in recorder.resident_with(launch, cta)
            if (told := self._event(step, event, slot)) is not None
        ]

    def told(self) -> dict[str, Any]:
        """Return the contents of the file of events."""
        names = {str(offset): barrier_name(offset, self._made_by) for offset in sorted(self._made_by)}
        return {"instructions": self._described, "barriers": names, "events": self._events}

    def contents(self) -> Array:
        """Return the bytes that events wrote, one after the other."""
        return np.concatenate([np.zeros(0, np.uint8), *self._contents])

    def _event(self, step: int, event: Event, slot: int) -> dict[str, Any] | None:
        """Return one event as JSON; None of one that does not concern the CTA."""
        effect = self._effect(event, slot)
        own = slot in event.ctas.slots
        if not own and not effect:
            return None
        if event.phase == "effect" and not effect:
            return None
        told = {
            "step": step,
            "phase": event.phase,
            "kind": event.category,
            "name": event.name,
            "instruction": self._instruction(event.instruction),
            "warps": event.threads.warps.tolist(),
            "threads": event.threads.describe(),
            **effect,
        }
        if event.operation >= 0:
            told["operation"] = event.operation
        if not own:
            told["from"] = event.ctas.describe()
        return told

    def _effect(self, event: Event, slot: int) -> dict[str, Any]:
        effect = event.effect
        if isinstance(effect, BarrierState):
            return self._barrier(event, effect, slot)
        if isinstance(effect, Write):
            offsets, contents = effect.of(slot)
            return self._written(offsets, contents) if len(offsets) else {}
        if slot not in event.ctas.slots:
            return {}
        if isinstance(effect, WgmmaEvent):
            return {"wgmma": _wgmma(effect, int(np.flatnonzero(event.ctas.slots == slot)[0]))}
        if isinstance(effect, tuple):
            return {"boxes": [_box(box) for box in effect if box.cta == self._cta]}
        return {}

    def _barrier(self, event: Event, state: BarrierState, slot: int) -> dict[str, Any]:
        here = np.flatnonzero(state.slots == slot)
        if not len(here):
            return {}
        if event.is_init:
            self._made_by[state.address] = event.instruction
        row = here[0]
        return {
            "barrier": {
                "address": state.address,
                "phase": int(state.phase[row]),
                "pending": int(state.pending[row]),
                "expected": int(state.expected[row]),
                "pending_bytes": int(state.pending_bytes[row]),
            }
        }

    def _written(self, offsets: Array, contents: Array) -> dict[str, Any]:
        ends = np.flatnonzero(np.diff(offsets) != 1) + 1
        runs = np.split(offsets, ends)
        start, self._length = self._length, self._length + len(contents)
        self._contents.append(contents)
        return {"writes": [[int(r[0]), len(r)] for r in runs], "contents": start}

    def _instruction(self, instruction: Instruction) -> int:
        if instruction.index not in self._instructions:
            self._instructions[instruction.index] = len(self._described)
            source = instruction.source
            told = {"ptx": instruction.text, "line": str(source or "?"), "place": described(source)}
            self._described.append(told)
        return self._instructions[instruction.index]


def _wgmma(event: WgmmaEvent, row: int) -> dict[str, Any]:
    """Return an MMA's shape and the descriptors of a CTA's warpgroups."""
    shape = event.shape

    def descriptors(values: Array | None) -> list[str]:
        if values is None:
            return []
        own = values[row if values.shape[0] > 1 else 0]
        return [f"{int(value):#018x}" for value in np.atleast_1d(own)]

    return {
        "shape": [64, shape.n, shape.k],
        "types": [shape.d, shape.a, shape.b],
        "a": descriptors(event.a),
        "b": descriptors(event.b),
    }


def _box(event: TmaEvent) -> dict[str, Any]:
    tensor = event.tensor_map
    return {
        "operation": event.operation,
        "coordinates": list(event.coordinates),
        "address": event.shared_address,
        "dtype": tensor.dtype,
        "box": list(tensor.box),
        "swizzle": tensor.swizzle,
    }


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, _WHEN)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    _write(archive, name, buffer.getvalue())
