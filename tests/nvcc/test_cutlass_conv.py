"""CUTLASS's implicit GEMM convolutions, launched by their own host code."""

import pytest
import torch

from cutepy.frontends.cuda_runtime import load_cuda_library
from tests.nvcc.compiler import compiled, cutlass

_SHAPES = [
    # n, h, w, c; k, r, s; padding, stride and dilation of h and w.
    ((2, 8, 9, 64), (64, 3, 3), (1, 1), (1, 1), (1, 1)),
    ((1, 9, 12, 64), (64, 3, 2), (1, 0), (2, 1), (1, 2)),
    ((3, 7, 7, 128), (64, 1, 1), (0, 0), (1, 1), (1, 1)),
    ((2, 11, 10, 64), (128, 3, 3), (2, 1), (2, 3), (2, 1)),
]


@pytest.mark.parametrize(("image", "filters", "padding", "stride", "dilation"), _SHAPES)
def test_convolution(image, filters, padding, stride, dilation):
    """Images come by TMA in im2col mode."""
    torch.manual_seed(0)
    x, f = torch.randn(image).half(), torch.randn(*filters, image[-1]).half()
    nchw = (t.double().permute(0, 3, 1, 2) for t in (x, f))
    expected = torch.nn.functional.conv2d(*nchw, stride=stride, padding=padding, dilation=dilation).permute(0, 2, 3, 1)
    d = torch.zeros(expected.shape)
    sizes = *image, *filters, *padding, *stride, *dilation
    options = "--expt-relaxed-constexpr", *(f"-I{x}" for x in cutlass())
    host, ptx = (compiled("cutlass_conv.cu", form, *options) for form in ("so", "ptx"))
    library = load_cuda_library(host, ptx.read_text())
    assert library.call("convolve", *sizes, x, f, d) == 0
    k = f[0].numel()
    torch.testing.assert_close(d, expected.float(), rtol=0, atol=float(k**0.5 * 2**-23 * expected.abs().max()))
