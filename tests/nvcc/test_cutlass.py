"""CUTLASS's collectives, launched by an unmodified GemmUniversalAdapter."""

import pytest
import torch

from cutepy.frontends import simulate
from cutepy.frontends.cuda_runtime import load_cuda_library
from tests.nvcc.compiler import compiled, cutlass

_KINDS = {
    "cooperative": (torch.float16, (256, 256, 192, 1)),
    "pingpong": (torch.bfloat16, (128, 256, 128, 2)),
    "stream-k": (torch.float16, (128, 256, 1024, 1)),
    "fp8": (torch.float8_e4m3fn, (128, 256, 256, 1)),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_gemm(kind):
    dtype, (m, n, k, batch) = _KINDS[kind]
    options = f"-DKIND={list(_KINDS).index(kind)}", "--expt-relaxed-constexpr", *(f"-I{x}" for x in cutlass())
    host, ptx = (compiled("cutlass_gemm.cu", form, *options) for form in ("so", "ptx"))
    library = load_cuda_library(host, ptx.read_text())
    torch.manual_seed(0)
    a, b = torch.randn(batch, m, k).to(dtype), torch.randn(batch, n, k).to(dtype)
    c, d = torch.randn(batch, n, m), torch.zeros(batch, n, m)
    with simulate(sanitize=True) as run:
        assert library.call("gemm", m, n, k, batch, a, b, c, d, 1.5, 0.5) == 0
    (certificate,) = run.certificates
    assert certificate.is_certified == (kind != "stream-k")  # in which locks steer
    expected = 1.5 * torch.einsum("lmk,lnk->lnm", a.double(), b.double()) + 0.5 * c
    # Sums of K products, each rounded to 24 bits.
    error = k**0.5 * 2**-23 * expected.abs().max()
    torch.testing.assert_close(d, expected.float(), rtol=0, atol=float(error))
