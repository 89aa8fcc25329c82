"""Machine code that can lie anywhere: read from the object file that a compiler makes, and brought to memory.

Code of LLVM's large model refers to itself and to others by 64-bit addresses alone, so that an image is its bytes, the
places of such addresses, and where its functions begin. Object files with anything else are refused.

References
----------
System V ABI, "Object Files"; its AMD64 supplement, "Relocation".
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_HEAD = struct.Struct("<4sBB10xHH")
_IDENTITY = (b"\x7fELF", 2, 1, 1, 62)  # 64 bits, little endian, relocatable, x86-64
_SECTIONS = struct.Struct("<Q10xHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ADDRESS = struct.Struct("<Q")
_PROGRAM, _SYMBOLS, _ADDED = 1, 2, 4
_WRITTEN, _LOADED = 1, 2
_ABSOLUTE = 1
_FUNCTION = 2


class ObjectFileError(ValueError):
    """An object file that holds more than code that can lie anywhere."""


@dataclass(frozen=True)
class Image:
    """Machine code with its relocations.

    Attributes
    ----------
    code : bytes
    functions : mapping of str to int
        Name -> offset of its first instruction.
    relocations : tuple of (int, str, int)
        Where an address belongs: of a function outside by its name, or of the image itself without one, and what is
        added to it.
    """

    code: bytes
    functions: Mapping[str, int]
    relocations: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class _Section:
    kind: int
    flags: int
    data: bytes
    link: int
    of: int
    alignment: int


def read_image(data: bytes) -> Image:
    """Read the code of an object file.

    Parameters
    ----------
    data : bytes
        A relocatable ELF file for x86-64.

    Raises
    ------
    ObjectFileError
        If it is another file, has variables, or refers to anything by less than a whole address.
    """
    sections = list(_sections(data))
    code, starts = bytearray(), {}
    for number, section in enumerate(sections):
        if section.kind == _PROGRAM and section.flags & _LOADED:
            if section.flags & _WRITTEN:
                raise ObjectFileError("an image must be code and constants, got a section that is written to")
            code += bytes(-len(code) % section.alignment)
            starts[number] = len(code)
            code += section.data
    symbols, functions = [], {}
    for section in sections:
        for at in range(0, len(section.data) if section.kind == _SYMBOLS else 0, _SYMBOL.size):
            named, kind, _, within, value, _ = _SYMBOL.unpack_from(section.data, at)
            name = _text(sections[section.link].data, named)
            symbols.append((name, within, value))
            if kind & 15 == _FUNCTION and within in starts:
                functions[name] = starts[within] + value
    relocations = []
    for section in sections:
        # What else is loaded, such as tables of frames, has relocations of its own.
        for at in range(
            0, len(section.data) if section.kind == _ADDED and section.of in starts else 0, _RELOCATION.size
        ):
            offset, what, addend = _RELOCATION.unpack_from(section.data, at)
            name, within, value = symbols[what >> 32]
            if what & 0xFFFFFFFF != _ABSOLUTE or (within and within not in starts):
                raise ObjectFileError(
                    f"an image must refer to things by 64-bit addresses, got {name or within} otherwise"
                )
            place = starts[section.of] + offset
            relocations.append((place, "", starts[within] + value + addend) if within else (place, name, addend))
    return Image(bytes(code), functions, tuple(relocations))


def _sections(data: bytes) -> Iterator[_Section]:
    if len(data) < 64 or _HEAD.unpack_from(data) != _IDENTITY:
        raise ObjectFileError("an image is read from a relocatable ELF file for x86-64, got another file")
    start, size, count = _SECTIONS.unpack_from(data, 40)
    for n in range(count):
        _, kind, flags, _, offset, length, link, of, alignment, _ = _SECTION.unpack_from(data, start + n * size)
        yield _Section(kind, flags, data[offset : offset + length], link, of, max(alignment, 1))


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(0, start)].decode()


class LoadedImage:
    """An image in this process's memory, which stays as long as this object.

    Parameters
    ----------
    image : Image

    Attributes
    ----------
    functions : dict of str to int
        Addresses.

    Raises
    ------
    OSError
        If the system lets no process make code.
    AttributeError
        If a function outside is unknown.
    """

    def __init__(self, image: Image) -> None:
        process = ctypes.CDLL(None, use_errno=True)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, len(image.code), flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._memory.write(image.code)
        self._held: Any = (ctypes.c_char * len(image.code)).from_buffer(self._memory)
        start = ctypes.addressof(self._held)
        for place, name, addend in image.relocations:
            base = _address_of(process, name) if name else start
            _ADDRESS.pack_into(self._memory, place, base + addend)
        if process.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(len(image.code)), mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError(ctypes.get_errno(), "memory cannot be made executable")
        self.functions = {name: start + offset for name, offset in image.functions.items()}


def _address_of(process: ctypes.CDLL, name: str) -> int:
    found = ctypes.cast(getattr(process, name), ctypes.c_void_p).value
    assert found is not None
    return found
