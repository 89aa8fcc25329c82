"""Kernels of float32, by way of tf32, and of 8-bit integers: any extents, bit for bit, and what is refused."""

from functools import cache

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.epilogues import Column, Row, identity, relu  # noqa: E402
from cutepy.kernels.gemm import GemmConfig, GemmSignature, select_config  # noqa: E402
from cutepy.kernels.gemm.compilation import compile_fused  # noqa: E402
from cutepy.kernels.gemm.tuned import problem_of, signature_of  # noqa: E402


@cutepy.epilogue
def dequantised(acc, rows: Column, columns: Row):
    return acc * rows * columns


def signature(a_dtype, b_dtype, out_dtype, graph=identity.graph, **options):
    scales = tuple(("float32", "") for _ in graph.operands)
    return GemmSignature(
        a_dtype=a_dtype, b_dtype=b_dtype, out_dtype=out_dtype, epilogue=graph.text, operand_types=scales, **options
    )


CONFIGS = {
    "tf32": GemmConfig(signature=signature("float32", "float32", "float32"), tile_m=64, tile_n=32, cluster_m=2),
    "integers": GemmConfig(signature=signature("int8", "uint8", "int32"), tile_m=64, tile_n=32, split_k=2),
    "dequantised": GemmConfig(
        signature=signature("int8", "int8", "float32", dequantised.graph), tile_m=64, tile_n=32, consumers=2
    ),
}
NAMES = ["tf32", pytest.param("integers", marks=pytest.mark.integration), "dequantised"]
RANGES = {"int8": (-128, 128), "uint8": (0, 256), "float32": (-64, 65)}


@cache
def kernel(name):
    return compile_fused(CONFIGS[name])


def operand(rows, k, dtype):
    """Draw integers: all of a type's, or such as only rounding to the nearest makes of a float32."""
    drawn = torch.randint(*RANGES[dtype], (rows, k))
    if dtype != "float32":
        drawn[::3] = RANGES[dtype][1] - 1 - drawn[::3] % 2  # sums of more than 24 bits
        return drawn.to(getattr(torch, dtype)), drawn
    # A quarter of the distance between numbers of 11 bits, at most, up or down; cut off, those below would be others.
    off = torch.randint(-1, 2, (rows, k)) * 2.0**-13
    return drawn.float() * (1 + off), drawn


def multiply(name, m, n, k, sms, **options):
    kind = CONFIGS[name].signature
    (a, exact_a), (b, exact_b) = operand(m, k, kind.a_dtype), operand(n, k, kind.b_dtype)
    d = torch.full((m, n), -1, dtype=getattr(torch, kind.out_dtype))
    expected, scales = exact_a @ exact_b.t(), None
    if kind.graph.operands:
        scales = tuple(torch.exp2(torch.randint(-8, 8, (extent,)).float()) for extent in (m, n))
        expected = expected * scales[0].unsqueeze(1).double() * scales[1]
    with cutepy.simulate(**options) as run:
        kernel(name)(a, b, scales, (d,), sms, None, None)
    assert torch.equal(d, expected.to(d.dtype))
    return run


@pytest.mark.dsl
@settings(max_examples=4)
@given(st.data())
@pytest.mark.parametrize("name", NAMES)
def test_any_extents(name, data):
    unit = 128 // CONFIGS[name].signature.operand_bits
    m, n, k = (unit * data.draw(st.integers(1, limit)) for unit, limit in ((1, 140), (4, 20), (unit, 40)))
    multiply(name, m, n, k, data.draw(st.sampled_from([4, 132]), "sms"))


@pytest.mark.dsl
@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_is_certified(name):
    k = 3 * CONFIGS[name].tile_k + 16
    (certificate,) = multiply(name, 136, 36, k, 4, sanitize=True).certificates
    assert certificate.is_certified, certificate.reasons


@pytest.mark.parametrize(
    ("types", "options"),
    [
        (("int8", "int8", "int32"), {"graph": relu.graph}),
        (("float16", "float16", "int32"), {}),
        (("int8", "float8_e4m3fn", "float32"), {}),
        (("float32", "bfloat16", "float32"), {}),
        (("float32", "float32", "float32"), {"a_major": "mn"}),
        (("int8", "int8", "int32"), {"b_major": "mn"}),
        (("int8", "int8", "float32"), {"scale_rows": (1, 128)}),
    ],
)
def test_signatures_that_no_instruction_has_are_refused(types, options):
    with refuses(ValueError):
        signature(*types, **options)


def test_integer_mmas_have_fewer_widths():
    """Of the multiples of 8 that other types have."""
    for tile_n in (40, 168):
        with refuses(ValueError):
            GemmConfig(signature=signature("uint8", "int8", "float16"), tile_m=64, tile_n=tile_n)


@pytest.mark.parametrize("types", [("float32",) * 3, ("int8", "uint8", "int32"), ("uint8", "uint8", "bfloat16")])
def test_every_problem_has_a_configuration_that_the_tuner_can_tell(types):
    kind = signature(*types)
    assert signature_of(problem_of(kind, 1, 2, 3)) == kind
    assert kind.transposed.a_dtype == kind.b_dtype
    for m, n, k in ((1, 1, 1), (64, 7168, 4096), (8192, 8192, 8192), (100, 3000, 100), (512, 512, 16384)):
        config = select_config(kind, m, n, k)
        assert config.tile_k * kind.operand_bits % 1024 == 0
        assert config.tiled_mma.traits.shape_mnk == (64, config.tile_n, 256 // kind.operand_bits)
