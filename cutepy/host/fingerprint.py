"""The content key of a traced program: it changes whenever what the compiler would see changes.

A compilation is kept on disk under this key, so a key that stays the same while the program changes would run old
code. Hence two nets. The walk from the function (`reachable`) meets every function, class, global, closure variable
and constant that it can name, with the values they have at the moment of the call. The source files (`sources`) of
all modules met, and of all that these import in turn, catch what is reached by names computed at run time. What
neither can tell, such as the content of a lock or the answer of `os.getenv`, is refused by name.

The compiler reads sources from the disk: a program whose files were edited while it was compiled (`edited_since`)
belongs to no key.
"""

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutepy.host import sources
from cutepy.host.encoding import text
from cutepy.host.reachable import Walk
from cutepy.host.values import NotCacheable as NotCacheable

__all__ = ["Fingerprint", "NotCacheable", "dsl_version", "edited_since", "fingerprint", "fingerprint_sources"]

_SOURCE = "source "


@dataclass(frozen=True)
class Fingerprint:
    """The content key of a program, and the keys of its parts.

    Attributes
    ----------
    digest : str
        SHA-256 of all parts, in hexadecimal.
    parts : tuple of (name, digest)
        In the order of their names.
    """

    digest: str
    parts: tuple[tuple[str, str], ...] = field(repr=False)

    def difference(self, other: "Fingerprint") -> list[str]:
        """Name the parts that only one has or that differ, in alphabetical order.

        Examples
        --------
        >>> a, b = fingerprint(max, 1), fingerprint(max, 2)
        >>> a.difference(b), a.difference(a)
        (['values'], [])
        """
        mine, theirs = dict(self.parts), dict(other.parts)
        return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


def _combine(parts: dict[str, bytes]) -> Fingerprint:
    total = hashlib.sha256()
    named = []
    for name, encoded in sorted(parts.items()):
        part = hashlib.sha256(encoded)
        total.update(b"%d:%s" % (len(text(name)), text(name)))
        total.update(part.digest())
        named.append((name, part.hexdigest()))
    return Fingerprint(total.hexdigest(), tuple(named))


def fingerprint(function: Callable[..., Any], *values: object) -> Fingerprint:
    """Compute the content key of a function to be traced: (function, constexpr values) -> digest.

    Everything counts as it is at this moment: code with its lines and file names, defaults, annotations, closures,
    globals read, attributes of objects and classes, imports within functions (which are executed), the source files
    behind them, and the versions of Python, torch, numpy and the DSL. Architecture and options are up to the caller.

    Results that a `functools.lru_cache` within reach holds count as well, as they stem from an earlier state. Which
    objects are one and the same counts, too, but for values that can't be changed.

    Parameters
    ----------
    function : callable
        A `@cute.jit` function, a plain one, a `functools.partial`, a bound method, or an object with a traced
        `__call__`.
    *values
        Constexpr values that it is compiled for.

    Raises
    ------
    NotCacheable
        If it holds something without digestible content (a tensor, lock, file, generator, weak reference), or reads
        the environment, a file, a clock, chance or the machine while it is traced. The message says where.
    """
    walk = Walk()
    walk.run(function, values)
    files = [file for file in walk.files if not sources.is_pinned_file(file)]
    parts = dict(walk.parts)
    for path, digest in sources.files_behind(walk.modules, files).items():
        parts[f"{_SOURCE}{sources.lasting_name(path)}"] = digest
    parts["identities"] = walk.identities
    parts["version of python"] = text(sources.version_of("python"))
    return _combine(parts)


def edited_since(found: Fingerprint) -> list[str]:
    """List the source files that are other than when a fingerprint was taken.

    Of its other parts tracing itself may change some: kernels note on themselves what they were compiled for.
    """
    sources_then = {name.removeprefix(_SOURCE): digest for name, digest in found.parts if name.startswith(_SOURCE)}
    return [
        path
        for path, digest in sources_then.items()
        if hashlib.sha256(sources.text_behind(path) or sources.UNREADABLE).hexdigest() != digest
        and not sources.is_cell(path)
    ]


def fingerprint_sources(*packages_or_paths: str | os.PathLike[str]) -> Fingerprint:
    """Compute the content key of source files, importing nothing.

    Parameters
    ----------
    *packages_or_paths : str or path
        Dotted names of packages or modules, and paths (with a separator, or as `Path`) of files or folders. Of a
        package or folder, all `.py` files count, at any depth.

    Raises
    ------
    ModuleNotFoundError
        If there is no such package or path, or it has no source files.

    Examples
    --------
    >>> [name for name, _ in fingerprint_sources("cutepy.host.encoding").parts]
    ['cutepy.host.encoding', 'version of python']
    """
    parts = {"version of python": text(sources.version_of("python"))}
    for given in packages_or_paths:
        found = dict(_source_files(given))
        if not found:
            raise ModuleNotFoundError(f"fingerprint_sources needs packages or paths with source files, got {given!r}")
        for name, path in found.items():
            parts[name] = sources.read_source(path).digest
    return _combine(parts)


def _source_files(given: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    name = os.fspath(given)
    if isinstance(given, str) and os.sep not in given and not given.endswith(".py"):
        where = sources.place(given)
        if where is None:
            return
        if where.folders is None:
            if where.file is not None:
                yield given, where.file
            return
        roots = list(where.folders)
    elif Path(name).is_file():
        yield name, name
        return
    else:
        roots = [name]
    for root in roots:
        yield from ((f"{name}/{relative}", path) for relative, path in _walk(root, "", frozenset()))


def _walk(folder: str, relative: str, above: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Give the `.py` files under a folder in order, through symbolic links that lead not back up."""
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                yield relative + entry.name, entry.path
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _walk(entry.path, f"{relative}{entry.name}/", above | {real})


@functools.cache
def dsl_version() -> str | None:
    """Return the installed version of the CuTe DSL, importing nothing of it; None where there is none."""
    from cutepy.dsl.version import installed

    return installed()
