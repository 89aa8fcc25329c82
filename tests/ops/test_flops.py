"""Operations' counts in `torch.utils.flop_counter`."""

import pytest

torch = pytest.importorskip("torch")

from cutepy.epilogues import relu  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention_decode,
    attention_mla,
    attention_varlen,
    gemm,
    grouped_gemm,
    linear_cross_entropy,
    quantise,
    quantise_mla_cache,
    register,
    scaled_gemm,
    scaled_grouped_gemm,
)

A, B, WEIGHTS = torch.ones(6, 32).bfloat16(), torch.ones(16, 32).bfloat16(), torch.ones(2, 16, 32).bfloat16()
LABELS = torch.arange(6)
OFFS = torch.tensor([2, 6]).int()
OF_TOKENS = *quantise(A, block=(1, 128)), *quantise(WEIGHTS[0], block=(128, 128))
EACH = 2 * 6 * 16 * 32


def of_scaled_groups():
    b, scale_b = OF_TOKENS[2].expand(2, 16, 32), OF_TOKENS[3].expand(2, 1, 1)
    return scaled_grouped_gemm(OF_TOKENS[0], b, OF_TOKENS[1], scale_b, offs=OFFS)


def counted(function):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda: gemm(A, B), EACH),
        (lambda: gemm(A, B, epilogue=relu), EACH),
        (lambda: gemm(A, B, out=torch.empty(6, 16).bfloat16()), EACH),
        (lambda: gemm(A.expand(3, 6, 32), B), 3 * EACH),
        (lambda: gemm(A.expand(3, 1, 6, 32), B.expand(2, 16, 32), epilogue=relu), 6 * EACH),
        (lambda: gemm(A, B.clone().requires_grad_()).sum().backward(), 2 * EACH),
        (lambda: grouped_gemm(A, WEIGHTS, offs=OFFS), EACH),
        (lambda: grouped_gemm(A, WEIGHTS, offs=OFFS, epilogue=relu), EACH),
        (lambda: grouped_gemm(WEIGHTS, A, offs=OFFS, out=torch.empty(6, 16).bfloat16().t()), EACH),
        (lambda: grouped_gemm(A.expand(2, 6, 32), WEIGHTS, counts=OFFS), 2 * EACH),
        (lambda: scaled_gemm(OF_TOKENS[0], OF_TOKENS[2], OF_TOKENS[1], OF_TOKENS[3]), EACH),
        (of_scaled_groups, EACH),
        (lambda: linear_cross_entropy(A, B, LABELS), EACH),
        (lambda: linear_cross_entropy(A, B.clone().requires_grad_(), LABELS).backward(), 2 * EACH),
        (
            lambda: linear_cross_entropy(A, B.clone().requires_grad_(), LABELS, reduction="none").sum().backward(),
            3 * EACH,
        ),
    ],
)
def test_products_are_counted(function, flops):
    assert counted(function) == flops


QUERIES, KEYS, LATENT = (
    torch.ones(2, 3, 4, 16).half(),
    torch.ones(2, 5, 2, 16).half(),
    torch.ones(2, 3, 4, 576).bfloat16(),
)
ROWS, PACKED = torch.ones(2, 8, 576).bfloat16(), torch.ones(6, 4, 16).half().requires_grad_()
BOUNDS = torch.tensor([0, 2, 6]).int()


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda: attention_decode(QUERIES, KEYS, KEYS), 2 * 2 * 3 * 4 * 5 * 32),
        (lambda: attention_mla(LATENT, ROWS), 2 * 2 * 3 * 4 * 8 * (576 + 512)),
        (lambda: attention_mla(LATENT, quantise_mla_cache(ROWS)), 2 * 2 * 3 * 4 * 8 * (576 + 512)),
        (
            lambda: attention_varlen(PACKED, PACKED, PACKED, cu_seqlens_q=BOUNDS, cu_seqlens_k=BOUNDS).sum().backward(),
            (2 + 5) * 2 * 4 * 16 * 6 * 3,  # six queries, and three keys a sequence
        ),
    ],
)
def test_attention_is_counted(function, flops):
    assert counted(function) == flops


def test_a_users_operation_is_counted_by_its_formula():
    def twice(x):
        return 2 * x

    def flops(x, *, out_shape):
        return x[0] * out_shape[0]

    doubled = register("cutepy_tests::counted(Tensor x) -> Tensor", reference=twice, flops=flops)(twice)
    assert counted(lambda: doubled(torch.ones(5))) == 25
