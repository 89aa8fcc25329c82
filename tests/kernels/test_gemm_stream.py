"""Stream-K: right, clean and the same bits in any schedule, whatever its workspace held; and who gives it one."""

from dataclasses import replace
from functools import cache

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, compile_gemm  # noqa: E402
from cutepy.kernels.gemm.gpu import H200  # noqa: E402

HALF = GemmSignature.standard(
    a_dtype="float16", b_dtype="float16", out_dtype="float32", c_dtype="float16", c_major="row"
)
CONFIG = GemmConfig(signature=HALF, tile_m=64, tile_n=32, tile_k=16, stream_k=True)


@cache
def kernel(**options):
    return compile_gemm(GemmConfig(signature=HALF, tile_m=64, tile_n=32, tile_k=16, stream_k=True, **options))


def workspace(sms):
    flags, sums = rules.workspace_shapes(sms, CONFIG.tile_m, CONFIG.tile_n)
    return torch.zeros(flags, dtype=torch.int32), torch.full(sums, torch.nan)


def multiply(operands, sms, given, **options):
    a, b, c = operands
    d = torch.full((len(a), len(b)), torch.nan)
    kernel(**options)(a, b, c, d, sms, None, given)
    return d


def whole_numbers(m, n, k):
    return [torch.randint(-3, 4, shape).half() for shape in ((m, k), (n, k), (m, n))]


SHAPES = {
    "one tile more than a wave": ((128, 64, 560), 3),
    "ragged": ((200, 72, 328), 5),
    "fewer tiles than SMs": ((64, 40, 1024), 6),
    "K too short to share": ((130, 64, 40), 4),
    "even waves": ((128, 64, 300), 2),
}
OFTEN = "one tile more than a wave", "K too short to share"


@pytest.mark.parametrize(
    ("shape", "sms"),
    [
        pytest.param(*each, id=name, marks=() if name in OFTEN else pytest.mark.integration)
        for name, each in SHAPES.items()
    ],
)
def test_sums_are_exact_and_clean_and_the_workspace_serves_again(shape, sms):
    m, n, k = shape
    operands, given = whole_numbers(m, n, k // 8 * 8), workspace(sms)
    a, b, c = (each.float() for each in operands)
    with cutepy.simulate(sanitize=True) as run:
        for _ in range(2):
            assert torch.equal(multiply(operands, sms, given), a @ b.t() + c)
            assert not given[0].any(), "flags are down again"
    assert not run.hazards, run.report()


@pytest.mark.integration
def test_clusters_share_operands_and_k():
    operands, given = whole_numbers(256, 40, 1024), workspace(8)
    a, b, c = (each.float() for each in operands)
    with cutepy.simulate(sanitize=True) as run:
        assert torch.equal(multiply(operands, 8, given, cluster_m=2), a @ b.t() + c)
    assert not run.hazards, run.report()


def test_every_schedule_gives_the_same_bits():
    torch.manual_seed(1)
    operands = [torch.randn(shape).half() for shape in ((128, 560), (64, 560), (128, 64))]
    found, given = [], workspace(3)
    for policy in (None, "late", "youngest", "random:1"):
        with cutepy.simulate(policy=policy):
            found.append(multiply(operands, 3, given))
    assert all(torch.equal(each, found[0]) for each in found)
    # Part of K was summed apart: the order is another than that of whole tiles.
    with cutepy.simulate():
        whole = multiply(operands, 2, workspace(2))
    assert not torch.equal(whole, found[0])


def test_what_steers_it_is_said():
    with cutepy.simulate(sanitize=True) as run:
        multiply(whole_numbers(128, 64, 560), 3, workspace(3))
    (certificate,) = run.certificates
    assert not certificate.is_certified
    assert all(
        "reaches a branch" in str(reason) and "gemm/schedules.py" in str(reason) for reason in certificate.reasons
    )


@pytest.mark.parametrize(
    "options",
    [
        {"split_k": 2},
        {"consumers": 2},
        {"signature": GemmSignature(a_dtype="int8", b_dtype="int8", out_dtype="int32")},
    ],
)
def test_k_is_shared_in_one_way(options):
    with refuses(ValueError):
        GemmConfig(**{"signature": HALF, "tile_m": 64, "tile_n": 32, "stream_k": True, **options})


PLAIN = GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16")


@pytest.mark.integration
def test_an_operation_gives_it_a_workspace(monkeypatch):
    from cutepy.kernels.gemm import op
    from cutepy.kernels.gemm.heuristic.choice import ChosenKernel
    from cutepy.ops.checking import describe

    monkeypatch.setattr(op, "gpu_of", lambda _: replace(H200, sm_count=3))
    a, b, _ = whole_numbers(128, 64, 560)
    out = torch.empty(128, 64).half()
    problem = describe(a, b, outs=(out,))
    config = GemmConfig(signature=PLAIN, tile_m=64, tile_n=32, tile_k=16, stream_k=True)
    with cutepy.simulate():
        op.plan_gemm(problem, ChosenKernel(False, config))(a, b, (), (out,))
    assert torch.equal(out, (a.float() @ b.float().t()).half())


def test_streams_and_graphs_have_workspaces_of_their_own(monkeypatch):
    from cutepy.frontends import serve_cuda
    from cutepy.kernels.gemm import workspaces as room

    with serve_cuda():
        workspaces = room.Workspaces(torch.device("cuda:0"), 3)
        first = workspaces.take(64)
        assert workspaces.take(32) is first
        larger = workspaces.take(128)
        assert larger.flags is first.flags
        assert larger.sums.numel() == 128
        with torch.cuda.stream(torch.cuda.Stream()):
            assert workspaces.take(64).flags is not first.flags
        captured = []
        for capture in range(room.STOCK + 1):
            monkeypatch.setattr(room, "capture_of", lambda stream, number=capture: number + 1)
            with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
                captured.append([workspaces.take(64).flags for _ in range(3)])
        graph.replay()  # what the stock has no flags for makes its own
        # Launches of one graph follow each other. What it has is nobody else's, for as long as it may be replayed.
        *stocked, own = captured
        assert all(one is two is three for one, two, three in stocked)
        assert {id(flags) for flags, _, _ in stocked} == set(map(id, workspaces.captured.values()))
        each = [first.flags, *(flags for flags, _, _ in stocked), *own]
        assert len({flags.data_ptr() for flags in each}) == len(each)
        assert {(tuple(flags.shape), bool(flags.any())) for flags in each} == {((3, rules.FLAGS), False)}


@pytest.mark.integration
def test_sums_that_are_promoted():
    from cutepy.kernels.gemm.compilation import compile_fused
    from tests.device.test_promotion import problem

    kind = GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e4m3fn", out_dtype="float32", scale_rows=(1, 128))
    config = GemmConfig(signature=kind, tile_m=64, tile_n=32, stream_k=True)
    a, b, scales, expected = problem(128, 64, 2560, (1, 128))
    d, given = torch.full((128, 64), torch.nan), workspace(3)
    with cutepy.simulate(sanitize=True) as run:
        compile_fused(config)(a, b, None, (d,), 3, *scales, given)
    assert not run.hazards
    assert torch.equal(d, expected)


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(m=st.integers(1, 200), n=st.integers(1, 12), k=st.integers(1, 90), sms=st.integers(1, 7))
def test_any_extents(m, n, k, sms):
    operands, given_place = whole_numbers(m, 8 * n, 8 * k), workspace(sms)
    a, b, c = (each.float() for each in operands)
    with cutepy.simulate():
        assert torch.equal(multiply(operands, sms, given_place), a @ b.t() + c)
