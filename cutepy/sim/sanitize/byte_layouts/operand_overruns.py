"""Operands of MMAs that walk out of their tile, into the other operand's or another tile of their tensor.

Where the start or a stride of a descriptor is wrong, the MMA goes on into what lies beyond the tile. If nothing has
written that, or something writes it meanwhile, the access itself is a hazard. What another copy has written in order
reads well, and is wrong. It is told where one instruction takes bytes for both operands, and one of them has bytes of
another tensor besides: it began in its own tile and came into the other's.

Both operands may share bytes by intent: a matrix with its own transpose (one tensor), or rows of two tensors below each
other with those of one of them, where one operand has all of the other's. The latter is a tile without gaps; one that
has all of the other's and leaves out rows on the way there is told.

Into another tile of its own tensor, such as a ring's next stage, an operand goes that leaves out 8 rows of what a copy
brought, from one 8 to the next, and takes rows of another copy, of another mbarrier, in their place. Copies that count
at one mbarrier may bring one tile, of which every other 8 rows are multiplied. Boxes of more modes than rows and
columns may have anything between two 8 rows, and are not judged; nor is what begins late and runs on without gaps, as
where a window slides over tiles below each other.

References
----------
PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout".
"""

from __future__ import annotations

import numpy as np

from cutepy.layouts.sm90.arch import CORE_MATRIX_ROWS
from cutepy.sim.advice import Diagnosis
from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.byte_layouts.layouts import AccessLayout


def may_stray(mine: Array, other: Array, through: AccessLayout) -> bool:
    """Return whether an operand takes some of the other's bytes, and may not be meant to.

    Examples
    --------
    >>> tile = np.arange(8)
    >>> dense, gaps = (AccessLayout("SW128", "f16", 0, 128, has_gaps=gaps) for gaps in (False, True))
    >>> [may_stray(tile, other, dense) for other in (tile + 8, tile + 4, tile, tile[4:])]
    [False, True, False, False]
    >>> may_stray(tile * 2, np.array([8, 10]), gaps)
    True
    """
    common = np.isin(other, mine)
    return bool(common.any() and not (common.all() and not through.has_gaps))


def leaves_out(bytes_read: Array, written: AccessLayout) -> bool:
    """Return whether the bytes read of a box, given by addresses, leave out 8 rows between others.

    Examples
    --------
    >>> box = AccessLayout("SW128", "f16", 0, 128, rows=64, is_matrix=True)
    >>> [leaves_out(np.arange(0, 8192, stride), box) for stride in (1024, 2048)]
    [False, True]
    """
    if not written.is_matrix:
        return False
    patterns = (bytes_read - written.start) // (CORE_MATRIX_ROWS * written.row_bytes)
    inside = np.unique(patterns[(patterns >= 0) & (patterns * CORE_MATRIX_ROWS < written.rows)])
    return bool((np.diff(inside) > 1).any())


def told_of_rows(name: str, through: AccessLayout) -> Diagnosis:
    """Return the diagnosis of an operand, such as "A", that leaves out rows of its tile."""
    leading, stride = through.strides
    return Diagnosis("rows-left-out", operand=name, leading=leading, stride=stride)


def told(name: str, other: str, through: AccessLayout) -> Diagnosis:
    """Return the diagnosis of an operand that takes bytes of the other one's tile."""
    leading, stride = through.strides
    return Diagnosis("bytes-of-other-operand", operand=name, other=other, leading=leading, stride=stride)
