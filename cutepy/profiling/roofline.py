"""Roofline of a GPU by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutepy.benchmark.roofline import BYTES_PER_US, FLOPS_PER_US


@dataclass(frozen=True)
class Roofline:
    """Peak rates of a GPU.

    Attributes
    ----------
    bytes_per_us : float
    flops_per_us : mapping of str to float
        By the operands of the tensor cores.
    """

    bytes_per_us: float
    flops_per_us: Mapping[str, float]

    def least_ns(self, flops: float, bytes: float, precision: str) -> float:
        """Return the roofline time: the longer of the compute time and the memory time at peak rates.

        Examples
        --------
        >>> roof = Roofline(1e6, {"16-bit": 1e9})
        >>> roof.least_ns(2e9, 1e6, "16-bit"), roof.least_ns(1e9, 3e6, "16-bit")
        (2000.0, 3000.0)
        """
        return 1000 * max(flops / self.flops_per_us[precision], bytes / self.bytes_per_us)


def roofline(gpu: str) -> Roofline | None:
    """Return the roofline of an H200; None of other GPUs, whose memory has another rate."""
    return Roofline(BYTES_PER_US, FLOPS_PER_US) if "H200" in gpu else None
