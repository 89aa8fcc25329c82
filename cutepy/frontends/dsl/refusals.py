"""Refusals of host code that runs in this process only: it can't raise, so it leaves the text."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from cutepy.dsl.refusals import TEXT_BYTES

_refusal = ctypes.create_string_buffer(TEXT_BYTES)
REFUSAL_ADDRESS = ctypes.addressof(_refusal)
"""Address at which host code leaves the text of a refusal, for `refusals_raised`."""


@contextmanager
def refusals_raised() -> Iterator[None]:
    """Raise the refusals of host code, which one thread at a time runs, at the end of the context.

    Raises
    ------
    ValueError
        If it refused a tensor.
    """
    _refusal.value = b""
    try:
        yield
    except Exception:
        if _refusal.value:
            raise ValueError(_refusal.value.decode()) from None
        raise
