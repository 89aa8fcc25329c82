"""Tiles that are taken while a launch runs: right and clean in any schedule, and the counter serves again."""

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

TYPES = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float32"}
TILE = {"tile_m": 64, "tile_n": 32, "tile_k": 16, "dynamic": True}


@cache
def config(batch_modes=0, c=True, align=16, **options):
    types = {**TYPES, "batch_modes": batch_modes, "a_align": align, "b_align": align}
    added = {"c_dtype": "float16", "c_major": "row"} if c else {}
    return GemmConfig(signature=GemmSignature.standard(**types, **added), **{**TILE, **options})


def counter():
    return torch.zeros(1, rules.FLAGS, dtype=torch.int32)


def multiply(operands, sms, flags, **options):
    a, b, c = operands
    d = torch.full((*a.shape[:-1], b.shape[-2]), torch.nan)
    compile_gemm(config(c=c is not None, **options))(a, b, c, d, sms, None, (flags, None))
    return d


def whole_numbers(m, n, k, *batch):
    return [torch.randint(-3, 4, (*batch, *shape)).half() for shape in ((m, k), (n, k), (m, n))]


def expected(operands):
    a, b, c = operands
    return a.float() @ b.float().mT + (0 if c is None else c.float())


CASES = {
    "several waves": ((200, 72, 40), 3, {}),
    "one tile": ((64, 32, 64), 3, {}),
    "more SMs than tiles": ((128, 24, 48), 7, {}),
    "less than a stage of K": ((130, 64, 8), 2, {}),
    "in turns": ((200, 72, 40), 3, {"consumers": 2}),
    "in turns, one tile": ((64, 32, 64), 3, {"consumers": 2}),
    "a batch": ((70, 40, 24, 2, 3), 5, {"batch_modes": 2}),
    "clusters": ((256, 96, 40), 4, {"cluster_m": 2}),
    "clusters, in turns": ((128, 256, 40), 4, {"cluster_n": 2, "consumers": 2}),
    "K in parts": ((200, 72, 96), 6, {"split_k": 2}),
    "K in parts of clusters": ((128, 200, 96), 8, {"split_k": 2, "cluster_n": 2}),
    "two warpgroups": ((300, 72, 40), 3, {"tile_m": 128, "warpgroups": 2}),
}


OFTEN = ("several waves", "more SMs than tiles", "less than a stage of K", "in turns")


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("shape", "sms", "options"),
    [
        pytest.param(*each, id=name, marks=() if name in OFTEN else pytest.mark.integration)
        for name, each in CASES.items()
    ],
)
def test_sums_are_exact_and_clean_and_the_counter_serves_again(shape, sms, options):
    operands, flags = whole_numbers(*shape), counter()
    with cutepy.simulate(sanitize=True) as run:
        for _ in range(2):
            assert torch.equal(multiply(operands, sms, flags, **options), expected(operands))
            assert not flags.any(), "the counter is as it was"
    assert not run.hazards, run.report()


@pytest.mark.integration
@pytest.mark.parametrize("c", [False, pytest.param(True, marks=pytest.mark.deep)], ids=["alone", "with c"])
def test_operands_that_threads_load(c):
    operands, flags = whole_numbers(130, 72, 44), counter()
    operands[2] = operands[2] if c else None
    options = {"align": 8, "tile_k": 64}
    with cutepy.simulate(sanitize=True) as run:
        assert torch.equal(multiply(operands, 3, flags, **options), expected(operands))
    assert not run.hazards, run.report()
    assert not flags.any()


@pytest.mark.parametrize("name", ["in turns", pytest.param("clusters", marks=pytest.mark.integration)])
def test_every_schedule_gives_the_same_bits(name):
    shape, sms, options = CASES[name]
    torch.manual_seed(1)
    operands = [torch.randn_like(each) for each in whole_numbers(*shape)]
    found, flags = [], counter()
    for policy in ("late", "youngest", "schedule:1"):
        with cutepy.simulate(policy=policy):
            found.append(multiply(operands, sms, flags, **options))
    static = {**options, "dynamic": False}
    d = torch.empty_like(found[0])
    with cutepy.simulate():
        compile_gemm(config(**static))(*operands, d, sms, None)
    assert all(torch.equal(each, d) for each in found), "nor does it matter who computes a tile"


@pytest.mark.deep
@pytest.mark.integration
def test_schedules_are_explored():
    operands, flags = whole_numbers(128, 96, 24), counter()
    with cutepy.simulate(sanitize=True, schedules=10) as run:
        assert torch.equal(multiply(operands, 2, flags), expected(operands))
    assert not run.hazards
    (explored,) = run.explorations
    assert not explored.divergences


def test_what_steers_it_is_said():
    with cutepy.simulate(sanitize=True) as run:
        multiply(whole_numbers(200, 72, 40), 3, counter())
    (certificate,) = run.certificates
    assert not certificate.is_certified
    *reasons, _ = map(str, certificate.reasons)
    assert all(reason.startswith("the result of an atomic") for reason in reasons), reasons


def test_work_is_dealt_out_in_one_way():
    with refuses(ValueError):
        config(stream_k=True)
    assert config().name.endswith("_dynamic")
    assert [config(consumers=n).smem["tickets"].content.count for n in (1, 2)] == [1, 2]


PLAIN = GemmSignature.standard(a_dtype="float16", b_dtype="float16", out_dtype="float16")


@pytest.mark.parametrize("transposed", [False, pytest.param(True, marks=pytest.mark.integration)])
def test_an_operation_gives_it_a_counter(monkeypatch, transposed):
    from cutepy.kernels.gemm import op
    from cutepy.kernels.gemm.heuristic.choice import ChosenKernel
    from cutepy.ops.checking import describe

    monkeypatch.setattr(op, "gpu_of", lambda _: replace(H200, sm_count=3))
    a, b, _ = whole_numbers(200, 64, 40)
    out = torch.empty(200, 64).half()
    problem = describe(a, b, outs=(out,))
    chosen = GemmConfig(signature=PLAIN.transposed if transposed else PLAIN, **TILE)
    with cutepy.simulate():
        op.plan_gemm(problem, ChosenKernel(transposed, chosen))(a, b, (), (out,))
    assert torch.equal(out, (a.float() @ b.float().t()).half())


@pytest.mark.integration
def test_an_epilogue_of_rows_and_reductions(monkeypatch):
    from cutepy.epilogues import Row, epilogue
    from cutepy.host.launches import Launches
    from cutepy.kernels.gemm import op
    from cutepy.kernels.gemm.heuristic.choice import ChosenKernel

    @epilogue
    def finish(acc, bias: Row):
        shifted = acc + bias
        return shifted, shifted.sum(1)

    def choose(device, signature, *extents):
        return ChosenKernel(False, GemmConfig(signature=signature, **TILE))

    monkeypatch.setattr(op, "gpu_of", lambda _: replace(H200, sm_count=3))
    monkeypatch.setattr(op, "choose_on", choose)
    monkeypatch.setattr(cutepy.ops.multiply, "_launches", Launches())
    a, b, _ = whole_numbers(200, 64, 40)
    bias = torch.randint(-3, 4, (64,)).half()
    with cutepy.simulate(sanitize=True):
        d, sums = cutepy.ops.gemm(a, b, epilogue=finish, bias=bias, out_dtype=torch.float32)
    wanted = a.float() @ b.float().t() + bias.float()
    assert torch.equal(d, wanted)
    assert torch.equal(sums.flatten(), wanted.sum(1))


@pytest.mark.integration
def test_sums_that_are_promoted():
    from cutepy.kernels.gemm.compilation import compile_fused
    from tests.device.test_promotion import problem

    kind = GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e4m3fn", out_dtype="float32", scale_rows=(1, 128))
    dealt = GemmConfig(signature=kind, tile_m=64, tile_n=32, dynamic=True)
    a, b, scales, wanted = problem(192, 64, 256, (1, 128))
    d, flags = torch.full((192, 64), torch.nan), counter()
    with cutepy.simulate(sanitize=True) as run:
        compile_fused(dealt)(a, b, None, (d,), 2, *scales, (flags, None))
    assert not run.hazards
    assert torch.equal(d, wanted)
    assert not flags.any()


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(m=st.integers(1, 200), n=st.integers(1, 12), k=st.integers(1, 9), sms=st.integers(1, 7), turns=st.booleans())
def test_any_extents(m, n, k, sms, turns):
    operands, flags = whole_numbers(m, 8 * n, 8 * k), counter()
    with cutepy.simulate():
        assert torch.equal(multiply(operands, sms, flags, consumers=1 + turns), expected(operands))
    assert not flags.any()


@pytest.mark.parametrize(
    ("way", "value"), [("dynamic", 5), pytest.param("stream_k", -1, marks=pytest.mark.integration)]
)
def test_flags_that_are_not_0_are_refused(way, value):
    operands, flags = whole_numbers(70, 72, 80), torch.zeros(rules.workspace_shapes(3, 64, 32)[0], dtype=torch.int32)
    flags[0, 1 if way == "stream_k" else 0] = value
    kernel = compile_gemm(config(c=True, **{"dynamic": way == "dynamic", "stream_k": way == "stream_k"}))
    sums = torch.empty(rules.workspace_shapes(3, 64, 32)[1]) if way == "stream_k" else None
    d = torch.full((70, 72), torch.nan)
    with cutepy.simulate(), refuses(ValueError):
        kernel(*operands, d, 3, None, (flags, sums))
    assert d.isnan().all(), "nothing ran"
    flags.zero_()
    with cutepy.simulate():
        kernel(*operands, d, 3, None, (flags, sums))
    assert torch.equal(d, expected(operands))
