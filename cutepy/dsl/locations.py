"""Source locations of traced operations, by module names instead of folders.

A traced module names the file and line of each operation, and the compiler writes them into the PTX. So an edit that
shifts lines is another program; the same files in another folder are not. Here the names of files within a module's
bytecode are replaced by the modules that were imported from them.

References: MLIR's bytecode format (mlir/docs/BytecodeFormat.md): header, sections, section 0 of strings.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

_MAGIC = b"ML\xefR"
_STRINGS = 0
_ALIGNED = 0x80


def canonical(bytecode: bytes) -> bytes:
    """Hash a module's bytecode with its files named by their modules: bytecode -> 32 bytes.

    Raises
    ------
    ValueError
        If it is no bytecode of MLIR.
    """
    total = hashlib.sha256()
    for section, body in _sections(bytecode):
        if section == _STRINGS:
            strings = [name_of(text).encode(errors="surrogateescape") for text in _strings(body)]
            body = b"".join(b"%d:%s" % (len(text), text) for text in strings)
        total.update(b"%d:%d:" % (section, len(body)))
        total.update(body)
    return total.digest()


def files(bytecode: bytes) -> dict[str, str]:
    """List the source files of a module's operations: module name -> path."""
    texts = {text for section, body in _sections(bytecode) if section == _STRINGS for text in _strings(body)}
    return {name: text for text in sorted(texts) if (name := name_of(text)) != text}


def name_of(text: str) -> str:
    """Name a source file by its module; return other text unchanged.

    A file that is no module is named by its place below the folders of Python's path, and a notebook's cell, whose
    folder bears the process's number, by its file, which Jupyter names after the cell's content.
    """
    if not text.startswith(os.sep):
        return text
    if text.endswith(".py") and (module := _module_of(text)) is not None:
        return f"<module {module}>"
    folder, _, name = text.rpartition(os.sep)
    if "ipykernel_" in folder.rpartition(os.sep)[2]:
        return f"<cell {name}>"
    if text.endswith(".py"):
        for root in sorted(filter(None, sys.path), key=len, reverse=True):
            if text.startswith(root.rstrip(os.sep) + os.sep):
                return f"<file {text[len(root.rstrip(os.sep)) + 1 :]}>"
    return text


def path_of(name: str) -> str | None:
    """Find the file with a name from `name_of`, importing nothing; None if it is unknown."""
    kind, _, place = name[1:-1].partition(" ")
    if kind == "file":
        roots = sorted(filter(None, sys.path), key=len, reverse=True)
        return next((str(file) for root in roots if (file := Path(root, place)).is_file()), None)
    if kind != "module":
        return None
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if isinstance(main, str) and os.path.basename(main) == place:  # noqa: PTH119
        return main
    imported = getattr(sys.modules.get(place), "__file__", None)
    if imported is not None or not all(map(str.isidentifier, place.split("."))):
        return imported
    spec = spec_of(place)
    return spec.origin if spec is not None and spec.has_location else None


def spec_of(module: str) -> ModuleSpec | None:
    """Find a package or module without importing it or its parents."""
    path: list[str] | None = None
    spec = None
    for dot in re.finditer(r"\.|$", module):
        found = (
            finder.find_spec(module[: dot.start()], path) for finder in sys.meta_path if hasattr(finder, "find_spec")
        )
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec


_known: dict[str, str] = {}
"""Names of files of modules, as met so far."""


def _module_of(file: str) -> str | None:
    """Return the name of the module imported from a file; for a script the file's name."""
    if file not in _known:
        for name, module in list(sys.modules.items()):
            found = getattr(module, "__file__", None)
            if isinstance(found, str):
                _known[found] = os.path.basename(found) if name in ("__main__", "__mp_main__") else name  # noqa: PTH119
    return _known.get(file)


def _sections(bytecode: bytes) -> Iterator[tuple[int, bytes]]:
    """Return (number, content) of each section; the header has number -1."""
    if bytecode[:4] != _MAGIC:
        raise ValueError(f"a traced module must be MLIR bytecode, which begins with {_MAGIC!r}, got {bytecode[:4]!r}")
    _, start = _varint(bytecode, 4)
    start = bytecode.index(b"\0", start) + 1
    yield -1, bytecode[4:start]
    while start < len(bytecode):
        number, start = bytecode[start], start + 1
        length, start = _varint(bytecode, start)
        if number & _ALIGNED:
            alignment, start = _varint(bytecode, start)
            start += -start % alignment
        yield number & ~_ALIGNED, bytecode[start : start + length]
        start += length


def _strings(body: bytes) -> list[str]:
    """Read the string section: the number of strings, their lengths in reverse order, and their bytes."""
    count, start = _varint(body, 0)
    lengths = []
    for _ in range(count):
        length, start = _varint(body, start)
        lengths.append(length)
    found = []
    for length in reversed(lengths):
        found.append(body[start : start + length - 1].decode(errors="surrogateescape"))
        start += length
    return found


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """Read a variable-length number, whose first byte gives the number that follow; return it and its end."""
    first = data[start]
    if first == 0:
        return int.from_bytes(data[start + 1 : start + 9], "little"), start + 9
    more = (first & -first).bit_length() - 1
    return int.from_bytes(data[start : start + 1 + more], "little") >> (more + 1), start + 1 + more
