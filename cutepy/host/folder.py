"""Files of the disk cache: names, permissions, atomic writes, and removal.

For each key there is `KEY.program`, an entry that never changes, and `KEY.uses`, which grows by a byte with each use:
its size counts them, and its time is that of the last, whatever `noatime` says. `KEY.lock` exists while a program is
built, `*.partial` while one is written; a killed process leaves its own, which are swept up.
"""

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cutepy.host import environment
from cutepy.host.lock import remove_if_free

PROGRAM, USES, LOCK, PARTIAL = ".program", ".uses", ".lock", ".partial"

_KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")
# A file is written within seconds. A partial file or lock without a program after an hour belongs to a dead process.
_ORPHAN_AGE_S = 3600.0


class CacheFolderError(RuntimeError):
    """Error of a cache folder that others can write to: its contents are executed."""


class ProgramFile(NamedTuple):
    """Size, times and use count of an entry's file.

    Attributes
    ----------
    key : str
    size_bytes : int
    created, last_used : float
        Seconds since the epoch.
    uses : int
        Times that it was loaded.
    """

    key: str
    size_bytes: int
    created: float
    last_used: float
    uses: int


class Folder:
    """A folder of entries that only its owner can write to.

    Parameters
    ----------
    path : Path
        It need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._trusted = False

    def file(self, key: str, suffix: str) -> Path:
        """Return the path of one of a key's files.

        Raises
        ------
        ValueError
            If `key` is not 1 to 128 letters, digits, `_` or `-`.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"a key must be 1 to 128 letters, digits, _ or -, got {key!r}")
        return self.path / (key + suffix)

    def make(self) -> None:
        """Make the folder, for its owner alone, and its parents with default permissions.

        Raises
        ------
        OSError
            If it cannot be made.
        CacheFolderError
            As `check`.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.check()

    def check(self) -> None:
        """Refuse a folder in which another user could place code for this user to run.

        Raises
        ------
        CacheFolderError
            If the folder belongs to another user, or any user may write to it.
        """
        if self._trusted:
            return
        try:
            status = self.path.stat()
        except OSError:  # absent or unreachable: then nothing is read from it
            return
        # Root could replace any program anyway, and fills the caches that come with an image.
        if status.st_uid not in (os.geteuid(), 0):
            found, remedy = f"user {status.st_uid} owns", f"chown it, or set {environment.CACHE_DIR.name} to another"
        elif status.st_mode & stat.S_IWOTH:
            found, remedy = "any user may write to", f"chmod o-w '{self.path}'"
        else:
            self._trusted = True
            return
        raise CacheFolderError(
            f"the cache folder must be user {os.geteuid()}'s, and not writable for everyone, since programs are run "
            f"from it; {found} {self.path}: {remedy}"
        )

    def read(self, key: str) -> bytes:
        """Read a program's file; refuse pipes, devices and the like without waiting.

        Raises
        ------
        OSError
            If there is no file, or it cannot be read.
        """
        return read_file(self.file(key, PROGRAM))

    def write(self, key: str, data: bytes) -> None:
        """Write a program atomically: a reader sees the old file or the whole new one.

        Raises
        ------
        OSError
            If the folder cannot be written, or is full.
        """
        write_file(self.file(key, PROGRAM), data)

    def count_use(self, key: str) -> None:
        """Record a use of a program; does nothing in a folder that cannot be written."""
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.file(key, USES), flags, 0o600)
            try:
                os.write(descriptor, b".")
                _stamp(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, key: str) -> bool:
        """Remove a program; return whether there was one. A process that has it open can still read it.

        Raises
        ------
        OSError
            If it cannot be removed; a folder in its place is, if it is empty.
        """
        self.file(key, USES).unlink(missing_ok=True)
        program = self.file(key, PROGRAM)
        try:
            if program.is_dir() and not program.is_symlink():
                _remove_folder(program)
            else:
                program.unlink()
        except FileNotFoundError:
            return False
        return True

    def programs(self) -> list[ProgramFile]:
        """List the programs, least recently used first; none if the folder does not exist."""
        files = dict(self._files())
        found = []
        for (key, suffix), status in files.items():
            if suffix == PROGRAM:
                created, used = status.st_mtime, files.get((key, USES))
                last_used, uses = (used.st_mtime, used.st_size) if used else (created, 0)
                found.append(ProgramFile(key, status.st_size, created, max(created, last_used), uses))
        return sorted(found, key=lambda program: program.last_used)

    def sweep(self) -> None:
        """Remove the leftovers of killed processes."""
        files = dict(self._files())
        for (key, suffix), status in files.items():
            orphan = suffix == PARTIAL or (suffix == USES and (key, PROGRAM) not in files)
            if orphan and time.time() - status.st_mtime > _ORPHAN_AGE_S:
                (self.path / (key + suffix)).unlink(missing_ok=True)
        self.remove_locks(_ORPHAN_AGE_S)

    def remove_locks(self, age_s: float = 0.0) -> None:
        """Remove locks of some age that no process holds; the age guards against file systems without remote locks."""
        for (key, suffix), status in list(self._files()):
            if suffix == LOCK and time.time() - status.st_mtime >= age_s:
                remove_if_free(self.path / (key + suffix))

    def _files(self) -> Iterator[tuple[tuple[str, str], os.stat_result]]:
        """Yield ((key, suffix), status) of every cache file; the key of a partial file includes its random part."""
        try:
            with os.scandir(self.path) as items:
                for item in items:
                    key, suffix = os.path.splitext(item.name)  # noqa: PTH122  a Path for each would double the time
                    if suffix == PARTIAL or (suffix in (PROGRAM, USES, LOCK) and _KEY.fullmatch(key)):
                        with contextlib.suppress(FileNotFoundError):
                            yield (key, suffix), item.stat(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return


def write_file(place: Path, data: bytes) -> None:
    """Write a file atomically, for its owner alone: a reader sees the old file or the whole new one.

    Raises
    ------
    OSError
        If the folder cannot be written, or is full.
    """
    partial = place.with_name(f"{place.stem}.{os.urandom(8).hex()}{PARTIAL}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            _stamp(descriptor)
            os.fsync(file.fileno())
        if place.is_dir() and not place.is_symlink():
            _remove_folder(place)
        partial.replace(place)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_file(path: Path) -> bytes:
    """Read a file; refuse pipes, devices and the like without waiting.

    Raises
    ------
    OSError
        If there is no file, or it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "this must be a file, and is none", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _remove_folder(path: Path) -> None:
    try:
        path.rmdir()
    except OSError as error:
        raise OSError(
            f"a compiled program must be a file, got a folder that is not empty; look into it, and remove it: {path}"
        ) from error


def _stamp(descriptor: int) -> None:
    """Set a file's time to now; Linux before 6.13 would take its last tick, too coarse to order uses."""
    now = time.time_ns()
    os.utime(descriptor, ns=(now, now))
