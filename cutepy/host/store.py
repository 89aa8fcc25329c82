"""Store of compiled programs on disk, shared by a user's processes: each program is built once."""

import contextlib
import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from cutepy.host import environment
from cutepy.host.entry import DamagedEntryError, Entry as Entry, decode, encode, read_metadata
from cutepy.host.folder import LOCK, PROGRAM, Folder
from cutepy.host.lock import exclusive

# A listing of the folder, which gives the free room, is valid for this long, and until this share of the room is
# written: other processes write, too. The next listing finds the files that no process counted, such as a killed one's.
_LISTING_AGE_S = 60.0
_SHARE = 16


class CacheWarning(UserWarning):
    """Warning that the disk cache failed; compilation goes on without it.

    A warning rather than a log record: it is shown by default, once for each place, and a test run or a deployment can
    turn it into an error or silence it by its name.
    """


class UnstorableEntryError(Exception):
    """Exception of a builder whose entry must not be stored: its key does not determine it."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry


class EntryInfo(NamedTuple):
    """Facts of an entry that a store reads without its sections.

    Attributes
    ----------
    key : str
    size_bytes : int
        Size of the entry's file.
    created, last_used : float
        Seconds since the epoch.
    uses : int
        Times that it was loaded.
    metadata : mapping of str to JSON values
        As saved; not checked against damage.
    """

    key: str
    size_bytes: int
    created: float
    last_used: float
    uses: int
    metadata: Mapping[str, Any]


class Store:
    """Store of entries in a folder: key -> entry, built by one process while others wait.

    Threads and processes may use one folder at the same time, in as many stores as they like.

    A folder that cannot be written, is full or knows no locks costs compiling anew and one `CacheWarning` for each
    store. Where locks do not reach (see `cutepy.host.lock` on NFS), two hosts may build the same entry, and either is
    kept: an entry is always whole.

    Parameters
    ----------
    folder : Path
        Made when something is saved, for its owner alone.
    limit_bytes : int
        Size of all entries. Beyond it the least recently used are removed, except the one just saved, until a
        sixteenth is free. One process keeps to it exactly; several at a time may exceed it for a minute.
    quiet : bool
        True to suppress warnings about an unusable folder.

    Attributes
    ----------
    folder, limit_bytes
        As given.
    """

    def __init__(self, folder: Path, limit_bytes: int, *, quiet: bool = False) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._files = Folder(folder)
        self._warned = quiet
        self._unlisted_room_bytes = 0
        self._listed_until = float("-inf")

    def load(self, key: str) -> Entry | None:
        """Read an entry, which counts as a use.

        Parameters
        ----------
        key : str
            Key of letters, digits, `_` and `-`; at most 128.

        Returns
        -------
        Entry or None
            None if there is no entry of this key, or a damaged one, which is removed with a `CacheWarning`.

        Raises
        ------
        ValueError
            If `key` has other characters, or more.
        CacheFolderError
            If the folder belongs to another user, or any user may write to it.
        """
        try:
            return self._read(key)
        except DamagedEntryError:
            # under the lock, so that the removed file is not another process's new one
            with self._locked(key):
                return self._read_or_remove(key)

    def save(self, key: str, entry: Entry) -> None:
        """Write an entry atomically, and remove the least recently used over the limit.

        Parameters
        ----------
        key : str
        entry : Entry

        Raises
        ------
        ValueError
            If `key` has other characters, or more.
        TypeError
            If the metadata would come back from JSON as something else.
        CacheFolderError
            If the folder belongs to another user, or any user may write to it.
        """
        data = encode(key, entry)
        try:
            self._files.make()
            self._files.write(key, data)
            self._shrink(key, len(data))
        except OSError as error:
            self._warn_once(error)

    def get_or_build(self, key: str, build: Callable[[], Entry]) -> tuple[Entry, bool]:
        """Load an entry, or build and save it; of concurrent callers with one key, one builds and the others wait.

        Parameters
        ----------
        key : str
        build : callable
            Makes the entry, or raises `UnstorableEntryError` with an entry that must not be stored. Other exceptions
            pass through, and the next waiting caller builds.

        Returns
        -------
        entry : Entry
        built : bool
            True if `build` made it.

        Raises
        ------
        ValueError, TypeError, CacheFolderError
            As `load` and `save`.
        RuntimeError
            If `build` asks for the same key, and so waits for itself.
        """
        with contextlib.suppress(DamagedEntryError):
            if entry := self._read(key):
                return entry, False
        with self._locked(key):
            if entry := self._read_or_remove(key):
                return entry, False
            try:
                entry = build()
            except UnstorableEntryError as unkept:
                return unkept.entry, True
            self.save(key, entry)
            return entry, True

    def peek(self, key: str) -> Entry | None:
        """Read an entry as `load` does, without counting a use, and without removing a damaged one.

        Raises
        ------
        DamagedEntryError
            If the entry is damaged.
        """
        return self._read(key, counted=False)

    def entries(self) -> list[EntryInfo]:
        """List the readable entries, least recently used first."""
        self._files.check()
        found = []
        for program in self._files.programs():
            with contextlib.suppress(OSError, DamagedEntryError):
                head = io.BytesIO(self._files.read(program.key))
                found.append(EntryInfo(*program, metadata=read_metadata(head)))
        return found

    def unreadable(self) -> list[Path]:
        """List the files in the place of entries that cannot be read, such as damaged ones, and folders."""
        readable = {entry.key for entry in self.entries()}
        return [self._files.file(p.key, PROGRAM) for p in self._files.programs() if p.key not in readable]

    def prune(self) -> list[Path]:
        """Remove unreadable entries, such as those of another version of cutepy.

        Returns
        -------
        list of Path
            Removed entries.

        Raises
        ------
        OSError
            If something can't be removed.
        """
        useless = self.unreadable()
        for path in useless:
            self._files.remove(path.stem)
        return useless

    def remove(self, key: str) -> bool:
        """Remove an entry; return whether there was one.

        Raises
        ------
        OSError
            If it cannot be removed.
        """
        return self._files.remove(key)

    def clear(self) -> int:
        """Remove all entries, readable or not, and leftovers of killed processes; return the number of entries.

        Raises
        ------
        OSError
            If one cannot be removed; the others are all the same.
        """
        removed, failed = 0, None
        for program in self._files.programs():
            try:
                removed += self.remove(program.key)
            except OSError as error:
                failed = failed or error
        self._files.remove_locks()
        self._files.sweep()
        if failed:
            raise failed
        return removed

    def _read(self, key: str, *, counted: bool = True) -> Entry | None:
        self._files.check()
        try:
            data = self._files.read(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._warn_once(error)
            return None
        entry = decode(key, data)
        if counted:
            self._files.count_use(key)
        return entry

    def _read_or_remove(self, key: str) -> Entry | None:
        try:
            return self._read(key)
        except DamagedEntryError as error:
            file = self._files.file(key, PROGRAM)
            with contextlib.suppress(OSError):  # the next save replaces it
                file.unlink()
            warnings.warn(f"{file} is damaged and not used: {error}", CacheWarning, stacklevel=3)
            return None

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                self._files.make()
                stack.enter_context(exclusive(self._files.file(key, LOCK)))
            except OSError as error:
                self._warn_once(error)
            yield

    def _shrink(self, saved: str, size_bytes: int) -> None:
        """Keep to the limit after an entry was saved; listing a folder takes time in proportion to its entries."""
        self._unlisted_room_bytes -= size_bytes
        if self._unlisted_room_bytes >= 0 and time.monotonic() < self._listed_until:
            return
        programs = self._files.programs()
        total = sum(program.size_bytes for program in programs)
        if total > self.limit_bytes:
            for program in programs:
                if total > self.limit_bytes - self.limit_bytes // _SHARE and program.key != saved:
                    self._files.remove(program.key)
                    total -= program.size_bytes
        self._files.sweep()
        self._unlisted_room_bytes = (self.limit_bytes - total) // _SHARE
        self._listed_until = time.monotonic() + _LISTING_AGE_S

    def _warn_once(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"compiled programs cannot all be kept in {self.folder}, or read from it: {error}; "
                f"set {environment.CACHE_DIR.name} to a folder that can be written, or {environment.CACHE.name}=off",
                CacheWarning,
                stacklevel=callers_level(),
            )


def callers_level() -> int:
    """Count the frames up to the first outside of cutepy, as the stack level of a warning."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("cutepy."):
        frame, level = frame.f_back, level + 1
    return level


def default_store() -> Store:
    """Open the store at the environment's folder and limit, whether `CUTEPY_CACHE` is on or off.

    Raises
    ------
    ValueError
        If an environment variable makes no sense.
    """
    return _open(environment.cache_dir() / "programs", environment.cache_limit_bytes())


def function_store() -> Store:
    """Open the store of rewritten functions, with a sixteenth of the limit for itself."""
    return _open(environment.cache_dir() / "functions", environment.cache_limit_bytes() // _SHARE, quiet=True)


def machine_code_store() -> Store:
    """Open the store of the simulator's machine code for this CPU, with a sixteenth of the limit for itself."""
    return _open(environment.cache_dir() / "machine-code", environment.cache_limit_bytes() // _SHARE, quiet=True)


def assembler_store() -> Store:
    """Open the store of ptxas's answers on modules, with a sixteenth of the limit for itself."""
    return _open(environment.cache_dir() / "assembler", environment.cache_limit_bytes() // _SHARE, quiet=True)


@lru_cache(maxsize=16)
def _open(folder: Path, limit_bytes: int, *, quiet: bool = False) -> Store:
    """Return one store for each folder, so that each process warns about it once."""
    return Store(folder, limit_bytes, quiet=quiet)
