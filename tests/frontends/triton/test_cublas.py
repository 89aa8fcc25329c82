"""Triton's cuBLAS in the simulator: products that its tutorials compare with, against torch in float64."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="needs triton: make check installs it, or pip install 'cutepy[triton]'")

pytestmark = pytest.mark.integration


@pytest.fixture
def library():
    import cutepy

    with cutepy.frontends.serve_cuda(arch="sm_100a"):
        from triton._C.libtriton import nvidia

        original = nvidia.cublas.CublasLt
        assert original.__module__ == "cutepy.frontends.triton.cublas"
        yield original(torch.empty(0))


def test_products_of_rows(library):
    a, b, c, d = torch.randn(40, 24), torch.randn(56, 24), torch.randn(40, 56), torch.empty(40, 56)
    library.matmul(a.half(), b.half(), d)
    torch.testing.assert_close(d.double(), a.half().double() @ b.half().double().t(), atol=1e-5, rtol=1e-5)
    library.gemm(a, b, c, d, 2.0, 0.5)
    torch.testing.assert_close(d.double(), 2 * (a.double() @ b.double().t()) + 0.5 * c.double(), atol=1e-5, rtol=1e-5)


def _in_tiles(scales):
    rows, blocks = scales.shape
    return scales.reshape(rows // 128, 4, 32, blocks // 4, 4).permute(0, 3, 2, 1, 4).flatten()


def test_products_with_scales_of_blocks(library):
    a, b = (torch.randn(128, 256).to(torch.float8_e4m3fn) for _ in range(2))
    scales = [torch.randint(124, 131, (128, 8), dtype=torch.uint8) for _ in range(2)]
    d = torch.empty(128, 128)
    library.block_scaled_matmul_mxfp8(a, b, d, *map(_in_tiles, scales))
    x, y = (
        v.double() * (2.0 ** (s.double() - 127)).repeat_interleave(32, 1) for v, s in zip((a, b), scales, strict=True)
    )
    torch.testing.assert_close(d.double(), x @ y.t(), atol=1e-3, rtol=1e-5)
    packed = [torch.randint(0, 256, (128, 32), dtype=torch.uint8) for _ in range(2)]
    scales = [torch.rand(128, 4).to(torch.float8_e4m3fn) for _ in range(2)]
    library.block_scaled_matmul_nvfp4(*packed, d, *(_in_tiles(s.view(torch.uint8)) for s in scales))
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    values = torch.cat([values, -values])
    x, y = (
        torch.stack([values[(v & 15).long()], values[(v >> 4).long()]], -1).flatten(1)
        * s.double().repeat_interleave(16, 1)
        for v, s in zip(packed, scales, strict=True)
    )
    torch.testing.assert_close(d.double(), x @ y.t(), atol=1e-3, rtol=1e-5)


def test_the_original_is_put_back():
    from triton._C.libtriton import nvidia

    import cutepy

    before = nvidia.cublas.CublasLt
    with cutepy.frontends.serve_cuda(arch="sm_100a"):
        pass
    assert nvidia.cublas.CublasLt is before
