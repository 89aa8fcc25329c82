"""Layer normalisation and its kin, forward and backward (traced).

RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight. LayerNorm subtracts the mean first, and adds a bias.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32

from cutepy.device import reduce, rules
from cutepy.device.global_copies import RowVectors, make_row_vectors
from cutepy.device.held_rows import make_held_rows, staged_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.dsl.element_types import dtype_of
from cutepy.epilogues.operations import LARGEST
from cutepy.kernels.rows.launching import groups_of, launch_rows
from cutepy.kernels.rows.scaling import (
    join_largest,
    largest_finite,
    largest_magnitude,
    store_block_scale,
    store_of_row,
)
from cutepy.kernels.rows.tiling import NormConfig

BARRIERS = rules.named_barriers(rows=1)
EARLY = 32
"""Elements of a weight that a thread loads before the reduction, at most."""


class Norm:
    """Normalisation of one configuration, forward: a callable that the DSL compiles."""

    def __init__(self, config: NormConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        x: cute.Tensor,
        residual: cute.Tensor | None,
        weight: cute.Tensor | None,
        bias: cute.Tensor | None,
        y: cute.Tensor,
        total: cute.Tensor | None,
        factors: cute.Tensor | None,
        means: cute.Tensor | None,
        scale: cute.Tensor | None,
        scales: cute.Tensor | None,
        amax: cute.Tensor | None,
        eps: Float32,
        stream: CUstream,
    ):
        """Launch on x, residual, y, total (rows, columns), weight, bias (columns,), factors, means (rows,).

        y is the norm of x + residual, which is stored to `total`; `factors` get 1 / sqrt(...) of each row, fp32. A y of
        8 bits is divided by `scale` (1,), or by what `scales` (rows, 1 or blocks) get; both fp32. `amax` (1,), fp32, is
        zero before, and gets the largest magnitude of the undivided result.
        """
        config, tiling = self.config, self.config.tiling
        given = x, residual, weight, bias, y, total, factors, means, scale, scales, amax, eps
        launch_rows(self.kernel, f"{config.kind}_{tiling.name}", tiling, groups_of(x, tiling), stream, *given)

    @cute.kernel
    def kernel(
        self,
        x: cute.Tensor,
        residual: cute.Tensor | None,
        weight: cute.Tensor | None,
        bias: cute.Tensor | None,
        y: cute.Tensor,
        total: cute.Tensor | None,
        factors: cute.Tensor | None,
        means: cute.Tensor | None,
        scale: cute.Tensor | None,
        scales: cute.Tensor | None,
        amax: cute.Tensor | None,
        eps: Float32,
    ):
        """Normalise the rows of a CTA."""
        config, tiling = self.config, self.config.tiling
        inputs = {"x": x} if residual is None else {"x": x, "residual": residual}
        rows = make_held_rows(tiling, BARRIERS["rows"], **staged_rows(config.staged, **inputs))
        columns, ys = cute.size(x, mode=[1]), self.vectors(y)
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        held = [rows.begin(name, self.vectors(tensor), row, config.staged) for name, tensor in inputs.items()]
        weights = [self.begin(rows, vector) for vector in (weight, bias)]
        if cutlass.const_expr(config.staged):
            cute.arch.cp_async_wait_group(0)
        mean = None
        if cutlass.const_expr(total is not None):
            for index in cutlass.range_constexpr(tiling.vectors):
                rows.store_part(self.centred(rows, held, index, None, columns), self.vectors(total), row, index)
        if cutlass.const_expr(config.centres):
            sums = rows.empty_part()
            sums.fill(0.0)
            for index in cutlass.range_constexpr(tiling.vectors):
                sums.store(sums.load() + self.centred(rows, held, index, None, columns).load())
            mean = rows.total(sums, 0) / columns
        squares = rows.empty_part()
        squares.fill(0.0)
        for index in cutlass.range_constexpr(tiling.vectors):
            value = self.centred(rows, held, index, mean, columns)
            squares.store(squares.load() + value.load() * value.load())
        factor = cute.math.rsqrt(rows.total(squares, 1) / columns + eps)
        given, largest = (rows, held, mean, columns, factor, *weights), Float32(0.0)
        if cutlass.const_expr(config.scaled in ("row", "block")):
            self.store_quantised(given, ys, row, scales)
        else:
            for index in cutlass.range_constexpr(tiling.vectors):
                value = self.normal(index, *given)
                if cutlass.const_expr(amax is not None):
                    largest = reduce.maximum(largest, largest_magnitude(rows, value, index, columns))
                if cutlass.const_expr(config.scaled == "tensor"):
                    value.store(value.load() * (Float32(1.0) / scale[0]))
                rows.store_part(value, ys, row, index)
        if cutlass.const_expr(amax is not None):
            join_largest(rows, select(row < cute.size(x, mode=[0]), largest, Float32(0.0)), amax)
        if row < cute.size(x, mode=[0]) and rows.thread == 0 and rows.rank == 0:
            if cutlass.const_expr(factors is not None):
                factors[row] = factor
            if cutlass.const_expr(means is not None):
                means[row] = mean

    def centred(self, rows, held, index, mean, columns):
        """Return a vector of the values to normalise: the sum of the held inputs, less the mean if one is taken."""
        value = rows.part(held[0], index)
        for other in held[1:]:
            value.store(value.load() + rows.part(other, index).load())
        if mean is not None:
            value.store(value.load() - mean)
            rows.fill_part_beyond(value, index, columns, 0.0)
        return value

    def normal(self, index, rows, held, mean, columns, factor, weight, bias):
        """Return a vector of the result: times the row's factor and the weight, and the bias."""
        value = self.centred(rows, held, index, mean, columns)
        value.store(value.load() * factor)
        if weight is not None:
            value.store(value.load() * self.part(rows, weight, index).load())
        if bias is not None:
            value.store(value.load() + self.part(rows, bias, index).load())
        return value

    def begin(self, rows, vector: cute.Tensor | None):
        """Begin to load a weight or bias, if its part of a thread is small: no latency is left after the reduction."""
        if vector is None or self.config.tiling.elems * self.config.tiling.vectors > EARLY:
            return None if vector is None else self.vectors(vector)
        return rows.fetch(self.vectors(vector), 0)

    def part(self, rows, begun, index):
        """Return a vector of a weight or bias, fp32, that `begin` gave."""
        if isinstance(begun, RowVectors):
            return rows.load_part(begun, 0, index)
        return rows.part(begun, index)

    @cute.jit
    def store_quantised(self, given, target: RowVectors, row, scales: cute.Tensor):
        """Divide a row, or each of its blocks, by a scale that puts the largest finite magnitude at the type's largest.

        Store the row and the scales; `given` is what `normal` takes.
        """
        config, tiling, rows = self.config, self.config.tiling, given[0]
        limit, largest = LARGEST[dtype_of(target.tensor.element_type)], Float32(0.0)
        if cutlass.const_expr(config.scaled == "row"):
            for index in cutlass.range_constexpr(tiling.vectors):
                largest = cute.arch.fmax(largest, largest_finite(rows, self.normal(index, *given)))
            largest = rows.reduce(largest, reduce.maximum, 0)
            store_of_row(rows, row, scales, self.scale_of(largest, limit))
        for index in cutlass.range_constexpr(tiling.vectors):
            value = self.normal(index, *given)
            if cutlass.const_expr(config.scaled == "block"):
                largest = rows.reduce_lanes(largest_finite(rows, value), tiling.block_lanes, reduce.maximum)
                store_block_scale(rows, row, index, scales, self.scale_of(largest, limit))
            value.store(value.load() * (Float32(1.0) / self.scale_of(largest, limit)))
            rows.store_part(value, target, row, index)

    def scale_of(self, largest, limit):
        """Return the scale that puts a largest magnitude at a limit, a normal number: 1 if it is zero."""
        scale = cute.arch.fmax(largest / Float32(limit), Float32(2.0**-126))
        return select(largest == Float32(0.0), Float32(1.0), scale)

    def vectors(self, tensor: cute.Tensor) -> RowVectors:
        """View a tensor as vectors of the tiling's elements."""
        return make_row_vectors(tensor, self.config.tiling.elems)


class NormBackward:
    """Gradients of a normalisation of one configuration: a callable that the DSL compiles.

    CTAs go through many rows each, and sum their part of the gradients of weight and bias in registers.
    """

    def __init__(self, config: NormConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        dy: cute.Tensor,
        dtotal: cute.Tensor | None,
        x: cute.Tensor,
        weight: cute.Tensor | None,
        factors: cute.Tensor,
        means: cute.Tensor | None,
        dx: cute.Tensor,
        dweights: cute.Tensor | None,
        dbiases: cute.Tensor | None,
        groups: Int32,
        stream: CUstream,
    ):
        """Launch `groups` CTAs, or clusters, on tensors as of `Norm`; x is what was normalised, dtotal its gradient.

        dweights and dbiases (groups, columns), fp32, get a row of each group; `SumOfRows` adds them up.
        """
        tiling, name = self.config.tiling, f"{self.config.kind}_backward_{self.config.tiling.name}"
        given = dy, dtotal, x, weight, factors, means, dx, dweights, dbiases, groups
        launch_rows(self.kernel, name, tiling, groups, stream, *given)

    @cute.kernel
    def kernel(
        self,
        dy: cute.Tensor,
        dtotal: cute.Tensor | None,
        x: cute.Tensor,
        weight: cute.Tensor | None,
        factors: cute.Tensor,
        means: cute.Tensor | None,
        dx: cute.Tensor,
        dweights: cute.Tensor | None,
        dbiases: cute.Tensor | None,
        groups: Int32,
    ):
        """Go through the rows of a CTA."""
        config, tiling = self.config, self.config.tiling
        matrices = {"x": x, "dy": dy}
        rows = make_held_rows(tiling, BARRIERS["rows"], **staged_rows(config.staged, 2, **matrices))
        count, columns = cute.size(x, mode=[0]), cute.size(x, mode=[1])
        group = cute.arch.block_idx()[0] // tiling.ctas
        follow_launch(True)
        dweight, dbias, scale, turn = rows.empty(), rows.empty(), rows.empty(), Int32(0)
        dweight.fill(0.0)
        dbias.fill(0.0)
        if cutlass.const_expr(weight is not None):
            scale = rows.load(self.vectors(weight), 0)
        # The next row is under way while this one is reduced.
        step, row, stage = groups * tiling.rows, group * tiling.rows + rows.group, Int32(0)
        names, sources = list(matrices), [self.vectors(matrix) for matrix in matrices.values()]
        if cutlass.const_expr(config.staged):
            for name, source in zip(names, sources, strict=True):
                rows.stage_into(rows.slots_of(name), source, row)
        else:
            following = [rows.fetch(source, row) for source in sources]
        factor, mean = self.numbers(factors, means, row, count)
        for first in cutlass.range(group * tiling.rows, count, step, unroll=1):
            row = first + rows.group
            if cutlass.const_expr(config.staged):
                for name, source in zip(names, sources, strict=True):
                    rows.stage_into(rows.slots_of(name, 1 - stage), source, row + step)
                cute.arch.cp_async_wait_group(len(names))
                held, grads = (rows.slots_of(name, stage) for name in names)
            else:
                held, grads = (rows.copy(each) for each in following)
                for each, source in zip(following, sources, strict=True):
                    rows.fetch_into(each, source, row + step)
            products, sums = rows.empty_part(), rows.empty_part()
            products.fill(0.0)
            sums.fill(0.0)
            for index in cutlass.range_constexpr(tiling.vectors):
                normal, grad = self.pair(rows, held, grads, index, columns, factor, mean)
                if cutlass.const_expr(dweights is not None):
                    dweight[None, index].store(dweight[None, index].load() + grad.load() * normal.load())
                if cutlass.const_expr(dbiases is not None):
                    dbias[None, index].store(dbias[None, index].load() + grad.load())
                if cutlass.const_expr(weight is not None):
                    grad.store(grad.load() * scale[None, index].load())
                products.store(products.load() + grad.load() * normal.load())
                sums.store(sums.load() + grad.load())
            along, average = rows.total(products, turn) / columns, Float32(0.0)
            turn = 1 - turn
            if cutlass.const_expr(config.centres):
                average = rows.total(sums, turn) / columns
                turn = 1 - turn
            for index in cutlass.range_constexpr(tiling.vectors):
                normal, grad = self.pair(rows, held, grads, index, columns, factor, mean)
                if cutlass.const_expr(weight is not None):
                    grad.store(grad.load() * scale[None, index].load())
                grad.store((grad.load() - average - normal.load() * along) * factor)
                if cutlass.const_expr(dtotal is not None):
                    grad.store(grad.load() + rows.load_part(self.vectors(dtotal), row, index).load())
                rows.store_part(grad, self.vectors(dx), row, index)
            factor, mean = self.numbers(factors, means, row + step, count)
            stage = 1 - stage
        if cutlass.const_expr(config.staged):
            cute.arch.cp_async_wait_group(0)
        for sums, target in ((dweight, dweights), (dbias, dbiases)):
            if cutlass.const_expr(target is not None):
                if cutlass.const_expr(tiling.rows > 1):
                    rows.sum_rows(sums)
                if rows.group == 0:
                    rows.store(sums, self.vectors(target), group)

    def pair(self, rows, held, grads, index, columns, factor, mean):
        """Return a vector of the normalised row, and of the result's gradient."""
        normal = rows.part(held, index)
        normal.store((normal.load() - mean) * factor)
        if self.config.centres:
            rows.fill_part_beyond(normal, index, columns, 0.0)
        return normal, rows.part(grads, index)

    @cute.jit
    def numbers(self, factors: cute.Tensor, means: cute.Tensor | None, row, count):
        """Load a row's factor and mean; zeros beyond the last row."""
        factor, mean = Float32(0.0), Float32(0.0)
        if row < count:
            factor = factors[row]
            if cutlass.const_expr(means is not None):
                mean = means[row]
        return factor, mean

    def vectors(self, tensor: cute.Tensor) -> RowVectors:
        """View a tensor as vectors of the tiling's elements."""
        return make_row_vectors(tensor, self.config.tiling.elems)
