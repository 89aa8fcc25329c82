"""Tokens of mbarrier arrivals: opaque to kernels, 64 bits that name a phase of an object.

A token holds the pending count, the phase, the address of the object, and a number that distinguishes objects of one
address: objects of other CTAs, and earlier objects of the same CTA. Numbers that are too large for their bits wrap.

References
----------
PTX ISA, "mbarrier.arrive": the state is opaque, of the phase before the arrival; "mbarrier.test_wait": a state that is
not of the current phase or the immediately preceding one is undefined; "mbarrier.pending_count".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cutepy.sim.machine.lanes import Array

_PENDING_BITS = 20
_PHASE_BITS = 20
_LIFE_BITS = 9
_ALIGNMENT = 8


def state_of(objects: Array, phase: Array, pending: Array) -> Array:
    """Return the states of objects, as `object_of` numbers them."""
    bits = (objects << _PHASE_BITS | phase & _mask(_PHASE_BITS)) << _PENDING_BITS | pending & _mask(_PENDING_BITS)
    return bits.astype(np.uint64)


def object_of(offset: int, block: Array, life: Array) -> Array:
    """Return numbers of the objects at an offset of CTAs' shared memory; `life` counts those that were made there."""
    return offset // _ALIGNMENT << _LIFE_BITS | (31 * block + life) & _mask(_LIFE_BITS)


def offset_in(state: int) -> int:
    """Return where in shared memory the object is that a state is of."""
    return (state >> _PENDING_BITS + _PHASE_BITS + _LIFE_BITS) * _ALIGNMENT


def pending_in(state: Array) -> Array:
    """Return the pending count."""
    return (state & np.uint64(_mask(_PENDING_BITS))).astype(np.uint32)


def is_of(state: Array, objects: Array) -> Array:
    """Tell which states are of objects."""
    found: Array = state >> np.uint64(_PENDING_BITS + _PHASE_BITS) == objects.astype(np.uint64)
    return found


def phases_since(state: Array, phase: Array) -> Array:
    """Return the number of phases that have completed since states were returned; below 0 for impossible states."""
    since = (phase - (state >> np.uint64(_PENDING_BITS)).astype(np.int64)) & _mask(_PHASE_BITS)
    result: Array = np.where(since >= 1 << _PHASE_BITS - 1, since - (1 << _PHASE_BITS), since)
    return result


def said_of(state: int, offset: int, names: Mapping[int, str], phase: int, since: int) -> str:
    """Describe the error of a wait by a state: the state is too old, or was returned by another object.

    Parameters
    ----------
    state, offset : int
    names : mapping of int to str
        Names of the objects, by offset.
    phase : int
        Current phase of the object.
    since : int
        Number of phases that completed since the state was returned; below 0 if another object returned it.
    """
    if since > 0:
        return (
            f"this state is of phase {phase - since} of {names[offset]}, which is in phase {phase}: a wait takes one "
            "of the current phase or of the one before, and may hang, or pass, with an older one"
        )
    other = offset_in(state)
    of = "what arrivals at another CTA's, or at one that was made here before, have returned"
    if other != offset:
        of = f"one of {names[other]}" if other in names else "none that an arrival has returned"
    return f"this state is not of {names[offset]}, but {of}"


def _mask(bits: int) -> int:
    return (1 << bits) - 1
