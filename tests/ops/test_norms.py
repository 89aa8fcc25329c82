"""`rms_norm` and `layer_norm` as torch's operations: signatures, refusals, and what torch makes of them."""

import inspect

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from torch.nn import functional  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.rows.tiling import MOST_COLUMNS  # noqa: E402
from cutepy.ops import dequantise, layer_norm, quantise, rms_norm, scaled_gemm  # noqa: E402
from cutepy.ops.normalising import norm  # noqa: E402
from tests.ops.rows import cuda_autocast  # noqa: E402

BF16, F32, FLOAT8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
DOES = {rms_norm: functional.rms_norm, layer_norm: functional.layer_norm}
of_each = pytest.mark.parametrize("function", [rms_norm, layer_norm], ids=["rms_norm", "layer_norm"])


def operands(function, *shape, dtype=F32, grad=False):
    torch.manual_seed(0)
    vectors = 1 if function is rms_norm else 2
    shapes = (shape, *[shape[-1:]] * vectors)
    return [torch.randn(each).to(dtype).requires_grad_(grad) for each in shapes]


@of_each
def test_their_arguments_are_torchs(function):
    own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.KEYWORD_ONLY]
    theirs = inspect.signature(DOES[function]).parameters.values()
    assert [(each.name, each.default) for each in own] == [(each.name, each.default) for each in theirs]


@of_each
@pytest.mark.parametrize("dtype", [torch.float16, BF16, F32])
def test_they_compute_what_torchs_do(function, dtype):
    x, *rest = operands(function, 3, 4, 10, dtype=dtype)
    tolerance = {"rtol": 2.0 * torch.finfo(dtype).eps, "atol": 4.0 * torch.finfo(dtype).eps}
    for scale in (1.0, 1e-4):  # where eps counts
        wanted = DOES[function]((x * scale).double(), (10,), *(each.double() for each in rest), *default_eps(function))
        torch.testing.assert_close(function(x * scale, (10,), *rest).double(), wanted, **tolerance)
    several = function(x, (4, 10), x[0])
    torch.testing.assert_close(several, function(x.flatten(1), (40,), x[0].flatten()).view(3, 4, 10))


def default_eps(function):
    return (torch.finfo(F32).eps,) if function is rms_norm else ()


@of_each
def test_the_residual_is_added_first_and_the_sum_is_returned(function):
    x, *rest = operands(function, 3, 10)
    y, total = function(x, (10,), *rest, residual=x.bfloat16())
    assert total.dtype == F32
    torch.testing.assert_close(total, x + x.bfloat16())
    torch.testing.assert_close(y, function(total, (10,), *rest))


@of_each
def test_torch_checks_and_compiles_them_for_any_rows(function):
    x, *rest = operands(function, 3, 16, grad=True)
    weight, bias = (*rest, None)[:2]
    torch.library.opcheck(norm.op, (x, x.detach(), weight, bias, 1e-5, bias is not None, None))
    compiled = torch.compile(
        lambda x, *rest: function(x, (16,), *rest, residual=x), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for rows in (3, 5, 8):
        x = torch.randn(rows, 16, requires_grad=True)
        found, wanted = compiled(x, *rest), function(x, (16,), *rest, residual=x)
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one, other)
        leaves = (x, *rest)
        for one, other in zip(
            torch.autograd.grad(found[0].sum(), leaves), torch.autograd.grad(wanted[0].sum(), leaves), strict=True
        ):
            torch.testing.assert_close(one, other)


@of_each
def test_they_are_exported(function):
    class Model(torch.nn.Module):
        def forward(self, x, *rest):
            return function(x, (16,), *rest)

    x, *rest = operands(function, 3, 16)
    rows = torch.export.Dim("rows", min=2)
    shapes = ({0: rows}, tuple(None for _ in rest))
    program = torch.export.export(Model(), (x, *rest), dynamic_shapes=shapes)
    assert [str(node.target) for node in program.graph.nodes if "cutepy" in str(node.target)] == ["cutepy.norm.default"]
    more = torch.randn(7, 16)
    assert torch.equal(program.module()(more, *rest), function(more, (16,), *rest))


@of_each
def test_autocast_gives_float32_on_the_gpu_as_torchs(function):
    with cuda_autocast():
        x, weight = torch.empty(2, 8, device="cuda", dtype=BF16), torch.empty(8, device="cuda", dtype=BF16)
        assert function(x, (8,), weight).dtype == DOES[function](x, (8,), weight).dtype == F32
        assert function(x, (8,), weight, out_dtype=BF16).dtype == BF16
    x, weight = torch.randn(2, 8, dtype=BF16), torch.ones(8, dtype=BF16)
    with torch.autocast("cpu", dtype=BF16):
        assert function(x, (8,), weight).dtype == DOES[function](x, (8,), weight).dtype == BF16


@of_each
def test_gradients_of_examples(function):
    x, *rest = operands(function, 3, 2, 8)

    def loss(x, *rest):
        return (function(x, (8,), *rest) ** 2).sum()

    places = tuple(range(1 + len(rest)))
    found = torch.vmap(torch.func.grad(loss, places), in_dims=(0, *[None] * len(rest)))(x, *rest)
    for n in range(3):
        for each, want in zip(found, torch.func.grad(loss, places)(x[n], *rest), strict=True):
            torch.testing.assert_close(each[n], want)
    each_its_own = torch.vmap(lambda x, weight: function(x, (8,), weight))(x, torch.stack([rest[0]] * 3))
    torch.testing.assert_close(each_its_own, function(x, (8,), rest[0]))
    grads = torch.vmap(torch.func.grad(lambda x: loss(x, *rest)), in_dims=1)(x)
    torch.testing.assert_close(grads.transpose(0, 1), torch.func.grad(loss)(x, *rest))


@pytest.mark.integration
@of_each
def test_a_row_has_the_same_bits_in_any_batch(function):
    x, residual = torch.randn(2, 33, 16384).bfloat16()
    weight = torch.randn(16384).bfloat16()
    with cutepy.simulate() as run:
        many, few, one = (
            function(x[part], (16384,), weight, residual=residual[part]) for part in (slice(33), slice(16), slice(4, 5))
        )
    for of_many, of_few, alone in zip(many, few, one, strict=True):
        assert torch.equal(of_many[:16], of_few)
        assert torch.equal(of_many[4:5], alone)
    assert [launch.cluster[0] for launch in run.launches] == [1, 4, 4]


def test_no_floating_point_operations_are_counted():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        rms_norm(torch.randn(2, 8, requires_grad=True), (8,)).sum().backward()
    assert counter.get_total_flops() == 0


@of_each
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_scaled_gemm_takes_a_norm_of_8_bits(function, dtype):
    x, *rest = operands(function, 2, 3, 300)
    other, other_scale = quantise(torch.randn(32, 300), dtype=torch.float8_e4m3fn)
    wanted = function(x, (300,), *rest)
    for block in ((1, 0), (1, 128)):
        y, scale, total = function(x, (300,), *rest, residual=x * 0, out_dtype=dtype, scale=block)
        assert torch.equal(total, x)
        own, own_scale = quantise(wanted, block, dtype)
        assert torch.equal(y.float(), own.float())
        assert torch.equal(scale, own_scale)
        assert scale.shape == own_scale.shape
        other_block = (1, 0) if block == (1, 0) else (1, 128)
        operand = quantise(dequantise(other, other_scale), other_block)
        assert scaled_gemm(y, operand[0], scale, operand[1]).shape == (2, 3, 32)
    y = function(x, (300,), *rest, out_dtype=dtype, scale=torch.tensor([[0.5]]))
    assert torch.equal(y.float(), (wanted * 2).to(dtype).float())


def test_torch_checks_and_maps_norms_of_8_bits():
    x, weight = torch.randn(3, 16), torch.randn(16)
    call = lambda x, r: rms_norm(x, (16,), weight, residual=r, out_dtype=torch.float8_e4m3fn, scale=(1, 0))  # noqa: E731
    for scale, block in ((None, 0), (None, 128), (torch.ones(1), 0)):
        given = (x, None, weight, None, scale, 1e-5, False, torch.float8_e4m3fn, block)
        tests = ("test_schema", "test_autograd_registration", "test_faketensor")  # AOTAutograd compares no 8-bit floats
        torch.library.opcheck(torch.ops.cutepy.norm_quantised.default, given, test_utils=tests)
    rows = torch.randn(4, 3, 16)
    for mapped, direct in zip(
        torch.vmap(call, in_dims=(0, None))(rows, x), call(rows, x.expand(4, 3, 16)), strict=True
    ):
        assert torch.equal(mapped.float(), direct.float())
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 16)
        for one, other in zip(compiled(x, x), call(x, x), strict=True):
            assert torch.equal(one.float(), other.float())


@of_each
def test_the_largest_magnitude_is_of_the_whole_tensor_before_the_division(function):
    x, *rest = operands(function, 3, 2, 16)
    given = {"out_dtype": FLOAT8, "scale": torch.tensor([[0.1]])}
    y, amax, total = function(x, (2, 16), x[0], residual=x, return_amax=True, **given)
    assert torch.equal(amax, function(2 * x, (2, 16), x[0]).abs().amax())
    assert torch.equal(total, 2 * x)
    assert torch.equal(y.float(), function(2 * x, (2, 16), x[0], **given).float())
    call = lambda x, s: function(x, (16,), *rest, out_dtype=FLOAT8, scale=s, return_amax=True)  # noqa: E731
    mapped = torch.vmap(call, in_dims=(0, None))(x, given["scale"])
    assert torch.equal(mapped[1], function(x, (16,), *rest).abs().amax((1, 2)))
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 16)
        for one, other in zip(compiled(x, given["scale"]), call(x, given["scale"]), strict=True):
            assert torch.equal(one.float(), other.float())
    with torch.no_grad():
        leaf = x.clone().requires_grad_()
        assert not call(leaf, given["scale"])[1].requires_grad
    with refuses(NotImplementedError):
        call(leaf, given["scale"])


def test_norms_with_their_largest_magnitude_are_checked_and_exported():
    class Model(torch.nn.Module):
        def forward(self, x, scale):
            return rms_norm(x, (16,), out_dtype=FLOAT8, scale=scale, return_amax=True)

    x, scale = torch.randn(3, 16), torch.ones(1)
    given = (x, None, None, None, scale, 1e-5, False, FLOAT8, 0, True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")  # AOTAutograd compares no 8-bit floats
    torch.library.opcheck(torch.ops.cutepy.norm_quantised.default, given, test_utils=tests)
    shapes = {0: torch.export.Dim("rows", min=2)}, None
    program = torch.export.export(Model(), (x, scale), dynamic_shapes=shapes)
    targets = [str(node.target) for node in program.graph.nodes if "cutepy" in str(node.target)]
    assert targets == ["cutepy.norm_quantised.default"]
    more = torch.randn(7, 16)
    assert torch.equal(program.module()(more, scale)[1], Model()(more, scale)[1])


X, WEIGHT = torch.ones(2, 8), torch.ones(8)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: rms_norm(X, (4,)), ValueError),
        (lambda: rms_norm(X, ()), ValueError),
        (lambda: rms_norm(WEIGHT, (2, 8)), ValueError),
        (lambda: rms_norm(X, (8,), torch.ones(4)), ValueError),
        (lambda: layer_norm(X, (8,), WEIGHT, torch.ones(1, 8)), ValueError),
        (lambda: layer_norm(X, (8,), residual=WEIGHT), ValueError),
        (lambda: rms_norm(X.double(), (8,)), TypeError),
        (lambda: rms_norm(X, (8,), WEIGHT.int()), TypeError),
        (lambda: rms_norm(X, (8,), out_dtype=torch.int8), TypeError),
        (lambda: rms_norm(X, (8,), WEIGHT.to("meta")), ValueError),
        (lambda: rms_norm(torch.empty(1, MOST_COLUMNS + 1), (MOST_COLUMNS + 1,)), ValueError),
        (lambda: rms_norm(X, (8,), out_dtype=FLOAT8), ValueError),
        (lambda: rms_norm(X, (8,), out_dtype=FLOAT8, scale=(128, 128)), ValueError),
        (lambda: rms_norm(X, (8,), out_dtype=FLOAT8, scale=torch.ones(2)), ValueError),
        (lambda: rms_norm(X, (8,), out_dtype=BF16, scale=(1, 0)), ValueError),
        (lambda: rms_norm(X, (8,), out_dtype=FLOAT8, scale=torch.ones((), device="meta")), ValueError),
        (lambda: rms_norm(X, (8,), return_amax=True), ValueError),
        (lambda: layer_norm(X, (8,), out_dtype=FLOAT8, scale=(1, 128), return_amax=True), ValueError),
        (lambda: rms_norm(X, (8,), out_dtype=FLOAT8, return_amax=True), ValueError),
        (lambda: rms_norm(X, (8,), torch.nn.Parameter(WEIGHT), out_dtype=FLOAT8, scale=(1, 0)), NotImplementedError),
        (lambda: rms_norm(X.to_sparse(), (8,)), TypeError),
        (lambda: layer_norm(torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged), (8,)), TypeError),
        (lambda: rms_norm(X, (8,), residual=X.to_sparse()), TypeError),
        (lambda: norm.op(torch.ones(()), None, None, None, 0.0, False, None), ValueError),
        (lambda: norm.op(X, None, torch.ones(4), None, 0.0, False, None), ValueError),
    ],
)
def test_arguments_that_are_refused(call, kind):
    with refuses(kind):
        call()


def test_a_second_derivative_is_refused():
    x = torch.randn(2, 8, requires_grad=True)
    (grad,) = torch.autograd.grad(rms_norm(x, (8,)).square().sum(), x, create_graph=True)
    with refuses(NotImplementedError):
        grad.sum().backward()
