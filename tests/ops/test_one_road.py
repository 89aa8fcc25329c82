"""One road for all products: `out=`, vmap, autocast and export are right for every epilogue, scaled and of groups."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.epilogues import Column, EpilogueError, Row, Scalar, Tile  # noqa: E402
from cutepy.ops import gemm, grouped_gemm, quantise, scaled_gemm, scaled_grouped_gemm  # noqa: E402

F16, BF16, F32, E4M3 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn


@cutepy.epilogue
def finished(acc, scale: Column, bias: Row, residual: Tile, gain: Scalar = 1.0):
    y = (acc * scale + bias) * gain + residual
    return {"y": y, "low": y.to(BF16), "largest": epilogues.amax(y), "of_rows": y.sum(1), "of_columns": y.max(0)}


@cutepy.epilogue
def rowwise(acc, scale: Column, bias: Row, residual: Tile, gain: Scalar = 1.0):
    y = (acc * scale + bias) * gain + residual
    return y, y.sum(1)


@cutepy.epilogue
def shifted(acc, bias: Row):
    return acc + bias


@cutepy.epilogue
def two(acc):
    return acc, acc * 2


def numbers(*shape, dtype=F16):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def operands(leading, n):
    return {
        "scale": numbers(*leading, dtype=F32),
        "bias": numbers(n, dtype=F32),
        "residual": numbers(*leading, n),
        "gain": 2.0,
    }


def same(found, expected):
    return all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


SHAPES = [((6, 16), (8, 16)), ((2, 3, 16), (8, 16)), ((2, 3, 4, 16), (2, 1, 8, 16)), ((16,), (8, 16))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_an_epilogue_writes_to_what_it_is_given(shapes):
    a, b = (numbers(*shape) for shape in shapes)
    leading = torch.empty(shapes[0]).shape[:-1]
    if len(shapes[1]) > 2:
        leading = (*torch.broadcast_shapes(shapes[0][:-2], shapes[1][:-2]), shapes[0][-2])
    named = operands(leading, 8)
    expected = gemm(a, b, epilogue=finished, out_dtype=F32, **named)
    out = {name: torch.full((*value.shape, 2), torch.nan).to(value.dtype)[..., 0] for name, value in expected.items()}
    versions = {name: value._version for name, value in out.items()}
    assert gemm(a, b, epilogue=finished, out=out, **named) is out
    for name, value in expected.items():
        assert torch.equal(out[name], value), name
        assert out[name]._version > versions[name]


@pytest.mark.dsl
@pytest.mark.parametrize("major", ["row", "col"])
def test_the_kernel_writes_to_what_it_is_given(major):
    a, b, named = numbers(2, 33, 32), numbers(40, 32), operands((2, 33), 40)
    expected = gemm(a, b, epilogue=finished, out_dtype=F32, **named)
    tile = torch.zeros(2, 33, 48) if major == "row" else torch.zeros(2, 48, 36).mT[:, :33]
    out = {name: torch.zeros_like(value) for name, value in expected.items()} | {"y": tile[..., :40]}
    with cutepy.simulate():
        gemm(a, b, epilogue=finished, out=out, **named)
    for name, value in expected.items():
        assert torch.equal(out[name], value), name
    assert not tile[..., 40:].any()


def test_a_tile_may_receive_the_result_and_nothing_else_may():
    a, b, bias, tile = numbers(6, 16), numbers(8, 16), numbers(8, dtype=F32), numbers(6, 8)
    expected = gemm(a, b, c=tile)
    added = cutepy.epilogue(epilogues_added)
    assert gemm(a, b, epilogue=added, tile=tile, out=tile) is tile
    assert torch.equal(tile, expected)
    memory = torch.zeros(6, 16).half()
    for call in (
        lambda: gemm(a, b, epilogue=shifted, bias=bias, out=a[:, :8]),
        lambda: gemm(a[:1], b, epilogue=shifted, bias=bias, out=bias[None]),
        lambda: gemm(a, b, epilogue=added, tile=memory[:, 4:12], out=memory[:, :8]),
        lambda: gemm(a, b, epilogue=two, out=(memory[:, :8],) * 2),
        lambda: gemm(a, b, epilogue=shifted, bias=bias, out=torch.zeros(6, 9).half()),
        lambda: gemm(a, b, epilogue=shifted, bias=bias, out=torch.zeros(1, 8).half().expand(6, 8)),
    ):
        with refuses(ValueError):
            call()
    with refuses(TypeError):
        gemm(a, b, epilogue=two, out=memory[:, :8])
    with refuses(TypeError):
        gemm(a, b, epilogue=shifted, bias=bias, out=memory[:, :8], out_dtype=F32)
    with refuses(RuntimeError):
        gemm(a.requires_grad_(), b, epilogue=shifted, bias=bias, out=memory[:, :8])
    with refuses(NotImplementedError):
        torch.vmap(lambda a: gemm(a, b, epilogue=two, out=(memory[:1, :8], memory[:1, 8:])))(a.detach()[:, None])


def epilogues_added(acc, tile: Tile):
    return acc + tile


EXAMPLES = {
    "a": ((0, None), {}),
    "b": ((None, 0), {}),
    "both": ((0, 1), {}),
    "a and its operands": ((0, None), {"scale": 0, "residual": 0}),
    "a row of each": ((0, None), {"bias": 0}),
    "a scalar of each": ((0, 0), {"gain": 0}),
    "all": ((1, 0), {"scale": 0, "bias": 1, "residual": 2, "gain": 0}),
    "operands alone": ((None, None), {"residual": 0, "scale": 0}),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("each", [finished, rowwise], ids=lambda each: each.name)
@pytest.mark.parametrize("shapes", [*SHAPES[:2], ((3, 4, 16), (3, 8, 16)), SHAPES[3]], ids=str)
def test_examples_are_what_they_are_by_themselves(each, shapes, name):
    (of_a, of_b), dims = EXAMPLES[name]
    a, b = (numbers(*shape) for shape in shapes)
    given = operands(a.shape[:-1], 8) | {"gain": torch.tensor(2.0)}

    def examples(tensor, dim, count=3):
        grown = torch.stack([tensor + n for n in range(count)])
        return tensor if dim is None else grown.movedim(0, min(dim, tensor.dim()))

    own = [None if dim is None else min(dim, tensor.dim()) for tensor, dim in ((a, of_a), (b, of_b))]
    of_each = {key: None if dims.get(key) is None else min(dims[key], value.dim()) for key, value in given.items()}
    whole = [examples(a, of_a), examples(b, of_b), {key: examples(value, of_each[key]) for key, value in given.items()}]

    def product(a, b, named):
        results = gemm(a, b, epilogue=each, out_dtype=F32, **named)
        return tuple(results.values()) if isinstance(results, dict) else results

    mapped = torch.vmap(product, (*own, of_each))(*whole)
    for n in range(3):
        pick = lambda tensor, dim, n=n: tensor if dim is None else tensor.select(dim, n)  # noqa: E731
        named = {key: pick(value, of_each[key]) for key, value in whole[2].items()}
        expected = product(pick(whole[0], own[0]), pick(whole[1], own[1]), named)
        assert same([result[n] for result in mapped], expected)


@pytest.mark.dsl
def test_examples_are_one_launch():
    a, b = numbers(3, 9, 16), numbers(3, 8, 16)
    bias, more = numbers(8, dtype=F32), numbers(3, 8, dtype=F32)
    with cutepy.simulate() as run:
        shared = torch.vmap(lambda a: gemm(a, b[0], epilogue=shifted, bias=bias))(a)
        both = torch.vmap(lambda a, b: gemm(a, b, epilogue=shifted, bias=bias))(a, b)
        of_each = torch.vmap(lambda a, bias: gemm(a, b[0], epilogue=shifted, bias=bias))(a, more)
    assert len(run.launches) == 3
    assert torch.equal(shared, gemm(a, b[0], bias=bias))
    assert torch.equal(both, gemm(a, b, bias=bias))
    assert torch.equal(of_each, torch.stack([gemm(a[n], b[0], bias=more[n]) for n in range(3)]))


def test_autocast_casts_what_is_multiplied_into_any_result():
    a, b, named = torch.randn(6, 16), torch.randn(8, 16), operands((6,), 8)
    expected = gemm(a.to(BF16), b.to(BF16), epilogue=finished, **named)
    out = {name: torch.zeros_like(value) for name, value in expected.items()}
    offs, experts = torch.tensor([2, 6]).int(), torch.stack((b, -b))
    with torch.autocast("cpu", BF16):
        found = gemm(a, b, epilogue=finished, **named)
        gemm(a, b, epilogue=finished, out=out, **named)
        groups = grouped_gemm(a, experts, offs=offs, epilogue=shifted, bias=named["bias"])
    for name, value in expected.items():
        assert torch.equal(found[name], value)
        assert torch.equal(out[name], value)
    assert torch.equal(
        groups, grouped_gemm(a.to(BF16), experts.to(BF16), offs=offs, epilogue=shifted, **bias_of(named))
    )


def bias_of(named):
    return {"bias": named["bias"]}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_and_exported_programs_write_to_results(backend):
    a, b, named = numbers(6, 16), numbers(8, 16), operands((6,), 8)

    class Model(torch.nn.Module):
        def forward(self, a, b, bias):
            out = torch.empty(6, 8, dtype=F16), torch.empty(6, 8, dtype=F16)
            gemm(a, b, epilogue=two, out=out)
            return out[1] + gemm(a, b, epilogue=shifted, bias=bias, out=out[0])

    model, given = Model(), (a, b, named["bias"])
    torch._dynamo.reset()
    assert torch.equal(torch.compile(model, fullgraph=True, backend=backend)(*given), model(*given))
    if backend == "eager":
        program = torch.export.export(model, given)
        assert torch.equal(program.module()(*given), model(*given))


def test_scaled_products_write_to_results():
    (a, scale_a), (b, scale_b) = quantise(torch.randn(6, 256)), quantise(torch.randn(16, 256), (128, 128))
    for dtype in (F16, F32, E4M3):
        out = torch.zeros(6, 16).to(dtype)
        expected = scaled_gemm(a, b, scale_a, scale_b, out_dtype=dtype)
        assert scaled_gemm(a, b, scale_a, scale_b, out=out) is out
        assert torch.equal(out.float(), expected.float())
    pair = torch.zeros(6, 16).half(), torch.zeros(6, 16).half()
    assert scaled_gemm(a, b, scale_a, scale_b, epilogue=two, out=pair) is pair
    assert same(pair, scaled_gemm(a, b, scale_a, scale_b, epilogue=two, out_dtype=F16))
    with refuses(TypeError):
        scaled_gemm(a, b, scale_a, scale_b, out=out, out_dtype=F32)
    mapped = torch.vmap(lambda a, scale_a: scaled_gemm(a, b, scale_a, scale_b))(a[:, None], scale_a[:, None])
    assert torch.equal(mapped[:, 0], scaled_gemm(a, b, scale_a, scale_b))


@pytest.mark.integration
@pytest.mark.dsl
def test_scaled_leading_dimensions_are_rows_of_the_kernel():
    a, scale_a = quantise(torch.randint(-3, 4, (2, 3, 256)).float())
    b, scale_b = quantise(torch.randint(-3, 4, (16, 256)).float(), (128, 128))
    out = torch.zeros(2, 3, 16)
    with cutepy.simulate():
        scaled_gemm(a.transpose(0, 1), b, scale_a.transpose(0, 1), scale_b, out=out.transpose(0, 1))
    torch.testing.assert_close(out, scaled_gemm(a, b, scale_a, scale_b, out_dtype=F32))


def test_groups_write_to_results_and_leave_the_rest():
    a, b, offs = numbers(9, 16), numbers(2, 8, 16), torch.tensor([4, 7]).int()
    out = torch.full((9, 8), 7.0).half(), torch.full((9, 8), 7.0).half()
    assert grouped_gemm(a, b, offs=offs, epilogue=two, out=out) is out
    expected = grouped_gemm(a, b, offs=offs, epilogue=two)
    assert same([each[:7] for each in out], [each[:7] for each in expected])
    assert all((each[7:] == 7).all() for each in out)
    with refuses(ValueError):
        grouped_gemm(a, b, offs=offs, epilogue=two, out=(out[0], out[0]))
    with refuses(EpilogueError):
        grouped_gemm(a, b, offs=offs, epilogue=cutepy.epilogue(lambda acc: acc.sum(1)))
    mapped = torch.vmap(lambda a: grouped_gemm(a, b, offs=offs, epilogue=shifted, bias=torch.ones(8)))(
        torch.stack((a, a + 1))
    )
    wanted = grouped_gemm(a + 1, b, offs=offs, epilogue=shifted, bias=torch.ones(8))
    assert torch.equal(mapped[1, :7], wanted[:7])


@pytest.mark.integration
@pytest.mark.dsl
def test_the_kernel_of_groups_writes_to_results_and_leaves_the_rest():
    a, b, offs = numbers(9, 16), numbers(2, 12, 16), torch.tensor([4, 7]).int()  # 12 columns are copied
    out = torch.full((9, 12), 7.0).half(), torch.full((9, 12), 7.0).half()
    with cutepy.simulate():
        grouped_gemm(a, b, offs=offs, epilogue=two, out=out)
    assert same([each[:7] for each in out], [each[:7] for each in grouped_gemm(a, b, offs=offs, epilogue=two)])
    assert all((each[7:] == 7).all() for each in out)


def test_scaled_groups_write_to_results():
    a, scale_a = quantise(torch.randn(6, 256))
    b, scale_b = map(torch.stack, zip(*(quantise(torch.randn(16, 256), (128, 128)) for _ in range(2)), strict=True))
    offs, out = torch.tensor([2, 6]).int(), torch.zeros(6, 16).half()
    assert scaled_grouped_gemm(a, b, scale_a, scale_b, offs=offs, out=out) is out
    assert torch.equal(out, scaled_grouped_gemm(a, b, scale_a, scale_b, offs=offs, out_dtype=F16))
