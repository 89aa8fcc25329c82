"""Stores of several lanes to one place in one instruction, of which one stays: which one, nothing says.

Only where lanes store different values does it matter; of copies, whose values are not known here, it may.

References
----------
CUDA C++ Programming Guide, "SIMT Architecture": which thread writes last is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access


def undecided(access: Access) -> bool:
    """Tell whether what an access leaves depends on which of its lanes comes last.

    Lanes access as many bytes each, at multiples of that: so they hit the same bytes, or none that is another's.
    """
    if access.operation != "write":
        return False
    lanes = access.addresses.shape[-1]  # rows of matrices are more, or fewer, than the threads are
    shape = access.ctas.count, access.threads.count if lanes == 1 else lanes
    places = np.broadcast_to(access.addresses, shape).reshape(-1)
    order = np.argsort(places, kind="stable")
    same = places[order][1:] == places[order][:-1]
    if not same.any() or access.values is None:
        return bool(same.any())
    for value in access.values:
        bits = np.ascontiguousarray(np.broadcast_to(value, shape)).reshape(-1, 1).view(np.uint8)[order]
        if (same & (bits[1:] != bits[:-1]).any(axis=1)).any():
            return True
    return False
