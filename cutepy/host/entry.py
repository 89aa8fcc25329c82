"""Entry of the disk cache: a compiled program in one self-checking file.

The file is a magic word, the format's version, a checksum of everything after it, and then an index, as JSON with its
length before it: the key, the metadata, and for each section its name, its stored size and whether it is compressed.
The sections follow, end to end. Text (PTX) is compressed, and inflated when asked for; a binary, which every start of a
program reads, is stored as it is.

The values of the store are named tuples: dataclasses import inspect, half of what the store may cost to import.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

VERSION = 2
"""Version of the format, the contents and the key of entries."""

_MAGIC = b"CUTEPY"
_HEAD = struct.Struct("<6sH32s")
_LENGTH = struct.Struct("<Q")
# An index has names, hashes and options: some kilobytes. A larger one is damaged.
_LONGEST_INDEX = 2**26


class DamagedEntryError(ValueError):
    """Error of bytes that are no entry of the key, in this version's format."""


class Entry(NamedTuple):
    """Compiled program: metadata, and its parts.

    Attributes
    ----------
    metadata : mapping of str to JSON values
        Facts about the program, such as its function's name and the options it was compiled with.
    sections : mapping of str to bytes
        Its parts, such as "object" and "ptx".
    """

    metadata: Mapping[str, Any]
    sections: Mapping[str, bytes]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name!r}: {len(section)} bytes" for name, section in self.sections.items())
        return f"Entry({dict(self.metadata)!r}, {{{sizes}}})"


def encode(key: str, entry: Entry) -> bytes:
    """Encode an entry as the bytes of a file.

    Parameters
    ----------
    key : str
        Kept within, so that a file under another entry's name is found out.
    entry : Entry

    Returns
    -------
    bytes

    Raises
    ------
    TypeError
        If the metadata would come back from JSON as something else.
    """
    stored = {name: _pack(bytes(section)) for name, section in entry.sections.items()}
    sections = [[name, len(packed), compressed] for name, (packed, compressed) in stored.items()]
    index = _to_json({"key": key, "metadata": dict(entry.metadata), "sections": sections})
    body = b"".join([_LENGTH.pack(len(index)), index, *(packed for packed, _ in stored.values())])
    return _HEAD.pack(_MAGIC, VERSION, _checksum(body)) + body


def decode(key: str, data: bytes) -> Entry:
    """Decode an entry from the bytes of its file.

    Parameters
    ----------
    key : str
        Expected key of the entry.
    data : bytes

    Returns
    -------
    Entry
        Its sections are views of `data`, read or inflated when asked for.

    Raises
    ------
    DamagedEntryError
        If a byte differs from the output of `encode` for this key.
    """
    if len(data) < _HEAD.size + _LENGTH.size:
        raise DamagedEntryError(f"it ends after {len(data)} bytes")
    magic, version, checksum = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise DamagedEntryError("it does not begin as an entry does")
    if version != VERSION:
        raise DamagedEntryError(f"it is of format {version}, and this cutepy reads format {VERSION}")
    body = memoryview(data)[_HEAD.size :]
    if checksum != _checksum(body):
        raise DamagedEntryError("checksum mismatch")
    (length,) = _LENGTH.unpack_from(body)
    index = json.loads(bytes(body[_LENGTH.size : _LENGTH.size + length]))
    if index["key"] != key:
        raise DamagedEntryError(f"it is the entry of key {index['key']}")
    return Entry(index["metadata"], _StoredSections(body[_LENGTH.size + length :], index["sections"]))


def read_metadata(file: BinaryIO) -> Mapping[str, Any]:
    """Read the metadata from an entry's file, its sections neither read nor checked.

    Raises
    ------
    DamagedEntryError
        If the file does not begin as an entry does.
    """
    head = file.read(_HEAD.size + _LENGTH.size)
    if len(head) < _HEAD.size + _LENGTH.size or _HEAD.unpack_from(head)[:2] != (_MAGIC, VERSION):
        raise DamagedEntryError("it does not begin as an entry does")
    (length,) = _LENGTH.unpack_from(head, _HEAD.size)
    try:
        metadata = json.loads(file.read(min(length, _LONGEST_INDEX)))["metadata"]
    except (ValueError, TypeError, LookupError) as error:
        raise DamagedEntryError("its index cannot be read") from error
    if not isinstance(metadata, dict):
        raise DamagedEntryError("its index has no metadata")
    return metadata


class _StoredSections(Mapping[str, bytes]):
    def __init__(self, data: memoryview, sections: list[tuple[str, int, bool]]) -> None:
        self._places: dict[str, tuple[memoryview, bool]] = {}
        start = 0
        for name, size, compressed in sections:
            self._places[name] = data[start : start + size], compressed
            start += size

    def __getitem__(self, name: str) -> bytes:
        packed, compressed = self._places[name]
        return zlib.decompress(packed) if compressed else bytes(packed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _pack(section: bytes) -> tuple[bytes, bool]:
    """Return the bytes to store, and whether they are compressed: text is, which unlike binaries has no zero bytes."""
    if b"\0" in section:
        return section, False
    return zlib.compress(section), True


def _to_json(index: dict[str, Any]) -> bytes:
    text = json.dumps(index, allow_nan=False)
    if json.loads(text) != index:
        raise TypeError(
            "the metadata of an entry must be made of what JSON keeps: dicts with keys of type str, lists, strings, "
            f"numbers, booleans and None; got {index['metadata']!r}"
        )
    return text.encode()


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=32).digest()
