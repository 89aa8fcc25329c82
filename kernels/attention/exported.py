"""Attention as exports have it: the launch decides how many CTAs there are (traced).

The configurations are those of `for_batches`: CTAs take tiles without a counter, and heads that share keys are not
packed into one tile.
"""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy.device.primitives import select
from cutepy.kernels.attention.backward import Backward
from cutepy.kernels.attention.choice import SHORT, WIDE, has_cta_each
from cutepy.kernels.attention.config import DQ_COLUMNS, BackwardConfig, ForwardConfig
from cutepy.kernels.attention.forward import Forward
from cutepy.kernels.attention.rows import RowsOfDq, Statistics


class ExportedForward:
    """Attention forward of one configuration, without a window: a callable that the DSL compiles."""

    def __init__(self, config: ForwardConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale: cutlass.Float32,
        sm_count: cutlass.Int32,
        stream: CUstream,
    ):
        """Launch on tensors as of `Forward`, with as many CTAs as `ctas_of` says."""
        ctas = sm_count
        if cutlass.const_expr(self.config.right):
            widest = max(self.config.head, self.config.head_v)
            ctas = select((cute.size(q, mode=[1]) > SHORT) | (widest > WIDE), cutlass.Int32(1 << 30), sm_count)
        elif cutlass.const_expr(max(self.config.head, self.config.head_v) > WIDE):
            ctas = select(cute.size(q, mode=[1]) > SHORT, cutlass.Int32(1 << 30), sm_count)
        none = cutlass.Int32(0)
        Forward(self.config)(q, k, v, o, lse, scale, none, none, ctas, None, None, None, None, stream)


class ExportedBackward:
    """Attention backward of one configuration, without a window, all of its kernels: a callable that the DSL compiles.

    Memory that they pass on is the caller's.
    """

    def __init__(self, config: BackwardConfig):
        self.config = config

    @cute.jit
    def __call__(
        self,
        grad_o: cute.Tensor,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        stats: cute.Tensor,
        sums: cute.Tensor,
        dq: cute.Tensor,
        dk: cute.Tensor,
        dv: cute.Tensor,
        scale: cutlass.Float32,
        sm_count: cutlass.Int32,
        stream: CUstream,
    ):
        """Launch on tensors as of `Backward`; stats (batch, heads, 2, padded), sums (batch, heads, padded, width)."""
        config, none, ctas = self.config, cutlass.Int32(0), sm_count
        each = [has_cta_each(n, is_uneven=config.right, gradients_of=config.head) for n in (SHORT, SHORT + 1)]
        if cutlass.const_expr(each[0]):
            ctas = cutlass.Int32(1 << 30)
        elif cutlass.const_expr(each[1]):
            ctas = select(cute.size(q, mode=[1]) > SHORT, cutlass.Int32(1 << 30), sm_count)
        rows = cute.size(sums, mode=[2]) // config.tile_q * (config.tile_q * config.width // DQ_COLUMNS)
        shape, strides = (*sums.shape[:2], rows, DQ_COLUMNS), (*sums.stride[:2], DQ_COLUMNS, 1)
        sums = cute.make_tensor(sums.iterator, cute.make_layout(shape, stride=strides))
        Statistics(config)(o, grad_o, lse, None, stats, sums, None, stream)
        Backward(config)(q, k, v, grad_o, stats, sums, dk, dv, scale, none, none, ctas, None, None, stream)
        RowsOfDq(config)(sums, dq, scale, None, stream)
