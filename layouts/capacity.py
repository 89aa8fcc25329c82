"""Shared memory that a CTA can have on Hopper, for captions and errors of any room."""

from typing import Final

SMEM_BYTES_PER_CTA: Final = 227 * 1024
SMEM_BYTES_PER_CTA_OF_SM120: Final = 99 * 1024
"""The same on GPUs of compute capability 12.x."""


def smem_overrun(size_bytes: int, remedy: str) -> str:
    """Describe by how much a size exceeds the shared memory of a CTA, and a remedy; empty where it fits.

    Examples
    --------
    >>> smem_overrun(232456, "use fewer stages")
    '232456 bytes are 8 more than the 232448 (227 KiB) that a CTA can have; use fewer stages'
    """
    more = size_bytes - SMEM_BYTES_PER_CTA
    if more <= 0:
        return ""
    limit = f"the {SMEM_BYTES_PER_CTA} ({SMEM_BYTES_PER_CTA // 1024} KiB) that a CTA can have"
    return f"{size_bytes} bytes are {more} more than {limit}; {remedy}"
