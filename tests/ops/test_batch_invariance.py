"""A row has the same bits in any batch where that is asked for."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy import simulate  # noqa: E402
from cutepy.kernels.gemm import GemmSignature  # noqa: E402
from cutepy.kernels.gemm.choice import choose  # noqa: E402
from cutepy.kernels.grouped import select_grouped  # noqa: E402
from cutepy.ops import batch_invariant, gemm, grouped_gemm, quantise, scaled_gemm  # noqa: E402

HALF = GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16")


def test_k_is_whole_within_the_context():
    assert choose(HALF, 64, 64, 8192).config.split_k > 1
    with batch_invariant():
        with batch_invariant():
            pass
        assert choose(HALF, 64, 64, 8192).config.split_k == 1
    assert choose(HALF, 64, 64, 8192).config.split_k > 1


def test_k_of_groups_is_whole_within_the_context():
    problem = HALF, "m", (64, 64, 8192), 4
    assert select_grouped(*problem).config.gemm.split_k > 1
    with batch_invariant():
        assert select_grouped(*problem).config.gemm.split_k == 1
    assert select_grouped(*problem).config.gemm.split_k > 1


@pytest.mark.dsl
def test_a_call_is_not_answered_by_the_kernel_of_another_mode():
    torch.manual_seed(0)
    a, b = torch.randn(200, 1024).half(), torch.randn(48, 1024).half()
    with simulate() as run:
        gemm(a[:8], b)
        with batch_invariant():
            alone, among = gemm(a[:8], b), gemm(a, b)
    parts = [launch.grid[2] for launch in run.launches]
    assert parts[0] > 1
    assert parts[1:] == [1, 1]
    assert torch.equal(alone, among[:8])


def of_groups():
    a, b = torch.randn(16, 1024).half(), torch.randn(2, 48, 1024).half()
    return lambda: grouped_gemm(a, b, offs=torch.tensor([9, 16], dtype=torch.int32))


def of_scales():
    (a, scale_a), (b, scale_b) = quantise(torch.randn(8, 4096)), quantise(torch.randn(48, 4096), (128, 128))
    return lambda: scaled_gemm(a, b, scale_a, scale_b)


@pytest.mark.dsl
@pytest.mark.parametrize("make", [of_groups, of_scales])
def test_other_products_are_not_answered_by_the_kernel_of_another_mode(make):
    torch.manual_seed(0)
    multiply = make()
    with simulate() as run:
        multiply()
        with batch_invariant():
            multiply()
        multiply()
    before, within, after = [launch.grid[2] for launch in run.launches]
    assert before == after > within == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize(("n", "k"), [(4096, 7168), (264, 14336), (6144, 96)])
def test_rows_alone_and_among_others(dtype, n, k):
    torch.manual_seed(0)
    a, b = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (2048, n))
    with batch_invariant():
        among = gemm(a, b)
        for rows in (1, 7, 64, 192, 700):
            assert torch.equal(gemm(a[:rows], b), among[:rows]), rows
