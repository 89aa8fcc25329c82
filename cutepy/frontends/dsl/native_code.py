"""Machine code for this CPU, by the compiler that the DSL compiles host code with: its input is MLIR's dialect of LLVM.

The compiler is imported at its first use, since the import of the DSL takes a second. Compiled code is stored on disk,
by its text, the DSL's version and the model and features of the CPU. Code from the disk needs no compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import re
import sys
import tempfile
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from cutepy.dsl.version import first, installed_parts, require
from cutepy.frontends.dsl.machine_images import Image, LoadedImage, ObjectFileError, read_image
from cutepy.host import environment
from cutepy.host.folder import CacheFolderError
from cutepy.host.store import Entry, Store, machine_code_store

_VERSION = 1
"""Counts the changes of how code is compiled and called."""

_OPTIMIZATION = 2

_FUNCTION = re.compile(r"llvm\.func @(\w+)")
_OF_A_CPU = re.compile(r"(?:vendor_id|cpu family|model|stepping|flags|CPU|Features)\b")


def is_imported() -> bool:
    """Return whether the compiler has been imported already."""
    return "cutlass._mlir.ir" in sys.modules


def compiled(text: str) -> NativeCode:
    """Compile a module of MLIR's LLVM dialect, and keep the object.

    Raises
    ------
    ImportError
        If the DSL is absent, or its version has no such compiler.
    """
    ir: Any = require("cutlass._mlir.ir", "Context", "Module")
    make_engine = first("cutlass._mlir.execution_engine:ExecutionEngine")
    with _context(ir):
        engine = make_engine(ir.Module.parse(text), opt_level=_OPTIMIZATION, shared_libs=[])
    try:
        image = read_image(_object_file(engine, text))
        code = NativeCode(LoadedImage(image))
    except (ObjectFileError, OSError, AttributeError):  # another kind of machine: code is used as the engine has it
        return NativeCode(engine)
    _keep(text, image)
    return code


def kept(text: str) -> NativeCode | None:
    """Return the object that was compiled from a text before, if it is on the disk."""
    store = _store()
    try:
        entry = None if store is None else store.load(_key(text))
        return None if entry is None else NativeCode(LoadedImage(_image_of(entry)))
    except (CacheFolderError, OSError, AttributeError):
        return None


def _keep(text: str, image: Image) -> None:
    store = _store()
    metadata = {"functions": dict(image.functions), "places": [list(place) for place in image.relocations]}
    try:
        if store is not None:
            store.save(_key(text), Entry(metadata, {"code": image.code}))
    except CacheFolderError:  # others could write there
        return


def _image_of(entry: Entry) -> Image:
    metadata = entry.metadata
    return Image(entry.sections["code"], metadata["functions"], tuple(tuple(p) for p in metadata["places"]))


def _object_file(engine: Any, text: str) -> bytes:  # noqa: ANN401 - the DSL is untyped
    found = _FUNCTION.search(text)
    assert found is not None
    with tempfile.TemporaryDirectory(prefix="cutepy-") as folder:
        file = Path(folder) / "code.o"
        engine.raw_lookup(found[1])  # what is looked up first makes it compile all
        engine.dump_to_object_file(str(file))
        return file.read_bytes()


def _store() -> Store | None:
    try:
        return machine_code_store() if environment.cache_enabled() else None
    except ModuleNotFoundError:  # the platform's folder is unknown
        return None


def _key(text: str) -> str:
    return hashlib.sha256(f"{_VERSION}\n{_OPTIMIZATION}\n{_compiler()}\n{_processor()}\n{text}".encode()).hexdigest()


@cache
def _compiler() -> str:
    return " ".join(installed_parts())


@cache
def _processor() -> str:
    """Name the CPU with its features, which code is compiled for."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            # Of the first CPU alone, which a blank line ends.
            described = [line for line in takewhile(str.strip, lines) if _OF_A_CPU.match(line)]
    except OSError:
        described = []
    return "".join([platform.machine(), platform.processor(), *described])


@cache
def _context(ir: Any) -> Any:  # noqa: ANN401 - the DSL is untyped
    context = ir.Context()
    context.enable_multithreading(False)  # processes that hold it may fork
    return context


class NativeCode:
    """Compiled functions, which take the address of an array of 64-bit numbers.

    Parameters
    ----------
    holder : LoadedImage or ExecutionEngine
        Object that holds the code.
    """

    def __init__(self, holder: Any) -> None:  # noqa: ANN401 - the DSL is untyped
        self._holder = holder

    def function(self, name: str) -> NativeFunction:
        """Return a function by name."""
        holder = self._holder
        is_image = isinstance(holder, LoadedImage)
        return NativeFunction(self, holder.functions[f"_mlir_{name}"] if is_image else int(holder.raw_lookup(name)))


class NativeFunction:
    """A compiled function of one pointer; keeps its code alive."""

    def __init__(self, code: NativeCode, address: int) -> None:
        self._code = code
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        # The compiler's wrapper takes a table of pointers to the arguments.
        self._argument = ctypes.c_void_p()
        self._table = (ctypes.c_void_p * 1)(ctypes.addressof(self._argument))
        self._at = ctypes.addressof(self._table)

    def __call__(self, address: int) -> None:
        """Call it."""
        self._argument.value = address
        self._call(self._at)
