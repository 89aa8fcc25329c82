import pytest
from hypothesis import given, strategies as st

from cutepy.aot.expressions import Expression
from tests.aot.building import run

TEXTS = (
    "m >= 128 and n % 64 == 0",
    "not m > 128 and n > 256 or k == 3",
    "0 < m <= n < 4000",
    "min(m, n, 7) + max(k, 2) * 3 - -m",
    "ceil_div(m, 128) * ceil_div(n, 96) / sm_count",
    "(m - 100) // 7 + (m - 100) % 7",
    "m // -3",
    "1.71 + ceil_div(k * 16, 1024) * 0.687 if m > 5 else 2",
    "max(m, 0.5)",
    "(m - n) - (k - 1)",
    "m / (n + 1) / 2",
)
VALUES = [
    (m, n, k, sms) for m in (0, 1, 99, 128, 131073) for n in (0, 63, 64, 4001) for k in (1, 3, 8200) for sms in (1, 132)
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Evaluate all expressions as C++, for all values."""
    folder = tmp_path_factory.mktemp("expressions")
    rows = ", ".join(f"{{{m}, {n}, {k}, {sms}}}" for m, n, k, sms in VALUES)
    prints = "\n".join(f'    printf("%.17g ", static_cast<double>({Expression(text).cpp}));' for text in TEXTS)
    (folder / "x.cpp").write_text(f"""
#include <algorithm>
#include <cstdint>
#include <cstdio>
inline int64_t ceil_div(int64_t a, int64_t b) {{ return b ? (a + b - 1) / b : 0; }}
inline int64_t floor_div(int64_t a, int64_t b) {{ return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0; }}
int main() {{
  const int64_t rows[][4] = {{{rows}}};
  for (auto& row : rows) {{
    const int64_t m = row[0], n = row[1], k = row[2], sm_count = row[3];
{prints}
    printf("\\n");
  }}
}}
""")
    run("g++", "-O1", "-std=c++17", "-Wall", "-Werror", "-o", folder / "x", folder / "x.cpp")
    return [[float(word) for word in line.split()] for line in run(folder / "x").splitlines()]


def test_cpp_and_python_agree(compiled):
    for values, row in zip(VALUES, compiled, strict=True):
        m, n, k, sms = values
        for text, got in zip(TEXTS, row, strict=True):
            assert got == float(Expression(text)(m=m, n=n, k=k, sm_count=sms)), (text, values)


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_ceil_div_rounds_up(a, b):
    assert Expression("ceil_div(a, b)")(a=a, b=b) == -(-a // b)


def test_names_are_listed_in_order_without_functions():
    assert Expression("max(n, m) + n // sm_count").names == ("n", "m", "sm_count")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m >", "must be an expression in Python's syntax"),
        ("__import__(m)", "got __import__"),
        ("m.real", "got m.real"),
        ("[m]", "got \\[m\\]"),
        ("'m'", "got 'm'"),
        ("m ** 2", "no operator but"),
        ("m is n", "must compare by"),
        ("m // 2.0", "on integers only"),
        ("abs(m)", "got abs"),
        ("min(m)", "got min"),
        ("ceil_div(m / 2, 2)", "two integers"),
        ("min(m, key=n)", "only, got min"),
        ("m or 1", "must use and, or, not on comparisons only, got m; compare it, as in m != 0"),
        ("m > 1 and n % 2", "got n % 2; compare it"),
        ("not m", "on comparisons only, got m"),
        ("not -(m > 1)", "on comparisons only"),
    ],
)
def test_what_is_no_expression_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Expression(text)
