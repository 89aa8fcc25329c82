"""cuBLAS, as Triton offers it to compare with: `triton._C.libtriton.nvidia.cublas.CublasLt`, composed of torch.

References
----------
Triton 3.9: `third_party/nvidia/triton_nvidia.cc`, `include/cublas_instance.h`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class CublasLt:
    """Products of row-major A (M, K) and B (N, K), written to a tensor (M, N): A times B transposed.

    Parameters
    ----------
    workspace : Tensor
        Not needed here.
    """

    def __init__(self, workspace: object) -> None:
        self._torch: Any = import_module("torch")

    def matmul(self, a: Any, b: Any, c: Any) -> None:  # noqa: ANN401
        """Write the product to C."""
        c.copy_(a.float() @ b.float().t())

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:  # noqa: ANN401
        """Write alpha times the product plus beta times C to D."""
        d.copy_(alpha * (a.float() @ b.float().t()) + beta * c.float())

    def block_scaled_matmul_mxfp8(self, a: Any, b: Any, d: Any, scale_a: Any, scale_b: Any) -> None:  # noqa: ANN401
        """Write the product of float8 with an exponent for each 32 elements of K, in tiles of 128 rows by 4."""
        self._scaled(a, b, d, *(scale.view(self._torch.float8_e8m0fnu) for scale in (scale_a, scale_b)))

    def block_scaled_matmul_nvfp4(self, a: Any, b: Any, d: Any, scale_a: Any, scale_b: Any) -> None:  # noqa: ANN401
        """Write the product of e2m1, two in a byte, with a float8 for each 16 elements of K, in tiles of 128 by 4."""
        packed = self._torch.float4_e2m1fn_x2
        scales = (scale.view(self._torch.float8_e4m3fn) for scale in (scale_a, scale_b))
        self._scaled(a.view(packed), b.view(packed), d, *scales)

    def _scaled(self, a: Any, b: Any, d: Any, scale_a: Any, scale_b: Any) -> None:  # noqa: ANN401
        from cutepy.frontends.torch_device.scaled_products import scaled_mm  # needs torch

        d.copy_(scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=self._torch.float32))
