"""Attention as an extension: its kernels, chosen by queries and mask, and its reference."""

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy import aot  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from tests.messages import refuses  # noqa: E402


def test_kernels_are_those_of_dtypes_heads_and_masks():
    (op,) = aot.attention_extension(dtypes=["float16"], heads=[64, 128]).ops
    assert [variant.label for variant in op.variants] == [
        "float16_64_full_few",
        "float16_64_full_many",
        "float16_64_causal_few",
        "float16_64_causal_many",
        "float16_128_full",
        "float16_128_causal",
    ]
    few, many, *_ = op.variants
    assert few.cost(1024) < many.cost(1024)
    assert few.cost(1025) > many.cost(1025)
    assert op.variants[-1].choices == {"mask": "causal"}


@pytest.mark.parametrize("options", [{"dtypes": ["float32"]}, {"heads": [40]}, {"heads": [320]}])
def test_what_no_kernel_computes_is_refused(options):
    with refuses(ValueError):
        aot.attention_extension(**options)


def operands(queries, keys):
    torch.manual_seed(0)
    shapes = (queries, 4), (keys, 2), (keys, 2)
    return [torch.randn(2, *shape, 64).bfloat16() for shape in shapes]


@pytest.mark.parametrize("mask", [None, "causal"])
def test_the_reference_is_that_of_attention(mask):
    (op,) = aot.attention_extension(heads=[64]).ops
    q, k, v = operands(33, 33)
    o, lse = eval(op.reference, {"torch": torch, "q": q, "k": k, "v": v, "scale": 0.2, "mask": mask})
    want, want_lse = reference.forward(*(each.double() for each in (q, k, v)), 0.2, None, 0 if mask else None)
    assert torch.allclose(o.double(), want, atol=1e-4)
    assert torch.allclose(lse, want_lse, atol=1e-4)


@pytest.mark.integration
@pytest.mark.parametrize("mask", [None, "causal"])
def test_a_kernel_computes_attention(mask):
    (op,) = aot.attention_extension(heads=[64]).ops
    variant = next(each for each in op.variants if each.choices.get("mask") == mask and each.label.endswith("few"))
    q, k, v = operands(130, 130)
    o, lse = torch.full_like(q, math.nan), torch.full((2, 4, 130), math.nan)
    compiled = cutepy.compile(
        variant.function, *(variant.tensors[name] for name in ("q", "k", "v", "o", "lse")), 1.0, 1
    )
    with cutepy.simulate(sanitize=True) as run:
        compiled(q, k, v, o, lse, 0.125, 132)
    assert not run.hazards
    want, want_lse = reference.forward(*(each.double() for each in (q, k, v)), 0.125, None, 0 if mask else None)
    assert (o.double() - want).norm() < 2**-8 * want.norm()
    assert torch.allclose(lse, want_lse, atol=1e-4)
