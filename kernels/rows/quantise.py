"""Quantisation of rows to 8-bit floats and integers, with the scale of a tensor, of each row or of each block (traced).

A scale puts the largest finite magnitude at the type's largest. Results are x / scale, rounded to the nearest, ties to
even; inf becomes NaN in e4m3, and the largest int8; NaN becomes 0 in int8.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import reduce, rules
from cutepy.device.global_copies import make_row_vectors
from cutepy.device.held_rows import HeldRows, make_held_rows, staged_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.kernels.rows.config import DENORMAL_STEP, LIMITS, QuantiseConfig
from cutepy.kernels.rows.launching import groups_of, launch_rows
from cutepy.kernels.rows.scaling import largest_finite, store_block_scale, store_of_row

BARRIERS = rules.named_barriers(rows=1)
ROUNDING = 1.5 * 2.0**23
"""Float whose last bit is 1: a sum with it has no fraction."""


def scale_of(largest, limit):
    """Return the scale that puts a largest magnitude at a limit: 1 if it is zero; denormal ones are rounded up."""
    return select(largest == Float32(0.0), Float32(1.0), largest / Float32(limit) + Float32(DENORMAL_STEP))


def quantised(rows: HeldRows, value, scale, kind):
    """Divide a vector by a scale, and round it as far as a conversion to the type doesn't."""
    limit = LIMITS[kind]
    result = rows.empty_part()
    result.store(value.load() / scale)
    for place in range(rows.tiling.elems):
        number = result[place]
        if kind == "int8":
            within = cute.arch.fmin(cute.arch.fmax(number, Float32(-limit)), Float32(limit))
            within = select(number == number, within, Float32(0.0))
            result[place] = within + Float32(ROUNDING) - Float32(ROUNDING)
        else:
            magnitude = cute.arch.fmax(value[place], -value[place])
            result[place] = select(magnitude == Float32.inf, Float32(math.nan), number)
    return result


class Quantise:
    """Quantisation of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: QuantiseConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        x: cute.Tensor,
        y: cute.Tensor | None,
        scale: cute.Tensor | None,
        scales: cute.Tensor | None,
        largest: cute.Tensor | None,
        stream: CUstream,
    ):
        """Launch on x, y (rows, columns), and fp32.

        `scale` (1,) divides all; or `scales` (rows, 1 or blocks) are computed; or `largest` (rows,), and y is left out.
        """
        tiling, name = self.config.tiling, f"{self.config.kind}_{self.config.tiling.name}"
        launch_rows(self.kernel, name, tiling, groups_of(x, tiling), stream, x, y, scale, scales, largest)

    @cute.kernel
    def kernel(
        self,
        x: cute.Tensor,
        y: cute.Tensor | None,
        scale: cute.Tensor | None,
        scales: cute.Tensor | None,
        largest: cute.Tensor | None,
    ):
        """Quantise the rows of a CTA."""
        config, tiling = self.config, self.config.tiling
        rows = make_held_rows(tiling, BARRIERS["rows"], **staged_rows(config.staged, x=x))
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        held = rows.begin("x", make_row_vectors(x, tiling.elems), row, config.staged)
        if cutlass.const_expr(config.staged):
            cute.arch.cp_async_wait_group(0)
        divisor, limit = Float32(1.0), LIMITS.get(config.dtype, 1.0)
        if cutlass.const_expr(config.scaled in ("row", "")):
            most = Float32(0.0)
            for index in cutlass.range_constexpr(tiling.vectors):
                most = cute.arch.fmax(most, largest_finite(rows, rows.part(held, index)))
            most = rows.reduce(most, reduce.maximum, 0)
            divisor = scale_of(most, limit)
            store_of_row(rows, row, scales if largest is None else largest, divisor if largest is None else most)
        elif cutlass.const_expr(config.scaled == "tensor"):
            divisor = scale[0]
        if cutlass.const_expr(y is not None):
            for index in cutlass.range_constexpr(tiling.vectors):
                value = rows.part(held, index)
                if cutlass.const_expr(config.scaled == "block"):
                    most = rows.reduce_lanes(largest_finite(rows, value), tiling.block_lanes, reduce.maximum)
                    divisor = scale_of(most, limit)
                    store_block_scale(rows, row, index, scales, divisor)
                value = quantised(rows, value, divisor, config.dtype)
                rows.store_part(value, make_row_vectors(y, tiling.elems), row, index)
