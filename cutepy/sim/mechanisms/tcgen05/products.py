"""Products of the tensor core, computed when they complete.

Each is one matrix product in float32, or in float64 of integers, in an order of summation that is not the hardware's.

References
----------
PTX ISA, "tcgen05.mma", "Instruction Descriptor", "Data Path Layout Organization", "Block Scaling", "Sparse Matrices".
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.layouts import LayoutError
from cutepy.layouts.sm100 import InstrDescriptor, mma_kind, tmem_accumulator
from cutepy.layouts.sm100.arch import TMEM_LANES
from cutepy.sim.arithmetic.sparsity import expanded, meets_only_kept
from cutepy.sim.errors import DescriptorError, UnknownInstructionError
from cutepy.sim.machine.lanes import Array
from cutepy.sim.mechanisms.tcgen05.operands import (
    SharedTiles,
    in_tensor_memory,
    operand_places,
    scale_factors,
    scale_places,
)
from cutepy.sim.mechanisms.tcgen05.sparse_operands import check_sparse, kept, metadata_places
from cutepy.sim.mechanisms.tcgen05.tensor_memory import pair_of
from cutepy.sim.mechanisms.tcgen05.zero_columns import used_columns

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.mechanisms.tcgen05.tensor_memory import TensorMemory
    from cutepy.sim.ptx.model import Instruction

_SCALE_VECTORS = {"mxf8f6f4": 32, "mxf4": 32}
"""Elements that share a scale factor where the opcode does not say it."""

_IN_WORD = 0x3FFFFFFF
"""Address of a word of scale factors: CuTe's have the byte in the bits above."""
_LONG_K, _HAS_LONG_K = 96, 103
"""Extent along K of packed fp4, and the number of the only GPU that multiplies it."""


class Operands(NamedTuple):
    """Operands of one MMA, as a thread gives them.

    Attributes
    ----------
    d : int
        Address of D in tensor memory.
    a, b : int
        Descriptors of shared memory; `a` an address of tensor memory where `a_in_tensor_memory`.
    descriptor : int
        Instruction descriptor.
    accumulates : bool
    a_in_tensor_memory : bool
    scales : tuple of int
        Addresses of the scale factors of A and B; empty of other kinds.
    disabled : tuple of int
        Bits of lanes of D that are not written, 4 words for each CTA; empty for none.
    shift : int
        D is multiplied by 2 to the power of minus this before.
    metadata : int
        Address of the metadata of a sparse A.
    zero_columns : int
        Descriptor of the columns of B that are zeros; 0 for none.
    """

    d: int
    a: int
    b: int
    descriptor: int
    accumulates: bool
    a_in_tensor_memory: bool
    scales: tuple[int, ...]
    disabled: tuple[int, ...]
    shift: int
    metadata: int
    zero_columns: int


class Products:
    """Computes MMAs."""

    def __init__(self, activity: Activity, tiles: SharedTiles, tensor_memory: TensorMemory, target: int) -> None:
        self._activity, self._tiles, self._memory, self._target = activity, tiles, tensor_memory, target

    def compute(self, g: Group, i: Instruction, slot: int, cluster_size: int, given: Operands) -> None:
        """Compute one MMA of a thread of a CTA, whose pair takes part in one of two CTAs."""
        shape = self._shape(g, i, given)
        kind, group = mma_kind(shape.kind), i.traits.cta_group
        members = pair_of(slot, cluster_size) if group == 2 else [slot]
        assert shape.k is not None
        m, n, k = shape.m // group, shape.n // group, shape.k
        stored = k // 2 if shape.sparse else k  # elements of a row of A
        bits = [kind.element_bits(str(name)) for name in (shape.a_dtype, shape.b_dtype)]
        of_b, used = (str(shape.b_dtype), bits[1]), used_columns(g, i, shape, given.zero_columns)
        rows = n if used is None else len(used)
        parts = [self._tiles.matrix(g, i, one, given.b, shape.b_major, (rows, k), *of_b, used) for one in members]
        b = np.concatenate(parts)[-shape.n :] * np.float32(-1 if shape.b_negate else 1)
        self._check_lanes(g, i, shape, given, group, stored, bits[0])
        for rank, one in enumerate(members):
            words = self._memory.words[one]
            if given.a_in_tensor_memory:
                self._memory.check(g, i, one, given.a & 0xFFFF, stored * bits[0] // 32)
                self._memory.observe_operation(
                    g, i, one, *operand_places(shape.m, stored, bits[0], group, given.a), writes=False, needs_value=True
                )
                a = in_tensor_memory(words, (shape.m, stored), str(shape.a_dtype), bits[0], group, given.a)
            else:
                of_a = str(shape.a_dtype), bits[0]
                a = self._tiles.matrix(g, i, one, given.a, shape.a_major, (m, stored), *of_a)
            a = a * np.float32(-1 if shape.a_negate else 1)
            where = self._kept(g, i, one, shape, given, a, bits[0]) if shape.sparse else None
            halves = group == 2 and shape.m == TMEM_LANES
            of = (m, shape.a_sf_id, False), (shape.n, shape.b_sf_id, halves)
            vector = _vector(i, shape)
            for (count, start, in_halves), at in zip(of, given.scales, strict=False):
                lanes, columns = scale_places(count, k // (vector or k), start, in_halves, at)
                self._memory.check(g, i, one, int(columns.min()), int(np.ptp(columns)) + 1)
                self._memory.observe_operation(g, i, one, lanes, columns, writes=False, needs_value=True)
            product = self._product(shape, vector, words, a, b, where, given.scales, group)
            self._write(g, i, one, shape, product, given, given.disabled[4 * rank : 4 * rank + 4], group)
            if "ashift" in i.parts:
                count = stored * bits[0] // 32
                every = np.arange(TMEM_LANES)[:, None], np.arange(count)[None] + (given.a & 0xFFFF)
                self._memory.observe_operation(g, i, one, *every, writes=True, needs_value=False)
                _shift_down(words, 0, TMEM_LANES, given.a & 0xFFFF, count)
        stats = self._activity.stats
        stats["tcgen05"] += 1
        stats["tcgen05_flops"] += 2 * shape.m * shape.n * k

    def _shape(self, g: Group, i: Instruction, given: Operands) -> InstrDescriptor:
        name = next(part for part in i.parts if part.startswith("kind::")).removeprefix("kind::")
        group, is_ws = i.traits.cta_group, "ws" in i.parts
        try:
            shape = _decoded(given.descriptor, name)
            check_sparse(g, i, shape, group)
            shape.check(cta_group=group, ws=is_ws, scale_vector=_dense_vector(i, name))
        except LayoutError as error:
            raise DescriptorError(str(error), i, g.describe()) from error
        if shape.k == _LONG_K and self._target != _HAS_LONG_K:
            raise DescriptorError(
                f"bit 31 of the instruction descriptor asks for K = {_LONG_K}, which sm_{_HAS_LONG_K} has, and the "
                f"code is for sm_{self._target}; clear it, for K = {mma_kind(name).k}",
                i,
                g.describe(),
            )
        if is_ws and given.a_in_tensor_memory and shape.m < TMEM_LANES:
            raise UnknownInstructionError(
                i,
                refusal=f"tcgen05.mma.ws with an A of {shape.m} rows in tensor memory is not simulated: no public "
                "document places them",
            )
        return shape

    def _check_lanes(
        self, g: Group, i: Instruction, shape: InstrDescriptor, given: Operands, group: int, stored: int, bits: int
    ) -> None:
        """Refuse operands that begin at lanes where their layouts do not lie."""
        rows = f"{shape.m // group} rows"
        lanes, _, _ = _accumulator_places(shape.m, shape.n, group, "ws" in i.parts)
        self._memory.check_lane(g, i, f"D of {rows}", given.d >> 16, int(lanes.max()))
        if given.a_in_tensor_memory:
            lanes, _ = operand_places(shape.m, stored, bits, group, 0)
            self._memory.check_lane(g, i, f"A of {rows}", given.a >> 16, int(lanes.max()))
        for name, at in zip("AB", given.scales, strict=False):
            self._memory.check_lane(g, i, f"the scale factors of {name}", (at & _IN_WORD) >> 16, TMEM_LANES - 1)

    def _kept(
        self, g: Group, i: Instruction, slot: int, shape: InstrDescriptor, given: Operands, a: Array, bits: int
    ) -> Array:
        """Return where the elements of a sparse A are in their rows, by its metadata."""
        lanes, columns, shifts = metadata_places(g, i, shape, len(a), bits, given.metadata, given.d)
        first = int(columns.min())
        self._memory.check(g, i, slot, first, int(columns.max()) + 1 - first)
        self._memory.observe_operation(g, i, slot, lanes, columns, writes=False, needs_value=True)
        found = self._memory.words[slot][lanes, columns] >> shifts & np.uint32(15)
        return kept(g, i, found.astype(np.int64), bits, a)

    @staticmethod
    def _product(
        shape: InstrDescriptor,
        vector: int | None,
        words: Array,
        a: Array,
        b: Array,
        where: Array | None,
        scales: tuple[int, ...],
        group: int,
    ) -> Array:
        assert shape.k is not None
        if where is not None:
            a = expanded(a, where, shape.k)
        if scales:
            assert vector is not None
            count, name = shape.k // vector, str(shape.scale_dtype)
            halves = group == 2 and shape.m == TMEM_LANES
            of_a = scale_factors(words, len(a), count, shape.a_sf_id, name, halves=False, address=scales[0])
            of_b = scale_factors(words, len(b), count, shape.b_sf_id, name, halves=halves, address=scales[1])
            a, b = a * np.repeat(of_a, vector, axis=1), b * np.repeat(of_b, vector, axis=1)
        if shape.d_dtype == "s32":
            a, b = a.astype(np.float64), b.astype(np.float64)
        product = _times(a, b) if where is None else meets_only_kept(_times, a, b, where)
        return product.astype(np.int64) if shape.d_dtype == "s32" else product

    def _write(
        self,
        g: Group,
        i: Instruction,
        slot: int,
        shape: InstrDescriptor,
        product: Array,
        given: Operands,
        disabled: tuple[int, ...],
        group: int,
    ) -> None:
        """Add a product to D, or put it there."""
        is_ws = "ws" in i.parts
        lanes, columns, count = _accumulator_places(shape.m, shape.n, group, is_ws)
        lanes, columns = lanes + (given.d >> 16), columns + (given.d & 0xFFFF)
        self._memory.check(g, i, slot, given.d & 0xFFFF, count)
        if any(disabled):  # these lanes are neither read nor written
            is_off = np.unpackbits(np.array(disabled, "<u4").view(np.uint8), bitorder="little").astype(bool)
            is_on = ~is_off[lanes]
            lanes, columns, product = lanes[is_on], columns[is_on], product[is_on]
        tell = partial(
            self._memory.observe_operation, accumulator=(given.d, shape.m, shape.n, shape.k, shape.d_dtype, is_ws)
        )
        if given.accumulates:
            tell(g, i, slot, lanes, columns, writes=False, needs_value=True)
        tell(g, i, slot, lanes, columns, writes=True, needs_value=False)
        words = self._memory.words[slot]
        if given.accumulates:
            product = product + _numbers(words[lanes, columns], str(shape.d_dtype)) * _power(given.shift)
        words[lanes, columns] = _bits(product, str(shape.d_dtype), shape.saturate)


def _times(a: Array, b: Array) -> Array:
    return np.asarray(a @ b.T)


def _vector(i: Instruction, shape: InstrDescriptor) -> int | None:
    """Return how many elements along K share a scale factor: of a sparse A, of whose elements half are zeros, twice."""
    dense = _dense_vector(i, shape.kind)
    return None if dense is None else dense * (2 if shape.sparse else 1)


def _dense_vector(i: Instruction, kind: str) -> int | None:
    known = mma_kind(kind).scale_vectors
    said = next((part for part in i.parts if part in known), None)
    return known[said] if said is not None else _SCALE_VECTORS.get(kind)


@cache
def _decoded(word: int, kind: str) -> InstrDescriptor:
    return InstrDescriptor.decode(word, kind=kind)


@cache
def _accumulator_places(m: int, n: int, group: int, is_ws: bool) -> tuple[Array, Array, int]:
    """Return lanes, columns, (rows of a CTA, N), and how many columns there are."""
    tensor = tmem_accumulator(m, n, cta_group=group, ws=is_ws)
    cells = np.array([[tensor.place((row, column)) for column in range(n)] for row in range(m // group)])
    return cells[..., 0], cells[..., 1], tensor.columns


def _power(shift: int) -> np.float32 | int:
    return np.float32(2.0**-shift) if shift else 1


def _numbers(words: Array, dtype: str) -> Array:
    if dtype == "f32":
        return words.view(np.float32)
    if dtype == "s32":
        return words.view(np.int32).astype(np.int64)
    return words.astype(np.uint16).view(np.float16).astype(np.float32)


def _bits(values: Array, dtype: str, saturate: bool) -> Array:
    if dtype == "f32":
        return values.astype(np.float32).view(np.uint32)
    if dtype == "s32":
        return (np.clip(values, -(2**31), 2**31 - 1) if saturate else values).astype(np.int32).view(np.uint32)
    return values.astype(np.float16).view(np.uint16).astype(np.uint32)


def _shift_down(words: Array, first: int, lanes: int, column: int, count: int) -> None:
    """Move the rows of each quarter down by one: each gets those of the next lane, and the last keeps its own."""
    part = words[first : first + lanes, column : column + count].reshape(lanes // 32, 32, count)
    part[:, :-1] = part[:, 1:].copy()
