"""Certificates: the statement that all schedules of a launch agree with the one that ran, or the reasons against it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """Statement about all schedules of a launch, from the one that ran.

    Attributes
    ----------
    kernel : str
    grid, block, cluster : (int, int, int)
    ctas : int
        Number of CTAs that ran.
    operations : int
        Synchronisations that were checked; those of CTAs in lockstep count once.
    reasons : tuple of str
        Why it is not certified; empty if it is.
    assumptions : tuple of str
        Assumptions of the certificate.
    uncovered : tuple of str
        Errors that the certificate does not exclude.
    memories : tuple of str
        In which there is no race: "shared", and "tensor" if the kernel uses that.

    Examples
    --------
    >>> from dataclasses import replace
    >>> certificate = Certificate("gemm", (2, 1, 1), (384, 1, 1), (1, 1, 1), 2, 40, (), ("progress",), ())
    >>> certificate.is_certified
    True
    >>> print(certificate)
    certified: gemm, grid (2, 1, 1), block (384, 1, 1): every schedule synchronises as this one did, and ends
        2 CTAs, 40 operations of synchronisation; no race in shared memory
        assumes: progress
    >>> print(str(replace(certificate, grid=(9, 1, 1))).partition(":")[2])  # with ctas=[0, -1]
     gemm, 2 of the 9 CTAs of grid (9, 1, 1), block (384, 1, 1): every schedule synchronises as this one did, and ends
        2 CTAs, 40 operations of synchronisation; no race in shared memory
        assumes: progress
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    ctas: int
    operations: int
    reasons: tuple[str, ...]
    assumptions: tuple[str, ...]
    uncovered: tuple[str, ...]
    memories: tuple[str, ...] = ("shared",)

    @property
    def is_certified(self) -> bool:
        """True if every schedule synchronises as the one that ran, without races in shared or tensor memory."""
        return not self.reasons

    def to_json(self) -> dict[str, object]:
        """Return it as `json.dump` takes it."""
        return {"is_certified": self.is_certified, **asdict(self)}

    def __str__(self) -> str:
        cluster = f", cluster {self.cluster}" if self.cluster != (1, 1, 1) else ""
        whole = prod(self.grid)
        chosen = f"{self.ctas} of the {whole} CTAs of " if not self.reasons and self.ctas < whole else ""
        what = f"{self.kernel}, {chosen}grid {self.grid}, block {self.block}{cluster}"
        if self.reasons:
            return "\n".join([f"not certified: {what}", *(f"    {reason}" for reason in self.reasons)])
        lines = [
            f"certified: {what}: every schedule synchronises as this one did, and ends",
            f"    {self.ctas} CTA{'s' * (self.ctas != 1)}, {self.operations} operations of synchronisation; "
            f"no race in {' or '.join(self.memories)} memory",
            *(f"    assumes: {one}" for one in self.assumptions),
            *(f"    not covered: {one}" for one in self.uncovered),
        ]
        return "\n".join(lines).replace(f"{Path.cwd()}{os.sep}", "")
