"""Commands that can't write, as on a full disk, say so in a line, wherever in a command that is found out."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def output_written() -> Iterator[None]:
    """End the process with status 1 if standard output, or a file, takes no more, and say why in a line.

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
        # What could not be written may be in the buffer still, and Python would try again as it ends.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            where = "standard output" if error.filename is None else error.filename
            print(f"error: {where} can't be written: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
