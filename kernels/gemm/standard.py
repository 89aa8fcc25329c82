"""The standard GEMM, called with C and a bias as named arguments (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

from cutepy.kernels.gemm.kernel import Gemm


class StandardGemm(Gemm):
    """D = activation(A B^T + C + bias): `Gemm` with named operands, None where absent.

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
        """Order the operands as the graph has them."""
        return tuple(named[operand.name] for operand in self.graph.operands)
