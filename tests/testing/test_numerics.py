"""The tolerances: wide enough for arithmetic that is right, too narrow for arithmetic that is wrong."""

import pytest

torch = pytest.importorskip("torch")

from cutepy.testing.numerics import gemm_tolerance, relative_error  # noqa: E402

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def tensor_core(a, b, step):
    """Emulate: sum the products of each K step exactly, add the accumulator, cut to fp32 towards zero."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float32)
    for start in range(0, a.shape[1], step):
        exact = total.double() + a[:, start : start + step].double() @ b[:, start : start + step].double().t()
        rounded = exact.float()
        beyond = rounded.double().abs() > exact.abs()
        total = torch.where(beyond, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)
    return total


@pytest.mark.parametrize("out_dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 64, 1000, 4096])
def test_the_bound_holds_for_an_emulated_tensor_core(k, out_dtype):
    torch.manual_seed(k)
    a, b = torch.randn(48, k).half(), torch.randn(40, k).half()
    result = tensor_core(a, b, 16).to(DTYPES[out_dtype])
    assert relative_error(result, a.double() @ b.double().t()) <= gemm_tolerance(k, 16, out_dtype)


@pytest.mark.parametrize("out_dtype", DTYPES)
def test_the_bound_is_broken_by_one_lost_k_step(out_dtype):
    torch.manual_seed(0)
    a, b = torch.randn(48, 4096).half(), torch.randn(40, 4096).half()
    lost = tensor_core(a[:, 16:], b[:, 16:], 16).to(DTYPES[out_dtype])
    assert relative_error(lost, a.double() @ b.double().t()) > gemm_tolerance(4096, 16, out_dtype)


def test_relative_error():
    zeros = torch.zeros(3, 3)
    assert relative_error(zeros, zeros) == 0.0
    assert relative_error(zeros, torch.ones(3, 3)) == 1.0
    poisoned = torch.ones(3, 3)
    poisoned[1, 1] = float("nan")
    assert not relative_error(poisoned, torch.ones(3, 3)) <= 1e9
    assert relative_error(torch.zeros(0, 3), torch.zeros(0, 3)) == 0.0
