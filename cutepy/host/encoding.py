"""Bytes for values, such that two values of Python get the same bytes just if they have one type and one content.

Each encoding is a frame: a tag, then its parts, each preceded by its length, so that no two structures read alike.
Long frames are replaced by their SHA-256.
"""

import functools
import hashlib
import struct
from typing import Any

_length = struct.Struct("<I").pack
_LONGEST = 96
_DIGEST_MARK = b"#"  # no tag begins with it


@functools.cache
def _tag(tag: str) -> bytes:
    return tag.encode() + b"("


def frame(tag: str, *parts: bytes) -> bytes:
    """Join `parts` under `tag`, injectively up to collisions of SHA-256: at most 96 bytes long."""
    joined = b"".join([_tag(tag), *[_length(len(part)) + part for part in parts]])
    return joined if len(joined) <= _LONGEST else _DIGEST_MARK + hashlib.sha256(joined).digest()


def text(value: str) -> bytes:
    """Encode a string; lone surrogates, which file names may hold, are kept."""
    return value.encode("utf-8", "surrogatepass")


def encode_scalar(value: object) -> bytes | None:
    """Encode a value of exactly one of Python's own immutable types; None for any other.

    The type is part of it: 1, 1.0 and True differ, and so do 0.0 and -0.0. A NaN equals itself, bit for bit.
    """
    kind: type = type(value)
    exact: Any = value
    if kind is str:
        return frame("str", text(exact))
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
