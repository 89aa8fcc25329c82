"""Answers of cluster launch control: 128 bits, whose format the PTX ISA leaves to the machine.

In the simulator an answer has four words: the coordinates of the first CTA of the cluster, and 1 if the cluster is
cancelled. A refusal has coordinates outside of any grid, so that a kernel that uses them without a check accesses
memory out of bounds.

References
----------
PTX ISA, "clusterlaunchcontrol.query_cancel".
"""

from __future__ import annotations

from collections.abc import Sequence

from cutepy.sim.ptx.model import Instruction, Sink, Vector
from cutepy.sim.semantics.builder import Builder, V
from cutepy.sim.semantics.registry import meaning

_AXES = {"get_first_ctaid::x": 0, "get_first_ctaid::y": 1, "get_first_ctaid::z": 2}
_NOWHERE = 0xFFFFFFFF


def answer(first_cta: Sequence[int] | None) -> tuple[int, int, int, int]:
    """Return the words of an answer: None for a refusal.

    Examples
    --------
    >>> answer((2, 1, 0)), answer(None)[3]
    ((2, 1, 0, 1), 0)
    """
    if first_cta is None:
        return _NOWHERE, _NOWHERE, _NOWHERE, 0
    x, y, z = first_cta
    return x, y, z, 1


@meaning("clusterlaunchcontrol.query_cancel")
def _query(b: Builder[V], i: Instruction) -> None:
    d, given = i.operands
    assert isinstance(given, Vector)
    words = [b.part(b.read(item, "u8"), position, 32) for item in given.items for position in (0, 32)]
    if i.parts[2] == "is_canceled":
        b.write(d, b.invert(b.is_zero(words[3])))
    elif isinstance(d, Vector):
        for item, word in zip(d.items, words, strict=True):
            if not isinstance(item, Sink):
                b.write(item, word)
    else:
        b.write(d, words[_AXES[i.parts[2]]])
