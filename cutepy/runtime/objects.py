"""Loader of relocatable ELF objects into this process, without a linker or a compiler.

The DSL's compiler emits the host code of a function, with the kernels' ELF image in its constants, as an object for
x86-64 in the large code model: every reference is 64 bits wide, so the parts may lie anywhere. Loading one is laying
out its sections, filling in a global offset table, and adding addresses up. It takes a millisecond, needs nothing of
the DSL, and the caller says what each undefined symbol is: CUDA's function, or one of ours.

References: System V ABI, AMD64 supplement, 4.4 (relocation); the large model's types are in table 4.10.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

_RELOCATABLE, _X86_64 = 1, 62
_WRITE, _ALLOCATE, _EXECUTE = 1, 2, 4
_RELA, _NOBITS, _SYMTAB = 4, 8, 2
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_READ_EXECUTE = 1 | 4

# Relocation types. S is the symbol, A the addend, P the place, G the entry in the table at GOT.
_64 = 1  # S + A
_PC64 = 24  # S + A - P
_GOTOFF64 = 25  # S + A - GOT
_GOT64 = 27  # G + A
_GOTPC64 = 29  # GOT + A - P
_PLTOFF64 = 31  # S + A - GOT, since no call is far enough to need a stub

_GOT_SYMBOL = "_GLOBAL_OFFSET_TABLE_"


class ObjectError(ValueError):
    """Error of an object that can't be loaded."""


class WrongMachineError(ObjectError):
    """Error of a machine other than x86-64, for which host code of compiled functions is made."""


def check_machine() -> None:
    """Refuse to make or run host code on a machine that is not x86-64.

    Raises
    ------
    WrongMachineError
        On another machine.
    """
    machine = platform.machine()
    if machine not in ("x86_64", "AMD64"):
        raise WrongMachineError(
            f"cutepy loads host code of compiled functions on x86-64 only, and this machine is {machine}; layouts, "
            "pictures, cutepy.ops on CPU tensors and cutepy.load_ptx work here; on a GPU, call the @cute.jit function "
            "through the DSL alone"
        )


@dataclass(frozen=True)
class _Section:
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    section: int
    value: int


class LoadedObject:
    """Object in memory, with the addresses of its functions and variables.

    The memory stays for the life of the process, as a shared library's does: kernels may still run, and C code may
    hold addresses, when the last Python reference goes.

    Parameters
    ----------
    image : bytes
        The ELF file.
    symbols : mapping of str to int
        Address of each function or variable that the object uses and does not define.

    Raises
    ------
    ObjectError
        If the image is no relocatable object for x86-64, uses a relocation that is not known, or misses a symbol.
    """

    def __init__(self, image: bytes, symbols: Mapping[str, int]) -> None:
        self._image = image
        self._sections = _sections(image)
        self._symbols = _symbols(image, self._sections)
        missing = sorted({s.name for s in self._symbols if _is_external(s)} - symbols.keys())
        if missing:
            raise ObjectError(f"the object needs {', '.join(missing)}, which nothing serves")
        self._external = symbols
        self._place()
        self._relocate()
        self._protect()
        self.addresses: dict[str, int] = {
            symbol.name: self._resolve(symbol) for symbol in self._symbols if symbol.name and symbol.section
        }
        """Address of each symbol that the object defines."""

    def _place(self) -> None:
        """Assign an address to every section in memory: code first, then the rest from a page of its own."""
        order = [n for n, s in enumerate(self._sections) if s.flags & _ALLOCATE]
        order.sort(key=lambda n: not self._sections[n].flags & _EXECUTE)
        offsets, cursor, code_end = {}, 0, 0
        for n in order:
            section = self._sections[n]
            if section.flags & _EXECUTE:
                cursor = _align(cursor, section.alignment)
                code_end = cursor + section.size
            else:
                cursor = _align(max(cursor, _align(code_end, mmap.PAGESIZE)), section.alignment)
            offsets[n] = cursor
            cursor += section.size
        self._code_bytes = _align(code_end, mmap.PAGESIZE)
        table = _align(max(cursor, self._code_bytes), 8)
        self._memory = mmap.mmap(-1, _align(table + 8 * len(self._symbols) + 8, mmap.PAGESIZE))
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        _immortal.append(self._memory)
        self._at = {n: self._base + offset for n, offset in offsets.items()}
        self._table = self._base + table
        for n, offset in offsets.items():
            section = self._sections[n]
            if section.kind != _NOBITS:
                self._memory[offset : offset + section.size] = self._image[
                    section.offset : section.offset + section.size
                ]

    def _resolve(self, symbol: _Symbol) -> int:
        if symbol.name == _GOT_SYMBOL:
            return self._table
        if symbol.section == _UNDEFINED:
            return self._external.get(symbol.name, 0)
        if symbol.section == _ABSOLUTE:
            return symbol.value
        return self._at.get(symbol.section, 0) + symbol.value

    def _relocate(self) -> None:
        values = [self._resolve(symbol) for symbol in self._symbols]
        struct.pack_into(f"<{len(values)}Q", self._memory, self._table - self._base, *values)
        for section in self._sections:
            # relocations of a section that is not in memory, such as debug information, are skipped
            if section.kind != _RELA or section.info not in self._at:
                continue
            target = self._at[section.info]
            records = self._image[section.offset : section.offset + section.size]
            for offset, info, addend in struct.iter_unpack("<QQq", records):
                kind, index = info & 0xFFFFFFFF, info >> 32
                value = self._value(kind, index, values[index], target + offset) + addend
                struct.pack_into("<Q", self._memory, target + offset - self._base, value & 0xFFFFFFFFFFFFFFFF)

    def _value(self, kind: int, index: int, symbol: int, place: int) -> int:
        if kind == _64:
            return symbol
        if kind == _PC64:
            return symbol - place
        if kind in (_GOTOFF64, _PLTOFF64):
            return symbol - self._table
        if kind == _GOT64:
            return 8 * index
        if kind == _GOTPC64:
            return self._table - place
        raise ObjectError(
            f"relocation of type {kind} is none of the large code model's (1, 24, 25, 27, 29, 31); "
            "the DSL's compiler emits host code in a way that is not known here"
        )

    def _protect(self) -> None:
        """Make the code executable, and no longer writable."""
        if self._code_bytes:
            _make_executable(self._base, self._code_bytes)


_immortal: list[mmap.mmap] = []
"""Memory of everything loaded, never freed."""


def executable(code: bytes) -> int:
    """Write machine code to memory, for the life of the process; return its address."""
    memory = mmap.mmap(-1, _align(len(code), mmap.PAGESIZE))
    memory[: len(code)] = code
    _immortal.append(memory)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _make_executable(base, len(memory))
    return base


def _make_executable(base: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(base, size, _READ_EXECUTE):
        raise OSError(ctypes.get_errno(), "the system refused to make memory executable")


def undefined_symbols(image: bytes) -> list[str]:
    """List the functions and variables that an object uses and does not define."""
    return sorted({symbol.name for symbol in _symbols(image, _sections(image)) if _is_external(symbol)})


def _is_external(symbol: _Symbol) -> bool:
    return symbol.section == _UNDEFINED and symbol.name not in ("", _GOT_SYMBOL)


def _align(offset: int, alignment: int) -> int:
    return -(-offset // max(alignment, 1)) * max(alignment, 1)


def _sections(image: bytes) -> list[_Section]:
    if image[:6] != b"\x7fELF\x02\x01" or len(image) < 64:
        raise ObjectError(f"host code must be a 64-bit little-endian ELF object, got {image[:6]!r}")
    kind, machine = struct.unpack_from("<HH", image, 16)
    if (kind, machine) != (_RELOCATABLE, _X86_64):
        raise ObjectError(
            f"host code must be a relocatable ELF object for x86-64 (type {_RELOCATABLE}, machine {_X86_64}), "
            f"got type {kind}, machine {machine}"
        )
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, _ = struct.unpack_from("<HHH", image, 58)
    return [_Section(*struct.unpack_from("<IIQQQQIIQQ", image, table + size * n)) for n in range(count)]


def _symbols(image: bytes, sections: list[_Section]) -> list[_Symbol]:
    tables = [section for section in sections if section.kind == _SYMTAB]
    if len(tables) != 1:
        raise ObjectError(f"host code must have one symbol table, got {len(tables)}")
    table = tables[0]
    names = sections[table.link]
    found = []
    for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", image[table.offset : table.offset + table.size]):
        start = names.offset + name
        found.append(_Symbol(image[start : image.index(b"\0", start)].decode(), section, value))
    return found
