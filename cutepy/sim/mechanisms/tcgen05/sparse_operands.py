"""Metadata of a sparse A in tensor memory: which elements of each row of K it keeps.

The 4 bits of a chunk are places of two elements, or of two pairs of 4 bits each, lowest first; of tf32 of one element.
A chunk that names no places, which the ISA leaves undefined, is refused unless its elements are zeros: CUTLASS's
compressor pads with such chunks.

References
----------
PTX ISA, "Sparse Matrices" of tcgen05: "Sparsity selector", "Alignment restriction". CuTe
``atom/mma_traits_sm100_frag.hpp``, ``tmem_e_frg``, and ``mma_traits_sm100.hpp``: bit 0 of the column of metadata that
take one column is the selector.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm100 import tmem_metadata
from cutepy.sim.arithmetic.sparsity import kept_places
from cutepy.sim.errors import DescriptorError, MemoryAccessError, Place, UnknownInstructionError
from cutepy.sim.machine.lanes import Array

if TYPE_CHECKING:
    from cutepy.layouts.sm100 import InstrDescriptor
    from cutepy.sim.machine.group import Group
    from cutepy.sim.ptx.model import Instruction

_CHUNK = {32: 2, 4: 8}
"""Elements of a chunk, by their bits, where they are not 4."""
_OF_PAIRS = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)
_OF_TF32 = (0b1110, 0b0100)
_SELECTS = ("f16", "tf32")
_SELECTED = ("i8", "f8f6f4")
"""Kinds that take all columns, and whose selector must be 0."""


def chunk_of(bits: int) -> int:
    """Return how many elements of a row share 4 bits of metadata."""
    return _CHUNK.get(bits, 4)


def check_sparse(g: Group, i: Instruction, shape: InstrDescriptor, ctas: int) -> None:
    """Refuse a sparse MMA whose opcode and descriptor differ, or whose metadata no public document places."""
    if shape.sparse != i.traits.is_sparse:
        said, other = ("sparse", "dense") if shape.sparse else ("dense", "sparse")
        raise DescriptorError(
            f"bit 2 of the instruction descriptor says that A is {said}, and {i.opcode} takes a {other} one; let both "
            "say the same",
            i,
            g.describe(),
        )
    if not shape.sparse:
        return
    if shape.kind in _SELECTED and shape.sparse_selector:
        raise DescriptorError(
            f"the sparsity selector of kind::{shape.kind} is 0, got {shape.sparse_selector}", i, g.describe()
        )
    if shape.kind in _SELECTS and shape.sparse_selector > 1:
        raise UnknownInstructionError(
            i,
            refusal=f"a sparsity selector of {shape.sparse_selector} is not simulated: the ISA draws what it selects, "
            "and no example has it; take 0 or 1",
        )
    if "ws" in i.parts and shape.m < 128:
        raise UnknownInstructionError(
            i,
            refusal=f"sparse tcgen05.mma.ws with M = {shape.m} is not simulated: no public document places "
            "its metadata",
        )
    if ctas == 2 and shape.m == 128:
        raise UnknownInstructionError(
            i,
            refusal="sparse tcgen05.mma of a pair with M = 128 is not simulated: no public document places its "
            "metadata",
        )


def metadata_places(
    g: Group, i: Instruction, shape: InstrDescriptor, rows: int, bits: int, address: int, d: int
) -> tuple[Array, Array, Array]:
    """Return lanes, columns and first bits of the metadata of each chunk, (rows, chunks).

    `rows` are those of a CTA, `bits` lie between elements of A, and `d` is the address of D.
    """
    column = address & 0xFFFF
    if column % 2:
        raise MemoryAccessError(
            f"metadata begin at an even column of tensor memory, got {column}; the sparsity selector of the "
            "instruction descriptor takes the odd one",
            i,
            g.describe(),
            at=Place("tensor memory"),
        )
    if address >> 16 != d >> 16:
        raise MemoryAccessError(
            f"metadata lie in the lanes of D, which begin at {d >> 16}, got lane {address >> 16}",
            i,
            g.describe(),
            at=Place("tensor memory"),
        )
    lanes, columns, shifts = _places(rows, bits)
    selected = shape.sparse_selector if shape.kind in _SELECTS else 0
    return lanes + (address >> 16), columns + column + selected, shifts


@cache
def _places(rows: int, bits: int) -> tuple[Array, Array, Array]:
    tensor, chunk = tmem_metadata(bits, m=rows), chunk_of(bits)
    chunks = 2 * 256 // bits // chunk
    cells = np.array([[tensor.place((row, chunk * n)) for n in range(chunks)] for row in range(rows)])
    return cells[..., 0], cells[..., 1], cells[..., 2].astype(np.uint32)


def kept(g: Group, i: Instruction, metadata: Array, bits: int, a: Array) -> Array:
    """Return where the elements of A, (rows, K / 2), are in their rows, by 4 bits of each chunk, (rows, chunks)."""
    chunk = chunk_of(bits)
    is_defined = np.isin(metadata, _OF_TF32 if bits == 32 else _OF_PAIRS)
    wrong = ~is_defined & (a.reshape(*metadata.shape, chunk // 2) != 0).any(axis=-1)
    if wrong.any():
        row, at = (int(one[0]) for one in np.nonzero(wrong))
        raise MemoryAccessError(
            f"metadata of row {row}, elements {at * chunk} to {at * chunk + chunk - 1}, are {metadata[row, at]:#06b}, "
            f"which names no {'place' if bits == 32 else 'two places'} to keep; write metadata where they are read",
            i,
            g.describe(),
            at=Place("tensor memory"),
        )
    return kept_places(metadata, chunk)
