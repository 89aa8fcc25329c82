"""Resources of kernels from a cubin, a 64-bit ELF file: registers, stack frame, spills, shared memory.

Pure Python, no CUDA tools: the assembler records these facts as `.nv.info` attributes. A kernel that spills
registers or indexes them dynamically has a stack frame in local memory, so a frame of 0 bytes proves that it does
neither. Which instructions spill, and which fill, it notes too.

References
----------
The ELF-64 object file format; the `.nv.info` attribute numbers are those that `nvdisasm` and `cuobjdump --dump-elf`
name; where an instruction holds its opcode and width is seen from their listings with encodings (`nvdisasm -hex`).
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cutepy.layouts.sm90.arch import RESERVED_SMEM_BYTES

_FORMAT_SIZED_VALUE = 0x04
_REGISTER_COUNT = 0x2F
_FRAME_SIZE = 0x11
_REQUIRED_THREADS = 0x10
_ANNOTATIONS = 0x55
_SPILL = 1
_SYMBOL_TABLE = 2
# Where the system reserves the first bytes of each CTA's shared memory, a kernel's section includes them.
_RESERVED_SMEM = ".nv.shared.reserved.0"

_STORE_LOCAL, _LOAD_LOCAL = 0x387, 0x983
_OPCODE_MASK = 0xFFF
# Bits 73 to 75 of a load or store -> bytes: 8, 16, 32, 64 and 128 bits, the first two also signed.
_WIDTHS = (1, 1, 2, 2, 4, 8, 16)


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel on a streaming multiprocessor.

    Attributes
    ----------
    name : str
        Mangled name.
    registers : int
        32-bit registers a thread at launch; warps may trade them later with setmaxnreg.
    frame_bytes : int
        Local memory a thread: spills, and arrays that are indexed at run time. A GEMM should have 0.
    static_smem_bytes : int
        Shared memory that the kernel declares; dynamic shared memory comes with the launch. What the system takes of
        each CTA, 1024 bytes, counts in neither.
    spill_store_bytes, spill_load_bytes : int
        Bytes that a thread writes to local memory for want of registers, and reads back, if each instruction that does
        runs once: what `ptxas -v` calls spill stores and spill loads.
    required_threads : (int, int, int) or None
        Extents that a CTA must be launched with (PTX's `.reqntid`).
    """

    name: str
    registers: int
    frame_bytes: int
    static_smem_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    required_threads: tuple[int, int, int] | None


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    link: int
    data: bytes
    size: int


def read_resources(cubin: bytes) -> tuple[KernelResources, ...]:
    """List the resources of every kernel in a cubin.

    Raises
    ------
    ValueError
        If the bytes are no 64-bit little-endian ELF file, or one that names no kernel.
    """
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError(
            f"a cubin must be a 64-bit little-endian ELF file, got bytes that start {cubin[:6]!r}; "
            "pass the cubin itself, not its path"
        )
    sections = list(_sections(cubin))
    symbols = next((_symbol_names(s, sections[s.link]) for s in sections if s.kind == _SYMBOL_TABLE), [])
    facts: dict[int, dict[int, int]] = {}
    for section in sections:
        if section.name == ".nv.info":
            for attribute, payload in _attributes(section.data):
                if attribute in (_REGISTER_COUNT, _FRAME_SIZE):
                    symbol, value = struct.unpack("<II", payload)
                    facts.setdefault(symbol, {})[attribute] = value
    by_name = {section.name: section for section in sections}
    kernels = tuple(
        _kernel(symbols[symbol], found[_REGISTER_COUNT], found[_FRAME_SIZE], by_name)
        for symbol, found in facts.items()
        if found.keys() >= {_REGISTER_COUNT, _FRAME_SIZE}
    )
    if not kernels:
        raise ValueError("the cubin names no kernel with a register count; was it stripped of .nv.info?")
    return kernels


def _kernel(name: str, registers: int, frame_bytes: int, sections: Mapping[str, _Section]) -> KernelResources:
    shared = sections[f".nv.shared.{name}"].size if f".nv.shared.{name}" in sections else 0
    if _RESERVED_SMEM in sections:
        shared = max(shared - RESERVED_SMEM_BYTES, 0)
    info = sections.get(f".nv.info.{name}")
    attributes = dict(_attributes(info.data)) if info else {}
    spilled = {_STORE_LOCAL: 0, _LOAD_LOCAL: 0}
    code = sections[f".text.{name}"].data
    notes = attributes.get(_ANNOTATIONS, b"")
    for at in range(0, len(notes) - 7, 8):
        kind, offset = struct.unpack_from("<II", notes, at)
        if kind == _SPILL and offset + 16 <= len(code):
            low, high = struct.unpack_from("<QQ", code, offset)
            if low & _OPCODE_MASK in spilled:
                spilled[low & _OPCODE_MASK] += _WIDTHS[high >> 9 & 7]
    required = attributes.get(_REQUIRED_THREADS)
    return KernelResources(
        name,
        registers,
        frame_bytes,
        shared,
        spilled[_STORE_LOCAL],
        spilled[_LOAD_LOCAL],
        struct.unpack("<III", required) if required else None,
    )


def _sections(cubin: bytes) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_bytes) for i in range(count)]
    names_offset = headers[names_index][4]
    for name, kind, _, _, offset, size, link, *_ in headers:
        data = b"" if kind == 8 else cubin[offset : offset + size]  # 8: SHT_NOBITS, a size without bytes
        yield _Section(_string(cubin, names_offset + name), kind, link, data, size)


def _symbol_names(table: _Section, strings: _Section) -> list[str]:
    offsets = [struct.unpack_from("<I", table.data, at)[0] for at in range(0, len(table.data), 24)]
    return [_string(strings.data, offset) for offset in offsets]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _FORMAT_SIZED_VALUE:
            yield attribute, data[at : at + size]
            at += size


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
