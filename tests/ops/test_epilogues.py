"""`gemm` with an epilogue: torch's compilers, derivatives and transforms see one operation, whose kernel is right."""

from contextlib import nullcontext

import numpy as np
import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.epilogues import Column, EpilogueError, Integer, Row, Scalar, Tile, where  # noqa: E402
from cutepy.epilogues.reference import compute  # noqa: E402
from cutepy.ops import gemm, grouped_gemm, quantise, scaled_gemm, scaled_grouped_gemm  # noqa: E402

INTEGRATION = pytest.mark.integration


@cutepy.epilogue
def gated(acc, bias: Row, scale: Scalar, residual: Tile):
    gate, up = acc.interleaved(2)
    y = epilogues.silu(gate * scale + bias) * up + residual
    return {"y": y, "pre": gate.to(torch.bfloat16), "amax": epilogues.amax(y)}


@cutepy.epilogue
def scaled(acc, rows: Column, columns: Row, factor: Scalar, c: Tile, residual: Tile, seed: Integer):
    y = acc * rows * columns + c * factor + residual
    dropped = epilogues.dropout(where(acc.column <= acc.row + 40, y, -1.0), 0.25, seed)
    return {
        "fp8": (dropped * 2.0).to(torch.float8_e4m3fn),
        "y": y,
        "sum": dropped.sum(1),
        "squares": epilogues.sum_of_squares(dropped, 0),
        "most": y.max(1),
        "least": y.min(),
    }


def problem(m=6, n=8, k=16, leading=(), dtype=torch.bfloat16):
    torch.manual_seed(m * n * k)
    rows = (*leading, m)
    a, b = torch.randn(*rows, k).to(dtype), torch.randn(n, k).to(dtype)
    return a, b, {"bias": torch.randn(n // 2), "scale": 0.5, "residual": torch.randn(*rows, n // 2).bfloat16()}


def reference(each, a, b, operands, out_dtype=torch.bfloat16):
    """Compute in float64 and round once; leading dimensions of a are rows of one matrix."""
    flat = {name: value.flatten(0, -2) if name == "residual" else value for name, value in operands.items()}
    acc = a.flatten(0, -2).double() @ b.double().mT
    results = compute(each.graph, acc, each.bind(flat), torch.float64)
    results = [value.view(*a.shape[:-1], -1) if value.dim() == 2 else value for value in results]
    rounded = []
    for result, value in zip(each.graph.results, results, strict=True):
        dtype = each.graph.dtype(result)
        rounded.append(value.to(getattr(torch, dtype) if dtype else out_dtype))
    return each.pack(rounded)


def assert_close(got, expected):
    """Compare results whose sums were rounded to fp32 on the way: one rounding of the result's dtype may differ."""
    assert got.keys() == expected.keys()
    for name, value in got.items():
        assert value.dtype == expected[name].dtype, name
        assert value.shape == expected[name].shape, name
        steps = {torch.bfloat16: 2**-7, torch.float8_e4m3fn: 2**-3, torch.float16: 2**-10, torch.float32: 2e-5}
        tolerance = steps[value.dtype]
        torch.testing.assert_close(
            value.double(),
            expected[name].double(),
            rtol=tolerance,
            atol=tolerance / 8,
            msg=lambda m, n=name: f"{n}: {m}",
        )


@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_on_the_cpu_it_is_the_reference(leading):
    a, b, operands = problem(leading=leading)
    got = gemm(a, b, epilogue=gated, **operands)
    assert_close(got, reference(gated, a, b, operands))


@cutepy.epilogue
def by_column(acc, scale: Column):
    return acc * scale


def test_a_vector_is_one_row():
    a, b, operands = problem()
    got = gemm(a[0], b, epilogue=gated, **{**operands, "residual": operands["residual"][0]})
    assert got["y"].shape == (4,)
    assert torch.equal(got["y"], gemm(a, b, epilogue=gated, **operands)["y"][0])
    for scale in (torch.tensor(2.0), torch.tensor([2.0])):  # of the result's shape, without N; or of the one row
        assert torch.equal(gemm(a[0], b, epilogue=by_column, scale=scale), gemm(a[0], b * 2))


@pytest.mark.parametrize(
    ("m", "n", "k", "leading", "options"),
    [
        (33, 40, 72, (2,), {"out_dtype": torch.float32}),  # rows of 20 floats
        pytest.param(70, 96, 64, (), {}, marks=INTEGRATION),
        pytest.param(33, 100, 70, (), {}, marks=pytest.mark.deep),  # ragged in all extents
        pytest.param(72, 64, 64, (), {"out_major": "col"}, marks=pytest.mark.deep),
        pytest.param(64, 32, 2048, (), {}, marks=pytest.mark.deep),  # K is split
    ],
)
def test_the_kernel_of_a_gated_pair(m, n, k, leading, options):
    a, b, operands = problem(m, n, k, leading)
    b = b / 8
    with cutepy.simulate(sanitize=True) as run:
        got = gemm(a, b, epilogue=gated, **operands, **options)
    assert not run.hazards, run.report()
    assert_close(got, reference(gated, a, b, operands, options.get("out_dtype", torch.bfloat16)))


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (70, 80, 32),
        pytest.param(8, 136, 32, marks=INTEGRATION),
        pytest.param(130, 160, 64, marks=pytest.mark.deep),
        pytest.param(8, 130, 48, marks=pytest.mark.deep),
    ],
)
def test_the_kernel_of_all_kinds_of_operands_and_results(m, n, k):
    torch.manual_seed(7)
    a, b = torch.randn(m, k).half(), torch.randn(n, k).half() / 8
    operands = {
        "rows": torch.randn(m),
        "columns": torch.randn(n).half(),
        "factor": torch.tensor([0.5]).bfloat16(),
        "c": torch.randn(m, n).half(),
        "residual": torch.randn(n, m).t(),
        "seed": 11,
    }
    with cutepy.simulate(sanitize=True) as run:
        got = gemm(a, b, epilogue=scaled, **operands)
    assert not run.hazards, run.report()
    assert_close(got, reference(scaled, a, b, operands, torch.float16))


@cutepy.epilogue
def gated_in_8_bits(acc):
    gate, up = acc.interleaved(2)
    return (epilogues.silu(gate) * up).to(torch.float8_e4m3fn)


@cutepy.epilogue
def quarters_in_8_bits(acc):
    a, b, c, d = acc.interleaved(4)
    return (a * b + c * d).to(torch.float8_e5m2)


@cutepy.epilogue
def eighths_in_8_bits(acc):
    one, other = acc.interleaved(4)[2].interleaved(2)
    return (one - other).to(torch.float8_e4m3fn)


@cutepy.epilogue
def eighths(acc):
    one, other = acc.interleaved(4)[2].interleaved(2)
    return one - other


@cutepy.epilogue
def gated_with_tile(acc, t: Tile):
    gate, up = acc.interleaved(2)
    return epilogues.silu(gate) * up + t


@pytest.mark.first(3)
# 8-bit rows of 16 bytes are wider than parts need to be, and than N is.
@pytest.mark.parametrize(
    ("operation", "each", "n", "k"),
    [
        ("gemm", gated_in_8_bits, 2, 32),
        ("gemm", quarters_in_8_bits, 136, 32),
        ("scaled", eighths_in_8_bits, 8, 32),
        ("grouped", gated_in_8_bits, 18, 32),
        *(
            pytest.param(operation, each, n, k, marks=INTEGRATION)
            for operation, each, n, k in (
                ("gemm", eighths, 8, 512),
                ("gemm", gated_with_tile, 16, 64),
                ("scaled", gated_in_8_bits, 16, 64),
                ("scaled", quarters_in_8_bits, 32, 512),
                ("scaled", gated_with_tile, 16, 64),
                ("grouped", quarters_in_8_bits, 4, 64),
                ("grouped", eighths_in_8_bits, 136, 512),
                ("grouped", eighths, 8, 512),
            )
        ),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_parts_of_few_columns(operation, each, n, k):
    torch.manual_seed(n * k)
    a, b = torch.randn(20, k).bfloat16(), torch.randn(n, k).bfloat16() / 8
    operands = {operand.name: torch.randn(20, n // 2).to(torch.float8_e4m3fn) for operand in each.operands}
    if operation == "scaled":
        (a, scale_a), (b, scale_b) = quantise(a.float()), quantise(b.float(), (128, 128))
        call = lambda: scaled_gemm(a, b, scale_a, scale_b, epilogue=each, **operands)  # noqa: E731
    elif operation == "grouped":
        offs = torch.tensor([20], dtype=torch.int32)
        call = lambda: grouped_gemm(a, b[None], offs=offs, epilogue=each, **operands)  # noqa: E731
    else:
        call = lambda: gemm(a, b, epilogue=each, **operands)  # noqa: E731
    with cutepy.simulate():
        got = call()
    expected = call()
    assert got.dtype == expected.dtype
    step = {torch.float8_e4m3fn: 2**-3, torch.float8_e5m2: 2**-2}.get(got.dtype, 2**-7)
    torch.testing.assert_close(got.float(), expected.float(), rtol=step, atol=2**-8)


@cutepy.epilogue
def added_and_scaled(acc, row: Row, column: Column, tile: Tile, scale: Scalar):
    return (acc + tile) * row * column * scale


OTHER_FLOATS = (torch.float64, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu)


@pytest.mark.parametrize(
    ("simulated", "dtype"),
    [*((False, dtype) for dtype in OTHER_FLOATS), pytest.param(True, OTHER_FLOATS[0], marks=INTEGRATION)],
    ids=str,
)
def test_operands_are_of_any_float_dtype(simulated, dtype):
    a, b = (torch.randint(-3, 4, (extent, 32)).bfloat16() for extent in (24, 16))
    kept = {"row": 2.0 ** torch.arange(16).fmod(3), "column": torch.ones(24), "tile": 4.0 * torch.ones(24, 16)}
    kept["scale"] = torch.tensor(0.5)
    given = {name: value.to(dtype) for name, value in kept.items()}
    ends = torch.tensor([8, 24], dtype=torch.int32)
    with cutepy.simulate() if simulated else nullcontext():
        found = gemm(a, b, epilogue=added_and_scaled, out_dtype=torch.float32, **given)
        again = gemm(a, b, epilogue=added_and_scaled, out_dtype=torch.float32, **given)
        grouped = grouped_gemm(a, b.expand(2, -1, -1).contiguous(), offs=ends, epilogue=added_and_scaled, **given)
    expected = gemm(a, b, epilogue=added_and_scaled, out_dtype=torch.float32, **kept)
    assert torch.equal(found, expected)
    assert torch.equal(again, expected)
    assert torch.equal(grouped, expected.bfloat16())


def test_operands_of_64_bits_have_gradients():
    a, b = torch.randn(8, 16).half(), torch.randn(4, 16).half()
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
    gemm(a, b, epilogue=shifted, bias=bias).sum().backward()
    assert torch.equal(bias.grad, torch.full((4,), 8.0, dtype=torch.float64))


@cutepy.epilogue
def infinite(acc):
    return 1.0 / where(acc > 0, 0.0, -0.0)


def test_a_zero_keeps_its_sign():
    a, b, _ = problem(16, 16)
    with cutepy.simulate():
        found = gemm(a, b, epilogue=infinite)
    assert torch.equal(found, gemm(a, b, epilogue=infinite))
    assert torch.equal(found, torch.copysign(torch.tensor(torch.inf), a.double() @ b.double().mT).bfloat16())


@cutepy.epilogue
def scaled_and_shifted(acc, s: Scalar, n: Integer):
    return acc * s + n


@pytest.mark.parametrize("shape", [(), (1, 1, 1)])
def test_scalars_on_the_device_have_any_shape_of_one_element(shape):
    a, b = torch.ones(8, 64).half(), torch.ones(24, 64).half()
    given = {"s": torch.full(shape, 0.5), "n": torch.full(shape, 3, dtype=torch.int32)}
    with cutepy.simulate():
        result = gemm(a, b, epilogue=scaled_and_shifted, **given)
    assert torch.equal(result.float(), torch.full((8, 24), 35.0))


@pytest.mark.integration
def test_scalars_on_the_device_reach_the_kernels_of_all_operations():
    a, b = torch.ones(8, 64).half(), torch.ones(24, 64).half()
    given = {"s": torch.full((1, 1), 0.5), "n": torch.full((1, 1), 3, dtype=torch.int32)}
    offs = torch.tensor([8], dtype=torch.int32)
    one = torch.ones(())
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    with cutepy.simulate():
        results = [
            gemm(a.expand(2, 8, 64), b.expand(2, 24, 64), epilogue=scaled_and_shifted, **given)[1],
            gemm(a[:1], b, epilogue=scaled_and_shifted, **given),
            grouped_gemm(a, b[None], offs=offs, epilogue=scaled_and_shifted, **given),
            scaled_gemm(a8, b8, one, one, epilogue=scaled_and_shifted, **given),
            scaled_grouped_gemm(a8, b8[None], one, one, offs=offs, epilogue=scaled_and_shifted, **given),
        ]
    for result in results:
        assert torch.equal(result.float(), torch.full(result.shape, 35.0))


def test_a_batch_is_one_launch():
    torch.manual_seed(3)
    a, b = torch.randn(2, 1, 40, 32).bfloat16(), torch.randn(3, 64, 32).bfloat16() / 4

    @cutepy.epilogue
    def each(acc, shift: Column, c: Tile):
        y = acc + shift + c
        return {"y": y, "sum": y.sum(0)}

    operands = {"shift": torch.randn(2, 3, 40), "c": torch.randn(3, 1, 64).bfloat16()}
    got = gemm(a, b, epilogue=each, **operands)
    with cutepy.simulate() as run:
        launched = gemm(a, b, epilogue=each, **operands)
    assert len(run.launches) == 1
    expected = (a.double() @ b.double().mT) + operands["shift"][..., None] + operands["c"]
    assert_close(got, {"y": expected.bfloat16(), "sum": expected.sum(-2).float()})
    assert_close(launched, got)


@cutepy.epilogue
def by_rows(acc, bias: Row, offset: Row):
    gate, up = (acc + bias).interleaved(2)
    y = gate * up + offset
    return y, y.sum(1)


@cutepy.epilogue
def shifted(acc, bias: Row):
    return acc + bias


@pytest.mark.parametrize("m", [pytest.param(40, marks=INTEGRATION), 3])  # the latter is computed transposed
def test_rows_are_of_all_products_or_of_each(m):
    torch.manual_seed(4)
    a, b = torch.randn(2, 1, m, 32).bfloat16(), torch.randn(3, 64, 32).bfloat16() / 4
    of_each, of_all = torch.randn(2, 3, 64).bfloat16(), torch.randn(64)
    acc = a.double() @ b.double().mT
    gate, up = (x[..., parity::2] for x in [acc + of_each[..., None, :]] for parity in (0, 1))
    y = gate * up + of_all[:32]
    parted = {"epilogue": by_rows, "bias": of_each, "offset": of_all[:32]}
    plain = {"epilogue": shifted, "bias": of_each}
    with cutepy.simulate() as run:
        simulated = gemm(a, b, **parted), gemm(a, b, **plain)
    assert len(run.launches) == 2
    for (got, sums), whole in (simulated, (gemm(a, b, **parted), gemm(a, b, **plain))):
        assert_close({"y": got, "sum": sums}, {"y": y.bfloat16(), "sum": y.sum(-1).float()})
        assert_close({"y": whole}, {"y": (acc + of_each[..., None, :]).bfloat16()})
    torch.testing.assert_close(shifted(acc.float(), of_each), (acc + of_each[..., None, :]).float())


def test_gradients_of_rows_of_each_product():
    a, b, bias = torch.ones(2, 4, 16).half(), torch.ones(2, 8, 16).half(), torch.zeros(2, 8, requires_grad=True)
    weight = torch.tensor([1.0, 3.0])[:, None, None]
    compiled = torch.compile(lambda bias: gemm(a, b, epilogue=shifted, bias=bias), fullgraph=True, backend="aot_eager")
    for result in (gemm(a, b, epilogue=shifted, bias=bias), compiled(bias)):
        (grad,) = torch.autograd.grad((result.float() * weight).sum(), bias)
        assert torch.equal(grad, torch.tensor([4.0, 12.0])[:, None].expand(2, 8))


@pytest.mark.parametrize(
    ("b", "bias"),
    [
        ((2, 8, 16), (3, 8)),
        ((2, 8, 16), (1, 8)),
        ((8, 16), (2, 8)),  # one product of 8 rows
    ],
)
def test_rows_of_no_product_are_refused(b, bias):
    with refuses(EpilogueError):
        gemm(torch.ones(2, 4, 16).half(), torch.ones(b).half(), epilogue=shifted, bias=torch.ones(bias))


@cutepy.epilogue
def random(acc, seed: Integer):
    return epilogues.uniform(acc, seed) + 0.0 * acc, acc.product + 0.0 * acc


# The latter is computed transposed.
@pytest.mark.parametrize(("m", "n"), [(20, 24), pytest.param(3, 72, marks=INTEGRATION)])
def test_products_of_a_batch_have_random_numbers_of_their_own(m, n):
    a, b = torch.ones(2, 3, m, 32).bfloat16(), torch.ones(2, 3, n, 32).bfloat16()
    expected = random(torch.zeros(2, 3, m, n), 5)
    single = gemm(a[0, 0], b[0, 0], epilogue=random, seed=5, out_dtype=torch.float32)
    with cutepy.simulate():
        simulated = gemm(a, b, epilogue=random, seed=5, out_dtype=torch.float32)
        modes = torch.ops.cutepy.gemm(a, b, [], [5], "n", random.text, torch.float32)
    for results in (simulated, modes, gemm(a, b, epilogue=random, seed=5, out_dtype=torch.float32)):
        for got, want, first in zip(results, expected, single, strict=True):
            assert torch.equal(got, want)
            assert torch.equal(got[0, 0], first)
    assert len(simulated[0][:, :, 0, 0].unique()) == 6


@cutepy.epilogue
def dropped(acc, seed: Integer):
    return epilogues.dropout(acc, 0.5, seed)


def test_gradients_and_compiled_code_drop_what_a_batch_drops():
    a, b = torch.ones(3, 8, 16).bfloat16().requires_grad_(), torch.ones(3, 24, 16).bfloat16()
    result = gemm(a, b, epilogue=dropped, seed=5)
    compiled = torch.compile(lambda a: gemm(a, b, epilogue=dropped, seed=5), fullgraph=True, backend="aot_eager")(a)
    kept = (result != 0).float()
    assert not torch.equal(kept[0], kept[1])
    for value in (result, compiled):
        assert torch.equal(value, result)
        (grad,) = torch.autograd.grad(value.float().sum(), a)
        assert torch.equal(grad.float(), (2 * kept.sum(-1, keepdim=True)).expand(3, 8, 16))


def test_examples_of_vmap_are_products_by_themselves():
    a, b, seeds = torch.ones(3, 8, 16).bfloat16(), torch.ones(24, 16).bfloat16(), torch.arange(3).int()

    def product(a, seed):
        return gemm(a, b, epilogue=dropped, seed=seed)

    mapped = torch.vmap(product)(a, seeds)
    assert torch.equal(mapped, torch.stack([product(x, seed) for x, seed in zip(a, seeds, strict=True)]))
    assert not torch.equal(mapped[0], mapped[1])


def test_what_was_decided_for_a_call_serves_others_like_it():
    @cutepy.epilogue
    def shifted(acc, bias: Row, scale: Scalar, n: Integer):
        return acc * scale + bias + n

    a, b, bias = torch.ones(8, 64).half(), torch.ones(72, 64).half(), torch.arange(80.0)

    def check(a, b, bias, scale, n):
        with cutepy.simulate():
            got = gemm(a, b, epilogue=shifted, bias=bias, scale=scale, n=n)
        assert torch.equal(got, ((a.float() @ b.float().t()) * scale + bias + n).half())

    for _ in range(2):
        check(a, b, bias[:72], 0.5, 3)
    check(a, b, bias[:72], 2, -1)  # an int for a float
    check(a, b, bias[:72].half(), torch.tensor(0.25), torch.tensor(7).int())
    check(a, b, torch.arange(144.0)[::2], torch.tensor([0.25]), torch.tensor([7], dtype=torch.int16))
    storage = torch.ones(8 * 64 + 4).half()
    check(storage[4:].view(8, 64), b, bias[3:75], 1.0, 0)  # at no multiple of 16 bytes
    check(a.as_strided((1, 64), (3, 1)), b, bias[:72], 1.0, 0)  # a stride that nothing uses
    with refuses(EpilogueError):
        check(a, b, bias[:71], 0.5, 3)
    check(a, b, bias[:72], np.float32(0.5), np.int64(3))
    for n in (2**40, 2**31):  # of which the type alone decides what is looked up
        with refuses(EpilogueError):
            check(a, b, bias[:72], 0.5, n)


@cutepy.epilogue
def all_reductions(acc):
    kinds = {"sum": lambda x, dim: x.sum(dim), "max": lambda x, dim: x.max(dim), "min": lambda x, dim: x.min(dim)}
    kinds["amax"] = epilogues.amax
    return {f"{name}_{dim}": kind(acc, dim) for name, kind in kinds.items() for dim in (0, 1, None)}


@pytest.mark.parametrize("shape", [(0, 16, 24), (8, 16, 0), (0, 16, 0), (2, 0, 16, 24), (0, 8, 16, 24)])
@pytest.mark.parametrize("simulated", [False, True])
def test_what_nothing_is_reduced_to(shape, simulated):
    *batch, m, k, n = shape
    a, b = torch.ones(*batch, m, k).half(), torch.ones(*batch, n, k).half().requires_grad_()
    if simulated:
        with cutepy.simulate():
            got = gemm(a, b.detach(), epilogue=all_reductions)
    else:
        got = gemm(a, b, epilogue=all_reductions)
        assert not torch.autograd.grad(sum(each.sum() for each in got.values()), b)[0].any()
    nothing = {"sum": 0.0, "max": -torch.inf, "min": torch.inf, "amax": 0.0}
    for name, result in got.items():
        kind, dim = name.split("_")
        extents = {"0": (*batch, n), "1": (*batch, m), "None": tuple(batch)}[dim]
        assert torch.equal(result, torch.full(extents, nothing[kind])), name


@cutepy.epilogue
def added(acc, tile: Tile):
    return acc + tile


EMPTY = [(16, 16, 0), (0, 16, 0), (0, 0, 16), (0, 0, 0), (0, 16, 16), (3, 4, 16, 0), (0, 4, 16, 8)]


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("simulated", [False, True])
def test_a_tile_without_elements_is_added(shape, batched, simulated):
    *batch, m, k, n = shape
    a, b = torch.ones(*batch, m, k).half(), torch.ones(*(batch if batched else ()), n, k).half()
    tile = torch.ones(*batch, m, n).half()
    if simulated:
        with cutepy.simulate():
            assert gemm(a, b, epilogue=added, tile=tile).shape == tile.shape
    else:
        given = [each.requires_grad_() for each in (a, b, tile)]
        got = gemm(given[0], given[1], epilogue=added, tile=given[2])
        assert got.shape == tile.shape
        grads = torch.autograd.grad(got.sum(), given)
        assert [grad.shape for grad in grads] == [each.shape for each in given]
        assert gemm(a, b, epilogue=added, tile=tile[..., :1, :]).shape == tile.shape


@cutepy.epilogue
def with_names_of_scales(acc, scale_a: Column, scale_b: Row):
    return acc * scale_a * scale_b


def test_operands_that_an_operation_cant_be_passed_are_told():
    a, b = torch.ones(8, 128).to(torch.float8_e4m3fn), torch.ones(16, 128).to(torch.float8_e4m3fn)
    one, offs = torch.ones(()), torch.tensor([8], dtype=torch.int32)
    scales = {"scale_a": torch.ones(8), "scale_b": torch.ones(16)}
    with refuses(EpilogueError):
        scaled_gemm(a, b, one, one, epilogue=with_names_of_scales, **scales)
    with refuses(EpilogueError):
        scaled_gemm(a, b, epilogue=with_names_of_scales, **scales)
    with refuses(EpilogueError):
        scaled_grouped_gemm(a, b[None], one, one, offs=offs, epilogue=with_names_of_scales, **scales)
    assert gemm(a, b, epilogue=with_names_of_scales, **scales).shape == (8, 16)

    @cutepy.epilogue
    def with_ends(acc, offs: Column):
        return acc * offs

    with refuses(EpilogueError):
        grouped_gemm(a.half(), b[None].half(), offs=offs, epilogue=with_ends)


def test_operands_of_no_epilogue_are_refused():
    a, b = torch.ones(8, 128).to(torch.float8_e4m3fn), torch.ones(16, 128).to(torch.float8_e4m3fn)
    one, offs = torch.ones(()), torch.tensor([8], dtype=torch.int32)
    for call in (
        lambda: gemm(a, b, foo=1),
        lambda: gemm(a, b, foo=None),
        lambda: gemm(a, b, bias=torch.ones(16), foo=1),
        lambda: scaled_gemm(a, b, one, one, foo=1),
        lambda: grouped_gemm(a, b[None], offs=offs, foo=1),
        lambda: scaled_grouped_gemm(a, b[None], one, one, offs=offs, foo=1),
    ):
        with refuses(TypeError):
            call()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("out_major", "col"),
        ("bias", torch.ones(16)),
        ("activation", "relu"),
        ("scale_a", torch.ones(())),
    ],
)
def test_options_that_only_others_have_are_told_as_such(option, value):
    a, b, offs = torch.ones(8, 16).half(), torch.ones(1, 16, 16).half(), torch.tensor([8], dtype=torch.int32)
    with refuses(TypeError):
        grouped_gemm(a, b, offs=offs, **{option: value})


def test_groups_are_no_option_of_gemm():
    a, offs = torch.ones(8, 16).half(), torch.tensor([8], dtype=torch.int32)
    with refuses(TypeError):
        gemm(a, a, offs=offs)


def test_no_rows_need_no_kernel():
    a, b, _ = problem(m=0)
    with cutepy.simulate() as run:
        assert gemm(a, b, epilogue=epilogues.swiglu).shape == (0, 4)
    assert not run.launches


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=INTEGRATION), True])
def test_compiled_code(dynamic):
    a, b, operands = problem(leading=(2,))
    scale = torch.tensor(operands["scale"])

    def loss(a, b, scale):
        got = gemm(a, b, epilogue=gated, **{**operands, "scale": scale})
        return got["y"].float().square().sum() + got["amax"] + got["pre"].float().sum()

    def gradients(function):
        leaves = [tensor.clone().requires_grad_() for tensor in (a, b, scale)]
        value = function(*leaves)
        return value, torch.autograd.grad(value, leaves)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for got, expected in zip(gradients(compiled), gradients(loss), strict=True):
        torch.testing.assert_close(got, expected)


@cutepy.epilogue
def with_tile(acc, t: Tile):
    return acc + t


@cutepy.epilogue
def with_row(acc, r: Row):
    return acc + r


# Extents that are written in the code stay numbers where those of arguments are symbols.
@pytest.mark.parametrize(
    "tile",
    [lambda: torch.ones(48), lambda: torch.ones(1, 48), lambda: torch.ones(33, 1), lambda: torch.ones(33, 48)],
)
def test_compiled_code_of_any_extents_broadcasts_tiles_of_known_ones(tile):
    a, b = torch.randn(33, 64).bfloat16(), torch.randn(48, 64).bfloat16()

    def product(a):
        return gemm(a, b, epilogue=with_tile, t=tile())

    torch._dynamo.reset()
    compiled = torch.compile(product, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(a), product(a))


@pytest.mark.parametrize(
    ("each", "operands", "message"),
    [
        (with_row, {"r": torch.ones(47)}, r"r must have shape \(N,\) = \(48,\), got \(47,\)"),
        (with_tile, {"t": torch.ones(47)}, r"t must have shape \(M, N\) = \(33, 48\), or broadcast to it, got \(47,\)"),
        (with_row, {}, "with_row needs its operand r: row; pass r="),
    ],
)
def test_compiled_code_says_what_is_wrong_with_operands(each, operands, message):
    a, b = torch.randn(33, 64).bfloat16(), torch.randn(48, 64).bfloat16()
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=message):
        torch.compile(lambda a: gemm(a, b, epilogue=each, **operands), fullgraph=True, backend="eager")(a)
    with refuses(EpilogueError):  # with breaks in the graph it is the error itself
        torch.compile(lambda a: gemm(a, b, epilogue=each, **operands), backend="eager")(a)


def test_epilogues_are_made_outside_of_compiled_code():
    a, b = torch.ones(8, 16).half(), torch.ones(8, 16).half()

    def product(a, b):
        @cutepy.epilogue
        def doubled(acc):
            return acc * 2

        return gemm(a, b, epilogue=doubled)

    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="decorate it outside"):
        torch.compile(product, fullgraph=True, backend="eager")(a, b)
    broken = torch.compile(product, backend="eager")  # breaks in the graph leave it to Python
    assert torch.equal(broken(a, b), product(a, b))
    exported = torch.export.export(Product(product), (a, b), strict=False)  # runs in Python
    assert torch.equal(exported.module()(a, b), product(a, b))


class Product(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def test_exported_programs_carry_the_epilogue(tmp_path):
    a, b, operands = problem()

    class Model(torch.nn.Module):
        def forward(self, a, b, bias, residual):
            return gemm(a, b, epilogue=gated, bias=bias, scale=0.5, residual=residual)

    given = (a, b, operands["bias"], operands["residual"])
    torch.export.save(torch.export.export(Model(), given), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2")
    assert "sigmoid" in str(program.graph)
    expected = gemm(a, b, epilogue=gated, **operands)
    for name, value in program.module()(*given).items():
        assert torch.equal(value, expected[name])


def test_arguments_in_torchs_programs_have_one_line():
    """Inductor writes them into comments of the code that it generates for a GPU."""

    def step(a, b, x, where):
        loss = gated_sum(a, b) + grouped_gemm(x, b[None], offs=where).sum()
        return torch.autograd.grad(loss, (a, b))

    def gated_sum(a, b):
        return gemm(a, b, bias=b[:, 0], activation="silu").sum() + gemm(a, b, epilogue=sigmoids).sum()

    @cutepy.epilogue
    def sigmoids(acc):
        return epilogues.sigmoid(acc)

    a, b = (torch.randn(16, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    program = torch.fx.experimental.proxy_tensor.make_fx(step)(a, b, a, torch.tensor([16], dtype=torch.int32))
    texts = [x for node in program.graph.nodes if "cutepy" in str(node.target) for x in node.args if isinstance(x, str)]
    assert sum("return" in text for text in texts) >= 5
    assert not any("\n" in text for text in texts)


def test_torch_finds_nothing_amiss():
    a, b, operands = problem()
    tensors = [operands["bias"], operands["residual"]]
    arguments = (a.requires_grad_(), b, tensors, [0.5], "tnt", gated.text)
    torch.library.opcheck(torch.ops.cutepy.gemm.default, arguments)


def test_gradients_are_torchs():
    # Small whole numbers, so that products and roundings on the way are exact and only the epilogue's count.
    torch.manual_seed(1)
    a, b = (torch.randint(-2, 3, shape).bfloat16() for shape in ((6, 8), (8, 8)))
    operands = {"bias": torch.randn(4), "scale": torch.randn(()), "residual": torch.randn(6, 4)}

    def gradients(function, *leading):
        leaves = [tensor.clone().requires_grad_() for tensor in (*leading, *operands.values())]
        got = function(*leaves[: len(leading)], **dict(zip(operands, leaves[len(leading) :], strict=True)))
        loss = (got["y"].float() ** 2).sum() + 3 * got["amax"] + got["pre"].float().sin().sum()
        return torch.autograd.grad(loss, leaves)

    ours = gradients(lambda a, b, **named: gemm(a, b, epilogue=gated, out_dtype=torch.float32, **named), a, b)
    theirs = gradients(lambda a, b, **named: gated(a @ b.mT, **named), a.float(), b.float())
    for got, expected in zip(ours, theirs, strict=True):
        # The gradient of the product is rounded to bfloat16 before it is multiplied.
        torch.testing.assert_close(got.float(), expected, rtol=2**-6, atol=2**-6 * expected.abs().max().item())
    transformed = torch.func.grad(
        lambda a, scale: gemm(a, b, epilogue=gated, **{**operands, "scale": scale})["y"].float().sum(), (0, 1)
    )(a, operands["scale"])
    leaves = a.clone().requires_grad_(), operands["scale"].clone().requires_grad_()
    value = gemm(leaves[0], b, epilogue=gated, **{**operands, "scale": leaves[1]})["y"].float().sum()
    for got, expected in zip(transformed, torch.autograd.grad(value, leaves), strict=True):
        torch.testing.assert_close(got, expected)


def test_relu_has_no_gradient_at_0_whichever_way_it_is_asked_for():
    z, w = torch.zeros(4, 8).bfloat16().requires_grad_(), torch.ones(4, 8).bfloat16()
    for given in ({"epilogue": epilogues.relu}, {"activation": "relu"}):
        (grad,) = torch.autograd.grad(gemm(z, w, **given).float().sum(), z)
        assert not grad.any()


def test_derivatives_of_derivatives():
    a, b, operands = problem()
    a.requires_grad_()
    value = gemm(a, b, epilogue=gated, **operands)["y"].float().sum()
    (first,) = torch.autograd.grad(value, a, create_graph=True)
    (second,) = torch.autograd.grad(first.float().square().sum(), a)
    assert second.isfinite().all()
    assert second.abs().max() > 0


def test_8_bit_operands_have_no_gradient_but_their_epilogues_operands_do():
    a, b, operands = problem()
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    operands["bias"].requires_grad_()
    gemm(a, b, epilogue=gated, **operands)["y"].float().sum().backward()
    assert operands["bias"].grad.abs().max() > 0
    with refuses(NotImplementedError):
        gemm(a.requires_grad_(), b, epilogue=gated, **operands)


def on_meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, device="meta", dtype=dtype)


def test_torch_fx_records_calls():
    a, b, _ = problem()

    @cutepy.epilogue
    def times(acc, s: Scalar):
        return acc * s

    more, less = cutepy.epilogue(lambda acc: acc + 1.0), cutepy.epilogue(lambda acc: acc - 1.0)

    class Model(torch.nn.Module):
        def forward(self, a, s):
            y = gemm(gemm(a, b, epilogue=times, s=s), b.mT, epilogue=more)
            return gemm(gemm(y, b, epilogue=times, s=2.0), b.mT, epilogue=less)

    model, s = Model(), torch.tensor(0.5)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"].count(gemm) == 4
    assert torch.equal(traced(a, s), model(a, s))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("extents", [(9,), (2, 9)], ids=str)
def test_jit_tracing_follows_the_rows(extents):
    @cutepy.epilogue
    def several(acc, bias: Row, c: Tile):
        return acc + bias + c, acc.max(1)

    a, b, bias = torch.randn(*extents, 32).bfloat16(), torch.randn(16, 32).bfloat16(), torch.randn(16)

    def function(a):
        return gemm(a, b, epilogue=several, bias=bias, c=a[..., :16])

    traced = torch.jit.trace(function, (a,))
    assert "cutepy::gemm" in str(traced.graph)
    for given in (a, torch.randn(*extents[:-1], 5, 32).bfloat16()):
        assert all(torch.equal(*pair) for pair in zip(traced(given), function(given), strict=True))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_jit_tracing_of_groups_and_of_batches():
    a, b, offs = torch.randn(9, 32).bfloat16(), torch.randn(2, 16, 32).bfloat16(), torch.tensor([4, 9]).int()
    for function in (
        lambda a: cutepy.ops.grouped_gemm(a, b, offs=offs, epilogue=epilogues.relu),
        lambda a: gemm(a, b, epilogue=epilogues.relu),
    ):
        assert torch.equal(torch.jit.trace(function, (a,))(a), function(a))


def test_meta_tensors_have_their_results_described():
    a, b, operands = problem(leading=(2,))
    given = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in operands.items()}
    for name, got in gemm(a.to("meta"), b.to("meta"), epilogue=gated, **given).items():
        expected = gemm(a, b, epilogue=gated, **operands)[name]
        assert got.is_meta
        assert (got.shape, got.stride(), got.dtype) == (expected.shape, expected.stride(), expected.dtype)
    offs = on_meta(2, dtype=torch.int32)
    assert grouped_gemm(on_meta(6, 16), on_meta(2, 8, 16), offs=offs, epilogue=epilogues.swiglu).shape == (6, 4)
    assert grouped_gemm(on_meta(6, 16), on_meta(2, 8, 16), offs=offs).shape == (6, 8)
    bits8 = {"dtype": torch.float8_e4m3fn}
    scales = on_meta(1, dtype=torch.float32), on_meta(1, dtype=torch.float32)
    assert scaled_gemm(on_meta(6, 16, **bits8), on_meta(8, 16, **bits8), *scales, epilogue=epilogues.glu).shape == (
        6,
        4,
    )


@pytest.mark.parametrize("n", [4, pytest.param(8, marks=INTEGRATION)])
def test_quarters_of_few_columns(n):
    @cutepy.epilogue
    def quarters(acc, bias: Row):
        one, *others = acc.interleaved(4)
        return sum(others, one) * 2.0 + bias

    def compared(multiply, *given, **named):
        with cutepy.simulate():
            got = multiply(
                *given, epilogue=quarters, bias=torch.arange(n // 4).float(), out_dtype=torch.float32, **named
            )
        expected = multiply(
            *given, epilogue=quarters, bias=torch.arange(n // 4).float(), out_dtype=torch.float32, **named
        )
        torch.testing.assert_close(got, expected)

    torch.manual_seed(n)
    a, b = torch.randint(-2, 3, (33, 32)).half(), torch.randint(-2, 3, (n, 32)).half()
    for m in (1, 33):
        compared(gemm, a[:m], b)
    if n == 4:
        return
    # 8-bit operands, and those of groups, are in units of 16 bytes.
    offs = torch.tensor([10, 33], dtype=torch.int32)
    experts = torch.stack((b, -b))
    compared(grouped_gemm, a, experts, offs=offs)
    qa, qb, sa, sb = quantised(a, b)
    compared(scaled_gemm, qa, qb, sa, sb)
    compared(scaled_grouped_gemm, qa, torch.stack((qb, qb)), sa, torch.stack((sb, sb)), offs=offs)


def quantised(a, b):
    (a, scale_a), (b, scale_b) = quantise(a.float()), quantise(b.float())
    return a, b, scale_a, scale_b


def test_vmap_and_autocast():
    a, b, operands = problem(leading=(2,))
    residual = operands.pop("residual")
    mapped = torch.vmap(lambda a, r: gemm(a, b, epilogue=gated, residual=r, **operands)["y"])(a, residual)
    assert torch.equal(mapped, gemm(a, b, epilogue=gated, residual=residual, **operands)["y"])
    with torch.autocast("cpu", torch.bfloat16):
        cast = gemm(a.float(), b.float(), epilogue=gated, residual=residual, **operands)
    assert torch.equal(cast["y"], mapped)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"bais": torch.ones(4)}, EpilogueError),
        ({"bias": None}, EpilogueError),
        ({"bias": torch.ones(8)}, EpilogueError),
        ({"residual": torch.ones(6, 8)}, EpilogueError),
        ({"scale": torch.ones(3)}, EpilogueError),
        ({"bias": torch.ones(4).cfloat()}, EpilogueError),
        ({"activation": "relu"}, ValueError),
        ({"out": torch.ones(6, 4)}, TypeError),
        ({"epilogue": lambda acc: acc}, TypeError),
        ({"epilogue": None, "bias": None}, TypeError),
    ],
)
def test_what_does_not_fit_is_refused(change, error):
    a, b, operands = problem()
    with refuses(error):
        gemm(a, b, **{"epilogue": gated, **operands, **change})


def test_odd_columns_have_no_pairs():
    with refuses(EpilogueError):
        gemm(torch.ones(2, 8).half(), torch.ones(3, 8).half(), epilogue=epilogues.swiglu)
