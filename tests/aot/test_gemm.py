"""The exported GEMM chooses a kernel by the heuristic's model."""

import math
import random

import numpy as np
import pytest

from cutepy.aot.gemm_tiles import EXPORTED
from cutepy.kernels.gemm import GemmSignature
from cutepy.kernels.gemm.gpu import H200, Gpu
from cutepy.kernels.gemm.heuristic.choice import candidates as heuristic_candidates, extents_of
from cutepy.kernels.gemm.heuristic.model import H200_COSTS
from tests.aot.described import described
from tests.aot.test_symbols import evaluated
from tests.kernels.exporting import Judged, drawn
from tests.messages import pins, refuses

pytestmark = pytest.mark.dsl

NAMES = ("m", "n", "k", "sm_count", "batch0")
SIGNATURES = [
    GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16"),
    GemmSignature(a_dtype="float8_e4m3fn", b_dtype="float8_e5m2", out_dtype="bfloat16", batch_modes=1),
]


def costs(signature, m, n, k, sm_count, batch):
    """Evaluate the costs of the exported choices by NumPy."""
    from cutepy.kernels.gemm.heuristic.estimates import Estimator

    problem = extents_of(signature, m, n, k, batch, transposed=False)._replace(any_k=True)
    found = Estimator(EXPORTED, H200_COSTS)([problem], Gpu(sm_count, H200.memory_tbs)).us[0].tolist()
    extents = (m, n, k * signature.operand_bits)
    suits = [all(x >= least for x, least in zip(extents, choice.least, strict=True)) for choice in EXPORTED]
    return [cost if suited else math.inf for cost, suited in zip(found, suits, strict=True)]


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param(SIGNATURES[0], id="half", marks=pytest.mark.integration),
        pytest.param(SIGNATURES[1], id="batch of float8"),
    ],
)
def test_costs_in_cpp_are_the_models(tmp_path, signature):
    from cutepy.aot.gemm import candidates

    chance = random.Random(0)
    extents = (lambda: chance.randint(1, 700), lambda: chance.randint(1, 20_000), lambda: 2 ** chance.randint(0, 14))
    rows = [
        (*(chance.choice(extents)() for _ in "mnk"), chance.choice((132, 114, 78, 16)), chance.randint(1, 40))
        for _ in range(300)
    ]
    configs, functions = zip(*candidates(signature), strict=True)
    assert [(config.tile_m, config.tile_n) for config in configs] == [choice.tile[:2] for choice in EXPORTED]
    for row, found in zip(rows, evaluated(tmp_path, functions, rows, NAMES), strict=True):
        batch = row[4] if signature.batch_modes else 1
        assert found == pytest.approx(costs(signature, *row[:4], batch), rel=1e-12), row


def test_the_exported_choices_are_the_choosers():
    assert len(set(EXPORTED)) == 21
    assert set(EXPORTED) <= set(heuristic_candidates("model").choices)
    assert EXPORTED[0].least == (1, 1, 1)


def test_the_exported_choice_is_hardly_slower_than_the_choosers():
    """The chooser picks among 1,070 choices, the library among 21: they lose 8% by the refined estimates."""
    judged = Judged(drawn(300, seed=2))
    places, loss = judged.chosen([judged.choices.index(choice) for choice in EXPORTED])
    same = [judged.choices[place] == best for place, best in zip(places, judged.best, strict=True)]
    assert np.exp(np.log(loss).mean()) < 1.09
    assert np.quantile(loss, 0.9) < 1.2
    assert sum(same) >= 0.75 * sum(best in EXPORTED for best in judged.best) > 15


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


def test_what_is_exported_is_pinned():
    from cutepy.aot import gemm_extension

    options = {"majors": ["kn"], "out_major": "col", "c": True, "bias": True, "activations": ["silu"]}
    for extension in (
        gemm_extension(dtypes=["bfloat16"], **options, batch_modes=[0, 2]),
        gemm_extension(dtypes=["float32", "float8_e5m2"], batch_modes=[1], tiles=[(64, 16)]),
    ):
        (op,) = extension.ops
        pins(described(op))
