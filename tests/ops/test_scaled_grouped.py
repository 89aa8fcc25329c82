"""`scaled_grouped_gemm` on any machine: each kind of scales by the reference and the kernel, and what is refused."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

import cutepy  # noqa: E402
from cutepy.epilogues import Column, Row, silu  # noqa: E402
from cutepy.ops import dequantise, grouped_gemm, quantise, scaled_grouped_gemm  # noqa: E402

E4M3, E5M2, F32 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float32
ENDS, COUNTS, K_ENDS = (5, 5, 6, 70), (0, 72, 1, 9), (0, 128, 384, 400)
M, N, K, G = 72, 144, 272, 4


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261123)


def whole(*shape):
    """Draw small whole numbers."""
    return torch.randint(-3, 4, shape).to(E4M3)


def powers(*shape):
    """Draw scales by which sums stay exact."""
    return 2.0 ** torch.randint(-2, 3, shape)


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


FORMS = {
    "rows": lambda: (whole(M, K), whole(G, N, K), {"offs": ends(*ENDS)}),
    "columns": lambda: (whole(G, N, K), whole(M, K), {"offs": ends(*ENDS)}),
    "masked": lambda: (whole(G, M, K), whole(G, N, K), {"counts": ends(*COUNTS)}),
    "k": lambda: (whole(M, 400), whole(N, 400), {"offs": ends(*K_ENDS)}),
}
DEEP = pytest.mark.deep
KINDS = [
    ("rows", (M, 3), (G, 2, 3)),
    ("rows", (M, 1), (G, N)),
    ("k", (M, 4), (N, 4)),
    pytest.param("masked", (G, M, 3), (G, 2, 3), marks=DEEP),
    pytest.param("k", (G, M, 1), (G, 1, 1), marks=DEEP),
    pytest.param("rows", (), (G, 1, 1), marks=DEEP),
    pytest.param("rows", (M,), (G, N, 3), marks=DEEP),
    pytest.param("columns", (G, 2, 3), (M, 3), marks=DEEP),
    pytest.param("masked", (G, M), (G, N, 1), marks=DEEP),
    pytest.param("masked", (G, 1, 3), (), marks=DEEP),
    pytest.param("k", (1, 4), (2, 4), marks=DEEP),
    pytest.param("k", (M, 1), (), marks=DEEP),
]


def spread(scale, shape):
    """Give each element of a tensor its scale by its shape alone: of a matrix for each group, groups come first."""
    scale = scale.double()
    if scale.dim() == len(shape) - 1:
        scale = scale.unsqueeze(-1)
    while scale.dim() < len(shape):
        scale = scale.unsqueeze(0)
    for mode in (-1, -2):
        if scale.shape[mode] not in (1, shape[mode]):
            scale = scale.repeat_interleave(128, mode).narrow(mode, 0, shape[mode])
    return scale


def one_by_one(a, b, scale_a, scale_b, offs=None, counts=None):
    """Multiply group by group; what belongs to no group is NaN."""
    padded = counts is not None
    cuts = [0] * G if padded else [0, *offs.tolist()]
    lasts = (counts if padded else offs).tolist()
    along_k = a.dim() == b.dim() == 2
    of_a, of_b = (
        scale if along_k and scale.dim() == 3 else spread(scale, x.shape) for x, scale in ((a, scale_a), (b, scale_b))
    )
    columns = a.dim() > b.dim()
    shape = (G, a.shape[-2], b.shape[-2]) if padded or along_k else (a.shape[-2], b.shape[-2])
    out = torch.full(shape, float("nan"), dtype=torch.float64)
    for g, (start, end) in enumerate(zip(cuts, lasts, strict=False)):
        span = slice(start, end)
        x, y = a.double(), b.double()
        if along_k:
            x, y = (v * (s[g].double() if s.dim() == 3 else s) for v, s in ((x, of_a), (y, of_b)))
            out[g] = x[:, span] @ y[:, span].mT
            continue
        x, y = x * of_a, y * of_b
        if padded:
            out[g, span] = x[g, span] @ y[g].mT
        elif columns:
            out[:, span] = x[g] @ y[span].mT
        else:
            out[span] = x[span] @ y[g].mT
    return out


@pytest.mark.parametrize(("form", "of_a", "of_b"), KINDS)
def test_kinds_of_scales(form, of_a, of_b):
    (a, b, groups), scale_a, scale_b = FORMS[form](), powers(*of_a), powers(*of_b)
    expected = one_by_one(a, b, scale_a, scale_b, **groups).float()
    owned = ~expected.isnan()
    results = [scaled_grouped_gemm(a, b, scale_a, scale_b, out_dtype=F32, **groups)]
    with cutepy.simulate(sanitize=True) as run:
        results.append(scaled_grouped_gemm(a, b, scale_a, scale_b, out_dtype=F32, **groups))
    for result in results:
        assert torch.equal(result[owned], expected[owned])
    assert not run.hazards
    assert all(certificate.is_certified for certificate in run.certificates)


@pytest.mark.parametrize(
    ("form", "of_a", "of_b"), [("rows", (M, 3), (G, 2, 3)), ("masked", (G, M, 3), (G, 2, 3)), ("k", (M, 4), (N, 4))]
)
def test_scales_of_rows_that_lie_beside_each_other(form, of_a, of_b):
    """As `quantise` lays them out: TMA loads them but where groups of rows begin anywhere."""
    (a, b, groups), scale_a, scale_b = FORMS[form](), *(powers(*of).mT.contiguous().mT for of in (of_a, of_b))
    expected = one_by_one(a, b, scale_a, scale_b, **groups).float()
    with cutepy.simulate(sanitize=True) as run:
        got = scaled_grouped_gemm(a, b, scale_a, scale_b, out_dtype=F32, **groups)
    owned = ~expected.isnan()
    assert torch.equal(got[owned], expected[owned])
    assert ("_tma_" in run.launches[0].kernel) == (form != "rows")
    assert run.certificates[0].is_certified


def test_scales_of_one_are_none():
    """The same small whole numbers as bfloat16, without scales, give the same."""
    a, b, groups = FORMS["rows"]()
    expected = grouped_gemm(a.bfloat16(), b.bfloat16(), **groups)
    result = scaled_grouped_gemm(a, b, torch.ones(()), torch.ones(M // M), use_fast_accum=True, **groups)
    assert result.dtype == torch.bfloat16
    assert torch.equal(result[: ENDS[-1]], expected[: ENDS[-1]])


def test_quantised_experts_are_near_what_they_were():
    x, weights, groups = torch.randn(M, K), torch.randn(G, N, K), {"offs": ends(*ENDS)}
    (a, scale_a), experts = quantise(x), [quantise(weight, (128, 128)) for weight in weights]
    b, scale_b = (torch.stack(each) for each in zip(*experts, strict=True))
    again = torch.stack([dequantise(*expert) for expert in experts])
    expected = one_by_one(dequantise(a, scale_a), again, torch.ones(()), torch.ones(()), **groups)[: ENDS[-1]]
    got = scaled_grouped_gemm(a, b, scale_a, scale_b, **groups)[: ENDS[-1]]
    torch.testing.assert_close(got.double(), expected, rtol=2**-8, atol=1e-6)


@cutepy.epilogue
def expert(acc, bias: Row, weight: Column):
    gate, up = (acc + bias).interleaved(2)
    return (silu(gate) * up * weight).to(E4M3), acc


def test_an_epilogue_of_groups_follows_the_scales_and_rounds_to_8_bits():
    (a, b, groups), scale_a, scale_b = FORMS["rows"](), powers(M, 3) / 64, powers(G, 2, 3) / 64
    operands = {"bias": torch.randn(G, N), "weight": torch.rand(M)}
    acc = one_by_one(a, b, scale_a, scale_b, **groups)[: ENDS[-1]].float()
    of = torch.bucketize(torch.arange(ENDS[-1]), groups["offs"], right=True)
    gate, up = (acc + operands["bias"][of]).unflatten(-1, (-1, 2)).unbind(-1)
    expected = torch.nn.functional.silu(gate) * up * operands["weight"][: ENDS[-1], None]
    with cutepy.simulate() as run:
        simulated = scaled_grouped_gemm(a, b, scale_a, scale_b, epilogue=expert, out_dtype=F32, **groups, **operands)
    assert len(run.launches) == 1
    for pair, sums in (simulated, scaled_grouped_gemm(a, b, scale_a, scale_b, epilogue=expert, **groups, **operands)):
        torch.testing.assert_close(pair[: ENDS[-1]].float(), expected, rtol=2**-3, atol=2**-6)
        torch.testing.assert_close(sums[: ENDS[-1]].float(), acc, rtol=2**-8, atol=0)


def test_a_bias_has_a_gradient_where_rows_have_a_group_and_operands_have_none():
    (a, b, groups), scale_a, scale_b = FORMS["rows"](), powers(M, 3), powers(G, 2, 3)
    bias = torch.zeros(G, N, requires_grad=True)
    scaled_grouped_gemm(a, b, scale_a, scale_b, bias=bias, out_dtype=F32, **groups).sum().backward()
    lengths = torch.tensor([5.0, 0.0, 1.0, 64.0])
    assert torch.equal(bias.grad, lengths[:, None].expand(G, N))
    with refuses(NotImplementedError):
        scaled_grouped_gemm(a, b, scale_a, scale_b.requires_grad_(), **groups)


def test_compiled_and_known_to_torch():
    (a, b, groups), scale_a, scale_b = FORMS["rows"](), powers(M, 3), powers(G, 2, 3)

    def layer(a, b, scale_a, scale_b, offs):
        return scaled_grouped_gemm(a, b, scale_a, scale_b, offs=offs)[: ENDS[-1]]

    arguments = (a, b, scale_a, scale_b, groups["offs"])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*arguments), layer(*arguments))
    text = cutepy.epilogues.identity.text
    own = (a, b, groups["offs"], "m", [], [], "", text, F32, scale_a, scale_b, [1, 128, 128, 128], True)
    tests = "test_autograd_registration", "test_faketensor"  # what is left multiplies a, or compares unowned rows
    torch.library.opcheck(torch.ops.cutepy.grouped_gemm.default, own, test_utils=tests)


def test_no_rows_and_no_groups():
    scale = torch.ones(())
    assert scaled_grouped_gemm(whole(0, K), whole(G, N, K), scale, scale, offs=ends(0, 0, 0, 0)).shape == (0, N)
    with cutepy.simulate() as run:
        assert scaled_grouped_gemm(whole(M, K), whole(0, N, K), torch.ones(M, 3), scale, offs=ends()).shape == (M, N)
    assert not run.launches


@pytest.mark.parametrize(
    ("form", "change", "error"),
    [
        ("rows", {"a": torch.ones(M, K)}, TypeError),
        ("rows", {"scale_a": torch.ones(M, 3).half()}, TypeError),
        ("rows", {"scale_a": torch.ones(1, 3)}, ValueError),
        ("rows", {"scale_a": torch.ones(3, M)}, ValueError),
        ("rows", {"scale_a": torch.ones(G, M, 1)}, ValueError),
        ("rows", {"scale_b": torch.ones(N, 3)}, ValueError),
        ("rows", {"scale_b": torch.ones(3, 2, 3)}, ValueError),
        ("rows", {"scale_b": torch.ones(G, 3, 2)}, ValueError),
        ("rows", {"offs": None}, ValueError),
        ("rows", {"offs": ends(5, 4, 6, 70)}, ValueError),
        ("rows", {"use_fast_accum": True}, ValueError),
        ("rows", {"out_dtype": torch.int8}, TypeError),
        ("columns", {"out_dtype": E4M3}, ValueError),
        ("k", {"scale_a": torch.ones(G, M, 4)}, ValueError),
        ("k", {"offs": ends(0, 130, 384, 400)}, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(form, change, error):
    a, b, groups = FORMS[form]()
    scales = {"rows": ((M, 3), (G, 2, 3)), "columns": ((G, 2, 3), (M, 3)), "k": ((M, 4), (N, 4))}[form]
    arguments = {"a": a, "b": b, "scale_a": powers(*scales[0]), "scale_b": powers(*scales[1]), **groups} | change
    with refuses(error):
        scaled_grouped_gemm(**arguments)
