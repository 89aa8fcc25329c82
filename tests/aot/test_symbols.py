"""Costs and conditions: what a Python function computes, its C++ computes."""

import math
import re
from pathlib import Path

import pytest

import cutepy.aot
from cutepy.aot import symbols
from cutepy.aot.names import SpecError
from cutepy.aot.symbols import of, trace
from tests.aot.building import run
from tests.messages import refuses


def clusters(m, n):
    """Call another function, and branch."""
    return (2, 1) if m > 128 else (1, 2 if n > 256 else 1)


def halves(m, k):
    """Decide the same twice."""
    first = 1 if k > 3 else 0
    return first + (m if k > 3 else 0)


FUNCTIONS = [
    lambda m, n: m >= 128 and n % 64 == 0,
    lambda m, n, k: (not m > 128 and n > 256) or k == 3,
    lambda m, n: 0 < m <= n < 4000,
    lambda m, n, k: min(m, n, 7) + max(k, 2) * 3 - -m,
    lambda m, n, sm_count: -(-m // 128) * -(-n // 96) / sm_count,
    lambda m: (m - 100) // 7 + (m - 100) % 7,
    lambda m: m // -3 + 7 % (m + 1),
    lambda m, k: 1.71 + -(-k * 16 // 1024) * 0.687 if m > 5 else 2,
    lambda m: max(m, 0.5),
    lambda m, n, k: (m - n) - (k - 1),
    lambda m, n: m / (n + 1) / 2,
    lambda m, n, k, sm_count: math.prod((m, n, k)) - abs(m - sm_count),
    lambda m, n: 10 * clusters(m, n)[0] + clusters(m, n)[1],
    lambda m, n: math.inf if clusters(m, n) == (1, 2) else -1,
    lambda m: m if m else -math.inf,
    lambda m, n: math.ceil(m / 7) * math.ceil(n) - math.ceil((m - n) / 3),
    lambda m, n: symbols.minimum(m, 5) + symbols.maximum(n, m / 2) - symbols.minimum(2, 1.5),
    lambda m: symbols.sixth(m / 4),
    lambda: True,
    of(("n", "m"), lambda m, n: m - 2 * n),
    halves,
]
VALUES = [
    (m, n, k, sms) for m in (0, 1, 99, 128, 131073) for n in (0, 63, 64, 4001) for k in (1, 3, 8200) for sms in (1, 132)
]
NAMES = ("m", "n", "k", "sm_count")


def helpers():
    """Read the functions that the written code calls."""
    source = (Path(cutepy.aot.__file__).parent / "templates/dispatch.h.jinja").read_text()
    found = re.findall(r"^inline (?:int64_t floor_|double sixth)\w*\(.*", source, re.MULTILINE)
    assert len(found) == 4
    return found


def evaluated(folder, functions, rows, names):
    """Compile functions of some names as C++, and give what each makes of each row."""
    parameters = ", ".join(f"[[maybe_unused]] int64_t {name}" for name in names)
    bodies = ["\n".join(trace(function, set(names)).lines) for function in functions]
    numbered = "\n".join(f"static double f{n}({parameters}) {{\n{body}\n}}" for n, body in enumerate(bodies))
    table = ",\n".join("{" + ", ".join(map(str, row)) + "}" for row in rows)
    call = ", ".join(f"row[{n}]" for n in range(len(names)))
    prints = "\n".join(f'    printf("%.17g ", f{n}({call}));' for n in range(len(functions)))
    (folder / "x.cpp").write_text(f"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
{chr(10).join(helpers())}
{numbered}
static const int64_t rows[][{len(names)}] = {{{table}}};
int main() {{
  for (auto& row : rows) {{
{prints}
    printf("\\n");
  }}
}}
""")
    run("g++", "-O0", "-std=c++17", "-Wall", "-Werror", "-o", folder / "x", folder / "x.cpp")
    return [[float(word) for word in line.split()] for line in run(folder / "x").splitlines()]


def test_cpp_and_python_agree(tmp_path):
    for row, found in zip(VALUES, evaluated(tmp_path, FUNCTIONS, VALUES, NAMES), strict=True):
        known = dict(zip(NAMES, row, strict=True))
        for number, (function, got) in enumerate(zip(FUNCTIONS, found, strict=True)):
            taken = getattr(function, "_names", None) or function.__code__.co_varnames[: function.__code__.co_argcount]
            assert got == float(function(**{name: known[name] for name in taken})), (number, row)


def test_the_sixth_root_of_a_number():
    assert symbols.sixth_root(64.0) == pytest.approx(2)


def test_a_condition_that_was_decided_is_not_asked_again():
    assert trace(halves, {"m", "k"}).lines == ["if (k > 3) {", "  return 1 + m;", "}", "return 0;"]


def test_ways_that_do_the_same_are_one():
    assert trace(lambda m: 1 if m > 3 else 1, {"m"}).lines == ["return 1;"]  # noqa: RUF034


@pytest.mark.parametrize(
    "function",
    [
        lambda q: q,
        lambda m: m**2,
        lambda m: m // 2.0,
        lambda m: [m],
        lambda m: "m",
        lambda m: m + "1",
        lambda m: math.sqrt(m),
        lambda m: range(m),
        lambda m: {m: 1},
        lambda m: math.floor(m / 2),
        lambda m, n: sum(m > i for i in range(300) if n > i),
    ],
)
def test_what_has_no_cpp_is_refused_and_located(function):
    with refuses(SpecError):
        trace(function, {"m", "n"})
