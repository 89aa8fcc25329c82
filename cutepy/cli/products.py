"""Product arguments of commands: `bfloat16:512x1024x64:k,mn`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from cutepy.cli.dtypes import BENCH_DTYPES
from cutepy.cli.failure import fail
from cutepy.runtime.dtypes import DTYPES

if TYPE_CHECKING:
    from cutepy.suites.gemm_problems import GemmProblem

PRODUCTS = "[DTYPE:][Lx]MxNxK[:MAJORS]..."
_PROBLEM = re.compile(r"(?:(\w+):)?(\d+(?:x\d+){2,3})(?::(k|mn),(k|mn))?")


def parse_product(text: str) -> GemmProblem:
    """Parse a product, of float16 by default; refuse one that is not supported."""
    from cutepy.suites.gemm_problems import GemmProblem, out_dtype

    match = _PROBLEM.fullmatch(text)
    if match is None:
        fail(f"a product is written [DTYPE:][Lx]MxNxK[:MAJORS], such as bfloat16:512x1024x64:k,mn; got {text!r}")
    named, extents, *majors = match.groups()
    *batch, m, n, k = map(int, extents.split("x"))
    dtype = named or "float16"
    if dtype not in BENCH_DTYPES:
        fail(f"the type must be one of {', '.join(BENCH_DTYPES)}, got {dtype!r}")
    if 0 in (*batch, m, n, k):
        fail(f"extents must be positive, got {text!r}")
    a_major, b_major = (cast("str", major or "k") for major in majors)
    bits, result_unit = DTYPES[dtype].bits, 128 // DTYPES[out_dtype(dtype)].bits
    unit_bytes = 16 if dtype == "float32" else 4  # threads load these, and TMA rounds
    unit = 8 * unit_bytes // bits
    for name, major, extent in (("A", a_major, m), ("B", b_major, n)):
        if bits != 16 and major != "k":
            fail(f"{name} must be K-major for {bits}-bit types, got {text!r}")
        if (k if major == "k" else extent) % unit:
            fail(f"the contiguous extent of {name} must be a multiple of {unit}, {unit_bytes} bytes, got {text!r}")
    if n % result_unit:
        fail(f"N must be a multiple of {result_unit}, as rows of the result are whole units of 16 bytes, got {text!r}")
    return GemmProblem(m, n, k, dtype, tuple(batch), a_major, b_major)
