"""Files of the page by the hash of their bytes: the same file has the same address."""

from __future__ import annotations

import hashlib
import threading
from typing import Generic, TypeVar

from cutepy.explorer.parameters import BadParameterError

MAX_UPLOADS = 4
"""Largest number of uploads; the oldest makes room."""

_Content = TypeVar("_Content")


class Files(Generic[_Content]):
    """Files with their names and their contents.

    Parameters
    ----------
    parameter, kind : str
        The parameter of the page that names a file, and the noun for one, in errors.
    """

    def __init__(self, parameter: str, kind: str) -> None:
        self._parameter, self._kind = parameter, kind
        self._files: dict[str, tuple[str, _Content]] = {}
        self._kept: set[str] = set()
        self._lock = threading.Lock()

    def add(self, data: bytes, name: str, content: _Content, *, keep: bool) -> str:
        """Add a file, which later uploads may push out unless it is kept; return its address."""
        identity = hashlib.sha256(data).hexdigest()[:16]
        with self._lock:
            self._files.pop(identity, None)
            self._files[identity] = name, content
            if keep:
                self._kept.add(identity)
            uploads = [each for each in self._files if each not in self._kept]
            for oldest in uploads[:-MAX_UPLOADS]:
                del self._files[oldest]
        return identity

    def all(self) -> list[tuple[str, str, _Content]]:
        """List addresses, names and contents."""
        return [(identity, *each) for identity, each in [*self._files.items()]]

    def named(self, identity: str) -> tuple[str, _Content]:
        """Return the name and content of a file.

        Raises
        ------
        BadParameterError
            If no file has this address.
        """
        if identity not in self._files:
            raise BadParameterError(self._parameter, f"there is no {self._kind} {identity!r} here; open its file again")
        return self._files[identity]
