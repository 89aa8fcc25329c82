"""mma.sync: the synchronous matrix multiply-accumulate of a warp, on fragments in registers.

References
----------
PTX ISA, "Warp Level Matrix Instructions: mma", "Multiply-and-Accumulate Instruction: mma", "mma.sp".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.arithmetic import floats
from cutepy.sim.arithmetic.fragments import (
    BITS,
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
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.lanes import WARP, Array

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.ptx.model import Instruction

Registers = tuple[Array, ...]
_ACCUMULATORS = {"f32": "f4", "s32": "i4", "f16": "f2", "f64": "f8"}


class WarpMma:
    """Matrix products of warps."""

    def multiply(
        self, g: Group, i: Instruction, p: Product, a: Registers, b: Registers, c: Registers, metadata: Registers = ()
    ) -> list[Array]:
        """Return the registers of D = A B + C."""
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        left, right = self._operands(g, p, a, b)
        if p.selector is None:
            product = _product(left, right)
        else:
            where = places(words_of(g, metadata)[..., 0], p.k, p.a, p.selector)
            product = meets_only_kept(_product, expanded(left, where, p.k), right, where)
        if p.bits == "xor":
            product = left.sum(axis=-1)[..., :, None] + right.sum(axis=-1)[..., None, :] - 2 * product
        index = quad_pair_index("c", p.c, "row") if p.in_quads else accumulator_index(p.m, p.n)
        addend = placed(elements(words_of(g, c), BITS[p.c]).view(_ACCUMULATORS[p.c]), index)
        total = _sum(product.reshape(addend.shape), addend, p)
        to = quad_pair_index("c", p.d, "row") if p.in_quads else index
        return registers_of(g, packed(np.ascontiguousarray(total[..., to]), BITS[p.d]), p.d)

    def _operands(self, g: Group, p: Product, a: Registers, b: Registers) -> tuple[Array, Array]:
        """Return A, (..., M, K), or what a sparse one keeps, (..., M, K / 2), and B, (..., N, K), as numbers."""
        codes = [elements(words_of(g, registers), BITS[kind]) for registers, kind in ((a, p.a), (b, p.b))]
        shape = codes[0].shape[:-2]
        if p.in_quads:
            tables = (quad_pair_index("a", p.a, p.majors[0]), quad_pair_index("b", p.b, p.majors[1]))
            left, right = (
                numbers(placed(x, t), "f16").reshape(*shape, 4, 8, 4) for x, t in zip(codes, tables, strict=True)
            )
            return left, right
        right = numbers(placed(codes[1], operand_index(p.n, p.k, BITS[p.b])), p.b).reshape(*shape, p.n, p.k)
        k = p.k if p.selector is None else p.k // 2
        left = numbers(placed(codes[0], operand_index(p.m, k, BITS[p.a])), p.a)
        return left.reshape(*shape, p.m, k), right


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
