"""Whether operands that TMA doesn't reach are copied to where it does, or loaded by threads as they lie."""

from collections.abc import Iterable

from cutepy.kernels.gemm.model import H200, Costs


def copy_us(stored_bytes: int, costs: Costs = H200) -> float:
    """Estimate the microseconds of a copy: a launch that reads and writes so many bytes of device memory.

    The copies of torch, which write rows of a padded pitch, are slower than this at best.

    Examples
    --------
    >>> [round(copy_us(2 * rows * 4096), 1) for rows in (1, 4096)]
    [2.8, 19.2]
    """
    return costs.launch + costs.memory + 2 * costs.memory_byte * stored_bytes


def loads_pay(by_threads_us: float, by_tma_us: float, copied_bytes: Iterable[int]) -> bool:
    """Tell whether threads are to load operands as they lie, rather than TMA, once copies of them have been made.

    A function of the time of the kernel that loads by threads, of that of the kernel that reads copies, both as they
    were tuned or are expected (`op.chosen_us_on`), and of the bytes of each copy that is saved.

    What is expected of threads comes from a constant that was not measured, so `choice.chosen_us` makes it
    `model.UNMEASURED` times as long: threads load where the copies are most of the work, as of few rows times a large
    matrix, whose bytes a copy has moved three times. What the copies cost the host is left out.

    Examples
    --------
    >>> loads_pay(15.0, 10.0, [2 * 4098, 2 * 4097 * 4098]), loads_pay(15.0, 10.0, [2 * 4098])
    (True, False)
    """
    return by_threads_us <= by_tma_us + sum(map(copy_us, copied_bytes))
