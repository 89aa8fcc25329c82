"""`cutepy.ops.gemm` on any machine: its reference, the kernel in the simulator, and what torch makes of it."""

import contextlib
import weakref
from dataclasses import replace

import pytest

from tests.messages import refuses

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.launches import Launches  # noqa: E402
from cutepy.kernels.gemm.reference import ACTIVATION_FUNCTIONS, gemm_reference  # noqa: E402
from cutepy.ops import gemm  # noqa: E402
from cutepy.testing.numerics import gemm_tolerance, relative_error  # noqa: E402
from tests.ops import operations  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261121)


def normal(*shape, dtype=F16):
    return torch.randn(shape).to(dtype)


def check(a, b, **options):
    """Compare the reference's result and the simulated kernel's with float64."""
    exact = gemm_reference(a, b, None, options.get("bias"), options.get("activation"))
    plain = gemm(a, b, **options)
    with cutepy.simulate() as run:
        simulated = [gemm(a, b, **options) for _ in range(2)]  # the second call takes the short way
    assert len(run.launches) == (2 if a.numel() * b.numel() else 0)
    for result in (plain, *simulated):
        assert result.shape == exact.shape
        assert result.stride() == torch.empty(exact.shape).stride()
        name = str(result.dtype).removeprefix("torch.")
        assert relative_error(result, exact) <= gemm_tolerance(max(a.shape[-1], 1), 8 * a.dtype.itemsize, name)
    assert plain.dtype == simulated[0].dtype == options.get("out_dtype", BF16 if a.dtype.itemsize == 1 else a.dtype)


CASES = {
    "matrices": lambda: (normal(33, 72), normal(40, 72)),
    "bfloat16": lambda: (normal(33, 72, dtype=BF16), normal(40, 72, dtype=BF16)),
    "a row": lambda: (normal(1, 64), normal(48, 64)),
    "a vector": lambda: (normal(64), normal(48, 64)),
    "one column": lambda: (normal(33, 64), normal(1, 64)),
    "odd n": lambda: (normal(33, 72), normal(41, 72)),
    "odd k": lambda: (normal(33, 71), normal(40, 71)),
    "all odd": lambda: (normal(33, 71), normal(41, 71)),
    "k of 1": lambda: (normal(9, 1), normal(5, 1)),
    "odd k, b along n": lambda: (normal(33, 71), normal(71, 40).t()),
    "both transposed": lambda: (normal(71, 40).t(), normal(71, 48).t()),
    "odd m, a transposed": lambda: (normal(72, 33).t(), normal(48, 72)),
    "neither contiguous": lambda: (normal(33, 144)[:, ::2], normal(40, 144)[:, ::2]),
    "wide rows": lambda: (normal(33, 80)[:, :72], normal(40, 96)[:, :72]),
    "odd pitch": lambda: (normal(33, 77)[:, :72], normal(40, 72)),
    "within 16 bytes": lambda: (normal(33 * 72 + 1)[1:].view(33, 72), normal(40, 72)),
    "k of 8 bytes": lambda: (normal(33, 76), normal(40, 76)),
    "k of 4 bytes, odd n": lambda: (normal(3, 74), normal(41, 74)),
    "k of 4 bytes, 8-bit": lambda: (normal(33, 84, dtype=E4M3), normal(40, 84, dtype=E5M2)),
    "within 16 bytes, at 8": lambda: (normal(33, 72), normal(40 * 72 + 4)[4:].view(40, 72)),
    "m and n of 4 bytes": lambda: (normal(72, 34).t(), normal(72, 42).t()),
    "expanded": lambda: (normal(1, 72).expand(33, 72), normal(40, 72)),
    "leading dimensions": lambda: (normal(2, 3, 7, 16), normal(24, 16)),
    "leading dimensions apart": lambda: (normal(3, 5, 16).transpose(0, 1), normal(24, 16)),
    "batches": lambda: (normal(2, 5, 16), normal(2, 8, 16)),
    "broadcast batches": lambda: (normal(1, 5, 16), normal(3, 2, 8, 16)),
    "matrix and batch": lambda: (normal(5, 16), normal(2, 8, 16)),
    "batch of odd matrices": lambda: (normal(2, 3, 5), normal(2, 7, 5)),
    "batch of one": lambda: (normal(1, 5, 16), normal(1, 8, 16)),
    "batch of rows": lambda: (normal(3, 1, 16), normal(3, 8, 16)),
    "batch of transposed matrices": lambda: (normal(3, 71, 40).mT, normal(3, 71, 48).mT),
    "heads of tokens": lambda: (normal(2, 9, 3, 16).transpose(1, 2), normal(2, 7, 3, 16).transpose(1, 2)),
    "grouped heads": lambda: (normal(2, 3, 4, 9, 16), normal(2, 3, 1, 8, 16)),
    "a shared by heads": lambda: (normal(2, 1, 9, 16), normal(2, 3, 8, 16)),
    "batches apart by odd strides": lambda: (
        normal(3, 5 * 16 + 1)[:, 1:].unflatten(1, (5, 16)),
        normal(3, 8 * 16 + 4)[:, :128].unflatten(1, (8, 16)),
    ),
    "expanded and odd": lambda: (normal(1, 5, 15).expand(4, 5, 15), normal(4, 7, 15)),
    "a transposed in a batch, one b": lambda: (normal(3, 16, 40).mT, normal(24, 16)),
    "8-bit batch": lambda: (normal(2, 33, 80, dtype=E4M3), normal(2, 40, 80, dtype=E4M3)),
    "8-bit": lambda: (normal(33, 80, dtype=E4M3), normal(40, 80, dtype=E4M3)),
    "mixed odd 8-bit": lambda: (normal(33, 73, dtype=E4M3), normal(41, 73, dtype=E5M2)),
    "8-bit transposed": lambda: (normal(80, 33, dtype=E4M3).t(), normal(41, 80, dtype=E4M3)),
    "no rows": lambda: (normal(0, 16), normal(8, 16)),
    "no columns": lambda: (normal(4, 16), normal(0, 16)),
    "no sum": lambda: (normal(4, 0), normal(8, 0)),
    "no batch": lambda: (normal(0, 3, 16), normal(0, 8, 16)),
}
# Another of the cases has each mechanism that these have.
SIMILAR = {
    *("bfloat16", "a vector", "all odd", "wide rows", "k of 4 bytes, odd n", "within 16 bytes, at 8", "expanded"),
    *("leading dimensions apart", "matrix and batch", "batch of one", "batch of rows", "a shared by heads"),
    *("expanded and odd", "8-bit batch", "8-bit transposed", "both transposed", "no columns"),
}


@pytest.mark.first(12)
@pytest.mark.dsl
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep) if name in SIMILAR else name for name in CASES]
)
def test_any_shape_and_strides(name):
    check(*CASES[name]())


@pytest.mark.dsl
def test_the_short_way_on_a_simulated_gpu(simulated):
    a, b = normal(3, 9, 16).cuda(), normal(3, 8, 16).cuda()
    assert torch.equal(gemm(a, b), gemm(a, b))
    assert torch.equal(gemm(a[0], b[0]), gemm(a[0], b[0]))
    assert len(simulated.launches) == 4


@pytest.mark.dsl
def test_more_batches_than_a_kernel_takes_are_split_into_few_launches():
    a, b = normal(2, 1, 3, 1, 4, 8), normal(1, 2, 1, 3, 8, 8)
    with cutepy.simulate() as run:
        found = gemm(a, b)
    assert len(run.launches) == 2
    assert relative_error(found, gemm_reference(a, b)) <= gemm_tolerance(8, 16, "float16")


@pytest.mark.dsl
def test_bias_and_activation_of_a_batch():
    for n in (40, 41):
        check(normal(3, 33, 72), normal(3, n, 72), bias=normal(n), activation="gelu")


def test_rows_that_fill_their_tiles_badly_are_gathered_where_a_copy_costs_less(monkeypatch):
    from cutepy.kernels.gemm import copies
    from cutepy.kernels.gemm.batch_folding import join
    from cutepy.kernels.gemm.gpu import H200
    from cutepy.ops.checking import describe

    def pays(rows, n, k):
        whole = torch.empty(32, rows + 1, k, dtype=F16, device="meta")
        a, b = whole[:, :rows], torch.empty(n, k, dtype=F16, device="meta")
        return copies._gathering_pays(join(describe(a, b)))

    assert pays(100, 8192, 8192)
    assert not pays(128, 8192, 8192)
    assert not pays(100, 512, 512)
    assert not pays(65, 1024, 8192), "what is copied is too much for so few columns"
    monkeypatch.setattr(copies, "gpu_of", lambda _: replace(H200, sm_count=66))
    assert pays(65, 1024, 8192), "with half of the SMs empty rows take twice as long, and the copy no longer"
    assert pays(65, 4096, 1024)
    monkeypatch.setattr(copies, "gpu_of", lambda _: replace(H200, memory_tbs=1.0))
    assert not pays(65, 4096, 1024), "where memory decides, empty rows cost nothing"


@pytest.mark.dsl
@pytest.mark.parametrize("options", [{}, {"epilogue": cutepy.epilogues.relu}])
def test_launches_do_not_ask_about_the_gpu(monkeypatch, options):
    from cutepy.kernels.gemm import copies, op, routes
    from cutepy.kernels.gemm.gpu import H200
    from cutepy.ops import multiply

    asked = []
    for module in (copies, op, routes):
        monkeypatch.setattr(module, "gpu_of", lambda device: asked.append(device) or H200)
    monkeypatch.setattr(multiply, "_launches", Launches())
    a, b = normal(24, 40), normal(16, 40)
    with cutepy.simulate():
        gemm(a, b, **options)
        planning = len(asked)
        gemm(a, b, **options)
    assert len(asked) == planning > 0


@pytest.mark.dsl
def test_gathered_rows(monkeypatch):
    from cutepy.kernels.gemm import copies
    from cutepy.ops import multiply

    monkeypatch.setattr(copies, "_COPY_US", -1000)
    monkeypatch.setattr(multiply, "_launches", Launches())
    check(normal(4, 10, 24)[:, :9], normal(8, 24))
    check(normal(1, 9, 24).expand(4, 9, 24), normal(8, 24))


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("activation", "bias_dtype"),
    [
        pytest.param(name, dtype, marks=() if (name, dtype) == ("gelu", F16) else pytest.mark.deep)
        for name in ACTIVATION_FUNCTIONS
        for dtype in (None, F16)
    ]
    + [(None, F32)],
)
def test_bias_and_activation(activation, bias_dtype):
    bias = None if bias_dtype is None else normal(41, dtype=bias_dtype)
    check(normal(33, 72), normal(41, 72), bias=bias, activation=activation, out_dtype=F32)


@pytest.mark.dsl
def test_bias_of_several_tiles_and_strides():
    check(normal(140, 64), normal(520, 64), bias=normal(1040)[::2], activation="silu")


@pytest.mark.dsl
def test_an_activation_keeps_what_is_no_number():
    a = torch.full((8, 16), float("nan"), dtype=F16)
    for activation in ACTIVATION_FUNCTIONS:
        with cutepy.simulate():
            assert gemm(a, normal(8, 16), activation=activation, out_dtype=F32).isnan().all(), activation


@pytest.mark.dsl
def test_out_receives_the_result():
    a, b = normal(33, 72), normal(41, 72)
    for out in (
        torch.empty(33, 41, dtype=F16),
        torch.empty(41, 33, dtype=F32).t(),
        torch.empty(33, 48, dtype=F16)[:, :41],
    ):
        with cutepy.simulate():
            assert gemm(a, b, out=out) is out
        assert relative_error(out, gemm_reference(a, b)) <= gemm_tolerance(
            72, 16, str(out.dtype).removeprefix("torch.")
        )
    for out in (
        torch.empty(5, 3, 8, dtype=F16).transpose(0, 1),
        torch.empty(3, 5, 8, dtype=F16),
        torch.empty(3, 8, 5, dtype=F16).mT,
        torch.empty(3, 5, 9, dtype=F16)[..., :8],
    ):
        a = normal(3, 5, 16)
        for b in (normal(8, 16), normal(3, 8, 16)):
            with cutepy.simulate() as run:
                gemm(a, b, out=out)
            assert len(run.launches) == 1
            assert relative_error(out, gemm_reference(a, b)) <= gemm_tolerance(16, 16, "float16")


@pytest.mark.dsl
@pytest.mark.parametrize("m", [1, 5])
def test_out_within_16_bytes_and_with_gaps(m):
    a, b = normal(3, m, 16), normal(3, 8, 16)
    for start in (0, 1):
        out = torch.empty(72 * m + 1, dtype=F16)[start : start + 72 * m].view(3, -1, 24)[..., 8:16]
        with cutepy.simulate():
            gemm(a, b, out=out)
        assert relative_error(out, gemm_reference(a, b)) <= gemm_tolerance(16, 16, "float16")


A, B = torch.zeros(4, 16, dtype=F16), torch.zeros(8, 16, dtype=F16)
REFUSED = {
    "a list": (lambda: gemm([1.0], B), TypeError),
    "an array": (lambda: gemm(A.numpy(), B), TypeError),
    "none": (lambda: gemm(A, None), TypeError),
    "a number": (lambda: gemm(A, B, bias=1.0), TypeError),
    "a number with out": (lambda: gemm(A, B, bias=1.0, out=A[:, :8]), TypeError),
    "out of another kind": (lambda: gemm(A, B, out=A.numpy()), TypeError),
    "out negative": (lambda: gemm(A, B, out=torch._neg_view(A[:, :8])), ValueError),
    "float64": (lambda: gemm(A.double(), B), TypeError),
    "complex a": (lambda: gemm(A.to(torch.complex64), B), TypeError),
    "complex b": (lambda: gemm(A, B.to(torch.complex128)), TypeError),
    "int64": (lambda: gemm(A.long(), B), TypeError),
    "a list of activations": (lambda: gemm(A, B, activation=["relu"]), ValueError),
    "text for a dtype": (lambda: gemm(A, B, out_dtype="float32"), TypeError),
    "float32": (lambda: gemm(A.float(), B.float()), TypeError),
    "mixed": (lambda: gemm(A, B.bfloat16()), TypeError),
    "sparse": (lambda: gemm(A.to_sparse(), B), TypeError),
    "a scalar": (lambda: gemm(A[0, 0], B), ValueError),
    "a vector with a batch": (lambda: gemm(A[0], B[None]), ValueError),
    "k": (lambda: gemm(A, B.t()), ValueError),
    "batches": (lambda: gemm(A.expand(2, 4, 16), B.expand(3, 8, 16)), ValueError),
    "bias": (lambda: gemm(A, B, bias=A[0]), ValueError),
    "bias dtype": (lambda: gemm(A, B, bias=torch.zeros(8).int()), TypeError),
    "activation": (lambda: gemm(A, B, activation="swish"), ValueError),
    "device": (lambda: gemm(A, B.to("meta")), ValueError),
    "out_dtype": (lambda: gemm(A, B, out_dtype=torch.int32), TypeError),
    "out shape": (lambda: gemm(A, B, out=A), ValueError),
    "out dtype": (lambda: gemm(A, B, out=torch.zeros(4, 8).double()), TypeError),
    "out clash": (lambda: gemm(A, B, out=A[:, :8], out_dtype=F32), TypeError),
    "out expanded": (lambda: gemm(A, B, out=torch.zeros(1, 8, dtype=F16).expand(4, 8)), ValueError),
    "out expanded, of a batch": (
        lambda: gemm(A.expand(2, 4, 16), B, out=torch.zeros(4, 8, dtype=F16).expand(2, 4, 8)),
        ValueError,
    ),
    "out is a": (lambda: gemm(A, B, out=A[:, 4:12]), ValueError),
    "out and grad": (lambda: gemm(A.clone().requires_grad_(), B, out=torch.zeros(4, 8, dtype=F16)), RuntimeError),
    "8-bit grad": (lambda: gemm(A.to(E4M3).requires_grad_(), B.to(E4M3)), NotImplementedError),
}


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.dsl)])
@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument(name, simulated):
    call, error = REFUSED[name]
    with cutepy.simulate() if simulated else contextlib.nullcontext(), refuses(error):
        call()


@pytest.mark.parametrize("name", ["an array", "a number", "a list of activations", "text for a dtype", "sparse"])
def test_refusals_name_the_argument_where_the_dispatcher_is_asked(name):
    call, error = REFUSED[name]
    with torch.autocast("cpu", dtype=F16), refuses(error):
        call()


def test_out_that_shares_memory_with_a_batch_is_refused():
    whole = torch.zeros(4, 4, 16, dtype=F16)
    with refuses(ValueError):
        gemm(whole[:2], torch.zeros(16, 16, dtype=F16), out=whole[1:3])
    gemm(whole[:2], torch.zeros(16, 16, dtype=F16), out=whole[2:])


def gradients(product, a, b, bias):
    inputs = [t.detach().requires_grad_() for t in (a, b, bias)]
    result = product(*inputs)
    weights = torch.linspace(0.5, 1, result.numel()).view(result.shape)
    return torch.autograd.grad((result.float() * weights).sum(), inputs)


GRADIENTS = [((6, 24), (40, 24)), ((2, 3, 7), (5, 7)), ((2, 4, 8), (3, 1, 8, 8))]


@pytest.mark.first(8)
@pytest.mark.dsl
@pytest.mark.parametrize(
    ("activation", "simulated", "shapes"),
    [(name, False, shapes) for shapes in GRADIENTS for name in ACTIVATION_FUNCTIONS]
    + [
        pytest.param(name, True, shapes, marks=() if (n % 2 == 0) == (name == "gelu") else pytest.mark.deep)
        for n, shapes in enumerate(GRADIENTS)
        for name in (None, "gelu")
    ],
)
def test_gradients(activation, simulated, shapes):
    """Against float64: bfloat16 rounds the sum, the gradient of the result, and each gradient."""
    a, b = (normal(*shape, dtype=BF16) / 2 for shape in shapes)
    bias = normal(b.shape[-2], dtype=BF16)
    exact = gradients(lambda a, b, c: gemm_reference(a, b, None, c, activation), *(t.double() for t in (a, b, bias)))
    for form in (gemm, operations.gemm):

        def product(a, b, c, form=form):
            return form(a, b, bias=c, activation=activation)

        if simulated:
            with cutepy.simulate():
                found = gradients(product, a, b, bias)
        else:
            found = gradients(product, a, b, bias)
        for ours, theirs, given in zip(found, exact, (a, b, bias), strict=True):
            assert ours.dtype == given.dtype
            assert ours.shape == given.shape
            # Three roundings to 8 bits, each relative to values of the largest gradient's size at most.
            assert (ours.double() - theirs).abs().max() <= 3 * 2**-8 * theirs.abs().max() + 1e-6


@pytest.mark.dsl
@pytest.mark.parametrize(
    "shapes", [((2, 3, 9, 16), (2, 3, 8, 16)), ((2, 3, 9, 16), (1, 1, 8, 16)), ((9, 16), (3, 8, 16))]
)
def test_gradients_of_a_batch_take_one_launch_each(shapes):
    a, b = (normal(*shape, dtype=BF16).requires_grad_() for shape in shapes)
    with cutepy.simulate() as run:
        gemm(a, b).sum().backward()
    assert len(run.launches) == 3


def test_only_the_gradients_asked_for_are_computed(monkeypatch):
    a, b = normal(4, 16).requires_grad_(), normal(8, 16)
    assert torch.autograd.grad(gemm(a, b).sum(), a)[0].shape == a.shape
    with torch.no_grad():
        assert not gemm(a, b).requires_grad
    with torch.inference_mode():
        assert gemm(a, b).is_inference()


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_a_bias_of_8_bit_operands_has_a_gradient(activation):
    """It needs no scales, though those of the operands would."""
    a, b, bias = normal(4, 16).to(E4M3), normal(8, 16).to(E5M2), normal(8).requires_grad_()
    (found,) = torch.autograd.grad(gemm(a, b, bias=bias, activation=activation, out_dtype=F32).sum(), bias)
    wide = bias.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(gemm_reference(a, b, None, wide, activation).sum(), wide)
    assert relative_error(found, exact) <= 2**-9
    for first, second in ((a.clone().requires_grad_(), b), (a, b.clone().requires_grad_())):
        with refuses(NotImplementedError):
            gemm(first, second, bias=bias)
    found_too = torch.func.grad(lambda c: gemm(a, b, bias=c, activation=activation, out_dtype=F32).sum())(bias.detach())
    assert torch.equal(found_too, found)
    with refuses(NotImplementedError):
        torch.func.grad(lambda a: gemm(a, b).sum())(a)


def test_differentiating_twice_what_is_called_as_torch_knows_it():
    """An activation is part of the operation then, whose own formula is to be differentiated."""
    a, b = (normal(4, 16, dtype=BF16) / 4).requires_grad_(), (normal(8, 16, dtype=BF16) / 4).requires_grad_()
    for activation in ACTIVATION_FUNCTIONS:

        def second(product, a, b):
            (first,) = torch.autograd.grad(product(a, b).float().sin().sum(), a, create_graph=True)
            return torch.autograd.grad(first.float().square().sum(), b)[0].double()

        found = second(lambda a, b: operations.gemm(a, b, None, activation), a, b)  # noqa: B023
        wide = [t.detach().double().requires_grad_() for t in (a, b)]
        exact = second(lambda a, b: gemm_reference(a, b, None, None, activation), *wide)  # noqa: B023
        assert (found - exact).abs().max() <= 8 * 2**-8 * exact.abs().max(), activation


def test_differentiating_twice():
    a, b = (normal(4, 16, dtype=BF16) / 4).requires_grad_(), (normal(8, 16, dtype=BF16) / 4).requires_grad_()
    for activation in ACTIVATION_FUNCTIONS:

        def second(product, a, b):
            (first,) = torch.autograd.grad(product(a, b).float().sin().sum(), a, create_graph=True)
            return torch.autograd.grad(first.float().square().sum(), b)[0].double()

        found = second(lambda a, b: gemm(a, b, activation=activation), a, b)  # noqa: B023
        wide = [t.detach().double().requires_grad_() for t in (a, b)]
        exact = second(lambda a, b: gemm_reference(a, b, None, None, activation), *wide)  # noqa: B023
        assert (found - exact).abs().max() <= 8 * 2**-8 * exact.abs().max(), activation


OPCHECK = {
    "plain": lambda: (normal(4, 16), normal(8, 16), None, None, None),
    "all": lambda: (normal(4, 16), normal(8, 16), normal(8), "relu", F32),
    "grad": lambda: (*(t.requires_grad_() for t in (normal(4, 16), normal(8, 16), normal(8))), "relu", None),
    "grad of gelu": lambda: (normal(3, 4, 16).requires_grad_(), normal(8, 16).requires_grad_(), None, "gelu", F32),
    "batch": lambda: (normal(2, 4, 16).requires_grad_(), normal(3, 1, 8, 16).requires_grad_(), None, None, None),
    "batch of one b": lambda: (normal(2, 4, 16).requires_grad_(), normal(1, 8, 16).requires_grad_(), None, None, None),
    "8-bit": lambda: (normal(4, 16, dtype=E4M3), normal(8, 16, dtype=E5M2), None, None, None),
}


@pytest.mark.parametrize("name", OPCHECK)
def test_opcheck(name):
    # Torch's check of the schema multiplies tensors, which it can't 8-bit floats on the CPU.
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    checks += ["test_schema"] if name != "8-bit" else []
    a, b, bias, activation, out_dtype = OPCHECK[name]()
    given = (*operations.arguments(a, b, bias, activation), out_dtype)
    torch.library.opcheck(torch.ops.cutepy.gemm.default, given, test_utils=checks)


def test_opcheck_of_out():
    arguments = (*operations.arguments(normal(4, 16), normal(8, 16), normal(8), "relu"), [normal(4, 8)])
    torch.library.opcheck(torch.ops.cutepy.gemm_out.default, arguments)


def test_compiles_without_graph_breaks():
    a, b, bias = normal(4, 16), normal(8, 16).requires_grad_(), normal(8).requires_grad_()

    def model(a, b, bias):
        hidden = gemm(a * 2, b, bias=bias, activation="gelu")
        return gemm(hidden, b.t(), activation="relu").float().sum()

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    expected = torch.autograd.grad(model(a, b, bias), (b, bias))
    found = torch.autograd.grad(compiled(a, b, bias), (b, bias))
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        assert torch.equal(compiled(normal(5, 16), b, bias).isnan(), torch.tensor(False))


@pytest.mark.parametrize(
    ("activation", "backend"),
    [
        (None, "aot_eager"),
        pytest.param("silu", "eager", marks=pytest.mark.deep),
        pytest.param(None, "eager", marks=pytest.mark.deep),
        pytest.param("silu", "aot_eager", marks=pytest.mark.deep),
    ],
)
def test_transforms_compile(activation, backend):
    def total(b, a):
        return gemm(a, b, activation=activation).float().square().sum()

    a, b = normal(3, 5, 16, dtype=BF16), normal(8, 16, dtype=BF16)
    transforms = {
        "grad": torch.func.grad(total),
        "a gradient of each example": torch.vmap(torch.func.grad(total), in_dims=(None, 0)),
        "a gradient of all examples": torch.func.grad(lambda b, a: torch.vmap(total, in_dims=(None, 0))(b, a).sum()),
        "a gradient of a gradient": torch.func.grad(lambda b, a: torch.func.grad(total)(b, a).float().square().sum()),
    }
    for name, transform in transforms.items():
        torch._dynamo.reset()
        found = torch.compile(transform, backend=backend, fullgraph=True)(b, a)
        assert relative_error(found, transform(b, a).double()) <= 2**-6, name


def test_compiles_with_out():
    a, b = normal(4, 16), normal(8, 16)

    def model(a, b):
        out = torch.empty(4, 8, dtype=F16)
        gemm(a, b, out=out)
        return out + 1

    assert torch.equal(torch.compile(model, backend="aot_eager", fullgraph=True)(a, b), model(a, b))


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.dsl)])
def test_every_road_to_the_kernel_checks_that_out_is_apart(simulated):
    whole, b = normal(16, 48), normal(16, 16)
    a, out = whole[:, :16], whole[:, 8:24]
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        for call in (
            lambda: gemm(a, b, out=out),
            lambda: operations.gemm_out(a, b, None, None, out),
            lambda: operations.gemm_out(b.mT, a, None, None, out.view(16, 16)),
            lambda: torch.compile(lambda a, b, out: gemm(a, b, out=out), backend="eager", fullgraph=True)(a, b, out),
        ):
            with refuses(ValueError):
                call()
        with refuses(ValueError):
            operations.gemm_out(a, b, None, None, normal(16, 48))


@pytest.mark.dsl
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # inductor's, when it is first imported
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.deep)])
def test_compiled_code_copies_or_refuses_an_out_that_is_read(backend):
    whole, b = normal(3, 16, 16), normal(2, 16, 16)
    a, out = whole[:2], whole[1:]  # the first product of the batch is written over what the second one reads
    expected = gemm(a, b)
    compiled = torch.compile(lambda a, b, out: gemm(a, b, out=out), backend=backend, fullgraph=True)
    try:
        with cutepy.simulate():
            compiled(a, b, out)
    except ValueError as error:
        assert "out must share no memory with a" in str(error)
    else:
        torch.testing.assert_close(out, expected)


def test_columns_of_a_buffer_may_be_read_and_written():
    buffer = normal(3, 5, 48)
    a, b, out = buffer[..., :16], normal(16, 16), buffer[..., 16:32]
    expected = gemm(a, b)
    gemm(a, b, out=out)
    assert torch.equal(out, expected)
    with refuses(ValueError):
        gemm(a, b, out=buffer[..., 8:24])
    with refuses(ValueError):
        gemm(a.transpose(0, 1), b, out=out.transpose(0, 1))


def test_exports():
    class Model(torch.nn.Module):
        def forward(self, a, b):
            return gemm(a, b, activation="silu")

    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Model(), (normal(4, 16), normal(8, 16)), dynamic_shapes=({0: rows}, None))
    a, b = normal(7, 16), normal(8, 16)
    assert torch.equal(exported.module()(a, b), gemm(a, b, activation="silu"))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_autocast_lowers_floats_and_leaves_8_bits(dtype):
    a, b, bias = torch.randn(4, 16), torch.randn(8, 16), torch.randn(8)
    with torch.autocast("cpu", dtype=dtype):
        found = gemm(a, b, bias=bias)
        assert gemm(a.to(E4M3), b.to(E4M3)).dtype == BF16
        assert gemm(a, b.to(dtype)).dtype == dtype
    assert torch.equal(found, gemm(a.to(dtype), b.to(dtype), bias=bias.to(dtype)))


def test_autocast_reaches_out():
    a, b, bias, out = torch.randn(4, 16), torch.randn(8, 16), torch.randn(8), torch.zeros(4, 8)
    with torch.autocast("cpu", dtype=BF16):
        assert gemm(a, b, bias=bias, out=out) is out
    assert torch.equal(out, gemm(a.to(BF16), b.to(BF16), bias=bias.to(BF16), out_dtype=F32))
    with refuses(TypeError):
        gemm(a, b, out=out)


@pytest.mark.parametrize("dtype", [F16, E4M3])
def test_vmap_over_no_examples(dtype):
    none, a, b = normal(0, 4, 16).to(dtype), normal(4, 16).to(dtype), normal(8, 16).to(dtype)
    batch = normal(8, 0, 16).to(dtype)
    for found in (
        torch.vmap(lambda x: gemm(x, b))(none),
        torch.vmap(lambda y: gemm(a, y), in_dims=1)(batch),
        torch.vmap(gemm, in_dims=(0, -2))(none, batch),
    ):
        assert (found.shape, found.dtype) == ((0, 4, 8), F16 if dtype == F16 else BF16)


def test_vmap_of_out_is_refused():
    a, b, out = normal(3, 4, 16), normal(8, 16), torch.zeros(3, 4, 8, dtype=F16)
    with refuses(NotImplementedError):
        torch.vmap(lambda a, out: gemm(a, b, out=out))(a, out)


def test_vmap():
    a, b, bias = normal(3, 4, 16), normal(8, 16), normal(8)
    assert torch.equal(torch.vmap(lambda x: gemm(x, b, bias=bias))(a), gemm(a, b, bias=bias))
    found = torch.vmap(lambda x: gemm(x, b), in_dims=1)(a)
    assert torch.equal(found, gemm(a.transpose(0, 1), b))
    batch = normal(3, 8, 16)
    assert torch.equal(torch.vmap(gemm)(a, batch), gemm(a, batch))
    assert torch.equal(torch.vmap(lambda y: gemm(a[0], y, bias=bias))(batch), gemm(a[0], batch, bias=bias))
    assert torch.equal(torch.vmap(gemm)(a[:, 0], batch), gemm(a[:, :1], batch)[:, 0])
    biases = normal(3, 8)
    batches = normal(2, 3, 4, 16)
    found = torch.vmap(lambda x: gemm(x, batch, bias=biases))(batches)
    assert torch.equal(found, torch.stack([gemm(x, batch, bias=biases) for x in batches]))
    found = torch.vmap(lambda x, c: gemm(x, b, bias=c))(a, biases)
    assert torch.equal(found, torch.stack([gemm(x, b, bias=c) for x, c in zip(a, biases, strict=True)]))


def test_vmap_refuses_what_each_example_would_be_refused():
    rows, batch = normal(3, 16), normal(3, 8, 16)
    for in_dims, b in (((0, None), batch), ((0, 0), normal(3, 2, 8, 16))):
        with refuses(ValueError):
            torch.vmap(gemm, in_dims=in_dims)(rows, b)


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0), (2, 1), (-1, -3)])
@pytest.mark.parametrize("shapes", [((4, 16), (5, 8, 16)), ((2, 4, 16), (8, 16)), ((6, 2, 4, 16), (2, 8, 16))])
def test_vmap_of_batches(shapes, in_dims):
    tensors = [
        normal(*shape) if d is None else normal(3, *shape).movedim(0, d)
        for shape, d in zip(shapes, in_dims, strict=True)
    ]
    found = torch.vmap(gemm, in_dims=in_dims)(*tensors)
    examples = [[t if d is None else t.select(d, n) for t, d in zip(tensors, in_dims, strict=True)] for n in range(3)]
    assert torch.equal(found, torch.stack([gemm(*example) for example in examples]))


@pytest.mark.dsl
def test_vmap_makes_one_launch():
    a, b = normal(3, 9, 16), normal(3, 8, 16)
    with cutepy.simulate() as run:
        found = torch.vmap(gemm)(a, b)
        torch.vmap(lambda x: gemm(a[0], x))(b)
        torch.vmap(torch.vmap(gemm, (None, 0)), (0, None))(a, b)
    assert len(run.launches) == 3
    assert relative_error(found, gemm_reference(a, b)) <= gemm_tolerance(16, 16, "float16")


def test_modes_and_subclasses_see_the_operation():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = gemm(torch.empty(4, 16, dtype=F16), torch.empty(8, 16, dtype=F16), out_dtype=F32)
        assert (fake.shape, fake.dtype) == ((4, 8), F32)
        fake_out = torch.empty(4, 8, dtype=F16)
        assert gemm(torch.empty(4, 16, dtype=F16), torch.empty(8, 16, dtype=F16), out=fake_out) is fake_out
    assert gemm(A.to("meta"), B.to("meta")).shape == (4, 8)
    with torch.profiler.profile() as profile:
        gemm(A, B)
    assert "cutepy::gemm" in {event.key for event in profile.key_averages()}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_tracing_sees_the_operation():
    traced = torch.jit.trace(lambda a: gemm(a, B), A)
    assert "cutepy::gemm" in str(traced.graph)
    a = normal(4, 16)
    assert torch.equal(traced(a), gemm(a, B))


def test_the_result_counts_as_a_change_of_out():
    a, weight = normal(16, 16).requires_grad_(), normal(16, 16).requires_grad_() * 1
    result = gemm(a, weight)
    with torch.no_grad():
        gemm(normal(16, 16), normal(16, 16), out=weight.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_checkpointing_and_function_transforms():
    from torch.utils.checkpoint import checkpoint

    a, b = normal(4, 16).requires_grad_(), normal(8, 16).requires_grad_()
    expected = torch.autograd.grad(gemm(a, b, activation="relu").sum(), (a, b))
    found = torch.autograd.grad(checkpoint(gemm, a, b, activation="relu", use_reentrant=False).sum(), (a, b))
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))

    def total(a, b):
        return gemm(a, b, activation="relu").sum()

    a, b = a.detach(), b.detach()
    found = torch.func.grad(total, argnums=(0, 1))(a, b)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
    per_row = torch.vmap(torch.func.grad(total, argnums=1), in_dims=(0, None))(a, b)
    assert torch.allclose(per_row.sum(0), expected[1], rtol=2**-8, atol=2**-8)
    through = torch.func.grad(lambda b: torch.vmap(lambda row: gemm(row, b, activation="relu"))(a).sum())(b)
    assert torch.equal(through, expected[1])


@pytest.mark.parametrize("epilogue", [False, True])
def test_a_call_leaves_out_no_argument(monkeypatch, epilogue):
    """One that is left out is found out by a call that fails, which took an H200's host 110 us."""
    from cutepy.host.function import Function

    seen = []
    monkeypatch.setattr(Function, "__call__", lambda self, *given, **named: seen.append((self, given, named)))
    a, b = torch.ones(64, 64).half(), torch.ones(32, 64).half()
    doubled = {"epilogue": cutepy.epilogue(lambda acc: 2 * acc)} if epilogue else {}
    with cutepy.simulate():
        gemm(a, b, **doubled)
    ((function, given, named),) = seen
    assert len(given) == sum(parameter.kind != "stream" for parameter in function.parameters)
    assert not named


@pytest.mark.parametrize("activation", [None, "relu"])
def test_operands_that_no_gradient_needs_are_not_kept(activation):
    a, b = (torch.randn(4, 8).bfloat16().requires_grad_() for _ in range(2))
    for frozen in (0, 1):
        operands = [each * 1 for each in (a, b)]
        operands[frozen] = operands[frozen].detach()
        alive = [weakref.ref(each) for each in operands]
        result = gemm(*operands, activation=activation)
        operands.clear()
        assert [each() is not None for each in alive] == [frozen == 0, frozen == 1]
        result.sum().backward()
    shown = (a @ b.mT).detach()
    grad = torch.ones_like(shown) if activation is None else (shown > 0).bfloat16()
    assert relative_error(a.grad, grad @ b.detach()) < 0.01
    assert relative_error(b.grad, grad.mT @ a.detach()) < 0.01
