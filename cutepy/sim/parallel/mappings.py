"""Memory that processes share: each sees the others' writes, as they do not after a fork elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_MAPS = Path("/proc/self/maps")


def any_shared(ranges: Iterable[tuple[int, int]]) -> bool:
    """Return whether bytes at addresses [start, end) of this process could be written to memory that a fork shares.

    That is what was mapped with MAP_SHARED to be written: `torch.Tensor.share_memory_`, `numpy.memmap` with mode "r+",
    `multiprocessing.shared_memory`. If the system does not tell, it could.

    References
    ----------
    proc(5), "/proc/pid/maps"; mmap(2).
    """
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return True
    shared = []
    for line in lines:
        span, permissions = line.split(maxsplit=2)[:2]
        if permissions[1] == "w" and permissions[3] == "s":
            low, high = span.split("-")
            shared.append((int(low, 16), int(high, 16)))
    return bool(shared) and any(start < high and low < end for start, end in ranges for low, high in shared)
