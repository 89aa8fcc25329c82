"""CUTLASS's collectives for a B200, launched by an unmodified GemmUniversalAdapter: dense, of pairs, block-scaled."""

import pytest
import torch

from cutepy.frontends import simulate
from cutepy.frontends.cuda_runtime import load_cuda_library
from cutepy.sim import HazardError
from tests.nvcc.compiler import compiled, cutlass

_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
_NIBBLES = torch.cat([_E2M1, -_E2M1])
_KINDS = {
    "dense": (torch.float16, (256, 256, 192, 2)),
    "pairs": (torch.float16, (512, 512, 192, 1)),
    "stream-k": (torch.float8_e4m3fn, (128, 256, 1024, 1)),
    "nvfp4": (torch.uint8, (256, 256, 512, 1)),
    "mxfp8": (torch.float8_e4m3fn, (256, 256, 256, 1)),
}
_UNFENCED = {"pairs", "mxfp8"}
"""Kinds in which a warp initialises the barrier of a pair's deallocation behind the last fence: see findings.md."""


@pytest.mark.parametrize("kind", _KINDS)
def test_gemm(kind):
    dtype, (m, n, k, batch) = _KINDS[kind]
    options = f"-DKIND={list(_KINDS).index(kind)}", "--expt-relaxed-constexpr", *(f"-I{x}" for x in cutlass())
    host, ptx = (compiled("cutlass_sm100.cu", form, *options, arch="sm_100a") for form in ("so", "ptx"))
    library = load_cuda_library(host, ptx.read_text())
    torch.manual_seed(0)
    (a, scale_a, x), (b, scale_b, y) = (_operand(kind, dtype, batch, rows, k) for rows in (m, n))
    out = torch.float32 if scale_a is None else torch.bfloat16
    c, d = torch.randn(batch, m, n).to(out), torch.zeros(batch, m, n, dtype=out)
    found = []
    try:
        with simulate(sanitize=True, arch="sm_100a"):
            assert library.call("gemm", m, n, k, batch, a, b, scale_a, scale_b, c, d, 1.5, 0.5) == 0
    except HazardError as error:
        found = [hazard.kind for hazard in error.hazards]
    assert found == ["missing-init-fence"] * (kind in _UNFENCED)
    expected = 1.5 * torch.einsum("lmk,lnk->lmn", x, y) + 0.5 * c.double()
    # Sums of K products, each rounded to 24 bits; the result is rounded to half an ulp.
    error = k**0.5 * 2**-23 * expected.abs().max() + torch.finfo(out).eps / 2 * expected.abs()
    assert bool(((d.double() - expected).abs() <= error).all())


def _operand(kind, dtype, batch, rows, k):
    """Return the operand, its scales in tiles of 128 rows by 4 blocks, and the values that both stand for."""
    if kind == "nvfp4":
        packed = torch.randint(0, 256, (batch, rows, k // 2), dtype=torch.uint8)
        values = torch.stack([_NIBBLES[(packed & 15).long()], _NIBBLES[(packed >> 4).long()]], -1).flatten(2)
        scales = (2 * torch.rand(batch, rows, k // 16) + 0.25).to(torch.float8_e4m3fn)
        return packed, _tiled(scales.view(torch.uint8)), values * scales.double().repeat_interleave(16, -1)
    plain = torch.randn(batch, rows, k).to(dtype)
    if kind != "mxfp8":
        return plain, None, plain.double()
    scales = torch.randint(124, 130, (batch, rows, k // 32), dtype=torch.uint8)
    return plain, _tiled(scales), plain.double() * (2.0 ** (scales.double() - 127)).repeat_interleave(32, -1)


def _tiled(scales):
    batch, rows, blocks = scales.shape
    tiles = scales.reshape(batch, rows // 128, 4, 32, blocks // 4, 4)
    return tiles.permute(0, 1, 4, 3, 2, 5).contiguous()
