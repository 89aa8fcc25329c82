"""Softmax and its logarithm over rows, forward and backward (traced).

y = exp(x - m) / sum(exp(x - m)) with m the row's largest element, or its logarithm. A row with an element that is NaN
or inf, or without one above -inf, is NaN, as torch has it.
"""

import math
from collections.abc import Callable

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import reduce, rules
from cutepy.device.global_copies import make_row_vectors
from cutepy.device.held_rows import HeldRows, make_held_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import LOG2_E
from cutepy.kernels.rows.config import SoftmaxConfig

BARRIERS = rules.named_barriers(rows=1)


def exp(x):
    """Compute exp of a register, or of many, by the fast base-2 power."""
    return cute.math.exp2(x * LOG2_E, fastmath=True)


def fold(rows: HeldRows, values: cute.Tensor, operation: Callable, of: Callable = lambda x: x):
    """Combine `of` each element that a thread holds: vectors in turn, in few registers."""
    found = cute.make_rmem_tensor(rows.tiling.elems, Float32)
    for place in range(rows.tiling.elems):
        found[place] = of(values[place, 0])
        for index in range(1, rows.tiling.vectors):
            found[place] = operation(found[place], of(values[place, index]))
    return rows.fold(found, operation)


def combine(rows: HeldRows, values: cute.Tensor, operation: Callable, turn: int, of: Callable = lambda x: x):
    """Combine `of` each element of a row; `turn` is 0 and 1 alternately, as of `HeldRows.reduce`."""
    return rows.reduce(fold(rows, values, operation, of), operation, turn)


@cute.jit
def subtract_largest(rows: HeldRows, held, columns):
    """Subtract a row's largest element from it, which is returned.

    Elements beyond the last column become -inf, whose exponential is 0; in a row that is NaN they are, too. The next
    reduction has turn 1.
    """
    rows.fill_beyond(held, columns, -math.inf)
    largest = combine(rows, held, reduce.maximum, 0)
    held.store(held.load() - largest)
    return largest


class Softmax:
    """Softmax of one configuration, forward: a callable that the DSL compiles."""

    def __init__(self, config: SoftmaxConfig):
        self.config = config

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream: CUstream):
        """Launch on x and y, (rows, columns)."""
        tiling = self.config.tiling
        name = f"cutepy_{self.config.kind}_{tiling.name}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        groups = cute.ceil_div(cute.size(x, mode=[0]), tiling.rows)
        self.kernel(x, y).launch(
            grid=(groups * tiling.ctas, 1, 1),
            block=(tiling.cta, 1, 1),
            cluster=(tiling.ctas, 1, 1) if tiling.ctas > 1 else None,
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        """Compute the rows of a CTA."""
        tiling = self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"])
        columns = cute.size(x, mode=[1])
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        held = rows.load(make_row_vectors(x, tiling.elems), row, streams=True)
        subtract_largest(rows, held, columns)
        if cutlass.const_expr(self.config.logarithm):
            held.store(held.load() - cute.math.log(combine(rows, held, reduce.add, 1, exp)))
        else:
            held.store(exp(held.load()))
            held.store(held.load() * (Float32(1.0) / combine(rows, held, reduce.add, 1)))
        rows.store(held, make_row_vectors(y, tiling.elems), row)


class SoftmaxBackward:
    """Gradient of a softmax of one configuration, from its result: a callable that the DSL compiles.

    dx = y * (dy - sum(y * dy)), and of the logarithm dx = dy - exp(y) * sum(dy).
    """

    def __init__(self, config: SoftmaxConfig):
        self.config = config

    @cute.jit
    def __call__(self, dy: cute.Tensor, y: cute.Tensor, dx: cute.Tensor, stream: CUstream):
        """Launch on dy, y and dx, (rows, columns)."""
        tiling = self.config.tiling
        name = f"cutepy_{self.config.kind}_backward_{tiling.name}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        groups = cute.ceil_div(cute.size(y, mode=[0]), tiling.rows)
        self.kernel(dy, y, dx).launch(
            grid=(groups * tiling.ctas, 1, 1),
            block=(tiling.cta, 1, 1),
            cluster=(tiling.ctas, 1, 1) if tiling.ctas > 1 else None,
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(self, dy: cute.Tensor, y: cute.Tensor, dx: cute.Tensor):
        """Compute the rows of a CTA."""
        tiling = self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"])
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        fetched = rows.fetch(make_row_vectors(dy, tiling.elems), row, streams=True)
        held = rows.load(make_row_vectors(y, tiling.elems), row, streams=True)
        grad = rows.held(fetched)
        if cutlass.const_expr(self.config.logarithm):
            total = combine(rows, grad, reduce.add, 0)
            grad.store(grad.load() - exp(held.load()) * total)
        else:
            products = rows.empty()
            products.store(grad.load() * held.load())
            total = combine(rows, products, reduce.add, 0)
            grad.store(held.load() * (grad.load() - total))
        rows.store(grad, make_row_vectors(dx, tiling.elems), row)
