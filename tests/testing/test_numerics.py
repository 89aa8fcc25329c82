"""The tolerances: wide enough for arithmetic that is right, too narrow for arithmetic that is wrong."""

import math

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, strategies as st  # noqa: E402

from cutepy.testing.numerics import OPERAND_ERROR, UNIT_ROUNDOFF, gemm_tolerance, relative_error  # noqa: E402

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


@pytest.mark.parametrize("k", [1, 64, 1000, 4096])
def test_the_bound_holds_for_an_emulated_tensor_core(k):
    torch.manual_seed(k)
    a, b = torch.randn(48, k).half(), torch.randn(40, k).half()
    result, exact = tensor_core(a, b, 16), a.double() @ b.double().t()
    for name, dtype in DTYPES.items():
        assert relative_error(result.to(dtype), exact) <= gemm_tolerance(k, 16, name), name


def test_the_bound_is_broken_by_one_lost_k_step():
    torch.manual_seed(0)
    a, b = torch.randn(48, 4096).half(), torch.randn(40, 4096).half()
    lost, exact = tensor_core(a[:, 16:], b[:, 16:], 16), a.double() @ b.double().t()
    for name, dtype in DTYPES.items():
        assert relative_error(lost.to(dtype), exact) > gemm_tolerance(4096, 16, name), name


@given(st.integers(1, 1 << 16))
def test_a_step_of_tf32_errs_as_one_of_16_bits(steps):
    """Both cut the accumulator at the last of 24 bits; tf32 rounds its operands besides."""
    assert OPERAND_ERROR[16] == 0
    wide, half = (gemm_tolerance(steps * k, bits, "float32") for k, bits in ((8, 32), (16, 16)))
    own = UNIT_ROUNDOFF["float32"]
    assert wide - own == pytest.approx(math.hypot(half - own, OPERAND_ERROR[32]))


def narrow_tensor_core(a, b):
    """Emulate 8-bit inputs: cut each product at 2**-13 of the power of two of the largest addend, 32 to a step."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64)
    for start in range(0, a.shape[1], 32):
        products = a[:, None, start : start + 32].double() * b[None, :, start : start + 32].double()
        largest = torch.maximum(total.abs(), products.abs().amax(-1)).clamp(min=1e-30)
        unit = torch.exp2(largest.log2().floor() - 13)
        total += ((products / unit[..., None]).trunc() * unit[..., None]).sum(-1)
    return total.float()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("k", [16, 1024, 14336])
def test_the_bound_for_8_bits_holds_and_is_broken_by_one_lost_step(k, dtype):
    torch.manual_seed(k)
    a, b = torch.randn(8, k).to(dtype).float(), torch.randn(8, k).to(dtype).float()
    exact, bound = a.double() @ b.double().t(), gemm_tolerance(k, 8, "float32")
    assert relative_error(narrow_tensor_core(a, b), exact) <= bound
    lost = narrow_tensor_core(a[:, 32:], b[:, 32:])
    assert relative_error(lost.bfloat16(), exact) > gemm_tolerance(k, 8, "bfloat16")


# Of D = A B^T with 512 x K normal operands and an fp32 result; NVIDIA H200, 2026-11-21, `cutepy.ops.gemm`.
MEASURED = {
    "e4m3": (8, {16: 3.6e-5, 64: 7.3e-5, 1024: 5.4e-4, 4096: 1.33e-3, 14336: 2.87e-3, 32768: 4.7e-3, 65536: 7.1e-3}),
    "e5m2": (8, {16: 2.5e-5, 64: 5.2e-5, 1024: 3.3e-4, 4096: 8.5e-4, 14336: 1.95e-3, 32768: 3.3e-3, 65536: 5.1e-3}),
    "half": (16, {16: 4.7e-8, 64: 1.1e-7, 1024: 1.3e-6, 4096: 4.9e-6, 14336: 1.7e-5, 32768: 3.8e-5, 65536: 7.7e-5}),
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_bound_is_near_what_was_measured(name):
    """Long sums err by a quarter of the bound or more, and by no more than 0.7 of it."""
    bits, errors = MEASURED[name]
    for k, error in errors.items():
        bound = gemm_tolerance(k, bits, "float32")
        assert error < 0.7 * bound
        assert k < 4096 or bound < 4 * error


def rounded_to_tf32(x, *, cut=False):
    """Round float32 to the nearest number of 11 bits, or cut the others off."""
    bits = x.view(torch.int32)
    return (bits + (0 if cut else 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("k", [8, 512, 4096])
def test_the_bound_for_tf32_holds_and_is_broken_by_bits_that_are_cut_off(k):
    torch.manual_seed(k)
    a, b = torch.randn(48, k), torch.randn(40, k)
    exact, bound = a.double() @ b.double().t(), gemm_tolerance(k, 32, "float32")
    assert relative_error(tensor_core(rounded_to_tf32(a), rounded_to_tf32(b), 8), exact) <= bound
    assert relative_error(tensor_core(*(rounded_to_tf32(x, cut=True) for x in (a, b)), 8), exact) > bound


@pytest.mark.parametrize(("bits", "extent"), [(8, 32), (16, 16), (32, 8)])
@pytest.mark.parametrize("k", [128, 4096, 14336, 65536])
def test_no_lost_step_is_within_the_bound(k, bits, extent):
    assert gemm_tolerance(k, bits, "bfloat16") < (extent / k) ** 0.5
    assert gemm_tolerance(k, bits, "float16") < gemm_tolerance(k, bits, "bfloat16")
    assert gemm_tolerance(k, bits, "float32") > UNIT_ROUNDOFF["float32"]


def test_relative_error():
    zeros = torch.zeros(3, 3)
    assert relative_error(zeros, zeros) == 0.0
    assert relative_error(zeros, torch.ones(3, 3)) == 1.0
    poisoned = torch.ones(3, 3)
    poisoned[1, 1] = float("nan")
    assert not relative_error(poisoned, torch.ones(3, 3)) <= 1e9
    assert relative_error(torch.zeros(0, 3), torch.zeros(0, 3)) == 0.0
    assert relative_error(torch.ones(3, 3), zeros) == float("inf")
    assert not relative_error(poisoned, zeros) <= 1e9
