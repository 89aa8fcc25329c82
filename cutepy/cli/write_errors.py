"""Write errors of commands, as on a full disk: reported in one line, wherever they occur."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def report_write_errors() -> Iterator[None]:
    """End the process with status 1 and one line, if standard output or a file can't be written.

    Nothing is said where whoever reads standard output has enough.
    """
    try:
        try:
            yield
        except SystemExit:
            _flush()
            raise
        _flush()
    except OSError as error:
        if error.errno not in (*_FULL, errno.EPIPE):
            raise
        # The unwritten text may still be in the buffer, and Python would try again at exit.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            where = "standard output" if error.filename is None else error.filename
            print(f"error: {where} can't be written: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
