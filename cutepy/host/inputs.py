"""Inputs of a compiled program besides its trace: compiler libraries, linked files, declared sources."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

from cutepy.dsl.locations import spec_of
from cutepy.host import environment
from cutepy.host.folder import read_file, write_file

_COMPILER = "nvidia_cutlass_dsl"
_LIBRARIES = ("*/cutlass/_mlir/_mlir_libs/*.so*", "lib/*.so*", "*/lib/*.so*", "*/lib/*.bc", "*/lib/*.a")
"""Folders of the compiler's libraries in the DSL's distributions."""
_BETWEEN = re.compile(r"[\s=,;:'\"{}()]+|$")


@cache
def compiler_digest() -> str:
    """Hash the libraries of the DSL's compiler without importing them: SHA-256, in hexadecimal.

    They are hundreds of megabytes, so their digests are remembered beside the compiled programs, by path, size, inode
    and time of change.
    """
    memory = _Memory(environment.cache_dir() / "libraries.json")
    found = []
    for folder in _folders_of(_COMPILER):
        for path in sorted({path for pattern in _LIBRARIES for path in Path(folder).glob(pattern)}):
            found.append(f"{path.relative_to(folder)} {memory.digest(path)}")
    memory.keep()
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


class _Memory:
    """Hashes of large files, kept in a file; if it can't be written, they are computed in each process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, str] = {}
        self._grown = False
        with contextlib.suppress(OSError, ValueError):
            if file.stat().st_uid in (os.geteuid(), 0):
                read = json.loads(read_file(file))
                self._known = {str(key): str(value) for key, value in read.items()} if isinstance(read, dict) else {}

    def digest(self, path: Path) -> str:
        status = path.stat()
        key = f"{path.resolve()} {status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
        if key not in self._known:
            with path.open("rb") as file:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
            self._grown = True
        return self._known[key]

    def keep(self) -> None:
        if not self._grown or not environment.cache_enabled():
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(self._known).encode())


def named_files(options: str) -> list[tuple[str, str]]:
    """Hash the existing files that options name: options -> (path as named, SHA-256), sorted.

    Such as a library of bitcode to link: what is in it is compiled in. Any text between separators may be a path, such
    as both paths of `--option=a.bc,b.bc`, and a path may hold separators.

    Raises
    ------
    OSError
        If one of the files can't be read.

    Examples
    --------
    >>> named_files("--opt-level 3")
    []
    """
    texts = {text for word in re.split(r"[\s'\"]+", options) for text in _between_separators(word)}
    texts |= {match[2] for match in re.finditer(r"(['\"])(.*?)\1", options)}
    files = [text for text in texts if os.sep in text or "." in text]
    return [(text, hashlib.sha256(Path(text).read_bytes()).hexdigest()) for text in sorted(files) if _is_file(text)]


def _between_separators(word: str) -> set[str]:
    """Return the parts of a word, and all runs of neighbouring parts: a path may contain separators."""
    separators = [(0, 0), *(match.span() for match in _BETWEEN.finditer(word))]
    return {word[left[1] : right[0]] for left, right in combinations(separators, 2)}


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null byte
        return False


_Found = list[tuple[str | os.PathLike[str], list[tuple[str, str]]]]
"""Packages and paths, with the names and paths of the files of each."""


def _found(packages_or_paths: tuple[str | os.PathLike[str], ...]) -> _Found:
    return [(given, list(_source_files(given))) for given in packages_or_paths]


def sources_digest(packages_or_paths: tuple[str | os.PathLike[str], ...]) -> str:
    """Hash source files without importing them: SHA-256 of their names and contents, in hexadecimal.

    Parameters
    ----------
    packages_or_paths : tuple of str or path
        Dotted names of packages or modules, and paths (with a separator, or as `Path`) of files or folders. Of a
        package or folder all files count but compiled Python, at any depth.

    Raises
    ------
    ModuleNotFoundError
        If there is no such package or path, or it has no files.
    """
    return _digest(_found(packages_or_paths))


def _digest(found: _Found) -> str:
    """Hash the files, by name, of each package or path."""
    total = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for given, files in found:
        if not files:
            raise ModuleNotFoundError(f"sources must be packages or paths with source files, got {given!r}")
        for name, path in sorted(dict(files).items()):
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            total.update(f"{given} {name} {content}\n".encode())
    return total.hexdigest()


class Sources:
    """Source files as this process first read them: hashed once, since imported modules do not change with them.

    Parameters
    ----------
    packages_or_paths : tuple of str or path
        As for `sources_digest`.
    """

    def __init__(self, packages_or_paths: tuple[str | os.PathLike[str], ...]) -> None:
        self._given = packages_or_paths
        found = _found(packages_or_paths)
        self._then = _listing(found)
        self._unsure = any(path in _imported_files() for path, *_, time in self._then if time > _started_ns())
        self.digest = _digest(found)

    def edited(self) -> bool:
        """Return whether an imported module may have another text than the hashed file.

        So it is where a file is another than it was, by size, inode, and times of its contents and of any change, and
        where one that had been imported by then has changed since the process started. Programs put the former time
        back, and none can put the latter.
        """
        return self._unsure or _listing(_found(self._given)) != self._then


def _listing(found: _Found) -> list[tuple[str, int, int, int, int]]:
    """Return each file's path, size, inode, and times of its contents and of any change to it, in order."""
    paths = sorted(path for _, files in found for _, path in files)
    statuses = ((path, os.stat(path)) for path in paths)  # noqa: PTH116
    return [(path, s.st_size, s.st_ino, s.st_mtime_ns, max(s.st_mtime_ns, s.st_ctime_ns)) for path, s in statuses]


def _imported_files() -> set[str]:
    return {file for module in list(sys.modules.values()) if isinstance(file := getattr(module, "__file__", None), str)}


@cache
def _started_ns() -> int:
    """Return the start time of this process, in nanoseconds since the epoch; 0 if the system doesn't tell."""
    with contextlib.suppress(AttributeError, OSError, LookupError, ValueError):
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK")
        return time.time_ns() - age
    return 0


@cache
def sources(*packages_or_paths: str | Path) -> Sources:
    """Return the sources of packages and paths, from a cache of this process."""
    return Sources(packages_or_paths)


def _source_files(given: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    name = os.fspath(given)
    if Path(name).is_file():
        yield Path(name).name, name
        return
    is_path = os.sep in name or not isinstance(given, str)
    for root in [name] if is_path else _folders_of(name):
        if os.path.isfile(root):  # noqa: PTH113  a module; a Path for each would double the time
            yield os.path.basename(root), root  # noqa: PTH119
        else:
            yield from _walk(root, "", frozenset())


def _walk(folder: str, relative: str, above: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Return the files under a folder, through symbolic links except those that lead back up."""
    real = os.path.realpath(folder)
    if real in above or not os.path.isdir(real):  # noqa: PTH112
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file() and not entry.name.endswith((".pyc", ".pyo")):
                yield relative + entry.name, entry.path
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _walk(entry.path, f"{relative}{entry.name}/", above | {real})


def _folders_of(module: str) -> list[str]:
    """Return the folders of a package, or the file of a module, without importing it or its parents."""
    spec = spec_of(module)
    if spec is None:
        return []
    path = list(spec.submodule_search_locations or [])
    return path or ([spec.origin] if spec.origin and spec.has_location else [])
