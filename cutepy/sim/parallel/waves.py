"""Waves of resident CTAs that a grid is dealt out to."""

from __future__ import annotations

from cutepy.sim.machine.cluster_queue import ClusterQueue
from cutepy.sim.machine.launch import Launch, cancels_clusters, has_tiles, waits_for_others

_RESIDENT_CTAS = 32
"""CTAs that run in lockstep: enough to spread the cost of dispatch, few enough for their tiles to stay in cache."""

_RESIDENT_LANES, _FEW_WAVES = 1 << 16, 16
"""Lanes in a wave of a kernel without tiles, of which a grid that has no more than so many waves may have fewer.

It becomes machine code after some waves, and is spread over processes by waves; neither where something watches.
"""


def deal(launch: Launch, is_watched: bool = False) -> ClusterQueue:
    """Deal the CTAs that run out to waves of those that are resident together, of about equal size.

    Where CTAs ask for clusters that have not begun, no more than half begin at once, so that there are some.

    `is_watched`: what each wave costs does not depend on how many there are.
    """
    order = launch.order
    cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    if launch.cooperative:
        size = len(order)  # capture has checked that the hardware can
    elif waits_for_others(launch):
        size = max(launch.resident_ctas // cluster, 1) * cluster
    else:
        waves = max(1, round(len(order) / _RESIDENT_CTAS))
        few = 1 if is_watched else _FEW_WAVES
        if waves > few and not has_tiles(launch.entry):
            threads = launch.block[0] * launch.block[1] * launch.block[2]
            waves = min(waves, max(few, round(len(order) * threads / _RESIDENT_LANES)))
        if waves == 1 and cancels_clusters(launch):
            waves = 2
        size = -(-len(order) // (waves * cluster)) * cluster
    return ClusterQueue([order[start : start + size] for start in range(0, len(order), size)], cluster)
