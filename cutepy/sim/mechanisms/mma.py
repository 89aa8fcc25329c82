"""mma.sync, the synchronous matrix multiply-accumulate of a warp on fragments in registers; wmma; movmatrix.

wmma has the fragments of warps' matrices, loaded from memory and stored there, and movmatrix transposes one. The ISA
leaves open which lane holds what: here it is as in `mma.sync` (`fragments`). Those of f16 have registers for twice as
many elements as A and B have, and hold them twice.

References
----------
PTX ISA, "Warp Level Matrix Instructions: mma", "Multiply-and-Accumulate Instruction: mma", "mma.sp"; "Block Scaling for
mma.sync". CuTe ``atom/mma_traits_sm120.hpp``: of the two lanes of a quad that give scale factors of A, the first has
the upper row. PTX ISA, "Warp-level Matrix Load Instruction: wmma.load", "Warp-level Matrix Store Instruction:
wmma.store", "Warp-level matrix transpose instruction: movmatrix".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutepy.sim.arithmetic import floats, minifloat
from cutepy.sim.arithmetic.fragments import (
    BITS,
    Fragment,
    Product,
    accumulator_index,
    elements,
    numbers,
    operand_index,
    packed,
    placed,
    quad_pair_index,
)
from cutepy.sim.arithmetic.sparsity import expanded, meets_only_kept, places
from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.alignment import check_uniform
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.ptx.model import Instruction

Registers = tuple[Array, ...]
Scales = tuple[Array, Array, Array]
"""Scale factors, four a lane, and the selectors of the byte and of the thread of a quad."""
_ACCUMULATORS = {"f32": "f4", "s32": "i4", "f16": "f2", "f64": "f8"}


class WarpMma:
    """Matrix products of warps."""

    def multiply(
        self,
        g: Group,
        i: Instruction,
        p: Product,
        a: Registers,
        b: Registers,
        c: Registers,
        metadata: Registers = (),
        scales: tuple[Scales, ...] = (),
    ) -> list[Array]:
        """Return the registers of D = A B + C, with A and B multiplied by scale factors where there are any."""
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        left, right = self._operands(g, p, a, b)
        if p.selector is None:
            where = None
        else:
            layout = p.a if not p.kind else "s4" if p.is_packed else "s8"
            where = places(words_of(g, metadata)[..., 0], p.k, layout, p.selector)
            left = expanded(left, where, p.k)
        if scales:
            factors = _factors(g, i, p, scales)
            left, right = (
                x * np.repeat(y, p.k // p.scales, axis=-1) for x, y in zip((left, right), factors, strict=True)
            )
        product = _product(left, right) if where is None else meets_only_kept(_product, left, right, where)
        if p.bits == "xor":
            product = left.sum(axis=-1)[..., :, None] + right.sum(axis=-1)[..., None, :] - 2 * product
        index = quad_pair_index("c", p.c, "row") if p.in_quads else accumulator_index(p.m, p.n)
        addend = placed(elements(words_of(g, c), BITS[p.c]).view(_ACCUMULATORS[p.c]), index)
        total = _sum(product.reshape(addend.shape), addend, p)
        to = quad_pair_index("c", p.d, "row") if p.in_quads else index
        return registers_of(g, packed(total[..., to]), p.d)

    def _operands(self, g: Group, p: Product, a: Registers, b: Registers) -> tuple[Array, Array]:
        """Return A, (..., M, K), or a sparse one's kept elements, (..., M, K / 2), and B, (..., N, K), as numbers."""
        widths = [p.element_bits(kind) for kind in (p.a, p.b)]
        codes = [elements(words_of(g, x), width) for x, width in zip((a, b), widths, strict=True)]
        if p.is_packed:
            codes = [one << np.uint8(2) for one in codes]  # as in bytes of their own
        shape = codes[0].shape[:-2]
        if p.in_quads:
            tables = (quad_pair_index("a", p.a, p.majors[0]), quad_pair_index("b", p.b, p.majors[1]))
            left, right = (
                numbers(placed(x, t), "f16").reshape(*shape, 4, 8, 4) for x, t in zip(codes, tables, strict=True)
            )
            return left, right
        right = numbers(placed(codes[1], operand_index(p.n, p.k, widths[1])), p.b).reshape(*shape, p.n, p.k)
        k = p.k if p.selector is None else p.k // 2
        left = numbers(placed(codes[0], operand_index(p.m, k, widths[0])), p.a)
        return left.reshape(*shape, p.m, k), right


def _factors(g: Group, i: Instruction, p: Product, scales: tuple[Scales, ...]) -> list[Array]:
    """Return scale factors, (..., 16, scales) of A and (..., 8, scales) of B.

    Of a quad two lanes give those of two rows of A, eight apart, and one lane those of a column of B.
    """
    rows, columns = np.arange(p.m), np.arange(p.n)
    found = []
    for (data, byte, thread), lanes, step in zip(scales, (rows % 8 * 4 + rows // 8, columns * 4), (2, 1), strict=True):
        at, quarter = (_alike(g, i, one) for one in (byte, thread))
        if at not in range(0, 4, p.scales) or quarter not in range(4 // step):
            raise SimulationError(
                f"{p.scales} scale factors begin at byte {_or(range(0, 4, p.scales))}, and the thread is "
                f"{_or(range(4 // step))}, got byte {at} and thread {quarter}",
                i,
                g.describe(),
            )
        codes = elements(words_of(g, (data,)), 8)[..., lanes + step * quarter, at : at + p.scales]
        found.append(minifloat.scales_to_f32(codes, p.scale_type))
    return found


def _or(values: range) -> str:
    return " or ".join(map(str, values))


def _alike(g: Group, i: Instruction, selector: Array) -> int:
    """Return a selector, which must be one for all lanes."""
    values = np.unique(selector)
    if len(values) > 1:
        raise SimulationError(
            f"the lanes give one selector of scale factors, got {', '.join(map(str, values[:4].tolist()))}",
            i,
            g.describe(),
        )
    return int(values[0])


def _product(a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(a, b.swapaxes(-1, -2)))


def _sum(product: Array, addend: Array, p: Product) -> Array:
    if p.d == "s32":
        total = product.astype(np.int64) + addend
        return np.asarray((np.clip(total, -(2**31), 2**31 - 1) if p.saturate else total).astype(np.int32))
    if p.d == "f64":
        return np.asarray(product + addend)
    value = floats.canonical(product + addend.astype(np.float32))
    if p.saturate:
        value = np.clip(value, *(np.finfo(_ACCUMULATORS[p.d]).min, np.finfo(_ACCUMULATORS[p.d]).max))
    return np.asarray(value.astype(_ACCUMULATORS[p.d]))


def words_of(g: Group, registers: Registers) -> Array:
    """Return registers by (CTA, warp, lane, register)."""
    shape = (g.ctas.count, g.threads.count)
    words = np.stack([np.broadcast_to(r, shape) for r in registers], axis=-1)
    return np.ascontiguousarray(words).reshape(g.ctas.count, -1, WARP, len(registers))


def registers_of(g: Group, words: Array, kind: str) -> list[Array]:
    """Return the registers of words by (CTA, warp, lane, register)."""
    if kind == "f64":
        words = words.view(np.float64)
    words = words.reshape(g.ctas.count, g.threads.count, -1)
    return [words[..., n] for n in range(words.shape[2])]


class Wmma:
    """Fragments of warps."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def load(
        self, g: Group, i: Instruction, fragment: Fragment, space: str, address: Array, stride: Array | None
    ) -> list[Array]:
        """Return the registers of a fragment in memory."""
        codes = []
        for at, kind in self._addresses(g, i, fragment, address, stride):
            codes.append(np.broadcast_to(self._memory.load(g, i, space, at, kind, 1), at.shape))
        shape = (g.ctas.count, g.threads.count)
        whole = np.stack([np.broadcast_to(one, shape) for one in codes], axis=-1)
        return registers_of(g, packed(whole), fragment.kind)

    def store(
        self,
        g: Group,
        i: Instruction,
        fragment: Fragment,
        space: str,
        address: Array,
        stride: Array | None,
        values: tuple[Array, ...],
    ) -> None:
        """Write the registers of a fragment to memory."""
        bits = BITS[fragment.kind]
        codes = elements(words_of(g, values), bits).reshape(g.ctas.count, g.threads.count, -1)
        for n, (at, kind) in enumerate(self._addresses(g, i, fragment, address, stride)):
            self._memory.store(g, i, space, at, (codes[..., n].view(kind),))

    def _addresses(
        self, g: Group, i: Instruction, fragment: Fragment, address: Array, stride: Array | None
    ) -> list[tuple[Array, np.dtype[Any]]]:
        """Return the address, (CTAs, threads), and type of each element; of packs of those of fewer than 8 bits."""
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        check_uniform(self._activity, g, i, address, "the address of the matrix")
        if stride is not None:
            check_uniform(self._activity, g, i, stride, "the stride of the matrix")
        bits = BITS[fragment.kind]
        offsets = fragment.offsets(g.threads.ids % WARP, stride)
        step = max(1, 32 // bits) if bits < 8 else 1
        kind = np.dtype(f"u{max(bits, 32 if bits < 8 else 8) // 8}")
        positions = offsets[..., ::step] * bits // 8
        return [(address + positions[..., n].astype(address.dtype), kind) for n in range(positions.shape[-1])]

    def transpose(self, g: Group, i: Instruction, value: Array) -> Array:
        """Transpose an 8 x 8 matrix of 16-bit elements, of which each lane has two of a row."""
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        words = words_of(g, (value,))
        matrix = words.view(np.uint16).reshape(*words.shape[:2], 8, 8)
        transposed = np.ascontiguousarray(matrix.swapaxes(-1, -2)).reshape(*words.shape[:2], WARP, 2)
        return registers_of(g, transposed.view(np.uint32), "b32")[0]
