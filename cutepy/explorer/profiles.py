"""Saved profiles on the page, and their flame graphs."""

from __future__ import annotations

from typing import Any

from cutepy.explorer.files import Files
from cutepy.profiling import Node, Recording, tree


class Profiles:
    """Saved profiles by the hash of their bytes: the same file has the same address."""

    def __init__(self) -> None:
        self._files: Files[Recording] = Files("profile", "profile")

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
        recording = Recording.parse(data.decode(errors="replace"))
        return {"id": self._files.add(data, name, recording, keep=keep), "name": name}

    def listed(self) -> list[dict[str, Any]]:
        """List the profiles."""
        return [{"id": identity, "name": name} for identity, name, _ in self._files.all()]

    def flame(self, identity: str) -> dict[str, Any]:
        """Return a profile's tree, of which the flame graph is drawn."""
        name, recording = self._files.named(identity)
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
