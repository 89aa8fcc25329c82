"""`gemm` with C, and results of either order: values, derivatives, transforms and refusals."""

import contextlib

import pytest

from tests.messages import refuses

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.kernels.gemm.reference import ACTIVATION_FUNCTIONS, gemm_reference  # noqa: E402
from cutepy.ops import gemm  # noqa: E402
from tests.ops import operations  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261122)


def integers(*shape, dtype=F16):
    """Small integers: every sum is exact."""
    return torch.randint(-3, 4, shape).to(dtype)


CASES = {
    "matrices": ((33, 72), (40, 72), lambda: integers(33, 40)),
    "float32": ((33, 72), (40, 72), lambda: integers(33, 40, dtype=F32)),
    "transposed": ((40, 72), (40, 72), lambda: integers(40, 40).mT),
    "odd n": ((33, 72), (41, 72), lambda: integers(33, 41)),
    "all odd": ((33, 71), (41, 71), lambda: integers(33, 41, dtype=BF16)),
    "neither contiguous": ((33, 72), (40, 72), lambda: integers(33, 80)[:, ::2]),
    "within 16 bytes": ((33, 72), (40, 72), lambda: integers(33 * 40 + 1)[1:].view(33, 40)),
    "a row for all": ((33, 72), (40, 72), lambda: integers(40)),
    "a column for all": ((33, 72), (40, 72), lambda: integers(33, 1)),
    "one number": ((33, 72), (40, 72), lambda: integers()),
    "a vector": ((64,), (48, 64), lambda: integers(48)),
    "leading dimensions": ((2, 3, 7, 16), (24, 16), lambda: integers(2, 3, 7, 24)),
    "leading dimensions apart": ((2, 7, 16), (24, 16), lambda: integers(7, 2, 24).transpose(0, 1)),
    "one matrix for leading dimensions": ((3, 7, 16), (24, 16), lambda: integers(7, 24)),
    "a batch": ((3, 9, 16), (3, 24, 16), lambda: integers(3, 9, 24)),
    "one matrix for a batch": ((3, 9, 16), (3, 24, 16), lambda: integers(9, 24)),
    "broadcast batches": ((2, 1, 9, 16), (3, 24, 16), lambda: integers(3, 9, 24)),
    "8-bit": ((33, 80), (40, 80), lambda: integers(33, 40, dtype=BF16)),
    "no sum": ((4, 0), (8, 0), lambda: integers(4, 8)),
    "many modes": ((2, 1, 3, 1, 4, 8), (1, 2, 1, 3, 8, 8), lambda: integers(2, 1, 1, 3, 4, 8)),
}


OFTEN_BY_COLUMNS = "transposed", "odd n", "a row for all", "leading dimensions", "a batch"


@pytest.mark.first(10)
@pytest.mark.dsl
@pytest.mark.parametrize(
    ("name", "out_major"),
    [
        *((name, "row") for name in CASES),
        *(pytest.param(n, "col", marks=() if n in OFTEN_BY_COLUMNS else pytest.mark.deep) for n in CASES),
    ],
)
def test_values_and_strides(name, out_major):
    a_shape, b_shape, make = CASES[name]
    dtype = E4M3 if name == "8-bit" else F16
    a, b, c = integers(*a_shape, dtype=dtype), integers(*b_shape, dtype=dtype), make()
    exact = gemm_reference(a, b, c, None, "relu")
    plain = gemm(a, b, c=c, activation="relu", out_dtype=F32, out_major=out_major)
    with cutepy.simulate() as run:
        results = [gemm(a, b, c=c, activation="relu", out_dtype=F32, out_major=out_major) for _ in range(2)]
    assert len(run.launches) == (0 if name == "no sum" else 4 if name == "many modes" else 2)
    for result in (plain, *results):
        assert torch.equal(result.double(), exact)
        assert (result if out_major == "row" or result.dim() < 2 else result.mT).is_contiguous()


@pytest.mark.dsl
@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("n", [40, 41])
def test_c_itself_may_receive_the_result(n, simulated):
    a, b, c = integers(3, 33, 72), integers(3, n, 72), integers(3, 33, n, dtype=F32)
    expected = gemm_reference(a, b, c)
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        for call in (
            lambda: gemm(a, b, c=(into := c.clone()), out=into),
            lambda: operations.gemm_out(a, b, None, None, (into := c.clone()), into) or into,
        ):
            assert torch.equal(call().double(), expected)
        with refuses(ValueError):
            gemm(a[:2], b[:2], c=c[:2], out=c[1:])


def gradients(product, *tensors):
    inputs = [t.detach().requires_grad_() for t in tensors]
    result = product(*inputs)
    weights = torch.linspace(0.5, 1, result.numel()).view(result.shape)
    return torch.autograd.grad((result.float() * weights).sum(), inputs)


GRADIENTS = [(((6, 24), (40, 24)), (6, 40)), (((2, 3, 7), (5, 7)), (3, 1)), (((3, 8), (2, 8, 8)), (8,))]


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("shapes", "c_shape", "activation", "simulated"),
    [(*shapes, name, False) for shapes in GRADIENTS for name in ACTIVATION_FUNCTIONS]
    + [
        pytest.param(*shapes, name, True, marks=() if (n % 2 == 0) == (name == "gelu") else pytest.mark.deep)
        for n, shapes in enumerate(GRADIENTS)
        for name in (None, "gelu")
    ],
)
def test_gradients(shapes, c_shape, activation, simulated):
    a, b = (torch.randn(shape).to(BF16) / 2 for shape in shapes)
    c = torch.randn(c_shape)
    exact = gradients(lambda a, b, c: gemm_reference(a, b, c, None, activation), a.double(), b.double(), c.double())
    for form in (
        lambda a, b, c: gemm(a, b, c=c, activation=activation, out_major="col"),
        lambda a, b, c: operations.gemm(a, b, None, activation, None, c, "col"),
    ):
        with cutepy.simulate() if simulated else contextlib.nullcontext():
            found = gradients(form, a, b, c)
        for ours, theirs, given in zip(found, exact, (a, b, c), strict=True):
            assert (ours.dtype, ours.shape) == (given.dtype, given.shape)
            assert (ours.double() - theirs).abs().max() <= 3 * 2**-8 * theirs.abs().max() + 1e-6


def test_c_is_not_kept_for_a_gradient_that_does_not_need_it():
    a, b, c = integers(4, 16).requires_grad_(), integers(8, 16), integers(4, 8)
    for activation in (None, "relu"):
        result = gemm(a, b, c=c, activation=activation)
        c.add_(1)
        result.sum().backward()


@pytest.mark.parametrize("name", ["bias", "c"])
def test_a_gradient_that_is_a_sum_is_one_in_fp32(name):
    """Of bf16 operands too: neither the sum nor what is summed is rounded to their 8 bits."""
    a, b = torch.zeros(257, 16, dtype=BF16).requires_grad_(), torch.zeros(8, 16, dtype=BF16)
    for dtype, out_dtype, given, expected in (
        (F32, BF16, 1.0, 257.0),
        (F32, F32, 1 + 2**-12, 257 * (1 + 2**-12)),
        (BF16, BF16, 1.0, 256.0),
    ):
        added = torch.zeros(8, dtype=dtype, requires_grad=True)
        result = gemm(a, b, out_dtype=out_dtype, **{name: added})
        found = torch.autograd.grad(result, (a, added), torch.full_like(result, given))[1]
        assert found.dtype == dtype
        assert torch.equal(found.float(), torch.full((8,), expected))


OPCHECK = {
    "plain": lambda: (integers(4, 16), integers(8, 16), None, None, None, integers(4, 8), "row"),
    "col": lambda: (integers(2, 4, 16), integers(8, 16), integers(8), "relu", F32, integers(8), "col"),
    "grad": lambda: (
        *(t.requires_grad_() for t in (integers(3, 4, 16), integers(8, 16), integers(8))),
        *("gelu", None, integers(4, 8, dtype=F32).requires_grad_(), "col"),
    ),
}


@pytest.mark.parametrize("name", OPCHECK)
def test_opcheck(name):
    a, b, bias, activation, out_dtype, c, out_major = OPCHECK[name]()
    given = (*operations.arguments(a, b, bias, activation, c), out_dtype, out_major)
    torch.library.opcheck(torch.ops.cutepy.gemm.default, given)


def test_opcheck_of_out():
    given = operations.arguments(integers(4, 16), integers(8, 16), c=integers(4, 8))
    arguments = (*given, [integers(4, 8)])
    torch.library.opcheck(torch.ops.cutepy.gemm_out.default, arguments)


def test_compiles():
    a, b, c = integers(4, 16), integers(8, 16), integers(4, 8)

    def model(a, b, c):
        return gemm(a, b, c=c, activation="silu", out_major="col") + gemm(a, b, c=c, out=torch.empty_like(c))

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(a, b, c), model(a, b, c))
    assert compiled(a, b, c).stride() == model(a, b, c).stride()


def test_exports():
    class Model(torch.nn.Module):
        def forward(self, a, b, c):
            return gemm(a, b, c=c, out_major="col")

    rows = torch.export.Dim("rows", min=2, max=64)
    given = integers(4, 16), integers(8, 16), integers(8)
    exported = torch.export.export(Model(), given, dynamic_shapes=({0: rows}, None, None))
    a = integers(7, 16)
    assert torch.equal(exported.module()(a, *given[1:]), gemm(a, given[1], c=given[2]))


def test_autocast():
    a, b, c = torch.randn(4, 16), torch.randn(8, 16), torch.randn(4, 8)
    with torch.autocast("cpu", dtype=BF16):
        found = gemm(a, b, c=c)
    assert torch.equal(found, gemm(a.to(BF16), b.to(BF16), c=c.to(BF16)))


@pytest.mark.parametrize("of_c", [None, 0, 1, -1])
@pytest.mark.parametrize("in_dims", [(None, None), (0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize(
    ("shapes", "c_shape"),
    [
        (((4, 16), (8, 16)), (4, 8)),
        (((4, 16), (8, 16)), (8,)),
        (((16,), (8, 16)), (8,)),
        (((2, 4, 16), (2, 8, 16)), (4, 1)),
        (((4, 16), (2, 8, 16)), (2, 1, 8)),
    ],
)
def test_vmap(shapes, c_shape, in_dims, of_c):
    if in_dims == (None, None) and of_c is None:
        pytest.skip("nothing to map")
    dims, all_shapes = (*in_dims, of_c), (*shapes, c_shape)
    tensors = [
        integers(*shape) if d is None else integers(3, *shape).movedim(0, d)
        for shape, d in zip(all_shapes, dims, strict=True)
    ]

    def product(a, b, c):
        return gemm(a, b, c=c, out_dtype=F32, out_major="col")

    found = torch.vmap(product, in_dims=dims)(*tensors)
    examples = [[t if d is None else t.select(d, n) for t, d in zip(tensors, dims, strict=True)] for n in range(3)]
    assert torch.equal(found, torch.stack([product(*example) for example in examples]))


A, B = torch.zeros(4, 16, dtype=F16), torch.zeros(8, 16, dtype=F16)
REFUSED = {
    "kind": (lambda a, b: gemm(a, b, c=1.0), TypeError),
    "dtype": (lambda a, b: gemm(a, b, c=a.new_zeros(4, 8).int()), TypeError),
    "shape": (lambda a, b: gemm(a, b, c=a.new_zeros(8, 4)), ValueError),
    "larger": (lambda a, b: gemm(a, b, c=a.new_zeros(2, 4, 8)), ValueError),
    "device": (lambda a, b: gemm(a, b, c=torch.zeros(4, 8, device="cpu" if a.is_meta else "meta")), ValueError),
    "out_major": (lambda a, b: gemm(a, b, out_major="mn"), ValueError),
    "out_major list": (lambda a, b: gemm(a, b, out_major=["row"]), ValueError),
    "operands": (lambda a, b: gemm(a.double(), b), TypeError),
    "out": (lambda a, b: gemm(a, b, out=a.new_zeros(4, 8).int()), TypeError),
    "out_dtype": (lambda a, b: gemm(a, b, out_dtype=torch.int32), TypeError),
    "mixed": (lambda a, b: gemm(a, b.bfloat16()), TypeError),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument_and_what_it_may_be(name, device):
    """On the meta device too: what dtypes there are is told wherever it is asked."""
    call, error = REFUSED[name]
    with refuses(error):
        call(A.to(device), B.to(device))


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.dsl)])
def test_out_that_is_also_the_bias_is_refused(simulated):
    bias = torch.zeros(8, dtype=F16)
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        for out in (bias, bias.view(1, 8), bias[:1].expand(1, 1)):
            a, b = torch.ones(*out.shape[:-1], 16, dtype=F16), torch.ones(out.shape[-1], 16, dtype=F16)
            with refuses(ValueError):
                gemm(a, b, bias=bias[: out.shape[-1]], out=out)
            with refuses(ValueError):
                operations.gemm_out(a, b, bias[: out.shape[-1]], None, out)
        assert not bias.any()


def test_others_that_stand_for_tensors_are_asked_first():
    class Duck:
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), named=None):
            return function, arguments, named

    for named in ({}, {"c": Duck()}, {"bias": Duck()}, {"out": Duck()}):
        function, arguments, given = gemm(A if named else Duck(), B, activation="relu", **named)
        assert function is cutepy.ops.gemm
        assert len(arguments) == 2
        assert given["activation"] == "relu"
        assert all(given[name] is value for name, value in named.items())
