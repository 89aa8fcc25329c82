"""Source files: which modules are pinned by a version, which files stand behind the others, and what is in them."""

import hashlib
import importlib.machinery
import linecache
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from cutepy.host.encoding import frame, text

PINNED = {
    "_pytest": "pytest",  # whose calls it writes into the asserts of modules under test
    "cuda.bindings": "cuda-bindings",
    "cutlass": "nvidia-cutlass-dsl",
    "numpy": "numpy",
    "torch": "torch",
    "tvm_ffi": "apache-tvm-ffi",
}
"""Packages whose content their distribution's version tells, as Python's tells that of the standard library."""

_STDLIB = sys.stdlib_module_names
_TOPS = {package.partition(".")[0]: package for package in PINNED}
# A file as old as this can't be written again within one tick of its time stamp, so the stamp tells its content.
_SETTLED_NS = 2_000_000_000


Statement = tuple[int, str, tuple[str, ...]]
"""An import: leading dots, the dotted name, and what is taken from there."""


@dataclass
class Source:
    """A file's content, and the modules it names in import statements.

    Attributes
    ----------
    digest : bytes
    content : bytes
        Of a Python file, until its imports are asked for.
    """

    digest: bytes
    content: bytes = b""
    _statements: tuple[Statement, ...] | None = None

    @property
    def imports(self) -> tuple[Statement, ...]:
        """The import statements."""
        if self._statements is None:
            self._statements = tuple(_imports(self.content.decode("utf-8", "replace")))
            self.content = b""
        return self._statements


@cache
def version_of(package: str) -> str:
    """Return the version of a pinned package, or of Python."""
    if package not in PINNED:
        return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    import importlib.metadata  # slow to load, and loaded by torch in any case

    try:
        return importlib.metadata.version(PINNED[package])
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", "unknown"))


@cache
def _standard_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({str(Path(paths[key]) / "_")[:-1] for key in ("stdlib", "platstdlib")})


@cache
def pinned_roots() -> tuple[str, ...]:
    """List the folders of the pinned packages, found without importing them."""
    places = [found for package in PINNED if (found := place(package))]
    return tuple(str(Path(folder) / "_")[:-1] for found in places for folder in found.folders or ())


@cache
def is_installed(path: str) -> bool:
    """Tell whether a file lies in a folder that package managers fill."""
    return "site-packages" in (parts := Path(path).parts) or "dist-packages" in parts


@cache
def is_pinned_file(path: str) -> bool:
    """Tell whether a file belongs to the standard library or a pinned package."""
    if path.startswith("<frozen "):
        return True
    if path.startswith(pinned_roots()):
        return True
    return path.startswith(_standard_roots()) and not is_installed(path)


def pinned_package(module: str) -> str | None:
    """Return the package that pins a module of this name, "python" for the standard library's, or None."""
    top = module.partition(".")[0]
    package = _TOPS.get(top)
    if package is None and top not in _STDLIB:
        return None
    if package and module != package and not module.startswith(f"{package}."):
        return None  # another part of a namespace, such as a user's folder of that name
    loaded = sys.modules.get(module) or sys.modules.get(top)
    file = getattr(loaded, "__file__", None)
    if file is not None and not is_pinned_file(file):
        return None  # a user's module that only bears the name
    return package or "python"


def lasting_name(path: str) -> str:
    """Name a file without the number of the process: notebooks compile each cell as a file of their process.

    Examples
    --------
    >>> lasting_name("/tmp/ipykernel_4711/3064.py")
    '/tmp/ipykernel/3064.py'
    """
    return _NOTEBOOK.sub("ipykernel", path) if "ipykernel_" in path else path


def is_cell(path: str) -> bool:
    """Tell whether a file, by its lasting name, is a notebook's cell, which is never edited: it gets another name."""
    return f"{os.sep}ipykernel{os.sep}" in path


_NOTEBOOK = re.compile(r"\bipykernel_\d+\b")
UNREADABLE = frame("unreadable")
"""Stands for the content of a file that can't be read, such as one within an archive."""

_read: dict[str, tuple[tuple[int, int, int], Source]] = {}


def read_source(path: str) -> Source:
    """Digest a file and find its imports; again only if its time stamp, size or inode changed.

    A compiled extension counts by size and time stamp: it is large, and nobody edits it.

    Raises
    ------
    OSError
        If the file can't be read.
    """
    status = os.stat(path)  # noqa: PTH116 - faster by far
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    known = _read.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    if not path.endswith((".py", ".pyi", ".pyw")) and path.endswith((".so", ".pyd", ".dylib")):
        source = Source(frame("extension", b"%d %d" % stamp[:2]))
    else:
        with open(path, "rb") as file:  # noqa: PTH123
            content = file.read()
        source = Source(hashlib.sha256(content).digest(), content)
    if time.time_ns() - status.st_mtime_ns > _SETTLED_NS:
        _read[path] = (stamp, source)
    return source


_TYPE_CHECKING = re.compile(r"^([ \t]*)if (?:typing\.|t\.)?TYPE_CHECKING:[^\n]*\n(?:\1[ \t]+[^\n]*\n|[ \t]*\n)*", re.M)
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n;]*)"
    r"|import[ \t]+([^\n;]*))",
    re.M,
)
_SEPARATOR = re.compile("[;:]")
_COMMENT = re.compile(r"#[^\n]*")
_WORD = re.compile(r"[\w.]+")


def _statements(content: str) -> Iterator[tuple[str, ...]]:
    """Find what the pattern of import statements does, only where the word is: a tenth of the time."""
    read, hit = 0, content.find("import")
    while hit >= 0:
        line = content.rfind("\n", 0, hit) + 1
        for start in (line, *(line + mark.start() for mark in _SEPARATOR.finditer(content[line:hit]))):
            if start >= read and (match := _IMPORT.match(content, start)):
                yield match.groups("")
                read = match.end()
        hit = content.find("import", max(hit + 1, read))


def _imports(content: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Find import statements by their looks: one too many, as in a docstring, costs a file more to watch."""
    if "TYPE_CHECKING" in content:
        content = _TYPE_CHECKING.sub("", content)
    for dots, module, names, modules in _statements(content.replace("\\\n", " ")):
        for clause in _COMMENT.sub("", modules).split(","):
            if word := _WORD.match(clause.strip()):
                yield 0, word[0], ()
        if dots or module:
            clauses = _COMMENT.sub("", names).strip("()").split(",")
            yield len(dots), module, tuple(word[0] for clause in clauses if (word := _WORD.match(clause.strip())))


@dataclass(frozen=True)
class _Place:
    """Where a module lies: its file, if it has one, and the folders of its submodules, if it is a package."""

    file: str | None
    folders: tuple[str, ...] | None


def _find(module: str, folders: Iterable[str] | None) -> importlib.machinery.ModuleSpec | None:
    """Find a module that may not be loaded, importing nothing."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(module, folders) if find else None
        if spec is not None:
            return spec  # type: ignore[no-any-return]
    return None


def place(module: str) -> _Place | None:
    """Locate a module by its dotted name, whether it is loaded or not; None where there is none.

    Nothing is imported.
    """
    loaded = sys.modules.get(module)
    if isinstance(loaded, ModuleType):
        folders = getattr(loaded, "__path__", None)
        return _Place(getattr(loaded, "__file__", None), None if folders is None else tuple(folders))
    parent, _, _ = module.rpartition(".")
    folders = None
    if parent:
        above = place(parent)
        if above is None or above.folders is None:
            return None
        folders = above.folders
    spec = _find(module, folders)
    if spec is None:
        return None
    found = spec.submodule_search_locations
    return _Place(spec.origin if spec.has_location else None, None if found is None else tuple(found))


def files_behind(modules: Iterable[str], files: Iterable[str]) -> dict[str, bytes]:
    """Digest the files of these modules, of all that they import in turn, and these further files.

    Imports are followed whether they have been executed or not, so that the answer depends on files alone. They are
    not followed into the standard library and the pinned packages, nor, beyond the first file, into installed
    packages from which none of the given modules comes.

    Returns
    -------
    dict of path to digest
    """
    found: dict[str, bytes] = {}
    waiting = list(modules)
    own = {module.partition(".")[0] for module in waiting}
    seen = set(waiting)
    while waiting:
        module = waiting.pop()
        where = None if pinned_package(module) else place(module)
        if where is None:
            continue
        for above in _parents(module):
            if above not in seen:
                seen.add(above)
                waiting.append(above)
        if where.file is None or where.file in found:
            continue
        try:
            source = read_source(where.file)
        except OSError:
            found[where.file] = text_behind(where.file) or UNREADABLE
            continue
        found[where.file] = source.digest
        if module.partition(".")[0] in own or not is_installed(where.file):
            for name in _named(module, where.folders is not None, source):
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
    for path in files:
        if path not in found and (digest := text_behind(path)):
            found[path] = digest
    return found


def text_behind(path: str) -> bytes | None:
    """Digest a file, or what stands for it where code was typed in: the DSL reads functions by their source.

    Generated code has no source, and its instructions tell all.
    """
    try:
        return read_source(path).digest
    except OSError:
        lines = linecache.getlines(path)
        return frame("typed in", *map(text, lines)) if lines else None


def _parents(module: str) -> Iterator[str]:
    while module := module.rpartition(".")[0]:
        yield module


def _named(module: str, is_package: bool, source: Source) -> Iterator[str]:
    """Give the modules that the imports of one module may mean."""
    for level, name, attributes in source.imports:
        base = name
        if level:
            loaded = sys.modules.get(module)
            package = getattr(loaded, "__package__", None) or (module if is_package else module.rpartition(".")[0])
            above = package.rsplit(".", level - 1)[0] if level > 1 else package
            base = f"{above}.{name}" if name else above
        if not base or pinned_package(base):
            continue
        yield base
        loaded_base = sys.modules.get(base)
        for attribute in attributes:
            # What is there, and is no module, was not imported as one.
            if isinstance(vars(loaded_base).get(attribute), ModuleType | None) if loaded_base else True:
                yield f"{base}.{attribute}"
