"""Interface of the sources of records."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Protocol

from cutepy.profiling.recording import Record


class SourceError(RuntimeError):
    """Error of a source of records that cannot begin on this machine, or not now."""


class Source(Protocol):
    """Source of records of a GPU's work.

    Attributes
    ----------
    name : str
    notes : sequence of str
        Limits of the records; to be read after `stop`.
    """

    name: str

    @property
    def notes(self) -> Sequence[str]:
        """Limits of the records."""

    def start(self) -> None:
        """Begin to record.

        Raises
        ------
        SourceError
            If that is impossible on this machine, or now.
        """

    def push(self, scope: int) -> None:
        """Attribute the calling thread's launches to a scope until `pop`."""

    def pop(self) -> None:
        """Undo the calling thread's last `push`."""

    def stop(self) -> Sequence[Record]:
        """Wait for the device, and return all records."""


def check_driver() -> None:
    """Refuse a machine without a driver.

    Raises
    ------
    SourceError
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise SourceError(
            "GPU times need an NVIDIA driver, and there is no libcuda.so.1; simulated launches count"
        ) from error


def gpu_name() -> str:
    """Return the name of the first GPU that the driver shows; "" where it shows none, or has not been used."""
    name, device = ctypes.create_string_buffer(256), ctypes.c_int()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    if cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, len(name), device):
        return ""
    return name.value.decode()
