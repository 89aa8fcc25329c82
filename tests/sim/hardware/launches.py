"""Launches as values: everything a GPU needs to repeat what the simulator ran, and what came of it.

Pointers in parameters and memory are kept as (region, offset), so that a launch means the same in another process and
at other addresses. Nothing here needs the DSL or the simulator: launches travel in a file to where a GPU is.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_COMMENT = re.compile(r"//[^\n]*")
_DEBUG_SECTION = re.compile(r"^\s*\.section[^{]*\{.*?^\s*\}", re.M | re.S)
_PLACE = re.compile(r"\s*\.(?:loc|file)\b")
_PLACES = re.compile(r"^\s*\.(?:loc|file|version)\b[^\n]*$", re.M)
_LABEL_OF_PLACES = re.compile(r"^\s*\$L__(?:tmp|func_begin|func_end|info_string)\w*:\s*$", re.M)


@dataclass(frozen=True)
class Pointer:
    """Eight bytes that point at memory: word `at` (in bytes) of a parameter or region holds region + offset."""

    at: int
    region: int
    offset: int


@dataclass
class Block:
    """Bytes, and which of them are pointers; the pointers' own bytes are zero.

    Attributes
    ----------
    data : array of uint8
    pointers : tuple of Pointer
    kind : str
        numpy's name of the elements, if they are floats that all arrays there share; else "u1".
    phase : int
        Address modulo 1024.
    """

    data: np.ndarray[Any, np.dtype[np.uint8]]
    pointers: tuple[Pointer, ...] = ()
    kind: str = "u1"
    phase: int = 0


@dataclass
class CapturedLaunch:
    """One launch.

    Attributes
    ----------
    ptx : str
        As the compiler made it.
    kernel : str
    grid, block, cluster : (int, int, int)
    dynamic_smem_bytes : int
    cooperative : bool
    parameters, before : list of Block
        Parameters, and memory as it was.
    after : list of array
        Memory as the simulator left it, with zeros in place of what points into it then.
    """

    ptx: str = field(repr=False)
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    dynamic_smem_bytes: int
    cooperative: bool
    parameters: list[Block] = field(repr=False)
    before: list[Block] = field(repr=False)
    after: list[np.ndarray[Any, np.dtype[np.uint8]]] = field(default_factory=list, repr=False)

    def kinds(self) -> list[str]:
        """Return the kinds of the regions."""
        return [block.kind for block in self.before]

    def key(self, *, padded: bool = False) -> bytes:
        """Return a digest of all that decides the result: the normalised PTX, extents, parameters and memory.

        Parameters
        ----------
        padded : bool
            Leave out the bytes of parameters that are no pointers: structs have padding, which is not initialised.
        """
        digest = hashlib.sha256(normalised(self.ptx).encode())
        digest.update(
            repr((self.grid, self.block, self.cluster or (1, 1, 1), self.dynamic_smem_bytes, self.cooperative)).encode()
        )
        for block in (*self.parameters, *self.before):
            digest.update(repr((block.pointers, len(block.data))).encode())
        for block in (*([] if padded else self.parameters), *self.before):
            digest.update(block.data.tobytes())
        return digest.digest()

    def written(self) -> list[int]:
        """Return the regions that the kernel changed in the simulator."""
        pairs = zip(self.before, self.after, strict=True)
        return [n for n, (old, new) in enumerate(pairs) if not np.array_equal(old.data, new)]


def pointers_in(data: np.ndarray[Any, Any], spans: list[tuple[int, int]], phase: int) -> tuple[Pointer, ...]:
    """Find the aligned words that point into known memory: by chance, one in 2**40 would.

    Parameters
    ----------
    data : array of uint8
    spans : list of (int, int)
        Where the regions are: first address, and the one behind the last.
    phase : int
        Address of the data modulo 8.
    """
    first = -phase % 8
    words = np.frombuffer(data[first : first + (len(data) - first) // 8 * 8].tobytes(), np.uint64)
    found = []
    for n, (start, end) in enumerate(spans):
        hits = np.flatnonzero((words >= np.uint64(start)) & (words < np.uint64(end)))
        found += [Pointer(first + 8 * int(at), n, int(words[at]) - start) for at in hits]
    return tuple(sorted(found, key=lambda p: p.at))


def without_pointers(data: np.ndarray[Any, Any], pointers: tuple[Pointer, ...]) -> np.ndarray[Any, Any]:
    """Return a copy with zeros in place of pointers."""
    copied = data.copy()
    for pointer in pointers:
        copied[pointer.at : pointer.at + 8] = 0
    return copied


def digest_of(memory: list[np.ndarray[Any, Any]], kinds: list[str]) -> bytes:
    """Return a digest of memory after a launch; where it is known to hold floats, any NaN is as good as another."""
    digest = hashlib.sha256()
    for data, kind in zip(memory, kinds, strict=True):
        digest.update(canonical(data, kind).tobytes())
    return digest.digest()


def canonical(data: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    """Replace the NaNs of floats by one of them."""
    size = np.dtype(kind).itemsize
    if np.dtype(kind).kind != "f" or len(data) % size:
        return data
    values = np.frombuffer(data.tobytes(), kind).copy()
    values[np.isnan(values)] = np.nan
    return values.view(np.uint8)


def normalised(ptx: str) -> str:
    """Strip what differs between builds of one compiler: its version, comments, and the places of source lines."""
    text = _PLACES.sub("", _LABEL_OF_PLACES.sub("", _DEBUG_SECTION.sub("", _COMMENT.sub("", ptx))))
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def loadable(ptx: str) -> str:
    """Strip the places of source lines: the driver's compiler refuses files that do not exist."""
    lines = _DEBUG_SECTION.sub("", ptx).splitlines()
    return "\n".join(line for line in lines if not _PLACE.match(line))


def save(path: Path, launches: list[CapturedLaunch], about: dict[str, Any]) -> None:
    """Write launches to a file, with what is to be known about them; equal PTX and arrays are written once."""
    texts = list(dict.fromkeys(launch.ptx for launch in launches))
    numbers = {text: n for n, text in enumerate(texts)}
    entries, arrays = [], []

    places: dict[bytes, int] = {}

    def put(data: np.ndarray[Any, Any]) -> int:
        raw = data.tobytes()
        if raw not in places:
            places[raw] = len(arrays)
            arrays.append(np.frombuffer(raw, np.uint8))
        return places[raw]

    def block(b: Block) -> dict[str, Any]:
        return {"data": put(b.data), "pointers": [asdict(p) for p in b.pointers], "kind": b.kind, "phase": b.phase}

    for launch in launches:
        entries.append(
            {
                "ptx": numbers[launch.ptx],
                "kernel": launch.kernel,
                "extents": [launch.grid, launch.block, launch.cluster],
                "smem": launch.dynamic_smem_bytes,
                "cooperative": launch.cooperative,
                "parameters": [block(b) for b in launch.parameters],
                "before": [block(b) for b in launch.before],
                "after": [put(a) for a in launch.after],
            }
        )
    index = json.dumps({"launches": entries, "ptx": texts, "sizes": [len(a) for a in arrays], "about": about}).encode()
    whole = np.concatenate([np.zeros(0, np.uint8), *arrays])
    np.savez_compressed(path, index=np.frombuffer(index, np.uint8), memory=whole)


def load(path: Path) -> tuple[list[CapturedLaunch], dict[str, Any]]:
    """Read what `save` wrote."""
    with np.load(path) as file:
        index, memory = json.loads(file["index"].tobytes()), file["memory"]
    arrays = np.split(memory, np.cumsum(index["sizes"])[:-1]) if index["sizes"] else []

    def block(entry: dict[str, Any]) -> Block:
        pointers = tuple(Pointer(**p) for p in entry["pointers"])
        return Block(arrays[entry["data"]], pointers, entry["kind"], entry["phase"])

    launches = [
        CapturedLaunch(
            index["ptx"][e["ptx"]],
            e["kernel"],
            *(tuple(x) for x in e["extents"]),
            e["smem"],
            e["cooperative"],
            [block(b) for b in e["parameters"]],
            [block(b) for b in e["before"]],
            [arrays[n] for n in e["after"]],
        )
        for e in index["launches"]
    ]
    return launches, index["about"]
