"""Attention as an extension: its kernels, chosen by queries and mask, and its reference."""

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy import aot  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from tests.aot.described import described  # noqa: E402
from tests.messages import pins, refuses  # noqa: E402


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


def test_gradients_have_the_kernels_of_the_rules():
    op = aot.attention_extension(heads=[64, 128, 256], backward=True).ops[1]
    assert [(variant.label.removeprefix("bfloat16_"), variant.function.config.tile_q) for variant in op.variants] == [
        ("64_full", 128),
        ("64_causal", 128),
        ("128_full", 80),
        ("128_causal_few", 64),
        ("128_causal_many", 80),
        ("256_full", 64),
        ("256_causal", 64),
    ]
    assert not any(640 % variant.function.config.tile_q for variant in op.variants)


def test_what_is_exported_is_pinned():
    for op in aot.attention_extension(heads=[16, 128, 256], backward=True).ops:
        pins(described(op))


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


GRADIENTS = [("64_full", None), ("128_causal_few", 0), ("256_full", None)]


@pytest.mark.integration
@pytest.mark.first(1)
@pytest.mark.parametrize(("label", "right"), GRADIENTS)
def test_kernels_compute_gradients(label, right):
    op = aot.attention_extension(heads=[64, 128, 256], backward=True).ops[1]
    variant = next(each for each in op.variants if each.label == f"bfloat16_{label}")
    config, scale, padded = variant.function.config, 0.125, 640
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(2, 130, heads, config.head).bfloat16() for heads in (4, 2, 2, 4))
    wide = [each.double() for each in (do, q, k, v)]
    o, lse = (
        each.to(dtype)
        for each, dtype in zip(
            reference.forward(*wide[1:], scale, None, right), (torch.bfloat16, torch.float32), strict=True
        )
    )
    wanted = reference.backward(*wide, None, scale, None, right)
    given = {"grad_o": do, "q": q, "k": k, "v": v, "o": o, "lse": lse}
    found = eval(op.reference, {"torch": torch, **given, "scale": scale, "mask": variant.choices.get("mask")})
    for each, want in zip(found, wanted, strict=True):
        assert (each - want).norm() < 1e-2 * want.norm()  # o is rounded
    scratch = torch.full((2, 4, 2, padded), math.nan), torch.full((2, 4, padded, config.width), math.nan)
    results = [torch.full_like(each, math.nan) for each in (q, k, v)]
    names = [parameter.name for parameter in variant.parameters]
    assert names == [*given, "stats", "sums", "dq", "dk", "dv", "scale", "sm_count"]
    compiled = cutepy.compile(variant.function, *(variant.arguments[name] for name in names[:-2]), 1.0, 1)
    with cutepy.simulate(sanitize=True) as run:
        compiled(*given.values(), *scratch, *results, scale, 132)
    assert not run.hazards
    for each, want in zip(results, wanted, strict=True):
        assert (each.double() - want).norm() < 2**-7 * want.norm()
