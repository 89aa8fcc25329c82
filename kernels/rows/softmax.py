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
from cutepy.device.global_copies import RowVectors, make_row_vectors
from cutepy.device.held_rows import HeldRows, make_held_rows, staged_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import exp
from cutepy.kernels.rows.config import SoftmaxConfig
from cutepy.kernels.rows.launching import groups_of, launch_rows

BARRIERS = rules.named_barriers(rows=1)


def fold(rows: HeldRows, values: cute.Tensor, operation: Callable, of: Callable = lambda x: x):
    """Combine `of` each element that a thread holds: vectors in turn, in few registers."""
    found = cute.make_rmem_tensor(rows.tiling.elems, Float32)
    for place in range(rows.tiling.elems):
        found[place] = of(values[place, 0])
        for index in range(1, rows.tiling.vectors):
            found[place] = operation(found[place], of(values[place, index]))
    return rows.fold(found, operation)


def part_of(rows: HeldRows, held, index, columns):
    """Return a vector of a row; elements beyond the last column are -inf, whose exponential is 0."""
    value = rows.part(held, index)
    rows.fill_part_beyond(value, index, columns, -math.inf)
    return value


@cute.jit
def each_vector(rows: HeldRows, first: cutlass.Constexpr, function: Callable, rolls: cutlass.Constexpr = False):
    """Call a function of each of a thread's vectors, from the first on: in a loop of the kernel if it `rolls`."""
    if cutlass.const_expr(rolls):
        for index in cutlass.range(first, rows.tiling.vectors, unroll=1):
            function(index)
    else:
        for index in cutlass.range_constexpr(first, rows.tiling.vectors):
            function(index)


def exponentials_of(rows: HeldRows, held, columns, rolls: bool = False):
    """Return a thread's largest element of a row, and the sum of exponentials of its elements less that one."""
    found = part_of(rows, held, 0, columns)

    def keep_largest(index):
        value = part_of(rows, held, index, columns)
        for place in range(rows.tiling.elems):
            found[place] = reduce.maximum(found[place], value[place])

    def add_exponentials(index):
        found.store(found.load() + exp(part_of(rows, held, index, columns).load() - base))

    each_vector(rows, 1, keep_largest, rolls)
    largest = rows.fold(found, reduce.maximum)
    base = reduce.finite_base(largest)
    found.fill(0.0)
    each_vector(rows, 0, add_exponentials, rolls)
    return largest, rows.fold(found, reduce.add)


class Softmax:
    """Softmax of one configuration, forward: a callable that the DSL compiles."""

    def __init__(self, config: SoftmaxConfig):
        self.config = config

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream: CUstream):
        """Launch on x and y, (rows, columns)."""
        tiling, name = self.config.tiling, f"{self.config.kind}_{self.config.tiling.name}"
        launch_rows(self.kernel, name, tiling, groups_of(x, tiling), stream, x, y)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        """Compute the rows of a CTA."""
        config, tiling = self.config, self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"], **staged_rows(config.staged, x=x))
        columns, ys = cute.size(x, mode=[1]), make_row_vectors(y, tiling.elems)
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        held = rows.begin("x", make_row_vectors(x, tiling.elems), row, config.staged)
        if cutlass.const_expr(config.staged):
            cute.arch.cp_async_wait_group(0)
        largest, total = rows.join_exponentials(*exponentials_of(rows, held, columns, config.rolls))
        logarithm, inverse = cute.math.log(total), Float32(1.0) / total

        def store(index):
            self.store(rows, rows.part(held, index), index, largest, logarithm, inverse, ys, row)

        each_vector(rows, 0, store, config.rolls)

    def store(self, rows: HeldRows, value, index, largest, logarithm, inverse, ys: RowVectors, row):
        """Store a vector of the result."""
        if self.config.logarithm:
            value.store(value.load() - largest - logarithm)
        else:
            value.store(exp(value.load() - largest) * inverse)
        rows.store_part(value, ys, row, index)


class SoftmaxBackward:
    """Gradient of a softmax of one configuration, from its result: a callable that the DSL compiles.

    dx = y * (dy - sum(y * dy)), and of the logarithm dx = dy - exp(y) * sum(dy).
    """

    def __init__(self, config: SoftmaxConfig):
        self.config = config

    @cute.jit
    def __call__(self, dy: cute.Tensor, y: cute.Tensor, dx: cute.Tensor, stream: CUstream):
        """Launch on dy, y and dx, (rows, columns)."""
        tiling, name = self.config.tiling, f"{self.config.kind}_backward_{self.config.tiling.name}"
        launch_rows(self.kernel, name, tiling, groups_of(y, tiling), stream, dy, y, dx)

    @cute.kernel
    def kernel(self, dy: cute.Tensor, y: cute.Tensor, dx: cute.Tensor):
        """Compute the rows of a CTA."""
        config, tiling = self.config, self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"], **staged_rows(config.staged, dy=dy, y=y))
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        grads = rows.begin("dy", make_row_vectors(dy, tiling.elems), row, config.staged)
        held = rows.begin("y", make_row_vectors(y, tiling.elems), row, config.staged)
        if cutlass.const_expr(config.staged):
            cute.arch.cp_async_wait_group(0)
        sums = rows.empty_part()
        sums.fill(0.0)
        for index in cutlass.range_constexpr(tiling.vectors):
            grad = rows.part(grads, index).load()
            if cutlass.const_expr(config.logarithm):
                sums.store(sums.load() + grad)
            else:
                sums.store(sums.load() + grad * rows.part(held, index).load())
        total = rows.total(sums, 0)
        for index in cutlass.range_constexpr(tiling.vectors):
            value, grad = rows.part(held, index), rows.part(grads, index).load()
            if cutlass.const_expr(config.logarithm):
                value.store(grad - exp(value.load()) * total)
            else:
                value.store(value.load() * (grad - total))
            rows.store_part(value, make_row_vectors(dx, tiling.elems), row, index)
