"""Operations pass compiled functions all arguments: a launch that leaves some out fails first, and is repeated."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.function import Function  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention,
    attention_decode,
    attention_varlen,
    gemm,
    grouped_gemm,
    scaled_gemm,
)


@pytest.fixture
def launches(monkeypatch):
    """Names of the functions that are called, none of which runs, with the arguments that each lacks."""
    found = []

    def look(self, _, arguments):
        count = sum(parameter.kind != "stream" for parameter in self.parameters)
        found.append((self.__name__, count - len(arguments)))

    monkeypatch.setattr(Function, "_simulate", look)
    with cutepy.simulate():
        yield found


def rows(*shape):
    return torch.randn(*shape).to(torch.bfloat16)


def test_attention(launches):
    q, k, v = (rows(1, 70, 2, 64).requires_grad_() for _ in range(3))
    torch.autograd.grad(attention(q, k, v, causal=True).sum(), (q, k, v))
    torch.autograd.grad(attention(q, k, v, soft_cap=3.0).sum(), (q, k, v))
    bounds = torch.tensor([0, 30, 70], dtype=torch.int32)
    q, k, v = (rows(70, 2, 64).requires_grad_() for _ in range(3))
    torch.autograd.grad(attention_varlen(q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds).sum(), (q, k, v))
    assert len(launches) == 12
    assert {missing for _, missing in launches} == {0}


def test_decoding(launches):
    lengths, table = torch.tensor([600], dtype=torch.int32), torch.arange(10, dtype=torch.int32)[None]
    for queries in (1, 70):
        attention_decode(rows(1, queries, 8, 64), *(rows(1, 640, 2, 64) for _ in range(2)))
        pages = (rows(10, 64, 2, 64) for _ in range(2))
        attention_decode(rows(1, queries, 8, 64), *pages, cache_seqlens=lengths, block_table=table)
    assert len(launches) == 6
    assert {missing for _, missing in launches} == {0}


def test_products(launches):
    a, b = rows(200, 64), rows(136, 64)
    gemm(a, b)
    gemm(a, b, bias=rows(136), activation="gelu")
    gemm(a[:1], b)
    grouped_gemm(rows(200, 64), rows(2, 136, 64), offs=torch.tensor([50, 200], dtype=torch.int32))
    scale = torch.ones((), dtype=torch.float32)
    scaled_gemm(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), scale, scale)
    assert len(launches) >= 5
    assert {missing for _, missing in launches} == {0}
