"""Products of few rows without tensor cores, simulated: right, clean, certified, with the same bits for any M."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.epilogues import Column, Row, Scalar, Tile, silu  # noqa: E402
from cutepy.epilogues.reference import compute  # noqa: E402
from cutepy.kernels.gemm import GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.reference import gemm_reference  # noqa: E402
from cutepy.kernels.gemv import GemvConfig, gemv, select_gemv  # noqa: E402
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMS = [
    {"tile_m": 1, "columns": 4, "unroll": 2, "warps": 4, "k_warps": 4},
    {"tile_m": 4, "columns": 2, "unroll": 1, "warps": 2, "k_warps": 1},
    {"tile_m": 8, "columns": 4, "unroll": 1, "warps": 8, "k_warps": 2},
]


def integers(*shape, dtype=F16):
    return torch.randint(-3, 4, shape).to(dtype)


def apart(rows, columns, dtype, more):
    """Give whole numbers whose rows are farther apart by some pieces; what is between is NaN."""
    unit = 16 // dtype.itemsize
    held = torch.full((rows, -(-columns // unit) * unit + unit * more), torch.nan).to(dtype)
    held[:, :columns] = integers(rows, columns, dtype=dtype)
    return held[:, :columns]


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(
    form=st.sampled_from(FORMS),
    m=st.integers(1, 9),
    n=st.integers(1, 60),
    k=st.one_of(st.integers(1, 40), st.integers(1, 300)).map(lambda pieces: 8 * pieces),
    dtype=st.sampled_from([F16, BF16]),
    more=st.integers(0, 2),
)
def test_sums_of_whole_numbers_are_exact(form, m, n, k, dtype, more):
    a, b = apart(m, k, dtype, more), apart(n, k, dtype, 2 - more)
    with cutepy.simulate():
        d = gemv(a, b, out_dtype=F32, settings=form)
    assert torch.equal(d.double(), gemm_reference(a, b))


@pytest.mark.parametrize(("m", "n"), [(1, 64), (64, 3)])
def test_a_k_of_one_is_copied_as_others_are(m, n):
    a, b = integers(m, 1), integers(n, 1)
    with cutepy.simulate():
        assert torch.equal(gemv(a, b).double(), gemm_reference(a, b))


@pytest.mark.parametrize(
    ("dtypes", "out_dtype"),
    [
        ((E4M3, E5M2), BF16),
        pytest.param((F16, F16), F16, marks=pytest.mark.integration),
        pytest.param((F32, F32), F32, marks=pytest.mark.integration),
    ],
    ids=str,
)
def test_types_are_clean_and_certified(dtypes, out_dtype):
    torch.manual_seed(0)
    a, b = torch.randn(3, 1168).to(dtypes[0]), torch.randn(24, 1168).to(dtypes[1])
    with cutepy.simulate(sanitize=True) as run:
        d = gemv(a, b, out_dtype=out_dtype)
    assert not run.hazards, run.report()
    assert all(certificate.is_certified for certificate in run.certificates), run.report()
    # A lane adds up at most 1168 products of the same sign as its sum, each rounded, and a result is rounded once.
    allowed = 2.0**-24 * 1168 + torch.finfo(out_dtype).eps / 2
    within = allowed * gemm_reference(a.float().abs(), b.float().abs())
    assert ((d.double() - gemm_reference(a, b)).abs() <= within).all()


@cutepy.epilogue
def rich(acc, bias: Row, factor: Column, scale: Scalar, residual: Tile):
    y = acc * factor + acc.row * 2 + acc.column
    gate, up = y.interleaved(2)
    return {
        "y": epilogues.relu(gate * scale + bias) * up + residual,
        "before": acc.to(torch.float32),
        "gate": gate.to(torch.float8_e5m2),
    }


@pytest.mark.parametrize(
    "form", [FORMS[1], *(pytest.param(form, marks=pytest.mark.integration) for form in FORMS[::2])], ids=str
)
def test_an_epilogue_of_several_widths(form):
    m, n, k = 5, 72, 264
    a, b = integers(m, k), integers(n, k)
    operands = {"bias": torch.randn(n // 2).round(), "factor": integers(m, dtype=F32), "scale": 0.5}
    operands["residual"] = integers(m, n // 2)
    with cutepy.simulate(sanitize=True) as run:
        found = gemv(a, b, epilogue=rich, out_dtype=F32, settings=form, **operands)
    assert not run.hazards, run.report()
    expected = compute(rich.graph, gemm_reference(a, b), operands, torch.float64)
    for got, wanted in zip(found.values(), expected, strict=True):
        assert torch.equal(got.double(), wanted.to(got.dtype).double())


@pytest.mark.parametrize(("m", "n"), [(0, 16), (4, 0), (0, 0)])
def test_results_without_elements_are_given_and_nothing_is_launched(m, n):
    a, b = integers(m, 32), integers(n, 32)
    with cutepy.simulate(sanitize=True) as run:
        plain = gemv(a, b)
        gated = gemv(a, b, epilogue=epilogues.swiglu, out_dtype=F32)
    assert not run.launches
    assert (plain.shape, plain.dtype) == ((m, n), F16)
    assert (gated.shape, gated.dtype) == ((m, n // 2), F32)
    largest = cutepy.epilogue(lambda acc: {"y": acc, "most": epilogues.amax(acc, 1)})
    with cutepy.simulate(), refuses(ValueError):
        gemv(a, b, epilogue=largest)


def test_unknown_settings_are_refused():
    with cutepy.simulate(), refuses(ValueError):
        gemv(integers(3, 32), integers(16, 32), settings={"bogus": 1, "warps": 4})


@pytest.mark.parametrize(
    ("a", "b"),
    [((16,), (8, 16)), ((4, 16), (16,)), ((2, 4, 16), (8, 16)), ((4, 16), (8, 24)), ((), (8, 16)), ((0, 16), (8, 24))],
)
def test_shapes_that_are_no_product_are_refused(a, b):
    with (
        cutepy.simulate(),
        refuses(ValueError) as told,
    ):
        gemv(torch.ones(a).half(), torch.ones(b).half())
    assert str(told.value).endswith(f"{a} and {b}")


def test_gates_that_are_parted_twice():
    @cutepy.epilogue
    def quarters(acc):
        p, q, r, s = acc.interleaved(4)
        return p + 2.0 * q + 4.0 * r + 8.0 * s

    a, b = integers(2, 64), integers(24, 64)
    with cutepy.simulate():
        found = gemv(a, b, epilogue=quarters, out_dtype=F32)
    assert torch.equal(found.double(), compute(quarters.graph, gemm_reference(a, b), {}, torch.float64)[0])


def test_few_rows_of_b_are_multiplied_transposed():
    @cutepy.epilogue
    def biased(acc, bias: Row, residual: Tile):
        return silu(acc + bias) + residual

    a, b, bias, residual = integers(40, 136), integers(3, 136), torch.randn(3), torch.randn(40, 3)
    with cutepy.simulate(sanitize=True) as run:
        d = gemv(a, b, epilogue=biased, out_dtype=F32, bias=bias, residual=residual)
    assert not run.hazards, run.report()
    expected = torch.nn.functional.silu(gemm_reference(a, b) + bias) + residual
    # exp2 and the reciprocal are good to two units, which an argument below 128 makes 2**-15 at most.
    assert torch.allclose(d.double(), expected, rtol=2**-15, atol=2**-15)


def test_operands_that_only_the_gemm_would_load_by_threads_are_copied():
    a, b = integers(2, 4100)[:, :4092], integers(40, 4092)
    assert a.stride(0) % 8 == b.stride(0) % 8 == 4
    with cutepy.simulate():
        assert torch.equal(gemv(a, b, out_dtype=F32).double(), gemm_reference(a, b))


@pytest.mark.parametrize("dtype", [F16, pytest.param(E4M3, marks=pytest.mark.deep)], ids=str)
def test_a_row_has_the_same_bits_whatever_rows_there_are(dtype):
    torch.manual_seed(1)
    a, b = torch.randn(9, 1056).to(dtype), torch.randn(8, 1056).to(dtype)
    with cutepy.simulate():
        whole = gemv(a, b, out_dtype=F32)
        for m in (1, 5):
            assert torch.equal(gemv(a[:m], b, out_dtype=F32), whole[:m])


def test_launches_overlap_and_wait(monkeypatch):
    torch.manual_seed(2)
    a, b = torch.randn(2, 64).half(), torch.randn(64, 64).half()
    with cutepy.simulate(sanitize=True) as run:
        d = gemv(gemv(a, b), b)
    assert not run.hazards, run.report()
    assert torch.allclose(d.double(), gemm_reference(gemm_reference(a, b).half(), b), rtol=2**-9, atol=2**-6)
    kind = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    ptx = compile_gemm(select_gemv(kind, 2, 64, 64)).ptx
    assert ptx.index("griddepcontrol.wait") < ptx.index("griddepcontrol.launch_dependents") < ptx.index("ld.global")

    from cutepy.host.compilation import compile
    from cutepy.kernels.gemm.compilation import variant
    from cutepy.kernels.gemv import kernel

    monkeypatch.setattr(kernel, "follow_launch", lambda _: None)
    config = GemvConfig(signature=kind, columns=1, warps=1, k_warps=1)
    hasty, between = compile(kernel.StandardGemv(config), **variant(config).named), torch.empty(2, 64).half()

    def launch_both():
        hasty(a, b, None, between, 132, None)
        hasty(between, b, None, torch.empty(2, 64).half(), 132, None)

    hurried = pytest.raises(HazardError, match=r"griddepcontrol\.wait must come before this access")
    with hurried, cutepy.simulate(sanitize=True):
        launch_both()


@pytest.mark.integration
def test_loads_are_wide_and_leave_l1_to_a():
    kind = GemmSignature(a_dtype="bfloat16", b_dtype="bfloat16", out_dtype="bfloat16")
    function = compile_gemm(GemvConfig(signature=kind, tile_m=4, columns=4, unroll=2))
    body = function.ptx[: function.ptx.rindex("bra")]
    streamed = body.count("ld.global.L1::no_allocate.v4.b32")
    assert streamed == 2 * 4 * 2, "once in the loop, once in what is left"
    assert body.count("ld.global.v4.b32") == 2 * 4 * 2
    assert all(each.spill_store_bytes == 0 for each in function.resources)
