"""CUTLASS's sparse GEMM, launched by its own host code."""

import pytest
import torch

from cutepy.frontends.cuda_runtime import load_cuda_library
from tests.nvcc.compiler import compiled, cutlass


@pytest.mark.parametrize("kind", ["f16", "e4m3"])
def test_sparse_gemm(kind):
    """CUTLASS's compressor writes the metadata, as its kernels on a GPU take them: their layout is the hardware's."""
    number, dtype = {"f16": (0, torch.float16), "e4m3": (1, torch.float8_e4m3fn)}[kind]
    options = f"-DKIND={number}", "--expt-relaxed-constexpr", *(f"-I{x}" for x in cutlass())
    host, ptx = (compiled("cutlass_sparse.cu", form, *options) for form in ("so", "ptx"))
    library = load_cuda_library(host, ptx.read_text())
    m, n, k = 128, 128, 256
    torch.manual_seed(0)
    keep = torch.rand(m, k // 4, 4).argsort(-1) < 2
    a = torch.where(keep.reshape(m, k), torch.randn(m, k), torch.zeros(())).to(dtype)
    b, d = torch.randn(n, k).to(dtype), torch.zeros(n, m)
    assert library.call("sparse_gemm", m, n, k, a, b, d) == 0
    expected = b.double() @ a.double().T
    # Sums of K products, each rounded to 24 bits.
    torch.testing.assert_close(d, expected.float(), rtol=0, atol=float(k**0.5 * 2**-23 * expected.abs().max()))
