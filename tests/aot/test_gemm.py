"""The exported GEMM chooses what `select_config` does."""

import pytest
from hypothesis import given, strategies as st

from cutepy.kernels.gemm.config import GemmSignature, select_config

pytestmark = pytest.mark.dsl

EXTENTS = st.one_of(st.integers(1, 700), st.integers(1, 20_000), st.sampled_from((64, 65, 128, 129, 4096, 8192)))


def chosen(op, dtype, **extents):
    """Evaluate the conditions and costs of an operation's variants as its dispatcher does."""
    from cutepy.aot.expressions import Expression

    names = {"lda": extents["k"], "ldb": extents["k"], "ldd": extents["n"], **extents}
    best, least = None, 0.0
    for variant in op.variants:
        if variant.tensors["a"].dtype != dtype:
            continue
        if variant.when and not Expression(variant.when)(**names):
            continue
        cost = Expression(variant.cost)(**names)
        if best is None or cost < least:
            best, least = variant, cost
    return best.function.config


@pytest.fixture(scope="module")
def op():
    from cutepy import aot

    return aot.gemm_extension(dtypes=["float16", "float8_e4m3fn"]).ops[0]


@given(m=EXTENTS, n=EXTENTS, k=EXTENTS, sm_count=st.sampled_from((132, 114, 78, 16)), eight=st.booleans())
def test_the_choice_is_that_of_select_config(op, m, n, k, sm_count, eight):
    dtype, out = ("float8_e4m3fn", "bfloat16") if eight else ("float16", "float16")
    signature = GemmSignature(a_dtype=dtype, b_dtype=dtype, out_dtype=out)
    assert chosen(op, dtype, m=m, n=n, k=k, sm_count=sm_count) == select_config(signature, m, n, k, sm_count)


def test_every_variant_has_a_label_of_its_own(op):
    labels = [variant.label for variant in op.variants]
    assert len(set(labels)) == len(labels) == 2 * 21


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"majors": ["km"]}, "majors must be kk, kn, mk or mn, got 'km'"),
        ({"tiles": [(128, 255)]}, r"tiles must be of .*128x256.*, got \[\(128, 255\)\]"),
        ({"dtypes": ["float64"]}, "a_dtype must be one of"),
        ({"dtypes": ["float8_e4m3fn"], "majors": ["mk"]}, "a must be K-major"),
        ({"name": "my-gemm"}, "must be an identifier"),
    ],
)
def test_what_does_not_exist_is_refused(options, message):
    from cutepy import aot

    with pytest.raises(ValueError, match=message):
        aot.gemm_extension(**options)


def test_majors_and_types_of_results_are_described():
    from cutepy import aot

    op = aot.gemm_extension(dtypes=["bfloat16"], majors=["mn"], out_dtype="float32", out_major="col").ops[0]
    tensors = op.variants[0].tensors
    assert str(tensors["a"]) == "TensorSpec(bfloat16 (m % 8, k):(1, lda % 8), align 16)"
    assert str(tensors["b"]) == "TensorSpec(bfloat16 (n % 8, k):(1, ldb % 8), align 16)"
    assert str(tensors["d"]) == "TensorSpec(float32 (m % 4, n):(1, ldd % 4), align 16)"
