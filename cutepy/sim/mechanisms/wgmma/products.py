"""Results of MMAs, computed when they complete.

The MMAs of a committed group that accumulate in the same registers are computed as one matrix product, with their K
slices side by side, for all CTAs and warpgroups at once. Products are summed in float32, in another order than the
hardware's. With exact MMAs (`tensor_core`) each instruction is computed as the hardware does, which takes much longer.
f16 accumulators are rounded by each instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.arithmetic import tensor_core
from cutepy.sim.arithmetic.sparsity import expanded, meets_only_kept
from cutepy.sim.machine.group import AccumulatorTile, IssuedMma
from cutepy.sim.machine.lanes import Array, Index
from cutepy.sim.mechanisms.wgmma.operands import Operands
from cutepy.sim.translate.wgmma_shapes import M, Shape

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory

_EXACT_F32 = 1 << 24


class Products:
    """Computes MMAs.

    Parameters
    ----------
    activity : Activity
    memory : Memory
    exact : bool
        True to sum as the hardware does, bit for bit.
    """

    def __init__(self, activity: Activity, memory: Memory, exact: bool) -> None:
        self._activity = activity
        self._operands = Operands(activity, memory)
        self._exact = exact

    def compute(self, issued: list[IssuedMma], rows: Index, ctas: int, groups: int, g: Group) -> None:
        """Compute MMAs: those of one accumulator in order, as one product where they continue each other."""
        by_tile: dict[int, list[IssuedMma]] = {}
        for one in issued:
            by_tile.setdefault(id(one.tile), []).append(one)
        for sequence in by_tile.values():
            start = 0
            while start < len(sequence):
                end = start + 1
                first = sequence[start]
                # f16 sums are rounded, and saturating ones clamped, by each instruction.
                fuses = first.shape.d != "f16" and not first.shape.saturate and not self._exact
                while (
                    fuses
                    and end < len(sequence)
                    and sequence[end].shape == first.shape
                    and sequence[end].accumulate.all()
                ):
                    end += 1
                self._product(sequence[start:end], rows, ctas, groups, g)
                start = end
            sequence[0].tile.in_flight -= len(sequence)
        count, stats = ctas * groups, self._activity.stats
        stats["wgmma"] += len(issued) * count
        stats["wgmma_flops"] += sum(one.shape.flops for one in issued) * count
        stats["wgmma_bytes"] += sum(one.shape.smem_bytes for one in issued) * count

    def _product(self, run: list[IssuedMma], rows: Index, ctas: int, groups: int, g: Group) -> None:
        shape, tile = run[0].shape, run[0].tile
        if shape.from_registers:
            a = np.concatenate([one.a for one in run], axis=-1) if len(run) > 1 else run[0].a
        else:
            words = [one.a for one in run]
            a = self._operands.read(words, shape.a_tile, shape.a, rows, run[0].instruction, g)
        words = [one.b for one in run]
        b = self._operands.read(words, shape.b_tile, shape.b, rows, run[0].instruction, g)
        where = _places(run)
        if where is not None:
            a = expanded(a, where, b.shape[-1])
        if self._exact and shape.d != "s32":
            start = np.float32(0) if tile.matrix is None else tile.matrix
            start = np.broadcast_to(start, (ctas, groups, M, shape.n))
            start = np.where(run[0].accumulate[..., None, None], start, np.float32(0))

            def multiply_accumulate(a: Array, b: Array, c: Array) -> Array:
                return tensor_core.multiply_accumulate(a, b, c, (shape.a, shape.b), shape.d)

            a = a * np.float32(shape.sign)
            if where is None:
                tile.matrix = multiply_accumulate(a, b, start)
            else:
                tile.matrix = meets_only_kept(multiply_accumulate, a, b, where, start)
            return
        if shape.d == "s32" and shape.k * len(run) * 255 * 255 >= _EXACT_F32:
            a, b = a.astype(np.float64), b.astype(np.float64)
        if where is not None and not np.isfinite(b).all():
            product = meets_only_kept(_multiply, a, b, where)
        else:
            product = _multiply(a, b)
        if product.shape[:2] != (ctas, groups):
            product = np.broadcast_to(product, (ctas, groups, M, shape.n)).copy()
        if shape.sign < 0:
            product = -product
        _accumulate(shape, tile, product, run[0].accumulate)


def _multiply(a: Array, b: Array) -> Array:
    """Multiply for each warpgroup by itself: BLAS would sum the rows of several, side by side, in another order."""
    return np.asarray(np.matmul(a, b.swapaxes(-1, -2)))


def _places(run: list[IssuedMma]) -> Array | None:
    """Return the positions of a sparse A's kept elements along the K of MMAs side by side; None if A is dense."""
    k = run[0].shape.k
    parts = [one.where + n * k for n, one in enumerate(run) if one.where is not None]
    return np.concatenate(parts, axis=-1) if parts else None


def _accumulate(shape: Shape, tile: AccumulatorTile, product: Array, accumulate: Array) -> None:
    if shape.d == "s32":
        product = product.astype(np.int64)
    if tile.matrix is not None and accumulate.any():
        if accumulate.all() and shape.d == "f32":
            tile.matrix += product
            return
        product = product + np.where(accumulate[..., None, None], tile.matrix, product.dtype.type(0))
    if shape.d == "s32":
        product = np.clip(product, -(2**31), 2**31 - 1) if shape.saturate else product.astype(np.int32).astype(np.int64)
    elif shape.d == "f16":
        product = product.astype(np.float16).astype(np.float32)
    tile.matrix = product
