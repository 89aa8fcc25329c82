"""The SMs that a launch occupies: how many its clusters can fill, and whether it leaves any idle."""

from typing import Any

from cutepy.layouts.sm90 import arch

FILLABLE_SMS = {1: 132, 2: 132, 4: 120, 8: 120}
"""The SMs of 132 that clusters of so many CTAs fill: an H200 holds 30 of 4 and 15 of 8 at once, 2026-11-23."""
FULL = 0.9
"""The part of the SMs that a launch occupies at least where the next one may begin on the others."""


def fillable_sms(cluster: int, sm_count: int) -> int:
    """Count the SMs that clusters of so many CTAs fill, one cluster's at least.

    Examples
    --------
    >>> fillable_sms(2, 132), fillable_sms(8, 132)
    (132, 120)
    """
    return max(cluster, sm_count * FILLABLE_SMS[cluster] // arch.SM_COUNT)


def fills(ctas: Any, sm_count: Any) -> Any:
    """Return whether a number of CTAs occupies nearly all SMs; the next launch may begin on the SMs that become free.

    Examples
    --------
    >>> fills(120, 132), fills(60, 132)
    (True, False)
    """
    return ctas >= FULL * sm_count
