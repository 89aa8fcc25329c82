"""File lock that one thread of one process holds, and that the kernel releases when the holder dies.

It is `flock`, on a descriptor of its own for each holder, so threads of one process exclude each other as well. Waiters
sleep in the kernel. The package filelock is not used: it polls, costs 24 ms to import, and where `flock` is missing it
falls back to marker files, which outlive a holder that was killed.

On NFS, Linux turns `flock` into a lock of the server's. Mounted with `local_lock` it excludes only within one host.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_held: dict[int, tuple[Path, int]] = {}
"""Descriptor of a lock that this process holds or waits for -> its file, and the thread."""


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock named by `path` for the body of a `with`; wait for it without a limit.

    The file is made, and removed again while the lock is still held, so that keys leave nothing behind.

    Parameters
    ----------
    path : Path
        In a folder that exists.

    Raises
    ------
    RuntimeError
        If this thread holds it already: it would wait for itself.
    OSError
        If the file cannot be made, or the file system knows no locks.
    """
    owner = (path, threading.get_ident())
    if owner in list(_held.values()):  # a copy: other threads change the original
        raise RuntimeError(f"the lock {path} is held by this thread already, which would wait for itself")
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _held[descriptor] = owner
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The previous holder may have removed the file while this one waited; others lock its successor by now.
            if not _is_named(path, descriptor):
                continue
            try:
                yield
            finally:
                if _held.get(descriptor) is owner:
                    path.unlink(missing_ok=True)
            return
        finally:
            # In a process forked meanwhile the lock is not held, and the descriptor may belong to another file.
            if _held.get(descriptor) is owner:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a copy that another process inherits holds nothing
                del _held[descriptor]
                os.close(descriptor)


def remove_if_free(path: Path) -> bool:
    """Remove the lock file of a killed process; return whether it existed and was free.

    Who waits for it, or has opened it just now, finds it gone once it has the lock, and takes a new one: as `exclusive`
    removes its own.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    _held[descriptor] = (path, 0)  # entered for no thread: a process forked meanwhile must close it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if free := _is_named(path, descriptor):
            path.unlink()
    except OSError:  # held, or in a read-only folder
        return False
    finally:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        del _held[descriptor]
        os.close(descriptor)
    return free


def _is_named(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _let_go() -> None:
    """Close a forked process's copies of the descriptors: otherwise it would keep a lock after its holder's death."""
    for descriptor in list(_held):
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
