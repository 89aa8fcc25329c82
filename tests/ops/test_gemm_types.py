"""`cutepy.ops.gemm` of float32, which torch's settings let be rounded to tf32, and of 8-bit integers."""

import contextlib

import pytest

from tests.messages import refuses

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.epilogues import Column, Row, identity  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.ops import gemm  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, relative_error  # noqa: E402
from tests.ops import operations  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
I8, U8, I32 = torch.int8, torch.uint8, torch.int32


@pytest.fixture(autouse=True)
def tf32():
    """Let float32 be rounded, within a test."""
    torch.manual_seed(20261123)
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


def integers(*shape, dtype=I8):
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, dtype=dtype)


def exact(a, b):
    return (a.long() @ b.long().mT).int()


@cutepy.epilogue
def dequantised(acc, rows: Column, columns: Row):
    return {"y": acc * rows * columns, "most": abs(acc).max()}


SHAPES = {
    "odd": lambda make: (make(33, 77), make(41, 77)),
    "a batch of transposed matrices": lambda make: (make(2, 80, 32).mT, make(3, 1, 40, 80)),
    "no sum": lambda make: (make(4, 0), make(8, 0)),
}


@pytest.mark.dsl
@pytest.mark.parametrize(
    "name", ["odd", pytest.param("a batch of transposed matrices", marks=pytest.mark.deep), "no sum"]
)
def test_any_shape_and_strides(name):
    a, b = SHAPES[name](torch.randn)
    with cutepy.simulate():
        found = [gemm(a, b) for _ in range(2)]  # the second call takes the short way
    bound = gemm_tolerance(max(a.shape[-1], 1), 32, "float32")
    for result in (*found, gemm(a, b)):
        assert result.dtype == F32
        assert relative_error(result, gemm_reference(a, b)) <= bound
    a, b = SHAPES[name](integers)
    a = a.to(U8)
    with cutepy.simulate():
        found = [gemm(a, b) for _ in range(2)]
    for result in (*found, gemm(a, b)):
        assert result.dtype == I32
        assert torch.equal(result, exact(a, b))


@pytest.mark.dsl
@pytest.mark.parametrize("simulated", [False, True])
def test_integers_as_torch_multiplies_them(simulated):
    a, b = integers(40, 64), integers(24, 64)
    out, scales = torch.empty(40, 24, dtype=I32), (torch.rand(40) / 64, torch.rand(24) / 64)
    sums = torch._int_mm(a, b.t())
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        assert torch.equal(gemm(a, b), sums)
        assert gemm(a, b, out=out) is out
        assert torch.equal(out, sums)
        assert torch.equal(gemm(a, b, out_dtype=F32), sums.float())
        found = gemm(a, b, epilogue=dequantised, rows=scales[0], columns=scales[1])
        transposed = gemm(a[:3], b)  # few rows are computed as columns
    assert found["y"].dtype == gemm(a, b, bias=scales[1]).dtype == BF16
    assert torch.equal(gemm(a, b, epilogue=identity, out_dtype=I32), sums)
    assert torch.equal(torch.vmap(lambda x: gemm(x, b))(torch.stack([a, a])), torch.stack([sums, sums]))
    assert relative_error(found["y"], sums.double() * scales[0].unsqueeze(1) * scales[1]) <= 2**-8
    assert found["most"] == sums.abs().max()
    assert torch.equal(transposed, sums[:3])


A, B = torch.zeros(4, 16, dtype=I8), torch.zeros(8, 16, dtype=I8)
REFUSED = {
    "a bias": (lambda: gemm(A, B, bias=torch.zeros(8), out_dtype=I32), TypeError),
    "activation": (lambda: gemm(A, B, activation="relu", out_dtype=I32), TypeError),
    "out": (lambda: gemm(A, B, c=torch.zeros(8), out=torch.zeros(4, 8, dtype=I32)), TypeError),
    "c": (lambda: gemm(A, B, c=torch.zeros(8, dtype=I32)), TypeError),
    "epilogue": (
        lambda: gemm(A, B, epilogue=dequantised, rows=torch.ones(4), columns=torch.ones(8), out_dtype=I32),
        TypeError,
    ),
    "floats": (lambda: gemm(A.half(), B.half(), out_dtype=I32), TypeError),
    "floats with integers": (lambda: gemm(A.half(), B), TypeError),
    "16 bits": (lambda: gemm(A.short(), B.short()), TypeError),
    "a long sum": (lambda: gemm(A.new_zeros(4, 131072), A.new_zeros(4, 131072)), ValueError),
    "a long sum of larger ones": (lambda: gemm(A.byte().new_zeros(4, 33026), A.new_zeros(4, 33026).byte()), ValueError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_integers_have_no_product_for_is_refused(name):
    call, error = REFUSED[name]
    with refuses(error):
        call()


PRECISIONS = {
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "allow_tf32": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "fp32_precision": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
}


@pytest.mark.dsl
@pytest.mark.parametrize("name", PRECISIONS)
def test_float32_is_rounded_where_torch_may_and_refused_elsewhere(name):
    a, b = torch.randn(8, 16), torch.randn(8, 16)
    calls = [lambda: gemm(a, b), lambda: gemm(a, b, epilogue=identity), lambda: operations.gemm(a, b)]
    calls += [lambda: torch.ops.cutepy.gemm(a, b, [], [], "", identity.text)[0]]
    for simulated in (contextlib.nullcontext, cutepy.simulate):
        torch.set_float32_matmul_precision("highest")
        if name != "fp32_precision" or hasattr(torch.backends.cuda.matmul, "fp32_precision"):
            PRECISIONS[name]()
        else:
            pytest.skip("torch has this setting since 2.9")
        with simulated():
            for call in calls:
                assert call().dtype == F32
                call()
        torch.set_float32_matmul_precision("highest")
        with simulated():
            for call in calls:
                with refuses(TypeError):
                    call()
                with torch.autocast("cpu", dtype=BF16):
                    assert gemm(a, b).dtype == BF16


@pytest.mark.dsl
def test_derivatives_by_float32_are_products_of_it():
    a, b, bias = (torch.randn(shape, requires_grad=True) for shape in ((2, 9, 20), (24, 20), (24,)))
    weights = torch.randn(2, 9, 24)

    def gradients(product):
        return torch.autograd.grad((product * weights).sum(), (a, b, bias))

    expected = gradients(torch.relu(a.double() @ b.double().t() + bias))
    with cutepy.simulate() as run:
        found = gradients(gemm(a, b, bias=bias, activation="relu"))
    assert len(run.launches) == 3
    assert all(launch.name.startswith("cutepy_gemm_float32") for launch in run.launches)
    # Signs of sums near zero decide which gradients count: two of the roundings.
    for ours, wanted in zip(found, expected, strict=True):
        assert relative_error(ours, wanted) <= 2 * gemm_tolerance(24, 32, "float32")


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("dtype", [F32, I8])
def test_torch_sees_them_as_any_product(dtype):
    a, b = (torch.randn(4, 16), torch.randn(8, 16)) if dtype == F32 else (integers(4, 16), integers(8, 16))
    if dtype == F32:
        a.requires_grad_()
    compiled = torch.compile(lambda a, b: gemm(a, b) * 2, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(a, b), gemm(a, b) * 2)
