"""Traced programs: numbers and extents that they don't know cost no compilation each, and rows may be any number."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy.epilogues import Column, EpilogueError, Integer, Row, Scalar, Tile, amax, silu, where  # noqa: E402
from cutepy.ops import (  # noqa: E402
    dequantise,
    gemm,
    grouped_gemm,
    quantise,
    scaled_gemm,
    scaled_grouped_gemm,
)

M, N, K = 33, 40, 256
OFFS = torch.tensor([5, 20, M], dtype=torch.int32)


@cutepy.epilogue
def times(acc, s: Scalar):
    return acc * s


@cutepy.epilogue
def first_rows(acc, n: Integer):
    return where(acc.row < n, acc, 0.0)


@cutepy.epilogue
def by_row(acc, r: Row):
    return acc * r


@cutepy.epilogue
def by_column(acc, c: Column):
    return acc * c


@cutepy.epilogue
def tiled(acc, t: Tile):
    return acc + t


@cutepy.epilogue
def several(acc, r: Row, c: Column):
    y = acc * r + c
    return {"y": y, "most": amax(y, 1), "sum": y.sum(0), "fp8": (y * 2.0).to(torch.float8_e4m3fn)}


@cutepy.epilogue
def gated(acc, bias: Row, t: Tile):
    gate, up = acc.interleaved(2)
    return silu(gate + bias) * up + t


def bf16(*shape):
    return torch.randn(*shape).bfloat16()


def compilations(function, calls, **options):
    """Call compiled code, compare it with what it was compiled from, and count how often it was compiled."""
    compiled, counter = counted(function, **options)
    for arguments in calls:
        assert torch.equal(compiled(*arguments), function(*arguments))
    return counter.frame_count


def counted(function, **options):
    """Compile, and give what counts how often that takes place."""
    from torch._dynamo.testing import CompileCounterWithBackend  # takes long

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(function, fullgraph=True, backend=counter, **options), counter


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("each", "name", "numbers"),
    [
        (times, "s", [0.5 + n for n in range(3)]),
        pytest.param(times, "s", range(3, 6), marks=pytest.mark.integration),
        (first_rows, "n", range(3, 6)),
    ],
    ids=["float", "int for a float", "int"],
)
@pytest.mark.parametrize("in_groups", [False, pytest.param(True, marks=pytest.mark.integration)])
def test_numbers_are_no_reason_to_compile_again(each, name, numbers, in_groups):
    a, b = bf16(M, K), bf16(N, K)

    def product(a, number):
        if in_groups:
            return grouped_gemm(a, b.expand(3, N, K), offs=OFFS, epilogue=each, **{name: number})
        return gemm(a, b, epilogue=each, **{name: number})

    assert compilations(product, [(a, number) for number in numbers]) <= 2
    assert compilations(product, [(a, number) for number in numbers], dynamic=True) <= 2


def test_numbers_that_follow_from_a_shape_are_no_reason_to_compile_again():
    a, b = bf16(M, K), bf16(N, K)

    def product(a):
        by_float = gemm(a, b, epilogue=times, s=a.shape[0] * 0.5)
        return by_float + gemm(a, b, epilogue=first_rows, n=a.shape[0] - 2)

    assert compilations(product, [(a[:m],) for m in range(5, 12)]) == 2


@pytest.mark.integration
def test_numbers_are_no_reason_to_compile_derivatives_again():
    b = bf16(N, K)

    compiled, counter = counted(lambda a, s: gemm(a, b, epilogue=times, s=s).sum())
    for number in (0.5, 1.5, 2.5, 3.5):
        a = bf16(M, K).requires_grad_()
        (got,) = torch.autograd.grad(compiled(a, number), a)
        (expected,) = torch.autograd.grad(gemm(a, b, epilogue=times, s=number).sum(), a)
        assert torch.equal(got, expected)
    assert counter.frame_count <= 2


@pytest.mark.parametrize(
    "number", [float("nan"), *(pytest.param(number, marks=pytest.mark.integration) for number in (2**40, True))]
)
def test_unusual_numbers_in_compiled_code(number):
    a, b = bf16(M, K), bf16(N, K)
    compiled, _ = counted(lambda a, s: gemm(a, b, epilogue=times, s=s), dynamic=True)
    assert_equal(compiled(a, number), gemm(a, b, epilogue=times, s=number))


@pytest.mark.integration
def test_a_float_is_refused_for_an_integer_in_compiled_code_too():
    a, b = bf16(M, K), bf16(N, K)
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, n: gemm(a, b, epilogue=first_rows, n=n), backend="aot_eager", dynamic=True)
    for number in (2.5, 3.5):
        with refuses(EpilogueError):
            compiled(a, number)


def cases():
    """Give functions, their arguments, and which dimension of each is the dynamic number of rows, None of others."""
    torch.manual_seed(0)
    a, b, batch, matrices = bf16(M, K), bf16(N, K), bf16(3, M, K), bf16(3, N, K)
    counts = torch.tensor([1, 3, 4], dtype=torch.int32)
    (x, by_128), (w, squares) = quantise(torch.randn(M, K)), quantise(torch.randn(N, K), (128, 128))
    of_rows, of_columns, whole = torch.rand(M, 1) + 0.5, torch.rand(N, 1) + 0.5, torch.tensor(0.5)
    experts = w.view(torch.uint8).expand(3, N, K).contiguous().view(w.dtype)
    lead = x.view(torch.uint8).unsqueeze(1).repeat(1, 2, 1).view(x.dtype)

    def fused(each):
        return lambda a, b, *given: gemm(
            a, b, epilogue=each, **dict(zip((o.name for o in each.graph.operands), given, strict=True))
        )

    def in_groups(each, ends="offs"):
        return lambda a, b, groups, *given: grouped_gemm(
            a,
            b,
            epilogue=each,
            **{ends: groups},
            **dict(zip((o.name for o in each.graph.operands), given, strict=True)),
        )

    return {
        "plain": (gemm, (a, b), (0, None)),
        "batch": (gemm, (batch, matrices), (1, None)),
        "any products of a batch": (gemm, (bf16(M, 2, K), bf16(M, N, K)), (0, 0)),
        "c and bias": (lambda a, b, c, bias: gemm(a, b, c=c, bias=bias), (a, b, bf16(N), bf16(N)), (0,) + (None,) * 3),
        "number of a shape": (lambda a, b: gemm(a, b, epilogue=times, s=a.shape[0] * 0.5), (a, b), (0, None)),
        "int of a shape": (lambda a, b: gemm(a, b, epilogue=times, s=a.shape[0]), (a, b), (0, None)),
        "integer of a shape": (lambda a, b: gemm(a, b, epilogue=first_rows, n=a.shape[0] - 2), (a, b), (0, None)),
        "results": (fused(several), (a, b, bf16(N), bf16(M)), (0, None, None, 0)),
        "results of leading dimensions": (
            fused(several),
            (bf16(M, 3, K), b, bf16(N), bf16(M, 3)),
            (0, None, None, 0),
        ),
        "tile": (fused(tiled), (a, b, bf16(M, N)), (0, None, 0)),
        "tile (N,)": (fused(tiled), (a, b, bf16(N)), (0, None, None)),
        "tile (M, 1)": (fused(tiled), (a, b, bf16(M, 1)), (0, None, 0)),
        "tile of a batch": (fused(tiled), (batch, matrices, bf16(M, N)), (1, None, 0)),
        "tile of leading dimensions": (fused(tiled), (bf16(M, 3, K), b, bf16(3, N)), (0, None, None)),
        "pairs": (fused(gated), (a, b, bf16(N // 2), bf16(N // 2)), (0, None, None, None)),
        "scales of 1x128": (scaled_gemm, (x, w, by_128, squares), (0, None, 0, None)),
        "scales of rows": (scaled_gemm, (x, w, of_rows, of_columns), (0, None, 0, None)),
        "scales of tensors": (scaled_gemm, (x, w, whole, whole.view(1, 1)), (0, None, None, None)),
        "scales of leading dimensions": (
            scaled_gemm,
            (lead, w, by_128.unsqueeze(1).repeat(1, 2, 1), squares),
            (0, None, 0, None),
        ),
        "8-bit results": (
            lambda *given: scaled_gemm(*given[:4], bias=given[4], out_dtype=torch.float8_e4m3fn),
            (x, w, of_rows, squares, bf16(N)),
            (0, None, 0, None, None),
        ),
        "quantise": (quantise, (bf16(M, 3, K),), (0,)),
        "quantise tensors": (lambda x: quantise(x, (0, 0)), (a,), (0,)),
        "dequantise": (dequantise, (x, by_128), (0, 0)),
        "groups": (in_groups(by_row), (a, matrices, OFFS, bf16(3, N)), (0, None, None, None)),
        "groups, one row": (in_groups(by_row), (a, matrices, OFFS, bf16(N)), (0, None, None, None)),
        "groups, column": (in_groups(by_column), (a, matrices, OFFS, bf16(M)), (0, None, None, 0)),
        "groups, number": (
            lambda a, b, offs: grouped_gemm(a, b, offs=offs, epilogue=times, s=a.shape[0] * 0.5),
            (a, matrices, OFFS),
            (0, None, None),
        ),
        "masked, column of each": (
            in_groups(by_column, "counts"),
            (batch, matrices, counts, bf16(3, M)),
            (1, None, None, 1),
        ),
        "masked, column": (in_groups(by_column, "counts"), (batch, matrices, counts, bf16(M)), (1, None, None, 0)),
        "groups, scales of 1x128": (
            lambda a, b, s, t, offs: scaled_grouped_gemm(a, b, s, t, offs=offs),
            (x, experts, by_128, squares.expand(3, 1, 2), OFFS),
            (0, None, 0, None, None),
        ),
        "groups, scales of rows": (
            lambda a, b, s, t, offs: scaled_grouped_gemm(a, b, s, t, offs=offs),
            (x, experts, of_rows, of_columns.expand(3, N, 1), OFFS),
            (0, None, 0, None, None),
        ),
    }


CASES = cases()
OFTEN = ("number of a shape", "pairs", "integer of a shape", "tile (N,)", "scales of 1x128", "groups, one row")
BY_DYNAMO = [pytest.param(n, marks=pytest.mark.integration if n in OFTEN[1:] else pytest.mark.deep) for n in CASES]
BY_DYNAMO[list(CASES).index(OFTEN[0])] = OFTEN[0]


def assert_equal(got, expected):
    leaves = (torch.utils._pytree.tree_leaves(each) for each in (got, expected))
    for x, y in zip(*leaves, strict=True):
        torch.testing.assert_close(x.float(), y.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_exported_programs_take_any_rows(name):
    exported(name, strict=False)


@pytest.mark.integration
@pytest.mark.parametrize("name", BY_DYNAMO)
def test_strictly_exported_programs_take_any_rows(name):
    exported(name, strict=True)


def exported(name, strict):
    function, given, dimensions = CASES[name]

    class Model(torch.nn.Module):
        def forward(self, *arguments):
            return function(*arguments)

    rows = torch.export.Dim("rows", min=2, max=9999)
    shapes = tuple(None if dim is None else {dim: rows} for dim in dimensions)
    program = torch.export.export(Model(), given, dynamic_shapes=(shapes,), strict=strict).module()
    fewer = [x if dim is None else x.narrow(dim, 0, M - 4).clone() for x, dim in zip(given, dimensions, strict=True)]
    for arguments in (given, fewer):
        assert_equal(program(*arguments), function(*arguments))


@pytest.mark.parametrize("name", BY_DYNAMO)
def test_compiled_programs_of_dynamic_extents(name):
    function, given, _ = CASES[name]
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    assert_equal(compiled(*given), function(*given))


WEIGHTS, OF_WEIGHTS = quantise(torch.randn(N, K, generator=torch.Generator().manual_seed(2)), (128, 128))


def scaled_by_squares(x, scale):
    return scaled_gemm(x, WEIGHTS, scale, OF_WEIGHTS)


def of_squares(x):
    """Quantise activations in blocks of 128 x 128, and multiply them by weights."""
    return scaled_by_squares(*quantise(x, (128, 128)))


def masked_cases():
    """Give functions of a mask of rows, of which only the data tell how many there are."""
    torch.manual_seed(1)
    a, b, t, c = bf16(6, K), bf16(N, K), torch.randn(6, N), torch.randn(6)
    matrices, ends = bf16(2, N, K), torch.tensor([2, 6], dtype=torch.int32)
    (x, by_128), (w, squares) = quantise(torch.randn(6, K)), quantise(torch.randn(N, K), (128, 128))
    of_rows = torch.rand(6, 1)

    def rows(mask):
        return x.view(torch.uint8)[mask].view(x.dtype)

    return {
        "c": lambda m: gemm(a[m], b, c=t[m]),
        "c of one row": lambda m: gemm(a[m], b, c=t[:1]),
        "tile": lambda m: gemm(a[m], b, epilogue=tiled, t=t[m]),
        "tile (N,)": lambda m: gemm(a[m], b, epilogue=tiled, t=t[0]),
        "tile (1, N)": lambda m: gemm(a[m], b, epilogue=tiled, t=t[:1]),
        "tile (M, 1)": lambda m: gemm(a[m], b, epilogue=tiled, t=t[m][:, :1]),
        "results": lambda m: gemm(a[m], b, epilogue=several, r=t[0], c=c[m]),
        "number": lambda m: gemm(a[m], b, epilogue=first_rows, n=m.sum().item()),
        "scales of 1x128": lambda m: scaled_gemm(rows(m), w, by_128[m], squares),
        "scales of rows": lambda m: scaled_gemm(rows(m), w, of_rows[m], squares),
        "scales of tensors": lambda m: scaled_gemm(rows(m), w, of_rows[:1], squares),
        "scales of 128x128": lambda m: of_squares(a[m]),
        "groups": lambda m: grouped_gemm(a[m], matrices, offs=ends, epilogue=tiled, t=t[m]),
    }


MASKED = masked_cases()


@pytest.mark.parametrize("exports", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["export", "compile"])
@pytest.mark.parametrize("name", MASKED)
def test_rows_of_which_only_the_data_tell_how_many_there_are(name, exports):
    function, mask = MASKED[name], torch.tensor([1, 0, 1, 1, 0, 1]).bool()

    class Model(torch.nn.Module):
        def forward(self, mask):
            return function(mask)

    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        if exports:
            program = torch.export.export(Model(), (mask,)).module()
        else:
            program = torch.compile(function, fullgraph=True, backend="aot_eager")
        for each in (mask, torch.ones_like(mask)):
            assert_equal(program(each), function(each))


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.deep)])
@pytest.mark.parametrize("is_given", [False, True], ids=["quantised within", "given"])
@pytest.mark.parametrize(("least", "most", "others"), [(129, 9999, (129, 300, 9999)), (2, 128, (2, 100, 128))])
def test_activations_with_scales_of_square_blocks_have_any_rows_of_one_block_or_of_more(
    least, most, others, is_given, strict
):
    class Model(torch.nn.Module):
        def forward(self, *given):
            return (scaled_by_squares if is_given else of_squares)(*given)

    def made(rows):
        x = torch.randn(rows, K)
        return quantise(x, (128, 128)) if is_given else (x,)

    blocks = {0: torch.export.Dim("blocks", min=2, max=79)} if most > 128 else None
    shapes = ({0: torch.export.Dim("rows", min=least, max=most)}, blocks)[: 2 if is_given else 1]
    given = made((least + most) // 2)
    program = torch.export.export(Model(), given, dynamic_shapes=(shapes,), strict=strict).module()
    for rows in others:
        given = made(rows)
        assert_equal(program(*given), Model()(*given))
    if blocks and is_given:
        with pytest.raises(AssertionError, match="Guard failed"):
            program(given[0], given[1][:-1])


def test_rows_of_one_square_block_and_of_more_are_refused_with_what_to_say():
    class Model(torch.nn.Module):
        def forward(self, x):
            return of_squares(x)

    rows = torch.export.Dim("rows", min=2, max=9999)
    for traced, said in ((300, "min=129, max=9999"), (100, "max=128")):
        with pytest.raises(torch._dynamo.exc.UserError, match=rf"rows = Dim\('rows', {said}\)"):
            torch.export.export(Model(), (torch.randn(traced, K),), dynamic_shapes=({0: rows},))


def test_no_rows_have_scales_of_square_blocks():
    x, scale = quantise(torch.randn(0, K), (128, 128))
    assert scaled_by_squares(x, scale).shape == (0, N)
    assert dequantise(x, scale).shape == (0, K)
