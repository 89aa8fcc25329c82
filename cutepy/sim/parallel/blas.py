"""Numpy's matrix products on one thread.

The products of MMAs are small: a second thread makes them hardly faster, and threads of OpenBLAS that have to share
their cores with those of another process wait for each other by spinning, which makes them many times slower.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_SPELLINGS = [
    f"{prefix}openblas_{{}}_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "_64", "")
]


_lock = threading.Lock()
_before: list[list[int]] = []


@contextmanager
def one_thread() -> Iterator[None]:
    """Let numpy's OpenBLAS use one thread while the context is active; another BLAS is left alone.

    The number is the process's: what other Python threads multiply meanwhile has one thread, too.
    """
    found = _openblas()
    with _lock:
        _before.append([get() for get, _ in found])
        for _, put in found:
            put(1)
    try:
        yield
    finally:
        with _lock:
            # Contexts of several Python threads may overlap: the last to end puts back what the first has found.
            numbers = _before.pop()
            if not _before:
                for (_, put), number in zip(found, numbers, strict=True):
                    put(number)


@cache
def _openblas() -> list[tuple[Any, Any]]:
    """Return the functions that get and set the number of threads, of each OpenBLAS that is loaded."""
    import numpy.linalg  # noqa: F401  loads it

    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if "openblas" in line)
    found = []
    for library in map(ctypes.CDLL, paths):
        for spelling in _SPELLINGS:
            if hasattr(library, spelling.format("set")):
                found.append((library[spelling.format("get")], library[spelling.format("set")]))
                break
    return found
