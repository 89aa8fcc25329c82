"""Whether operands that TMA doesn't reach are copied to where it does, or loaded by threads as they lie."""

from collections.abc import Iterable

_LAUNCH_US, _BYTES_PER_US = 4.4, 0.85e6
"""Of torch's copies into rows of a padded pitch, between other launches, and of the bytes that they store.

With them 14 products and their two copies of 0.01 to 117 MB took what is expected of all three, 15 to 284 us, within
11%, on an H200 (2026-11-24).
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
    """Tell whether threads are to load operands as they lie, rather than TMA, once copies of them have been made.

    A function of the time of the kernel that loads by threads, of that of the kernel that reads copies, both as they
    were tuned or are expected (`op.chosen_us_on`), and of the bytes of each copy that is saved.

    Threads load where the copies are most of the work, as of few rows times a large matrix, whose bytes a copy has
    moved three times. What the copies cost the host is left out.

    Examples
    --------
    >>> loads_pay(15.0, 10.0, [2 * 4098, 2 * 4097 * 4098]), loads_pay(15.0, 10.0, [2 * 4098])
    (True, False)
    """
    return by_threads_us <= by_tma_us + sum(map(copy_us, copied_bytes))
