"""Products pass compiled functions all arguments: a launch that leaves some out fails first, and is repeated.

Those of attention are looked at wherever `tests/kernels` launches them, by `complete_launches`.
"""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.host.function import Function  # noqa: E402
from cutepy.ops import gemm, grouped_gemm, scaled_gemm  # noqa: E402


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
