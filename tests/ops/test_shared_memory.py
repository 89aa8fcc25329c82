"""Shared memory of products, by the names of the plan that each was configured with."""

import copy
import pickle

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature  # noqa: E402
from cutepy.kernels.gemm.compilation import compile_gemm  # noqa: E402
from cutepy.kernels.gemv import GemvConfig  # noqa: E402
from cutepy.layouts.sm90 import SmemArray, SmemPlan  # noqa: E402
from cutepy.ops import gemm, grouped_gemm, scaled_gemm, scaled_grouped_gemm  # noqa: E402

F8 = torch.float8_e4m3fn
ENDS = torch.tensor([20, 72], dtype=torch.int32)
ONE = torch.ones(())


def filled(*shape, value, dtype):
    return torch.full(shape, value).to(dtype)


def a_of(dtype):
    return filled(72, 128, value=3.0, dtype=dtype)


def b_of(dtype, *groups):
    return filled(*groups, 32, 128, value=2.0, dtype=dtype)


PRODUCTS = {
    "gemm": (torch.float16, lambda a, b: gemm(a, b)),
    "with an epilogue": (torch.bfloat16, lambda a, b: gemm(a, b, epilogue=epilogues.swiglu)),
    "grouped": (torch.float16, lambda a, b: grouped_gemm(a, b.expand(2, -1, -1).contiguous(), offs=ENDS)),
    "scaled": (F8, lambda a, b: scaled_gemm(a, b, ONE, ONE)),
    "scaled in blocks": (F8, lambda a, b: scaled_gemm(a, b, torch.ones(72, 1), torch.ones(1, 1))),
    "scaled and grouped": (
        F8,
        lambda a, b: scaled_grouped_gemm(a, b.expand(2, -1, -1).contiguous(), ONE, ONE, offs=ENDS),
    ),
}
OFTEN = "with an epilogue", "scaled and grouped"


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.integration) for name in PRODUCTS]
)
def test_regions_are_known_by_name(name):
    dtype, product = PRODUCTS[name]
    with cutepy.simulate(inspect=True) as run:
        product(a_of(dtype), b_of(dtype))
    a, b = (run.smem(name=region, dtype=dtype) for region in ("sA", "sB"))
    assert a.ndim == b.ndim == 3  # (rows, columns, stages)
    held = {*a[:, :, 0].flat} - {0}, {*b[:, :, 0].flat} - {0}
    assert held in (({3}, {2}), ({2}, {3}))  # a product may be computed transposed
    assert run.smem(name="barriers", dtype="uint64").ndim == 1
    with refuses(KeyError):
        run.smem(name="sX")


@pytest.mark.integration
def test_each_launch_has_its_own_plan():
    with cutepy.simulate(inspect=True) as run:
        for dtype in (torch.float16, F8):
            gemm(a_of(dtype), b_of(dtype))
    run.plan = SmemPlan.of(mine=SmemArray(4, bits=32))  # is of launches that know none
    for launch, dtype in enumerate((torch.float16, F8)):
        assert run.launches[launch].plan["sA"].bits == 8 * dtype.itemsize
        assert {2, 3} & {*run.smem(name="sA", dtype=dtype, launch=launch).flat}


def test_compiled_functions_keep_the_plan():
    kind = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    config = GemmConfig(signature=kind, tile_m=64, tile_n=32)
    compiled = compile_gemm(config)
    for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert copied.program.plan == config.smem


def test_products_of_few_rows_have_a_plan():
    kind = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    config = GemvConfig(signature=kind)
    a, b, d = a_of(torch.float16)[:1].clone(), b_of(torch.float16), torch.zeros(1, 32).half()
    with cutepy.simulate() as run:
        compile_gemm(config)(a, b, None, d, 132, None)
    assert (d == 3 * 2 * 128).all()
    assert run.smem(name="sums", dtype="float32").size == config.smem["sums"].content.count
