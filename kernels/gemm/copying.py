"""Cost model for operands that TMA cannot reach: copy them first, or let threads load them in place."""

from collections.abc import Iterable

_LAUNCH_US, _BYTES_PER_US = 4.4, 0.85e6
"""Launch cost of a torch copy into padded rows, and its rate in bytes stored per microsecond. Over 14 products with two
copies each, of 0.01 to 117 MB and 15 to 284 us in total, the estimate was within 11% on an H200 (2026-11-24).
"""


def copy_us(stored_bytes: int) -> float:
    """Estimate the microseconds of a copy: a launch that reads and writes so many bytes of device memory.

    Examples
    --------
    >>> [round(copy_us(2 * rows * 4096), 1) for rows in (1, 4096)]
    [4.4, 43.9]
    """
    return _LAUNCH_US + stored_bytes / _BYTES_PER_US


def loads_pay(by_threads_us: float, by_tma_us: float, copied_bytes: Iterable[int]) -> bool:
    """Return whether a kernel whose threads load the operands in place is faster than copies and a TMA kernel.

    A function of the time of the kernel that loads by threads, the time of the TMA kernel, both tuned or expected
    (`op.chosen_us_on`), and the bytes of each copy that is saved. Loads by threads pay where the copies are most of the
    work, such as few rows times a large matrix: a copy moves the bytes of the matrix three times. Host time of the
    copies is not counted.

    Examples
    --------
    >>> loads_pay(15.0, 10.0, [2 * 4098, 2 * 4097 * 4098]), loads_pay(15.0, 10.0, [2 * 4098])
    (True, False)
    """
    return by_threads_us <= by_tma_us + sum(map(copy_us, copied_bytes))
