"""Attention forward as exports have it: the launch decides what the host decides in process (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy.device.primitives import select
from cutepy.kernels.attention.choice import SHORT
from cutepy.kernels.attention.config import ForwardConfig
from cutepy.kernels.attention.forward import Forward


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
            ctas = select(cute.size(q, mode=[1]) > SHORT, cutlass.Int32(1 << 30), sm_count)
        none = cutlass.Int32(0)
        Forward(self.config)(q, k, v, o, lse, scale, none, none, ctas, None, None, None, None, stream)
