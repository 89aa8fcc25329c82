"""SM occupancy of a launch: the SMs that clusters can fill, and the test whether a launch fills them."""

from typing import Any

from cutepy.layouts.sm90 import arch

FILLABLE_SMS = {1: 132, 2: 132, 4: 120, 8: 120}
"""SMs of 132 that clusters fill, by CTAs of a cluster: an H200 holds 30 clusters of 4 CTAs or 15 of 8, 2026-11-23."""
FULL = 0.9
"""Least share of the SMs that a launch must occupy before the next launch may begin on the other SMs."""


def fillable_sms(cluster: int, sm_count: int) -> int:
    """Count the SMs that clusters of a given number of CTAs fill, one cluster's at least.

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
