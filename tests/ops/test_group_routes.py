"""Routes of products to a kernel, and of products of groups: the tensors that a stand-in for the kernel is given."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.epilogues import Column, Row, Scalar, Tile  # noqa: E402
from cutepy.epilogues.functions import identity  # noqa: E402
from cutepy.epilogues.graph import Reduction  # noqa: E402
from cutepy.kernels.gemm import routes  # noqa: E402
from cutepy.kernels.gemm.operands import Description, Problem  # noqa: E402
from cutepy.kernels.gemm.routes import ResultRoute, Route, as_vector, in_turn  # noqa: E402
from cutepy.kernels.grouped import op  # noqa: E402

pytestmark = pytest.mark.dsl
F16, F32 = torch.float16, torch.float32


def numbered(*shape, dtype=F16):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("with_scales", [False, True])
def test_a_transposed_product_exchanges_operands_and_scales(is_transposed, with_scales):
    given = []
    a, b, out, ends = numbered(4, 8), numbered(6, 8), torch.zeros(4, 6), numbered(2)
    way = ((6, 4), (1, 6)) if is_transposed else None
    route = Route(
        lambda *taken: given.append(taken),
        7,
        is_transposed,
        (None, None, None),
        (ResultRoute(Description.of(out), way),),
        None,
    )
    scales = (numbered(4, 1), numbered(6, 1)) if with_scales else (None, None)
    assert route.launch(a, b, [3.0], [out], scales, (ends,)) == [out]
    ((first, second, *rest),) = given
    assert (first is b, second is a) == (is_transposed, is_transposed)
    assert rest[0] is ends
    assert rest[1] == (3.0,)
    assert rest[2][0].shape == ((6, 4) if is_transposed else (4, 6))
    assert rest[2][0].data_ptr() == out.data_ptr()
    assert rest[3] == 7
    found = rest[4:]
    assert len(found) == 2
    assert all(one is other for one, other in zip(found, scales[::-1] if is_transposed else scales, strict=True))


def test_results_that_are_not_given_are_made():
    route = Route(
        lambda *_: None,
        1,
        False,
        (None, None),
        (ResultRoute(Description((4, 6), (1, 4), F32, torch.device("cpu"))),),
        None,
    )
    (made,) = route.launch(numbered(4, 8), numbered(6, 8), [], [None])
    assert (made.shape, made.stride(), made.dtype) == ((4, 6), (1, 4), F32)


CPU = torch.device("cpu")
WHOLE = Description((2, 3), (3, 1), F32, CPU)


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("view", [None, ((3, 2), (1, 3))])
def test_a_result_that_the_kernel_writes_itself(view, is_given):
    out = torch.zeros(2, 3) if is_given else None
    written = ResultRoute(WHOLE, view)
    made, seen = written.begin(out)
    assert (made.shape, made.dtype) == ((2, 3), F32)
    assert made is out or not is_given
    assert (seen.shape, seen.stride()) == (view or WHOLE[:2])
    seen.copy_(numbered(*seen.shape))
    assert written.end(made, seen) is made
    assert torch.equal(made if view is None else made.t(), numbered(*seen.shape, dtype=F32))


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("fills", [True, False])
@pytest.mark.parametrize("way", [None, ((8, 2), (1, 8))])
def test_a_result_that_is_copied_from_more_columns(way, fills, is_given):
    """The kernel writes 8 columns, of which the result has 3; zeros fill the result where no kernel writes."""
    out, padded = torch.full((2, 3), -1.0) if is_given else None, torch.full((2, 8), 5.0)
    written = ResultRoute(
        WHOLE, None, Description((2, 8), (8, 1), F32, CPU), way, fill=(lambda _: padded) if fills else None
    )
    kept, got = written.begin(out)
    assert kept is out
    assert (got.shape, got.stride()) == (way or ((2, 8), (8, 1)))
    assert (got.data_ptr() == padded.data_ptr()) == fills
    got.copy_(numbered(*got.shape))
    made = written.end(kept, got)
    assert made is out or not is_given
    whole = numbered(*got.shape, dtype=F32)
    assert torch.equal(made, (whole if way is None else whole.t())[:, :3])


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("view", [None, ((2,), (1,))])
def test_a_result_that_is_reduced_from_partial_ones(view, is_given):
    out = torch.zeros(2) if is_given else None
    partial = Description((4, 2), (2, 1), F32, CPU)
    written = ResultRoute(Description((2,), (1,), F32, CPU), view, partial, None, Reduction("sum", 1))
    kept, got = written.begin(out)
    assert (kept is out, got.shape) == (True, (4, 2))
    got.copy_(numbered(4, 2))
    made = written.end(kept, got)
    assert made is out or not is_given
    assert made.tolist() == [12.0, 16.0]


@pytest.mark.parametrize(
    ("tensor", "shape", "stride"),
    [
        (numbered(1), (1,), (1,)),
        (numbered(), (1,), (1,)),
        (numbered(8), (8,), (1,)),
        (numbered(16)[::2], (8,), (2,)),
        (numbered(8, 3)[:, 0], (8,), (3,)),
        (numbered(8), (5, 8), (0, 1)),
        (numbered(5, 16)[:, ::2], (5, 8), (16, 2)),
        (numbered(5, 1), (5, 1), (1, 7)),
    ],
)
def test_vectors_are_seen_as_kernels_take_them(tensor, shape, stride):
    """Their elements beside each other, and the same values; copied where they are apart."""
    take = as_vector(Description.of(tensor), shape, stride)
    found = tensor if take is None else take(tensor)
    assert found.shape == shape
    assert shape[-1] == 1 or found.stride(-1) == 1
    assert torch.equal(found, tensor.expand(shape) if len(shape) > tensor.dim() else tensor.reshape(shape))
    is_copied = found.data_ptr() != tensor.data_ptr()
    assert is_copied == (stride[-1] != 1 and shape[-1] != 1)


def test_steps_are_taken_in_turn():
    assert in_turn() is in_turn(None, None) is None
    assert in_turn(None, abs, None) is abs
    assert in_turn(lambda x: x + 1, None, lambda x: 2 * x)(3) == 8


def test_operands_that_kernels_do_not_read_are_converted():
    (operand,) = bias_of.graph.operands
    for dtype, wanted in (
        (F16, F16),
        (F32, F32),
        (torch.float64, F32),
        (torch.float8_e5m2, torch.float8_e5m2),
        (torch.float8_e4m3fnuz, F32),
        (torch.int32, torch.int32),
    ):
        tensor = torch.ones(3, 4, dtype=F32).to(dtype).t()
        take, seen = routes.converted(operand, Description.of(tensor))
        found = tensor if take is None else take(tensor)
        assert (take is None) == (dtype == wanted)
        assert (found.dtype, found.shape, found.stride()) == (wanted, seen.shape, seen.stride)
        assert seen.dtype == wanted


@cutepy.epilogue
def bias_of(acc, bias: Row):
    return acc + bias


@cutepy.epilogue
def all_kinds(acc, row: Row, column: Column, tile: Tile, scalar: Scalar):
    return (acc + row) * column + tile * scalar


M, N, K, COUNT = 48, 64, 32, 3


@pytest.mark.parametrize("each", [False, True], ids=["one for all", "one for each"])
@pytest.mark.parametrize(
    ("along", "padded", "a", "b", "out"),
    [
        ("m", False, (M, K), (COUNT, N, K), (M, N)),
        ("m", True, (COUNT, M, K), (COUNT, N, K), (COUNT, M, N)),
        ("n", False, (COUNT, M, K), (N, K), (M, N)),
    ],
)
def test_operands_of_groups(monkeypatch, along, padded, a, b, out, each):
    """Rows and columns have one for each group where groups don't part their mode, broadcast from one for all."""
    given = []
    monkeypatch.setattr(op, "compile_grouped", lambda config: lambda *taken: given.append(taken))
    own = {"row": padded or along == "m", "column": padded or along == "n"}
    shapes = {name: (COUNT, n) if each and own[name] else (n,) for name, n in (("row", N), ("column", M))}
    row, column = (numbered(*shape, dtype=F32) for shape in shapes.values())
    tile, scalar = numbered(*out, dtype=F32), torch.tensor(2.0)
    result = torch.zeros(out, dtype=F32)
    if along == "n":
        result, tile = (x.t().contiguous().t() for x in (result, tile))
    operands = [row, column, tile, scalar]
    a, b = numbered(*a), numbered(*b)
    problem = Problem(
        all_kinds.text, Description.of(a), Description.of(b), Description.each(operands), (Description.of(result),)
    )
    route = op.find_groups_route(problem, along, COUNT)
    route.launch(a, b, operands, [result])
    ((first, second, taken, (written,), _, *_),) = given
    if route.is_transposed:
        first, second = second, first
    assert (first.shape, second.shape) == (a.shape, b.shape)
    for found, whole, name, extent in ((taken[0], row, "row", N), (taken[1], column, "column", M)):
        assert found.shape == ((COUNT, extent) if own[name] else (extent,)), name
        assert torch.equal(found, whole.expand(found.shape)), name
    assert torch.equal(taken[2].mT if route.is_transposed else taken[2], tile)
    assert (taken[3].shape, taken[3].item()) == ((1,), 2.0)
    assert (written.mT if route.is_transposed else written).shape == result.shape


def test_a_product_without_an_epilogue_has_no_operands(monkeypatch):
    given = []
    monkeypatch.setattr(op, "compile_grouped", lambda config: lambda *taken: given.append(taken))
    a, b, out = numbered(M, K), numbered(COUNT, N, K), torch.zeros(M, N, dtype=F16)
    problem = Problem(identity.text, Description.of(a), Description.of(b), (), (Description.of(out),))
    op.find_groups_route(problem, "m", COUNT).launch(a, b, [], [out], ends=(numbered(COUNT),))
    assert given[0][3] is None
