"""Graphs compute what torch computes, function by function and for random programs, and have torch's gradients."""

import math
import operator

import pytest
from hypothesis import given, settings, strategies as st

from tests.messages import refuses

torch = pytest.importorskip("torch")

from cutepy import epilogues  # noqa: E402
from cutepy.epilogues import (  # noqa: E402
    Column,
    EpilogueError,
    Graph,
    Integer,
    Row,
    Scalar,
    Tile,
    epilogue,
    where,
)
from cutepy.epilogues.reference import compute, rounded  # noqa: E402

F = torch.nn.functional


def halves(function):
    return lambda x: function(x[..., 0::2]) * x[..., 1::2]


ORACLES = {
    "cos": torch.cos,
    "erf": torch.erf,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "floor": torch.floor,
    "geglu": halves(F.gelu),
    "geglu_tanh": halves(lambda x: F.gelu(x, approximate="tanh")),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "glu": halves(torch.sigmoid),
    "identity": lambda x: x,
    "leaky_relu": F.leaky_relu,
    "log": torch.log,
    "log2": torch.log2,
    "reglu": halves(F.relu),
    "relu": F.relu,
    "relu_squared": lambda x: F.relu(x) ** 2,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sin": torch.sin,
    "softplus": F.softplus,
    "sqrt": torch.sqrt,
    "swiglu": halves(F.silu),
    "tanh": torch.tanh,
    "tanh_approx": torch.tanh,
}


def test_each_function_has_an_oracle():
    assert set(ORACLES) == {n for n in epilogues.__all__ if isinstance(getattr(epilogues, n), epilogues.Epilogue)}


@pytest.mark.parametrize("name", ORACLES)
def test_the_library_is_torchs(name):
    x = torch.randn(5, 8, dtype=torch.float64) * 3
    x = x.abs() if name in ("log", "log2", "rsqrt", "sqrt") else x
    each, oracle = getattr(epilogues, name), ORACLES[name]
    (got,) = compute(each.graph, x, each.bind({}), torch.float64)
    torch.testing.assert_close(got, oracle(x), rtol=1e-6, atol=1e-7)  # gelu's constants have 8 digits
    torch.testing.assert_close(each(x.float()), oracle(x.float()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in ORACLES if name != "floor"])
def test_the_librarys_gradients(name):
    x = torch.rand(2, 2, dtype=torch.float64) + 0.1
    each = getattr(epilogues, name)
    x[0] *= -1 if name not in ("log", "log2", "rsqrt", "sqrt") else 1
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: compute(each.graph, x, each.bind({}), torch.float64), (x,))


AT_KINKS = {
    "abs": abs,
    "clamp": lambda x: torch.clamp(x, -1.0, 2.0),
    "clamp below": lambda x: torch.clamp(x, min=0),
    "clamp above": lambda x: torch.clamp(x, max=20),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.25),
    "maximum": lambda x: torch.maximum(x, 2 * x),
    "minimum": lambda x: torch.minimum(x, 2 * x),
    "relu": F.relu,
    "relu squared": lambda x: torch.relu(x) ** 2,
    "softplus": F.softplus,
    "softplus, its defaults spelt out": lambda x: F.softplus(x, 1.0, 20.0),
    "add, its default spelt out": lambda x: torch.add(x, x, alpha=1),
    "floor": torch.floor,
    "pow": lambda x: x**2,
    "pow of a float": lambda x: x**3.0 + torch.pow(x, 2.0),
}


@pytest.mark.parametrize("name", AT_KINKS)
def test_derivatives_at_kinks_are_torchs(name):
    function = AT_KINKS[name]
    traced = epilogue(lambda acc: function(acc))
    acc = torch.tensor([[-1.0, -0.0, 0.0, 1.0, 2.0, 20.0, 21.0, torch.nan]], dtype=torch.float64)
    values = []
    for compute_it in (function, lambda x: compute(traced.graph, x, {}, torch.float64)[0]):
        x = acc.clone().requires_grad_()
        y = compute_it(x)
        values.append((y.detach(), *torch.autograd.grad(y.sum(), x)))
    for one, other in zip(*values, strict=True):
        torch.testing.assert_close(one[..., :-1], other[..., :-1], rtol=1e-7, atol=1e-12)
    assert torch.equal(values[0][0].isnan(), values[1][0].isnan())


@pytest.mark.parametrize("name", ["leaky_relu", "reglu", "relu", "relu_squared", "softplus"])
def test_the_librarys_derivatives_at_0_and_20_are_torchs(name):
    each = getattr(epilogues, name)
    given = torch.tensor([[0.0, 1.0, 20.0, 1.0], [20.0, 0.0, -1.0, 0.0]], dtype=torch.float64)
    x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
    compute(each.graph, x, each.bind({}), torch.float64)[0].sum().backward()
    ORACLES[name](y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-7, atol=1e-12)


def test_a_bound_of_a_clamp_has_no_derivative_where_it_is_met():
    @epilogue
    def clamped(acc, low: Column, high: Tile):
        return epilogues.clamp(acc, low, high)

    tensors = [torch.randint(-2, 3, shape).double().requires_grad_() for shape in ((5, 16), (5,), (5, 16))]
    acc, low, high = tensors
    (got,) = compute(clamped.graph, acc, {"low": low, "high": high}, torch.float64)
    expected = torch.clamp_max(torch.clamp_min(acc, low[:, None]), high)
    assert torch.equal(got, expected)
    weights = torch.randn(5, 16, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((y * weights).sum(), tensors) for y in (got, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@epilogue
def everything(acc, bias: Row, scale: Scalar, factor: Column, residual: Tile):
    gate, up = (acc * factor + bias).interleaved(2)
    y = epilogues.silu(gate) * up * scale + residual
    return {
        "y": y,
        "pre": acc * factor,
        "amax": epilogues.amax(y),
        "squares": epilogues.sum_of_squares(y, 1),
        "most": y.max(0),
        "least": y.min(-1),
    }


def test_operands_broadcast_and_results_have_their_shapes():
    acc, bias, factor, residual = torch.randn(2, 3, 8), torch.randn(8), torch.randn(2, 3), torch.randn(3, 4)
    got = everything(acc, bias, torch.tensor([2.0]), factor, residual=residual)
    pre = acc * factor[..., None]
    x = pre + bias
    y = F.silu(x[..., ::2]) * x[..., 1::2] * 2 + residual
    expected = (y, pre, y.abs().amax((-1, -2)), (y * y).sum(-1), y.amax(-2), y.amin(-1))
    assert list(got) == ["y", "pre", "amax", "squares", "most", "least"]
    for one, other in zip(got.values(), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_of_operands_and_reductions():
    tensors = [
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 4), (4,), (), (2,), (2, 2))
    ]

    def results(acc, *operands):
        names = [operand.name for operand in everything.operands]
        return tuple(compute(everything.graph, acc, dict(zip(names, operands, strict=True)), torch.float64))

    assert torch.autograd.gradcheck(results, tensors)
    assert torch.autograd.gradgradcheck(results, tensors)


@pytest.mark.parametrize(
    "operands",
    [
        {"bias": torch.ones(4)},
        {"residual": torch.ones(3, 8)},
        {"factor": torch.ones(8)},
        {"scale": torch.ones(2)},
        {"scale": "2"},
        {"bias": 1.0},
        {"bias": torch.ones(8, dtype=torch.int32)},
    ],
)
def test_operands_of_other_shapes_are_refused(operands):
    fitting = {"bias": torch.ones(8), "scale": 1.0, "factor": torch.ones(3), "residual": torch.ones(3, 4)}
    with refuses(EpilogueError):
        everything(torch.ones(3, 8), **{**fitting, **operands})


@pytest.mark.parametrize(
    "given",
    [
        2**40,
        2**31,
        1.5,
        torch.tensor(2**40),
        torch.tensor(1.0),
    ],
)
def test_integers_of_more_bits_are_refused(given):
    @epilogue
    def shifted(acc, n: Integer):
        return acc + n

    with refuses(EpilogueError):
        shifted(torch.ones(2, 2), n=given)


def test_numpys_numbers_are_passed_for_scalars():
    np = pytest.importorskip("numpy")

    @epilogue
    def shifted(acc, n: Integer, scale: Scalar):
        return acc * scale + n

    assert shifted(torch.ones(1, 1), np.int64(3), np.float32(0.5)).item() == 3.5


def test_operands_may_have_any_name_that_no_operation_takes():
    @epilogue
    def added(x, acc: Row, self: Scalar):
        return x * self + acc

    assert added(torch.ones(1, 2), acc=torch.tensor([1.0, 2.0]), self=2.0).tolist() == [[3.0, 4.0]]


def test_odd_columns_have_no_pairs():
    with refuses(EpilogueError):
        epilogues.swiglu(torch.ones(2, 3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"])
def test_rounding_saturates_8_bits_and_keeps_nan(dtype):
    x = torch.tensor([1.0, 1.3, -1e3, 1e9, float("inf"), float("nan")])
    to = getattr(torch, dtype)
    bits8 = to.itemsize == 1
    expected = (x.clamp(-torch.finfo(to).max, torch.finfo(to).max) if bits8 else x).to(to).float()
    torch.testing.assert_close(rounded(x, dtype), expected, rtol=0, atol=0, equal_nan=True)
    y = torch.tensor([1.3, 1e9], requires_grad=True)
    rounded(y, dtype).sum().backward()
    assert y.grad.tolist() == [1.0, 0.0 if bits8 else 1.0]


def test_dropout_is_a_function_of_place_and_seed():
    @epilogue
    def dropped(acc, seed: Integer):
        return epilogues.dropout(acc, 0.25, seed), epilogues.uniform(acc, seed) + 0.0 * acc

    ones = torch.ones(512, 1024)
    (one, u), (again, _), (other, v) = dropped(ones, 7), dropped(ones, torch.tensor(7).int()), dropped(ones, 8)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert set(one.unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
    # 2**19 draws: deviations of a mean of 6e-4, and correlations of 1.4e-3, are one sigma.
    assert abs((one == 0).double().mean() - 0.25) < 3e-3
    for x, y in ((u, v), (u[1:], u[:-1]), (u[:, 1:], u[:, :-1])):
        assert abs(torch.corrcoef(torch.stack((x.flatten(), y.flatten())))[0, 1]) < 6e-3
    assert u.min() >= 0
    assert u.max() < 1


SINGLE = [[1327443.0, 110803.0, 14568305.0], [6892601.0, 10036756.0, 16505605.0]]
"""Seed 5's numbers at the first places of one product, in units of 2**-24; programs that were saved rely on them."""


def test_products_of_a_batch_drop_elements_of_their_own():
    @epilogue
    def dropped(acc, seed: Integer):
        return epilogues.uniform(acc, seed) + 0.0 * acc, acc.product + 0.0 * acc

    (one, _), (batch, index) = dropped(torch.ones(256, 256), 5), dropped(torch.ones(2, 3, 256, 256), 5)
    products = batch.flatten(0, 1)
    assert torch.equal(products[0], one)
    assert (one[:2, :3] * 2**24).tolist() == SINGLE
    assert torch.equal(index.flatten(0, 1)[:, 3, 5], torch.arange(6.0))
    # Each has 2**16 draws, of which a correlation of 3.9e-3 is one sigma.
    correlations = torch.corrcoef(products.flatten(1))
    assert (correlations - torch.eye(6)).abs().max() < 2e-2


@pytest.mark.parametrize("seed", [0, 1, -5, 2**31 - 1, True])
def test_a_seed_may_be_a_number_of_python(seed):
    @epilogue
    def passed(acc, seed: Integer):
        return epilogues.dropout(acc, 0.5, seed), acc * epilogues.uniform(acc, seed)

    @epilogue
    def constant(acc):
        return epilogues.dropout(acc, 0.5, seed), acc * epilogues.uniform(acc, seed)

    @epilogue
    def unsigned(acc):
        return epilogues.dropout(acc, 0.5, seed % 2**32), acc * epilogues.uniform(acc, seed % 2**32)

    ones = torch.ones(16, 32)
    for got in (constant(ones), unsigned(ones)):
        for one, other in zip(got, passed(ones, seed), strict=True):
            assert torch.equal(one, other)


def test_all_may_be_dropped():
    x = torch.randn(3, 4, requires_grad=True)
    all_dropped = epilogue(lambda acc: epilogues.dropout(acc, 1.0, 3))(x)
    all_dropped.sum().backward()
    assert not all_dropped.any()
    assert not x.grad.any()


def test_integers_wrap_and_divide_as_pythons_do():
    @epilogue
    def integers(acc, n: Integer):
        x = acc.row * 5 - acc.column * 3 + n
        return (x // 7) * 1000.0 + x % 7 + (x >> 1) * 0.5 + (x << 2) + 0.0 * acc, (n * 2 + acc.row) + 0.0 * acc

    acc = torch.zeros(4, 4, dtype=torch.float64)
    got, wrapped = compute(integers.graph, acc, {"n": 2**30 + 5}, torch.float64)
    x = 5 * torch.arange(4)[:, None] - 3 * torch.arange(4)
    small, _ = compute(integers.graph, acc, {"n": 0}, torch.float64)
    assert torch.equal(small, ((x // 7) * 1000.0 + x % 7 + (x >> 1) * 0.5 + (x << 2)).double())
    assert wrapped[0, 0] == -(2**31) + 10
    assert got.shape == (4, 4)


# Random programs: a list of steps, each on earlier values, run on values of an epilogue and on tensors.
UNARY = {
    "neg": operator.neg,
    "abs": abs,
    "tanh": lambda x: torch.tanh(x) if isinstance(x, torch.Tensor) else epilogues.tanh(x),
    "sigmoid": lambda x: torch.sigmoid(x) if isinstance(x, torch.Tensor) else epilogues.sigmoid(x),
    "erf": lambda x: torch.erf(x) if isinstance(x, torch.Tensor) else epilogues.erf(x),
    "square": lambda x: x**2,
    "half": lambda x: 0.5 * x,
    "below": lambda x: 1 - x,
    "over": lambda x: 1.0 / (x * x + 1),
}
BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": lambda x, y: torch.maximum(x, y) if isinstance(x, torch.Tensor) else epilogues.maximum(x, y),
    "min": lambda x, y: torch.minimum(x, y) if isinstance(x, torch.Tensor) else epilogues.minimum(x, y),
    "where": lambda x, y: torch.where(x < y, x, y * 2) if isinstance(x, torch.Tensor) else where(x < y, x, y * 2),
    "either": lambda x, y: (
        torch.where((x <= 0) | (y != x), x, y) if isinstance(x, torch.Tensor) else where((x <= 0) | (y != x), x, y)
    ),
}
steps = st.lists(
    st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12
)


def run(program, values):
    values = list(values)
    for name, one, other in program:
        x, y = values[one % len(values)], values[other % len(values)]
        values.append(UNARY[name](x) if name in UNARY else BINARY[name](x, y))
    return values[-1]


@settings(deadline=None)
@given(steps, st.booleans(), st.integers(0, 2**32))
def test_random_programs(program, paired, seed):
    @epilogue
    def traced(acc, row: Row, column: Column, tile: Tile, scalar: Scalar):
        first = acc.interleaved(2) if paired else (acc,)
        y = run(program, (*first, row, column, tile, scalar))
        every = 0.0 * (first[0] + row + column + tile + scalar)  # so that none goes unread
        return y + every, (y + every).sum(1)

    assert Graph.parse(traced.text) == traced.graph
    torch.manual_seed(seed)
    m, n = 3, 8
    columns = n // 2 if paired else n
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in ((m, n), (columns,), (m,), (m, columns), ())]
    for tensor in tensors:
        tensor.requires_grad_()
    acc, row, column, tile, scalar = tensors
    given_ = {"row": row, "column": column, "tile": tile, "scalar": scalar}
    got = compute(traced.graph, acc, given_, torch.float64)
    first = (acc[:, ::2], acc[:, 1::2]) if paired else (acc,)
    y = run(program, (*first, row, column[:, None], tile, scalar)).expand(m, columns)
    expected = y, y.sum(1)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    if paired:
        assert traced.graph.transposed is None
    else:
        given_ |= {"tile": tile.mT}
        for one, other in zip(compute(traced.graph.transposed, acc.mT, given_, torch.float64), got, strict=True):
            assert torch.equal(one, other.mT) if one.dim() == 2 else torch.allclose(one, other)
    ours = torch.autograd.grad(sum(x.sum() for x in got), tensors)
    theirs = torch.autograd.grad(sum(x.sum() for x in expected), tensors, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (2, 3, 0), (2, 0, 3)])
def test_reductions_of_no_elements_are_of_the_same_shape_and_neutral(shape):
    @epilogue
    def reduced(acc):
        found = {f"{how}{dim}": getattr(acc, how)(dim) for how in ("sum", "max", "min") for dim in (0, 1)}
        return {"y": acc, **found, "amax": epilogues.amax(acc)}

    empty, batch = reduced(torch.zeros(shape)), shape[:-2]
    of_some = reduced(torch.zeros(*batch, 2, 5))
    extents = {"0": (*batch, shape[-1]), "1": shape[:-1], "x": batch}
    neutral = {"sum": 0.0, "max": -math.inf, "min": math.inf, "amax": 0.0}
    for name in empty.keys() - {"y"}:
        assert torch.equal(empty[name], torch.full(extents[name[-1]], neutral[name.rstrip("01")])), name
        assert empty[name].dim() == of_some[name].dim()
