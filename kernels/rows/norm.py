"""Layer normalisation and its kin, forward and backward (traced).

RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight. LayerNorm subtracts the mean first, and adds a bias.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32

from cutepy.device import reduce, rules
from cutepy.device.global_copies import RowVectors, make_row_vectors
from cutepy.device.held_rows import make_held_rows
from cutepy.device.overlap import follow_launch
from cutepy.dsl.element_types import dtype_of
from cutepy.epilogues.operations import LARGEST
from cutepy.kernels.rows.tiling import NormConfig

BARRIERS = rules.named_barriers(rows=1)


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
        eps: Float32,
        stream: CUstream,
    ):
        """Launch on x, residual, y, total (rows, columns), weight, bias (columns,), factors, means (rows,).

        y is the norm of x + residual, which is stored to `total`; `factors` get 1 / sqrt(...) of each row, fp32. A y of
        8 bits is divided by `scale` (1,), or by what `scales` (rows, 1 or blocks) get; both fp32.
        """
        tiling = self.config.tiling
        name = f"cutepy_{self.config.kind}_{tiling.name}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        groups = cute.ceil_div(cute.size(x, mode=[0]), tiling.rows)
        self.kernel(x, residual, weight, bias, y, total, factors, means, scale, scales, eps).launch(
            grid=(groups * tiling.ctas, 1, 1),
            block=(tiling.cta, 1, 1),
            cluster=(tiling.ctas, 1, 1) if tiling.ctas > 1 else None,
            stream=stream,
            use_pdl=True,
        )

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
        eps: Float32,
    ):
        """Normalise the rows of a CTA."""
        config = self.config
        rows = make_held_rows(config.tiling, BARRIERS["rows"])
        columns = cute.size(x, mode=[1])
        row = cute.arch.block_idx()[0] // config.tiling.ctas * config.tiling.rows + rows.group
        follow_launch(True)
        held = rows.load(self.vectors(x), row, streams=True)
        if cutlass.const_expr(residual is not None):
            held.store(held.load() + rows.load(self.vectors(residual), row, streams=True).load())
        if cutlass.const_expr(total is not None):
            rows.store(held, self.vectors(total), row)
        if cutlass.const_expr(config.centres):
            mean = rows.total(held, 0) / columns
            held.store(held.load() - mean)
            rows.fill_beyond(held, columns, 0.0)
        squares = rows.empty()
        squares.store(held.load() * held.load())
        factor = cute.math.rsqrt(rows.total(squares, 1) / columns + eps)
        held.store(held.load() * factor)
        if cutlass.const_expr(weight is not None):
            held.store(held.load() * rows.load(self.vectors(weight), 0).load())
        if cutlass.const_expr(bias is not None):
            held.store(held.load() + rows.load(self.vectors(bias), 0).load())
        if cutlass.const_expr(config.scaled == "tensor"):
            held.store(held.load() * (Float32(1.0) / scale[0]))
        elif cutlass.const_expr(config.scaled):
            self.quantise(rows, held, row, scales, LARGEST[dtype_of(y.element_type)])
        rows.store(held, self.vectors(y), row)
        if row < cute.size(x, mode=[0]) and rows.thread == 0 and rows.rank == 0:
            if cutlass.const_expr(factors is not None):
                factors[row] = factor
            if cutlass.const_expr(means is not None):
                means[row] = mean

    @cute.jit
    def quantise(self, rows, held, row, scales: cute.Tensor, limit: cutlass.Constexpr):
        """Divide a row, or each of its blocks, by a scale that puts the largest finite magnitude at a limit.

        Scales are normal numbers, so that their inverses are finite.
        """
        tiling, lanes = self.config.tiling, self.config.tiling.block_lanes
        magnitudes = rows.empty()
        for place in cutlass.range_constexpr(cute.size(held)):
            magnitude = cute.arch.fmax(held[place], -held[place])
            magnitudes[place] = Float32(cutlass.select_(magnitude < Float32.inf, magnitude, Float32(0.0)))
        if cutlass.const_expr(self.config.scaled == "row"):
            scale = self.scale_of(rows.reduce(rows.fold(magnitudes, reduce.maximum), reduce.maximum, 0), limit)
            held.store(held.load() * (Float32(1.0) / scale))
            if row < cute.size(scales, mode=[0]) and rows.thread == 0 and rows.rank == 0:
                scales[row, 0] = scale
        else:
            for index in cutlass.range_constexpr(tiling.vectors):
                own = rows.reduce_lanes(rows.fold(magnitudes[None, index], reduce.maximum), lanes, reduce.maximum)
                scale = self.scale_of(own, limit)
                inverse = Float32(1.0) / scale
                for place in cutlass.range_constexpr(tiling.elems):
                    held[place, index] = held[place, index] * inverse
                block = rows.vector(index) // lanes
                exists = (row < cute.size(scales, mode=[0])) & (block < cute.size(scales, mode=[1]))
                if exists and rows.vector(index) % lanes == 0:
                    scales[row, block] = scale

    def scale_of(self, largest, limit):
        """Return the scale of a largest magnitude: 1 if it is zero."""
        scale = cute.arch.fmax(largest / Float32(limit), Float32(2.0**-126))
        return Float32(cutlass.select_(largest == Float32(0.0), Float32(1.0), scale))

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
        tiling = self.config.tiling
        name = f"cutepy_{self.config.kind}_backward_{tiling.name}"
        self.kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(dy, dtotal, x, weight, factors, means, dx, dweights, dbiases, groups).launch(
            grid=(groups * tiling.ctas, 1, 1),
            block=(tiling.cta, 1, 1),
            cluster=(tiling.ctas, 1, 1) if tiling.ctas > 1 else None,
            stream=stream,
            use_pdl=True,
        )

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
        rows = make_held_rows(tiling, BARRIERS["rows"])
        count, columns = cute.size(x, mode=[0]), cute.size(x, mode=[1])
        group = cute.arch.block_idx()[0] // tiling.ctas
        follow_launch(True)
        dweight, dbias, scale, turn = rows.empty(), rows.empty(), rows.empty(), Int32(0)
        dweight.fill(0.0)
        dbias.fill(0.0)
        if cutlass.const_expr(weight is not None):
            scale = rows.load(self.vectors(weight), 0)
        # The next row is under way while this one is reduced.
        step, row = groups * tiling.rows, group * tiling.rows + rows.group
        xs, dys = self.vectors(x), self.vectors(dy)
        fetched, fetched_dy = rows.fetch(xs, row), rows.fetch(dys, row)
        factor, mean = self.numbers(factors, means, row, count)
        for first in cutlass.range(group * tiling.rows, count, step, unroll=1):
            row = first + rows.group
            held, grad = rows.held(fetched), rows.held(fetched_dy)
            rows.fetch_into(fetched, xs, row + step)
            rows.fetch_into(fetched_dy, dys, row + step)
            held.store((held.load() - mean) * factor)
            if cutlass.const_expr(config.centres):
                rows.fill_beyond(held, columns, 0.0)
            if cutlass.const_expr(dweights is not None):
                dweight.store(dweight.load() + grad.load() * held.load())
            if cutlass.const_expr(dbiases is not None):
                dbias.store(dbias.load() + grad.load())
            if cutlass.const_expr(weight is not None):
                grad.store(grad.load() * scale.load())
            products = rows.empty()
            products.store(grad.load() * held.load())
            along = rows.total(products, turn) / columns
            turn = 1 - turn
            if cutlass.const_expr(config.centres):
                grad.store(grad.load() - rows.total(grad, turn) / columns)
                turn = 1 - turn
            grad.store((grad.load() - held.load() * along) * factor)
            if cutlass.const_expr(dtotal is not None):
                grad.store(grad.load() + rows.load(self.vectors(dtotal), row).load())
            rows.store(grad, self.vectors(dx), row)
            factor, mean = self.numbers(factors, means, row + step, count)
        for sums, target in ((dweight, dweights), (dbias, dbiases)):
            if cutlass.const_expr(target is not None):
                if cutlass.const_expr(tiling.rows > 1):
                    rows.sum_rows(sums)
                if rows.group == 0:
                    rows.store(sums, self.vectors(target), group)

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
