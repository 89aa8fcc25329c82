"""The GEMM as it is called with C and a bias, by these names (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy.kernels.gemm.kernel import Gemm


class StandardGemm(Gemm):
    """D = activation(A B^T + C + bias): the same kernel, called with what that has names for, None where it is absent.

    `GemmSignature.standard` has such an epilogue.
    """

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        c: cute.Tensor | None,
        d: cute.Tensor,
        sm_count: cutlass.Int32,
        stream: CUstream,
        bias: cute.Tensor | None = None,
        workspace: tuple | None = None,
    ):
        """Launch."""
        self.launch(a, b, self.given(c=c, bias=bias), (d,), sm_count, stream, workspace=workspace)

    def given(self, **named):
        """Put operands in the order of the graph's."""
        return tuple(named[operand.name] for operand in self.graph.operands)
