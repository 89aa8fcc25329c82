"""Operands that TMA doesn't reach, loaded by threads: right, clean and certified, with all that TMA's go with."""

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
from cutepy.sim.sanitize.reports.collection import HazardError  # noqa: E402

TYPES = {"a_dtype": "float16", "b_dtype": "float16", "out_dtype": "float32"}
PLUS = {"c_dtype": "float16", "c_major": "row"}


@cache
def kernel(kind, options):
    signature = GemmSignature.standard(**dict(kind))
    return compile_gemm(GemmConfig(**{"signature": signature, "tile_m": 64, "tile_n": 32, **dict(options)}))


def whole_numbers(shape, major, align, batch=()):
    """Give a tensor whose strides are multiples of `align` bytes, and of no more; its address too."""
    rows, columns = shape if major == "k" else shape[::-1]
    unit = align // 2
    pitch = -(-columns // unit) * unit
    pitch += unit * (pitch // unit % 2 == 0 and align < 16)
    held = torch.full((*batch, rows, pitch), torch.nan).half().flatten()
    held = torch.cat([held.new_zeros(unit % 8), held])[unit % 8 :].view(*batch, rows, pitch)
    held[..., :columns] = torch.randint(-3, 4, (*batch, rows, columns)).half()
    found = held[..., :columns]
    return found if major == "k" else found.mT


def multiply(kind, extents, sms=3, batch=(), **options):
    """Multiply, and compare with the product of these whole numbers, which is exact."""
    m, n, k = extents
    kind = {**TYPES, **kind}
    a = whole_numbers((m, k), kind.get("a_major", "k"), kind.get("a_align", 16), batch)
    b = whole_numbers((n, k), kind.get("b_major", "k"), kind.get("b_align", 16), batch)
    c = torch.randint(-3, 4, (*batch, m, n)).half() if "c_dtype" in kind else None
    d = torch.full((*batch, m, n), torch.nan)
    call = kernel(tuple(sorted(kind.items())), tuple(sorted(options.items())))
    with cutepy.simulate(sanitize=True) as run:
        call(a, b, c, d, sms, None)
    assert torch.equal(d, a.float() @ b.float().mT + (0 if c is None else c.float()))
    assert not run.hazards, run.report()
    return run


CASES = {
    "both": ({"a_align": 8, "b_align": 4}, (70, 40, 140), {}),
    "one beside TMA, and a tile that is added": ({"a_align": 4, **PLUS}, (70, 40, 140), {}),
    "along M and N": (
        {"a_align": 8, "b_align": 4, "a_major": "mn", "b_major": "mn"},
        (100, 40, 100),
        {"tile_n": 24, "epi_n": 24},
    ),
    "in a cluster that shares B": ({"a_align": 4}, (130, 40, 140), {"cluster_m": 2, "sms": 4}),
    "in turns": ({"a_align": 8, "b_align": 8}, (130, 72, 100), {"consumers": 2}),
    "K that is split": ({"a_align": 4, "b_align": 4}, (70, 40, 140), {"split_k": 2, "sms": 4}),
    "a batch": ({"a_align": 4, "b_align": 8, "batch_modes": 1}, (70, 40, 100), {"batch": (2,)}),
}
OFTEN = "both", "along M and N"


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if name in OFTEN else pytest.mark.integration)
        for name, case in CASES.items()
    ],
)
def test_sums_are_exact_clean_and_certified(case):
    kind, extents, options = case
    run = multiply(kind, extents, **options)
    assert all(certificate.is_certified for certificate in run.certificates), run.report()


@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.too_slow])
@given(m=st.integers(1, 100), n=st.integers(1, 10), k=st.integers(1, 40), sms=st.integers(1, 5))
def test_any_extents(m, n, k, sms):
    multiply({"a_align": 4, "b_align": 8}, (m, 4 * n, 4 * k), sms)


def test_wgmma_reads_only_what_a_fence_has_made_visible(monkeypatch):
    from cutepy.device.pipeline import MixedRing, TmaRing
    from cutepy.host.compilation import compile
    from cutepy.kernels.gemm.compilation import variant
    from cutepy.kernels.gemm.standard import StandardGemm

    monkeypatch.setattr(MixedRing, "wait", TmaRing.wait)
    signature = GemmSignature.standard(**TYPES, a_align=8, b_align=8)
    config = GemmConfig(signature=signature, tile_m=64, tile_n=16, epi_n=16)
    call = compile(StandardGemm(config), **variant(config).named)
    a, b = whole_numbers((64, 64), "k", 8), whole_numbers((16, 64), "k", 8)
    with pytest.raises(HazardError) as caught, cutepy.simulate(sanitize=True):
        call(a, b, None, torch.empty(64, 16), 1, None)
    assert "missing-proxy-fence" in {hazard.kind for hazard in caught.value.hazards}


@pytest.mark.parametrize(
    "kind",
    [
        {"a_align": 2},
        {"a_dtype": "float32", "b_dtype": "float32", "a_align": 8},
    ],
)
def test_what_cp_async_does_not_load(kind):
    with refuses(ValueError):
        GemmSignature.standard(**{**TYPES, **kind})


def test_threads_load_for_their_own_cta():
    signature = GemmSignature.standard(**TYPES, b_align=4)
    with refuses(ValueError):
        GemmConfig(signature=signature, tile_m=64, tile_n=32, cluster_m=2)


def test_threads_share_a_tile_evenly():
    with refuses(ValueError):
        rules.check_pieces((24, 16), 1, 16, 8, 128)
