"""Saved profiles on the page, and their flame graphs."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from cutepy.explorer.parameters import BadParameterError
from cutepy.profiling import Node, Recording, tree

MAX_UPLOADS = 4
"""Largest number of uploaded profiles; the oldest makes room."""


class Profiles:
    """Saved profiles by the hash of their bytes: the same file has the same address."""

    def __init__(self) -> None:
        self._profiles: dict[str, tuple[str, Recording]] = {}
        self._kept: set[str] = set()
        self._lock = threading.Lock()

    def add(self, data: bytes, name: str, *, keep: bool = False) -> dict[str, Any]:
        """Add a profile.

        Parameters
        ----------
        data : bytes
            The file.
        name : str
            Shown in the page's menu.
        keep : bool
            Keep the profile as long as the server runs; an upload makes room for later ones.

        Raises
        ------
        RecordingError
            If the file is no saved profile.
        """
        identity = hashlib.sha256(data).hexdigest()[:16]
        recording = Recording.parse(data.decode(errors="replace"))
        with self._lock:
            self._profiles.pop(identity, None)
            self._profiles[identity] = name, recording
            if keep:
                self._kept.add(identity)
            for oldest in [each for each in self._profiles if each not in self._kept][:-MAX_UPLOADS]:
                del self._profiles[oldest]
        return {"id": identity, "name": name}

    def listed(self) -> list[dict[str, Any]]:
        """List the profiles."""
        return [{"id": identity, "name": name} for identity, (name, _) in [*self._profiles.items()]]

    def flame(self, identity: str) -> dict[str, Any]:
        """Return a profile's tree, of which the flame graph is drawn."""
        if identity not in self._profiles:
            raise BadParameterError("profile", f"there is no profile {identity!r} here; open its file again")
        name, recording = self._profiles[identity]
        root = tree(recording)
        told = {"gpu": recording.gpu, "source": recording.source, "notes": recording.notes}
        return told | {"name": name, "unit": "ns" if root.time_ns else "launches", "root": _told(root)}


def _told(node: Node) -> dict[str, Any]:
    return {
        "name": node.name or "all",
        "kind": node.kind,
        "calls": node.calls,
        "launches": node.launches,
        "ns": node.time_ns,
        "gap_ns": node.gap_ns,
        "overlap_ns": node.overlap_ns,
        "tflops": node.tflops,
        "tbytes": node.tbytes,
        "roofline": node.roofline,
        "children": [_told(child) for child in node.sorted()],
    }
