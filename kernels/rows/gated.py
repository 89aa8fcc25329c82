"""Gated activations, f(gate) * up, forward and backward (traced).

f is silu, gelu, or its approximation by tanh. An infinite gate gives NaN where torch's activation does.
"""

import math

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy.device.global_copies import make_row_vectors
from cutepy.device.held_rows import make_parted_rows
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import LOG2_E, logistic
from cutepy.kernels.rows.config import GatedConfig
from cutepy.kernels.rows.launching import groups_of, launch_rows

TANH_SCALE, TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def silu(x):
    """Return x / (1 + exp(-x)) and its derivative."""
    s = logistic(x)
    return x * s, s * (1.0 + x * (1.0 - s))


def gelu(x):
    """Return x times the distribution function of the normal distribution, and the derivative of the product."""
    below = 0.5 + 0.5 * cute.math.erf(x * math.sqrt(0.5))
    density = cute.math.exp2(x * x * (-0.5 * LOG2_E), fastmath=True) / math.sqrt(2 * math.pi)
    return x * below, below + x * density


def gelu_tanh(x):
    """Return gelu's approximation by tanh, and its derivative; (1 + tanh u) / 2 is the logistic function of 2 u."""
    square = x * x
    s = logistic(2 * TANH_SCALE * x * (1.0 + TANH_CUBE * square))
    return x * s, s + x * (s * (1.0 - s)) * (2 * TANH_SCALE) * (1.0 + 3 * TANH_CUBE * square)


ACTIVATIONS = {"silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh}


class Gated:
    """Gated activation of one configuration, forward: a callable that the DSL compiles."""

    def __init__(self, config: GatedConfig):
        self.config = config

    @cute.jit
    def __call__(self, gate: cute.Tensor, up: cute.Tensor, y: cute.Tensor, stream: CUstream):
        """Launch on gate, up and y, (rows, columns)."""
        tiling, name = self.config.tiling, f"gated_{self.config.name}"
        launch_rows(self.kernel, name, tiling, groups_of(gate, tiling), stream, gate, up, y, is_cluster=False)

    @cute.kernel
    def kernel(self, gate: cute.Tensor, up: cute.Tensor, y: cute.Tensor):
        """Compute a CTA's part of its rows."""
        tiling = self.config.tiling
        rows = make_parted_rows(tiling)
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        fetched = rows.fetch(make_row_vectors(gate, tiling.elems), row, streams=True)
        fetched_up = rows.fetch(make_row_vectors(up, tiling.elems), row, streams=True)
        gates, ups = rows.held(fetched), rows.held(fetched_up)
        for n in cutlass.range_constexpr(cute.size(gates)):
            gates[n] = ACTIVATIONS[self.config.activation](gates[n])[0] * ups[n]
        rows.store(gates, make_row_vectors(y, tiling.elems), row)


class GatedBackward:
    """Gradients of a gated activation of one configuration: a callable that the DSL compiles."""

    def __init__(self, config: GatedConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        dy: cute.Tensor,
        gate: cute.Tensor,
        up: cute.Tensor,
        dgate: cute.Tensor,
        dup: cute.Tensor,
        stream: CUstream,
    ):
        """Launch on tensors (rows, columns)."""
        tiling, name = self.config.tiling, f"gated_backward_{self.config.name}"
        given = dy, gate, up, dgate, dup
        launch_rows(self.kernel, name, tiling, groups_of(gate, tiling), stream, *given, is_cluster=False)

    @cute.kernel
    def kernel(self, dy: cute.Tensor, gate: cute.Tensor, up: cute.Tensor, dgate: cute.Tensor, dup: cute.Tensor):
        """Compute a CTA's part of its rows."""
        tiling = self.config.tiling
        rows = make_parted_rows(tiling)
        row = cute.arch.block_idx()[0] // tiling.ctas * tiling.rows + rows.group
        follow_launch(True)
        fetched = rows.fetch(make_row_vectors(gate, tiling.elems), row, streams=True)
        fetched_up = rows.fetch(make_row_vectors(up, tiling.elems), row, streams=True)
        fetched_dy = rows.fetch(make_row_vectors(dy, tiling.elems), row, streams=True)
        gates, ups, grads = rows.held(fetched), rows.held(fetched_up), rows.held(fetched_dy)
        for n in cutlass.range_constexpr(cute.size(gates)):
            value, slope = ACTIVATIONS[self.config.activation](gates[n])
            gates[n] = grads[n] * ups[n] * slope
            ups[n] = grads[n] * value
        rows.store(gates, make_row_vectors(dgate, tiling.elems), row)
        rows.store(ups, make_row_vectors(dup, tiling.elems), row)
