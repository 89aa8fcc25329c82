"""Problems of each suite, pinned: their names, operations, bytes and tolerances."""

import pytest

pytest.importorskip("torch")

from cutepy.suites import (
    accuracy,
    attention_problems,
    gemm_epilogue_problems,
    gemm_problems,
    grouped_problems,
    layer,
    loss,
    rows_problems,
    scaled,
)
from tests.messages import pins

PROBLEMS = {
    "gemm": lambda: gemm_problems.gemm_problems(list(gemm_problems.GEMM_SUITES), ["bfloat16", "float8_e4m3fn"]),
    "gemm, random": lambda: gemm_problems.random_problems(40, 7),
    "fused": lambda: gemm_epilogue_problems.fused_problems(
        gemm_epilogue_problems.KINDS, gemm_epilogue_problems.TOKENS, ["float16"]
    ),
    "grouped": lambda: grouped_problems.grouped_problems(
        [8], grouped_problems.ROUTINGS, grouped_problems.FORMS, grouped_problems.KINDS
    ),
    "scaled": lambda: [scaled.ScaledProblem(*each, kind) for each in scaled.EXTENTS for kind in scaled.BLOCKS],
    "attention": lambda: [
        each
        for suite in attention_problems.SUITES
        for each in attention_problems.attention_problems(suite, [64, 128], [1024, 8192])
    ],
    "rows": lambda: rows_problems.rows_problems(rows_problems.OPERATIONS, rows_problems.SUITES),
    "layer": lambda: [each for several in layer.PROBLEMS.values() for each in several],
    "loss": lambda: list(loss.PROBLEMS),
}


@pytest.mark.parametrize("suite", PROBLEMS)
def test_problems_of_a_suite(suite):
    lines = []
    for problem in PROBLEMS[suite]():
        rates = [f"{getattr(problem, name):.6g} {name}" for name in ("flops", "bytes") if hasattr(problem, name)]
        lines.append(", ".join([str(problem), *rates]))
    pins("\n".join(lines))


def test_tolerances_and_kinds():
    problems = gemm_problems.random_problems(20, 3)
    lines = [f"{problem}: {gemm_problems.tolerance(problem):.4g}" for problem in problems]
    lines += [f"{name}: {gemm_problems.out_dtype(name)}" for name in ("float16", "float32", "float8_e5m2")]
    lines += [f"scaled by {name}: {blocks}" for name, blocks in scaled.BLOCKS.items()]
    lines += [f"grouped {name}: {blocks}" for name, blocks in grouped_problems._BLOCKS.items()]
    lines += map(str, accuracy.KINDS)
    pins("\n".join(lines))
