"""Bytes for values, such that two values of Python get the same bytes just if they have one type and one content.

Each encoding is a frame: a tag, how many parts and how long, and the parts, so that no two structures read alike.
Long frames are replaced by their SHA-256.
"""

import functools
import hashlib
import struct
from collections.abc import Callable
from typing import Any

_LONGEST = 96
_DIGEST_MARK = b"#"  # no tag begins with it


@functools.cache
def _head(tag: str, count: int) -> Callable[..., bytes]:
    """Make a function of the lengths of `count` parts that writes what stands before them."""
    start = tag.encode() + b"(%d:" % count
    return functools.partial(struct.Struct(f"<{len(start)}s{count}I").pack, start)


def frame(tag: str, *parts: bytes) -> bytes:
    """Join `parts` under `tag`, injectively up to collisions of SHA-256: at most 96 bytes long."""
    joined = b"".join([_head(tag, len(parts))(*map(len, parts)), *parts])
    return joined if len(joined) <= _LONGEST else _DIGEST_MARK + hashlib.sha256(joined).digest()


def text(value: str) -> bytes:
    """Encode a string; lone surrogates, which file names may hold, are kept."""
    return value.encode("utf-8", "surrogatepass")


@functools.lru_cache(1 << 14)
def _encode_str(value: str) -> bytes:
    return frame("str", text(value))


def encode_scalar(value: object) -> bytes | None:
    """Encode a value of exactly one of Python's own immutable types; None for any other.

    The type is part of it: 1, 1.0 and True differ, and so do 0.0 and -0.0. A NaN equals itself, bit for bit.
    """
    kind: type = type(value)
    exact: Any = value
    if kind is str:
        return _encode_str(exact)
    if kind is int:
        return frame("int", hex(exact).encode())
    if kind is bool:
        return b"true(" if exact else b"false("
    if kind is float:
        return frame("float", struct.pack(">d", exact))
    if kind is complex:
        return frame("complex", struct.pack(">dd", exact.real, exact.imag))
    if kind is bytes:
        return frame("bytes", exact)
    if value is None:
        return b"None("
    if value is Ellipsis:
        return b"Ellipsis("
    if value is NotImplemented:
        return b"NotImplemented("
    return None
