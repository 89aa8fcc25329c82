"""Two consumers in turns that read a ring of C, and launches that overlap: silent and certified, and right."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from cutepy import simulate  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402

TYPES = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float16"}


def integers(rows, columns, dtype):
    return torch.randint(-2, 3, (rows, columns)).to(dtype)


@pytest.mark.parametrize(
    ("c_dtype", "c_major", "cluster_m"),
    [
        pytest.param("float16", "row", 1, id="halves"),
        pytest.param("float32", "col", 2, id="multicast", marks=pytest.mark.integration),
    ],
)
def test_c_is_added_in_turns(c_dtype, c_major, cluster_m):
    torch.manual_seed(0)
    signature = GemmSignature.standard(**TYPES, c_dtype=c_dtype, c_major=c_major)
    tiles = {"tile_m": 64, "tile_n": 64, "consumers": 2, "cluster_m": cluster_m}
    kernel = compile_gemm(GemmConfig(signature=signature, **tiles))
    a, b = integers(200, 72, torch.float16), integers(72, 72, torch.float16)
    c = integers(200, 72, getattr(torch, c_dtype))
    c = c if c_major == "row" else c.t().contiguous().t()
    d, e = torch.empty(200, 72, dtype=torch.float16), torch.empty(200, 72, dtype=torch.float16)
    expected = (a.float() @ b.float().t() + c.float()).half()
    with simulate(sanitize=True) as run:
        kernel(a, b, c, d, 2, None)
        kernel(a, b, d if c_dtype == "float16" else c, e, 2, None)  # begins before the first has ended, and reads it
    assert torch.equal(d, expected)
    if c_dtype == "float16":
        assert torch.equal(e, (a.float() @ b.float().t() + expected.float()).half())
    assert not run.hazards
    assert all(certificate.is_certified for certificate in run.certificates)
