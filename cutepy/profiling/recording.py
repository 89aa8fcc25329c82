"""Recording: kernels that were launched, and the scopes that were entered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

VERSION = 1
"""Format of saved recordings."""

Extents = tuple[int, int, int]


class RecordingError(ValueError):
    """Error of a file that holds no recording."""


@dataclass(frozen=True, slots=True)
class Record:
    """Kernel, copy or fill that a device executed, or a kernel that the simulator ran.

    Attributes
    ----------
    name : str
        Name of a kernel in its module; C++ names are mangled.
    kind : str
        "kernel", "copy" or "fill".
    start_ns, end_ns : int or None
        Time on the device's clock; None in the simulator.
    device, stream : int
    scope : int or None
        The innermost scope, by its place in `Recording.scopes`.
    graph_launch : int or None
        Serial number of the graph launch that executed it.
    launched_ns : int or None
        Time at which the host called the launch, on the device's clock.
    grid, block, cluster : (int, int, int)
    registers : int
        Registers of a thread.
    smem_bytes : int
        Shared memory of a CTA.
    bytes : int
        Bytes that a copy or fill moves.
    """

    name: str
    kind: Literal["kernel", "copy", "fill"] = "kernel"
    start_ns: int | None = None
    end_ns: int | None = None
    device: int = 0
    stream: int = 0
    scope: int | None = None
    graph_launch: int | None = None
    launched_ns: int | None = None
    grid: Extents = (1, 1, 1)
    block: Extents = (1, 1, 1)
    cluster: Extents = (1, 1, 1)
    registers: int = 0
    smem_bytes: int = 0
    bytes: int = 0

    @property
    def simulated(self) -> bool:
        """Flag: the simulator ran it, which has no time."""
        return self.start_ns is None

    @property
    def duration_ns(self) -> int:
        """Time on the device; 0 in the simulator."""
        return 0 if self.start_ns is None or self.end_ns is None else self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class ScopeCall:
    """One pass through a scope.

    Attributes
    ----------
    name : str
    parent : int or None
        The pass around it, by its place in `Recording.scopes`.
    flops, bytes : float or None
        Floating-point operations and bytes of memory that the pass needs.
    precision : str
        One of `cutepy.profiling.scopes.PRECISIONS`.
    """

    name: str
    parent: int | None = None
    flops: float | None = None
    bytes: float | None = None
    precision: str = "16-bit"


@dataclass(frozen=True)
class Recording:
    """Kernels of a profile, and the scopes that they were launched in.

    Attributes
    ----------
    records : tuple of Record
    scopes : tuple of ScopeCall
        In the order of entering; a parent comes before its children.
    source : str
        Of the records: "cupti", "torch.profiler", or "" where only the simulator gave any.
    gpu : str
        Name of the GPU; "" if there is none.
    notes : tuple of str
        Limits that apply to this recording.
    """

    records: tuple[Record, ...]
    scopes: tuple[ScopeCall, ...] = ()
    source: str = ""
    gpu: str = ""
    notes: tuple[str, ...] = ()
    _paths: dict[int, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    def path(self, scope: int | None) -> tuple[str, ...]:
        """Return the names of a scope and of those around it, the outermost first."""
        if scope is None:
            return ()
        if scope not in self._paths:
            call = self.scopes[scope]
            self._paths[scope] = (*self.path(call.parent), call.name)
        return self._paths[scope]

    def save(self, path: Path) -> None:
        """Write the recording as JSON."""
        plain = {
            "cutepy_profile": VERSION,
            "source": self.source,
            "gpu": self.gpu,
            "notes": self.notes,
            "scopes": [_without_defaults(call, _PLAIN_CALL) for call in self.scopes],
            "records": [_without_defaults(record, _PLAIN_RECORD) for record in self.records],
        }
        Path(path).write_text(json.dumps(plain, indent=None, separators=(",", ":")))

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a saved recording.

        Raises
        ------
        OSError
            If there is no such file.
        RecordingError
            If the file holds no recording, or one of another version.
        """
        try:
            return cls.parse(Path(path).read_text())
        except (RecordingError, UnicodeDecodeError) as error:
            raise RecordingError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> Recording:
        """Read the text of a saved recording.

        Raises
        ------
        RecordingError
            If the text is no saved recording, or has another version of the format.
        """
        try:
            plain = json.loads(text)
            if not isinstance(plain, Mapping) or "cutepy_profile" not in plain:
                raise RecordingError("a profile must be what `cutepy profile --json FILE` writes; save one")
            if plain["cutepy_profile"] != VERSION:
                raise RecordingError(
                    f"a profile must have version {VERSION}, got {plain['cutepy_profile']}; record it again"
                )
            scopes = tuple(ScopeCall(**call) for call in plain["scopes"])
            records = tuple(Record(**_tupled(record)) for record in plain["records"])
            for n, call in enumerate(scopes):
                if call.parent is not None and not 0 <= call.parent < n:
                    raise RecordingError(f"a scope's parent must come before it, got {call.parent} of scope {n}")
            if any(record.scope is not None and not 0 <= record.scope < len(scopes) for record in records):
                raise RecordingError("a record's scope must be in the list of scopes; save the profile again")
            return cls(records, scopes, plain["source"], plain["gpu"], tuple(plain["notes"]))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise RecordingError(f"a profile must be what `cutepy profile --json FILE` writes, got {error}") from error


_PLAIN_RECORD = asdict(Record(""))
_PLAIN_CALL = asdict(ScopeCall(""))


def _without_defaults(value: Record | ScopeCall, plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name in plain if (each := getattr(value, name)) != plain[name] or name == "name"}


def _tupled(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's fields with extents as tuples, which JSON has as lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
