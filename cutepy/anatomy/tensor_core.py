"""MMAs of the tensor core of sm_100, as their instruction descriptors and operands say.

References
----------
PTX ISA, "tcgen05.mma", "Instruction Descriptor", "Shared memory descriptor".
"""

from __future__ import annotations

from cutepy.anatomy.model import Dim3, Mma, Operand, Site
from cutepy.anatomy.operand_words import TCGEN05
from cutepy.anatomy.values import Values
from cutepy.anatomy.watch import SeenMma
from cutepy.layouts import LayoutError
from cutepy.layouts.sm100 import InstrDescriptor, mma_kind
from cutepy.sim.ptx import Address, Instruction


def tensor_mma(i: Instruction, values: Values, site: Site, seen: SeenMma | None) -> Mma:
    """Return the facts of one MMA; `seen` has observed launches, if there were any."""
    issued = None if seen is None else seen.issued
    kind = next(part for part in i.parts if part.startswith("kind::")).removeprefix("kind::")
    word = _instruction_descriptor(i, values, seen)
    if word is None:
        at_launch = "its instruction descriptor is known at launch"
        reason = at_launch if seen is None else "its shape differs" if seen.words else "no launch issued it"
        return Mma(i.opcode, None, "", None, None, 1, issued, (), site, reason)
    try:
        shape = InstrDescriptor.decode(word, kind=kind)
    except LayoutError as error:
        return Mma(i.opcode, None, "", None, None, 1, issued, (), site, str(error).partition("\n")[0])
    assert shape.k is not None
    group = i.traits.cta_group
    extents: Dim3 = (shape.m, shape.n, shape.k)
    operands = []
    stored = shape.k // 2 if shape.sparse else shape.k
    for at, dtype, major, rows, k in (
        (1, str(shape.a_dtype), shape.a_major, shape.m // group, stored),
        (2, str(shape.b_dtype), shape.b_major, shape.n // group, shape.k),
    ):
        source = "tensor memory" if isinstance(i.operands[at], Address) else "shared memory"
        known = Operand(dtype, mma_kind(kind).element_bits(dtype), major, (rows, k), source)
        words = None if seen is None else seen.a if at == 1 else seen.b
        operands.append(known if source != "shared memory" else TCGEN05.operand(known, i.operands[at], values, words))
    return Mma(i.opcode, extents, str(shape.d_dtype), operands[0], operands[1], 1, issued, (), site)


def _instruction_descriptor(i: Instruction, values: Values, seen: SeenMma | None) -> int | None:
    if seen is not None and seen.words:
        words = [word & 0xFFFFFFFF for word in seen.words]
        return words[0] if len(words) == 1 else None
    return values.always(i.operands[4 if i.traits.is_sparse else 3], lambda word: word & 0xFFFFFFFF)
