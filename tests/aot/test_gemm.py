"""The exported GEMM chooses the tile of least cost."""

import random

import pytest

from cutepy.aot.gemm_tiles import TILES
from cutepy.kernels.gemm import GemmSignature
from tests.aot.test_symbols import evaluated
from tests.messages import refuses

pytestmark = pytest.mark.dsl

NAMES = ("m", "n", "k", "sm_count", "batch0")
SIGNATURES = [
    GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16"),
    GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", out_dtype="bfloat16", batch_modes=1),
]


def chosen(signature, m, n, k, sm_count, batch):
    best = min(TILES, key=lambda tile: tile.expected_us(m, n, k, signature.operand_bits, sm_count, batch))
    return best.config(signature, *best.cluster_mn(m, n))


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param(SIGNATURES[0], id="half", marks=pytest.mark.integration),
        pytest.param(SIGNATURES[1], id="batch of float8"),
    ],
)
def test_the_choice_in_cpp_is_the_tile_of_least_cost(tmp_path, signature):
    """The first kernel of least cost, as the exported dispatcher takes it."""
    from cutepy.aot.gemm import candidates

    chance = random.Random(0)
    extents = (lambda: chance.randint(1, 700), lambda: chance.randint(1, 20_000), lambda: 2 ** chance.randint(0, 14))
    rows = [
        (*(chance.choice(extents)() for _ in "mnk"), chance.choice((132, 114, 78, 16)), chance.randint(1, 40))
        for _ in range(1000)
    ]
    configs, costs = zip(*candidates(signature), strict=True)
    assert len(configs) == 21
    for row, found in zip(rows, evaluated(tmp_path, costs, rows, NAMES), strict=True):
        m, n, k, sm_count, batch = row
        batch = batch if signature.batch_modes else 1
        assert configs[found.index(min(found))] == chosen(signature, m, n, k, sm_count, batch), row


def test_every_variant_has_a_label_of_its_own():
    from cutepy import aot

    op = aot.gemm_extension(
        dtypes=["float16", "float8_e4m3fn"], c=True, bias=True, activations=["gelu"], batch_modes=[0]
    ).ops[0]
    labels = [variant.label for variant in op.variants]
    assert len(set(labels)) == len(labels) == 2 * 21 * 2 * 2 * 2
    assert op.parameters == ("a", "b", "c", "bias", "activation")
    assert (op.optional, op.choices) == (("c", "bias"), ("activation",))


@pytest.mark.parametrize(
    "options",
    [
        {"majors": ["km"]},
        {"tiles": [(128, 255)]},
        {"dtypes": ["float64"]},
        {"dtypes": ["float8_e4m3fn"], "majors": ["mk"]},
        {"name": "my-gemm"},
        {"activations": ["tanh"]},
        {"batch_modes": [4]},
        {"dtypes": []},
    ],
)
def test_what_does_not_exist_is_refused(options):
    from cutepy import aot

    with refuses(ValueError):
        aot.gemm_extension(**options)


@pytest.mark.parametrize(
    ("options", "doc"),
    [
        ({}, "Compute D = A B^T, fp32 inside: A (M, K), B (N, K), D (M, N)."),
        (
            {"c": True},
            "Compute D = A B^T + C, fp32 inside: A (M, K), B (N, K), C and D (M, N); C may be left out.",
        ),
        (
            {"bias": True, "activations": ["relu"], "batch_modes": [0, 1]},
            "Compute D = activation(A B^T + bias), fp32 inside: A (M, K), B (N, K), D (M, N), bias (N,); or batches of "
            "all but bias; bias may be left out; activation may be relu, or none.",
        ),
        ({"dtypes": ["int8"]}, "Compute D = A B^T, int32 inside: A (M, K), B (N, K), D (M, N)."),
        (
            {"dtypes": ["int8", "float16"], "batch_modes": [2]},
            "Compute D = A B^T, fp32 or int32 inside: A (M, K), B (N, K), D (M, N); batches of all.",
        ),
    ],
)
def test_the_documentation_names_what_the_operation_has_alone(options, doc):
    from cutepy import aot

    op = aot.gemm_extension(**{"dtypes": ["float16"], "tiles": [(64, 32)], **options}).ops[0]
    assert op.doc == doc
    # What it names is a parameter, and no other word of it is.
    assert [name for name in ("c", "bias", "activation") if name in op.parameters] == [
        name for name, word in (("c", "+ C"), ("bias", "+ bias"), ("activation", "activation(")) if word in doc
    ]


def test_majors_and_types_of_results_are_described():
    from cutepy import aot

    op = aot.gemm_extension(
        dtypes=["bfloat16"], majors=["mn"], out_dtype="float32", out_major="col", bias=True, batch_modes=[1]
    ).ops[0]
    tensors = {name: str(spec) for name, spec in op.variants[-1].tensors.items()}
    assert tensors == {
        "a": "TensorSpec(bfloat16 (batch0, m % 8, k):(a_batch0_stride % 8, 1, a_pitch % 8), align 16)",
        "b": "TensorSpec(bfloat16 (batch0, n % 8, k):(b_batch0_stride % 8, 1, b_pitch % 8), align 16)",
        "d": "TensorSpec(float32 (batch0, m % 4, n):(d_batch0_stride % 4, 1, d_pitch % 4), align 16)",
        "bias": "TensorSpec(float32 (n,), align 4)",
    }
    texts = [traced.text for traced, _ in op.variants[0].requirements]
    assert texts == ["a_pitch >= m", "b_pitch >= n", "d_pitch >= m"]
