"""Thread roles: indices of warpgroup threads within a CTA (traced)."""

import cutlass.cute as cute

from cutepy.device import rules
from cutepy.dsl.launch_facts import launched


def warpgroup_thread(first: int, count: int):
    """Return this thread's index among `count`, from thread `first` of the CTA on; undefined in other threads.

    Raises
    ------
    ValueError
        If these are no whole warpgroups, or the kernel is launched with fewer threads.
    """
    rules.check_warpgroups(first, count, launched().threads)
    return cute.arch.thread_idx()[0] - first
